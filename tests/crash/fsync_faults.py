#!/usr/bin/env python3
"""Lets each sync fail that an fsync in a mount leads to: no fsync returns 0 whose sync failed.

  fsync_faults.py --escrow PATH --tool PATH [--kind KIND...] [--share N] [--seed N] [--keep]

Programs write (small files, large ones, a block of a file of the repository, names), each in a session of its own, once
as its first fsync and once after another, and call fsync or fdatasync; for each of these the syncs below it are
counted, and each one fails once:
  1. a call of the program says so;
  2. what is written again and synced again is there when the host is killed right after, byte for byte.
With --share N every N-th of the syncs fails; the seed, which is printed, says which. Root only, as the mount of a
process under a filter of seccomp takes rights. Exit status 1 names each broken promise.
"""
import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from fault_scenes import Bench, Broken, import_base, random_bytes
from injector import SYNCS, Injected, detach, reason_to_skip
from seed import seed_of_this_run

BLOCK, AT = b'block' * 1000, (1 << 20) + 100


def promises(sync):
    """Not SQLite's own sync of the directory, the only fdatasync of one: Escrow syncs it besides, with fsync."""
    return not re.search(r'^fdatasync .*/escrow/sessions/\w+$', sync)


class Host:
    """A session that is mounted below syscall_faults."""

    def __init__(self, options, bench, *arguments):
        self.bench = bench
        self.injected = Injected(options.tool, bench.command('mount', bench.mount, '--foreground', *arguments),
                                 [os.path.join(bench.repo, 'escrow/sessions')], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.DEVNULL)
        line = self.injected.process.stdout.readline()
        if not line:
            raise Broken('the session cannot be mounted')
        self.session = line.split()[-1]

    def kill(self):
        self.injected.kill()
        detach(self.bench.mount)


def sync_by(call, path, flags, work=lambda file: None):
    """Opens, works, syncs. Whether the call said that it failed."""
    file = os.open(path, flags, 0o644)
    try:
        work(file)
        call(file)
        return False
    except OSError:
        return True
    finally:
        os.close(file)


def write_all(file, data):
    """A count that is too short tells of a failure, as an error does."""
    if os.write(file, data) != len(data):
        raise OSError('a short write')


class Work:
    """What a program does, and what the file must hold afterwards; done again it writes the same."""

    def __init__(self, mount, number):
        self.mount, self.number = mount, number

    def path(self, name):
        return f'{self.mount}/d/{name}-{self.number}'

    def write_whole(self, name, data, call=os.fsync):
        self.held = (self.path(name), data)
        return sync_by(call, self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda file: write_all(file, data))

    def small(self):
        return self.write_whole('small', b'small %d\n' % self.number)

    def small_data(self):
        return self.write_whole('data', b'data %d\n' % self.number * 100, os.fdatasync)

    def large(self):
        return self.write_whole('large', random_bytes(self.number, 300_000))

    def block(self):
        """A part of a file of the repository, above the size from which a block map says what was written."""
        path = f'{self.mount}/big'
        with open(path, 'rb') as file:
            before = file.read()
        block = BLOCK + b'%09d' % self.number
        self.held = (path, before[:AT] + block + before[AT + len(block):])
        return sync_by(os.fsync, path, os.O_WRONLY, lambda file: os.pwrite(file, block, AT))

    def grown(self):
        """A small file that is synced, and outgrows the log of small files."""
        said = self.write_whole('grown', b'promised\n')
        said |= sync_by(os.fsync, self.path('grown'), os.O_WRONLY | os.O_APPEND,
                        lambda file: write_all(file, b'more\n' * 30_000))
        self.held = (self.path('grown'), b'promised\n' + b'more\n' * 30_000)
        return said

    def name(self):
        """A rename, made durable by the directory's fsync."""
        new = self.path('renamed')
        if not os.path.exists(new):
            with open(self.path('old'), 'wb') as out:
                out.write(b'renamed\n' * 10)
            os.rename(self.path('old'), new)
        said = sync_by(os.fsync, f'{self.mount}/d', os.O_RDONLY | os.O_DIRECTORY)
        said |= sync_by(os.fsync, new, os.O_RDONLY)
        self.held = (new, b'renamed\n' * 10)
        return said


KINDS = ('small', 'small_data', 'large', 'block', 'grown', 'name')


class Campaign:
    def __init__(self, options, top):
        self.options, self.bench, self.number = options, Bench(os.path.abspath(options.escrow), top), 0
        import_base(self.bench)
        self.host = None

    # In a fresh session, so that what is to be synced does not depend on what was before.
    def begin(self, kind, is_first):
        self.end()
        self.host = Host(self.options, self.bench)
        for _ in range(1 if is_first else 2):
            self.number += 1
            work = Work(self.bench.mount, self.number)
            if not is_first and getattr(work, kind)():
                raise Broken(f'{kind}: fails without a fault')
            is_first = True
        return work, getattr(work, kind)

    def count(self, kind, is_first):
        _, do = self.begin(kind, is_first)
        self.host.injected.arm('EIO', 0, 1, SYNCS)
        if do():
            raise Broken(f'{kind}: fails without a fault')
        return len(self.host.injected.disarm()['listed'])

    def strike(self, kind, is_first, place):
        work, do = self.begin(kind, is_first)
        self.host.injected.arm('EIO', place, 1, SYNCS)
        said = do()
        struck = self.host.injected.disarm()['struck']
        if struck and not said and promises(struck[0]):
            raise Broken(f'{struck[0].replace(self.bench.top, "")} failed, and the fsync said nothing')
        for _ in range(2):
            if not do():
                break
        else:
            raise Broken('it goes on failing when nothing fails any more')
        self.die_and_look(*work.held)
        return bool(struck)

    # Each way to sync begins with another one, so that a share has the first and the last ones of some.
    def places(self, kind, is_first):
        options, ways = self.options, list(itertools.product(KINDS, (True, False)))
        begin = (options.seed + ways.index((kind, is_first))) % options.share
        return range(1, self.count(kind, is_first) + 1)[begin::options.share]

    def die_and_look(self, path, data):
        session = self.host.session
        self.host.kill()
        self.host = Host(self.options, self.bench, '--session', session)
        with open(path, 'rb') as file:
            if file.read() != data:
                raise Broken(f'{os.path.basename(path)} is not what was synced')

    def end(self):
        if self.host:
            self.host.kill()
            self.bench.run('rollback', self.host.session)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--tool', required=True, help='the built syscall_faults')
    parser.add_argument('--kind', nargs='+', choices=KINDS, default=KINDS)
    parser.add_argument('--share', type=int, default=1, metavar='N', help='every N-th of the syncs (default: each)')
    parser.add_argument('--seed', type=int, help='default: that of tests/support/seed.py')
    parser.add_argument('--keep', action='store_true', help='keep the repository afterwards')
    options = parser.parse_args()
    if options.seed is None:
        options.seed = seed_of_this_run()
    if (skipped := reason_to_skip()) is not None:
        return skipped
    options.tool = os.path.abspath(options.tool)
    top = tempfile.mkdtemp(prefix='escrow-fsync-')
    struck = broken = 0
    campaign = Campaign(options, top)
    try:
        for kind, is_first in itertools.product(options.kind, (True, False)):
            for place in campaign.places(kind, is_first):
                try:
                    struck += campaign.strike(kind, is_first, place)
                except Broken as error:
                    broken += 1
                    print(f'BROKEN: {kind}{"" if is_first else " again"}, sync {place}: {error}', flush=True)
        campaign.end()
        campaign.bench.run('verify')
    finally:
        if campaign.host:
            campaign.host.kill()
        if options.keep:
            print(f'kept: {top}')
        else:
            shutil.rmtree(top, ignore_errors=True)
    print(f'{struck} syncs failed; {broken} promises broken')
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
