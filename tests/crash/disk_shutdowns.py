#!/usr/bin/env python3
"""Shuts a file system down under a session, as ext4 does after an I/O error, and mounts it again in the same boot.

  disk_shutdowns.py --escrow PATH [--keep]

It lies on a loop device that stays attached. A program writes in a mounted session: 32 pages into a file of the
repository, which nobody syncs, and two files that are synced, so that the session's journal reaches the disk with
them. FS_IOC_SHUTDOWN then throws away what the disk does not have. The host is killed, the file system is unmounted
and mounted again, and the session is committed. As after a power cut
  1. each page of the first file is the repository's or the program's, and no other;
  2. the files that were synced are there, byte for byte;
  3. `escrow verify` finds nothing wrong.
A session that began with a copied directory is opened and shut down likewise, and then the catalog is one of before the
session: its directory is set aside with what was synced in it, and comes back with the catalog that knows it.
Needs root, FUSE and loop devices. Exit status 1 names the broken promise.
"""
import argparse
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from fault_scenes import Bench, Broken, MiB, import_base
from injector import detach
from recorded_disk import MAKE, NoDisk, private_mounts, unmount

FS_IOC_SHUTDOWN, WITHOUT_THE_JOURNAL = 0x8004587d, 2
PAGE, PAGES, AT = 4096, 32, MiB // 4
IO_MODES = ('cached', 'passthrough')


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise NoDisk(f'{" ".join(words)} ended with {done.returncode}: {done.stderr.strip()}')
    return done.stdout.strip()


class AttachedDisk:
    """A file system on a loop device that stays attached as long as this process lives."""

    def __init__(self, top):
        self.where = os.path.join(top, 'disk')
        os.makedirs(self.where)
        if shutil.which(MAKE['ext4'][0]) is None:
            raise NoDisk(f'there is no {MAKE["ext4"][0]}')
        image = os.path.join(top, 'image')
        with open(image, 'wb') as file:
            file.truncate(200 * MiB)
        run(*MAKE['ext4'], image)
        self.device = run('losetup', '--find', '--show', image)
        self.held = os.open(self.device, os.O_RDONLY)
        run('losetup', '--detach', self.device)  # when it is closed
        self.mount()

    def mount(self):
        run('mount', '-t', 'ext4', self.device, self.where)

    def sequence(self):
        with open(f'/sys/block/{os.path.basename(self.device)}/diskseq', encoding='ascii') as file:
            return file.read()

    def shut_down(self):
        top = os.open(self.where, os.O_RDONLY)
        fcntl.ioctl(top, FS_IOC_SHUTDOWN, struct.pack('=I', WITHOUT_THE_JOURNAL))
        os.close(top)


def write(path, data, *, at=0, sync):
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(file, data, at)
    if sync:
        os.fsync(file)
    os.close(file)


def expect_pages(found, base, written):
    """Each is one of the two, and the rest of the file the repository's."""
    if found[:AT] != base[:AT] or found[AT + len(written):] != base[AT + len(written):]:
        raise Broken('the commit changed pages that the program did not write')
    for place in range(0, len(written), PAGE):
        page = found[AT + place:AT + place + PAGE]
        if page not in (base[AT + place:AT + place + PAGE], written[place:place + PAGE]):
            what = 'zeros' if not any(page) else 'what nobody wrote'
            raise Broken(f'page {place // PAGE} of the {PAGES} that the program wrote was committed as {what}')


def work_and_shut_down(bench, disk, arguments, files):
    """Writes `files`, each (name, data, place, whether it is synced), in a new session; returns the session."""
    host = subprocess.Popen(bench.command('mount', bench.mount, '--foreground', *arguments), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = host.stdout.readline()
        if not line:
            raise Broken(f'escrow mount says: {host.stderr.read().strip()}')
        for name, data, place, sync in files:
            write(f'{bench.mount}/{name}', data, at=place, sync=sync)
        disk.shut_down()
    finally:
        host.kill()
        host.communicate(timeout=60)
        detach(bench.mount)
    sequence = disk.sequence()
    unmount(disk.where)
    disk.mount()
    if disk.sequence() != sequence:
        raise Broken('the loop device was attached again: the test says nothing')
    return line.split()[-1]


def check_mode(bench, disk, io):
    base = import_base(bench)['big']
    written, small, large = b'w' * PAGE * PAGES, b'synced\n', b'large and synced\n' * 20_000
    session = work_and_shut_down(bench, disk, ['--io', io], [('big', written, AT, False), ('small', small, 0, True),
                                                             ('large', large, 0, True)])
    bench.run('commit', session)
    for name, data in (('small', small), ('large', large)):
        if contents(bench, name) != data:
            raise Broken(f'{name} is not what was synced')
    expect_pages(contents(bench, 'big'), base, written)
    bench.run('verify')
    return 'what was synced is there, and no page that nobody wrote'


def check_opening(bench, disk):
    import_base(bench)
    source, older = os.path.join(bench.top, 'source'), os.path.join(bench.top, 'older')
    os.makedirs(source)
    os.makedirs(older)
    write(f'{source}/copied', b'copied\n', sync=True)
    state = os.path.join(bench.repo, 'escrow')
    exchange(state, older, shutil.copy)
    session = work_and_shut_down(bench, disk, ['--inject', f'copies={source}'], [('small', b'synced\n', 0, True)])
    newer = os.path.join(bench.top, 'newer')
    os.makedirs(newer)
    exchange(state, newer, shutil.move)
    exchange(older, state, shutil.copy)
    bench.run('sessions')
    if not os.path.isdir(f'{state}/orphans/{session}'):
        raise Broken('a session with synced work was removed, because an older catalog does not know it')
    exchange(newer, state, shutil.copy)
    bench.run('sessions')
    bench.run('commit', session)
    if contents(bench, 'small') != b'synced\n':
        raise Broken('what was synced is not in the commit')
    return 'a session of which the catalog does not know comes back with what was synced'


def exchange(directory, other, deed):
    """Moves or copies the catalog's files to the other directory, in which it then has no other."""
    for name in os.listdir(other):
        if name.startswith('catalog.db'):
            os.remove(f'{other}/{name}')
    for name in os.listdir(directory):
        if name.startswith('catalog.db'):
            deed(f'{directory}/{name}', f'{other}/{name}')


def contents(bench, name):
    return subprocess.run(['git', '-C', bench.repo, 'show', f'main:{name}'], check=True, capture_output=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--keep', action='store_true', help='keep the directory')
    options = parser.parse_args()
    top = tempfile.mkdtemp(prefix='escrow-shutdown-')
    status = 0
    try:
        private_mounts()
        checks = {io: functools.partial(check_mode, io=io) for io in IO_MODES} | {'opening': check_opening}
        for name, check in checks.items():
            place = os.path.join(top, name)
            disk = AttachedDisk(place)
            try:
                kept = check(Bench(os.path.abspath(options.escrow), os.path.join(disk.where, 'b')), disk)
                print(f'{name}: {kept}')
            except Broken as error:
                print(f'BROKEN: {name}: {error}')
                status = 1
            finally:
                detach(disk.where)
                os.close(disk.held)
    except NoDisk as error:
        print(f'cannot shut a disk down here: {error}')
        status = 1 if os.environ.get('REQUIRE_FUSE') else 77
    if not options.keep:
        shutil.rmtree(top, ignore_errors=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
