#!/usr/bin/env python3
"""Cuts the power at any instant of a recorded run of work, and checks what had been promised by then.

  power_cuts.py --escrow PATH --recorder PATH [--cuts 200] [--rounds 3] [--seed N] [--large] [--file-system ext4|xfs]
  power_cuts.py --escrow PATH --again DIR [--only N]                 # the same cuts of a recording that was kept

The work (power_cut_work.py) is done once, on a file system whose disk notes each write and each flush in order
(recorded_disk.py). Then disks are made as a cut would leave them: all that was flushed, and of the writes after the
last flush any part. Each is mounted, which replays its journal, and
  1. git finds the repository sound, and each commit that was reported by then on the branch, with its bytes;
  2. each session has the state that was reported, and an open one can be mounted: each byte that an fsync acknowledged
     is there, or what was written over it later; each acknowledged transaction of SQLite's is there, and its
     integrity check finds nothing; files that were synced and renamed are there whole;
  3. the session is committed or rolled back, a new one works, and verify, fsck and a look for leftovers find nothing.
A third of the cuts come at the moment of a promise. The seed is printed; with a recording it makes the same cuts.
Needs root, FUSE and loop devices. Exit status 1 names each broken promise and keeps the recording.
"""
import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from power_cut_checks import AfterCut
from power_cut_models import Broken
from power_cut_work import MiB, Work
from recorded_disk import LEFT, WRITE, CutDisks, NoDisk, Record, RecordedDisk, mount_image, private_mounts, unmount
from seed import seed_of_this_run


def record(options, top, where):
    """Does the work; its History."""
    size = (1200 if options.large else 400) * MiB
    disk = RecordedDisk(os.path.abspath(options.recorder), top, where, options.file_system, size)
    work = Work(os.path.abspath(options.escrow), disk, top, options.seed)
    try:
        check_recorder(disk)
        work.begin()
        for number in range(options.rounds):
            work.round(options.large and number == options.rounds - 1)
        history = work.finish()
    except BaseException:
        work.give_up()
        raise
    disk.stop()
    return history


# The premise of all checks: a sync of the file system is a flush of the disk, and comes after the writes it covers.
def check_recorder(disk):
    marks = []
    for number in range(3):
        mark = b'mark %d of the recorder ' % number + os.urandom(16)
        with open(f'{disk.where}/mark', 'wb') as out:
            out.write(mark)
            out.flush()
            os.fsync(out.fileno())
        marks.append((mark, disk.position()))
    os.unlink(f'{disk.where}/mark')
    seen = Record(disk.record)
    for mark, position in marks:
        flush = seen.last_flush(position)
        if not any(mark in seen.bytes[place:place + length] for kind, _, length, place in seen.entries[:flush]
                   if kind == WRITE):
            raise NoDisk('the loop device does not pass flushes on: fsync returned before a flush of its file')


def choose_cuts(options, history):
    """[(number, cut, what is left)] in the order of the record, from the first deed: the mount before it is ext4's."""
    rng = random.Random(f'cuts {options.seed}')
    ends = sorted({deed.done for deed in all_deeds(history) if deed.done is not None})
    cuts = []
    for number in range(options.cuts):
        last = history.imported.done if number % 10 == 1 else history.entries
        cut = rng.choice(ends) if number % 3 == 0 else rng.randrange(history.made.begun, last + 1)
        left = 'nothing' if number % 3 == 0 else rng.choice(sorted(LEFT))
        cuts.append((number, cut, left))
    return sorted(cuts, key=lambda one: one[1])


def all_deeds(history):
    yield from (history.made, history.imported)
    yield from history.commits
    for session in history.sessions:
        yield from session.states
        yield from (deed for deed, _ in session.bases)
        for file in (*session.files.values(), *session.databases.values(), *session.names.values()):
            yield from file.deeds


def play_cuts(options, top, where, history, cuts, job):
    """In a process of its own: the cuts in their order, each mounted where the disk was."""
    private_mounts()
    mine = os.path.join(top, f'job{job}')
    os.makedirs(mine, exist_ok=True)
    disks, counts, broken = CutDisks(Record(f'{top}/record'), f'{top}/blank', mine), collections.Counter(), []
    for number, cut, left in cuts:
        rng = random.Random(f'cut {options.seed} {number}')
        image = disks.make(cut, left, rng)
        what = f'cut {number}, after {cut} of {history.entries} writes, of the last ones {left}'
        refused = mount_image(image, where, options.file_system)
        if refused:
            broken.append(f'{what}: the file system cannot be mounted: {refused}')
        else:
            try:
                AfterCut(os.path.abspath(options.escrow), history, where, top, cut, rng).check()
                counts[left] += 1
                unmount(where)
            except Exception as error:  # also what the harness did not think of is to be looked at
                broken.append(f'{what}: {error if isinstance(error, Broken) else repr(error)}')
                subprocess.run(['umount', '-l', f'{top}/mount', where], check=False, capture_output=True)
        if len(broken) > counts['broken']:
            counts['broken'] += 1
            print('BROKEN:', ' / '.join(broken[-1].splitlines())[:1000], flush=True)
    shutil.rmtree(mine)
    return counts, broken


def play(options, top, where, history):
    cuts = choose_cuts(options, history)
    if options.only is not None:
        cuts = [cut for cut in cuts if cut[0] in options.only]
    share = -(-len(cuts) // options.jobs)
    total, broken = collections.Counter(), []
    context = multiprocessing.get_context('fork')
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
        work = [pool.submit(play_cuts, options, top, where, history, cuts[n * share:(n + 1) * share], n)
                for n in range(options.jobs)]
        for one in work:
            counts, messages = one.result()
            total += counts
            broken += messages
    return total, broken


# Memory has room for a sample, and is quicker than a disk.
def place_for_work(options):
    try:
        room = os.statvfs('/dev/shm')
    except OSError:
        return None
    return '/dev/shm' if room.f_bavail * room.f_bsize > (16 if options.large else 6) << 30 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--recorder', help='the built disk_recorder')
    parser.add_argument('--cuts', type=int, default=200)
    parser.add_argument('--rounds', type=int, default=3, help='sessions that are written to, one after the other')
    parser.add_argument('--large', action='store_true', help='the last round has a commit of more than 128 MiB')
    parser.add_argument('--file-system', choices=sorted(('ext4', 'xfs')), default='ext4')
    parser.add_argument('--seed', type=int, help='default: that of tests/support/seed.py')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--again', metavar='DIR', help='a recording that was kept')
    parser.add_argument('--only', type=int, nargs='+', metavar='N', help='these cuts, and no others')
    parser.add_argument('--keep', action='store_true', help='keep the recording in any case')
    parser.add_argument('--forget', action='store_true', help='keep it in no case')
    options = parser.parse_args()
    if options.seed is None:
        options.seed = seed_of_this_run()
    top = options.again or tempfile.mkdtemp(prefix='escrow-power-', dir=place_for_work(options))
    where = os.path.join(top, 'disk')
    try:
        if options.again:
            with open(f'{top}/history', 'rb') as file:
                history, kept = pickle.load(file)
            options.seed, options.cuts, options.file_system = kept.seed, kept.cuts, kept.file_system
        else:
            private_mounts()
            os.makedirs(where)
            begin = time.monotonic()
            print(f'{options.cuts} cuts of {options.rounds} rounds on {options.file_system}, in '
                  f'{top}', flush=True)
            history = record(options, top, where)
            with open(f'{top}/history', 'wb') as file:
                pickle.dump((history, options), file)
            print(f'{history.deeds} deeds, {len(history.commits)} commits, {len(history.sessions)} sessions, '
                  f'{history.entries} entries, {os.path.getsize(f"{top}/record") / MiB:.0f} MiB written, in '
                  f'{time.monotonic() - begin:.0f} s', flush=True)
        begin = time.monotonic()
        total, broken = play(options, top, where, history)
        status = 1 if broken else 0
        print(f'{sum(total.values())} cuts in {time.monotonic() - begin:.0f} s: {dict(total)}; {len(broken)} promises '
              'broken')
    except NoDisk as error:
        print(f'cannot cut the power here: {error}')
        status = 1 if os.environ.get('REQUIRE_FUSE') else 77
    except Broken as error:
        print(f'BROKEN: {error}')
        status = 1
    if options.again or options.keep or (status == 1 and os.path.exists(f'{top}/history') and not options.forget):
        print(f'the recording is kept: {top}')
    else:
        shutil.rmtree(top, ignore_errors=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
