"""A disk that remembers in which order it was written, and the disks that a power cut would have left of it.

disk_recorder (disk_recorder.cc) serves the image under a loop device and writes each write, discard and flush down. A
disk promises what was written before a flush that has ended. So the disk after a cut is: all that was written before
the last flush, and of what came after it any part, torn at any sector (512 bytes); what two writes left of one sector
is in their order.
"""
import contextlib
import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import time

HEADER = struct.Struct('=QQQ')
WRITE, ZERO, FLUSH = 1, 2, 3
SECTOR = 512
CLONE_NEWNS = 0x20000
# Lazy initialisation would go on writing for minutes; a small journal goes round, and is checkpointed.
MAKE = {
    'ext4': ['mkfs.ext4', '-q', '-F', '-J', 'size=8', '-E', 'lazy_itable_init=0,lazy_journal_init=0,nodiscard'],
    'xfs': ['mkfs.xfs', '-q', '-f', '-K'],
}
# XFS keeps an identity of each disk, and two images of one have the same; discards are part of what a cut may tear.
OPTIONS = {'ext4': 'loop,discard,noauto_da_alloc', 'xfs': 'loop,nouuid,discard'}
PATIENCE = 60  # seconds for what takes milliseconds


class NoDisk(Exception):
    """This machine has no loop device, no FUSE, or no right to them."""


def private_mounts():
    """What this process and its children mount from here on is seen by no other, and goes with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise NoDisk(f'no mount namespace of its own: {os.strerror(ctypes.get_errno())}')
    subprocess.run(['mount', '--make-rprivate', '/'], check=True)


def mount_image(image, where, kind):
    done = subprocess.run(['mount', '-t', kind, '-o', OPTIONS[kind], image, where], capture_output=True, text=True,
                          check=False, timeout=PATIENCE)
    return done.stderr.strip() if done.returncode != 0 else None


# Somebody who looks at all mounts (lsof, a desktop) can keep one busy for a moment.
def unmount(where):
    limit = time.monotonic() + PATIENCE
    while (done := subprocess.run(['umount', where], capture_output=True, text=True, check=False)).returncode != 0:
        if time.monotonic() > limit:
            raise TimeoutError(f'cannot unmount {where}: {done.stderr.strip()}')
        time.sleep(0.05)


class RecordedDisk:
    """The disk while it is written to. `blank` is what it was when the record began."""

    def __init__(self, tool, top, where, kind, size):
        self.where, self.served = where, os.path.join(top, 'served')
        self.image, self.blank, self.record = (os.path.join(top, name) for name in ('image', 'blank', 'record'))
        os.makedirs(self.served)
        if shutil.which(MAKE[kind][0]) is None:
            raise NoDisk(f'there is no {MAKE[kind][0]}')
        with open(self.image, 'wb') as image:
            image.truncate(size)
        subprocess.run([*MAKE[kind], self.image], check=True)
        subprocess.run(['cp', self.image, self.blank], check=True)
        self.recorder = subprocess.Popen([tool, self.image, self.record, self.served], stderr=subprocess.PIPE,
                                         text=True)
        limit = time.monotonic() + PATIENCE
        while not os.path.exists(f'{self.served}/position'):
            if self.recorder.poll() is not None or time.monotonic() > limit:
                self.recorder.kill()
                raise NoDisk(f'disk_recorder says: {self.recorder.stderr.read().strip()}')
            time.sleep(0.01)
        refused = mount_image(f'{self.served}/disk', where, kind)
        if refused:
            unmount(self.served)
            raise NoDisk(f'no loop device over FUSE: {refused}')

    def position(self):
        """How many entries the record has: what was promised until now holds after a cut there."""
        with open(f'{self.served}/position', encoding='ascii') as file:
            return int(file.read())

    def stop(self):
        unmount(self.where)
        unmount(self.served)
        said = self.recorder.communicate(timeout=PATIENCE)[1]
        if self.recorder.returncode != 0:
            raise OSError(f'the record is not whole: {said.strip()}')


class Record:
    """The entries, in order: (kind, offset, length, place of the bytes)."""

    def __init__(self, path):
        self.entries = []
        with open(path, 'rb') as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        place = 0
        while place < len(self.bytes):
            kind, offset, length = HEADER.unpack_from(self.bytes, place)
            place += HEADER.size
            self.entries.append((kind, offset, length, place))
            place += length if kind == WRITE else 0
        if place != len(self.bytes):
            raise OSError('the record ends within an entry')

    def __len__(self):
        return len(self.entries)

    def last_flush(self, cut):
        """The entries before this one are on the disk for certain when the power is cut after `cut` entries."""
        return max((n for n in range(cut - 1, -1, -1) if self.entries[n][0] == FLUSH), default=0) if cut else 0

    def apply(self, image, first, last):
        for entry in self.entries[first:last]:
            self.put(image, entry, 0, entry[2])

    def put(self, image, entry, begin, end):
        kind, offset, _, place = entry
        if kind == FLUSH or begin >= end:
            return
        data = self.bytes[place + begin:place + end] if kind == WRITE else bytes(end - begin)
        os.pwrite(image, data, offset + begin)


# What may have become of the writes that no flush followed.
def nothing(record, image, entries, rng):
    del record, image, entries, rng


def everything(record, image, entries, rng):
    """As the head of a disk that writes in order; the last one is torn."""
    for entry in entries[:-1]:
        record.put(image, entry, 0, entry[2])
    if entries:
        record.put(image, entries[-1], 0, rng.randrange(entries[-1][2] // SECTOR + 1) * SECTOR)


def some(record, image, entries, rng):
    share = rng.random()
    for entry in entries:
        if rng.random() < share:
            record.put(image, entry, 0, entry[2])


def torn(record, image, entries, rng):
    """Of each write any run of sectors, or several."""
    for entry in entries:
        sectors = entry[2] // SECTOR
        for _ in range(rng.randrange(4)):
            begin = rng.randrange(sectors)
            record.put(image, entry, begin * SECTOR, rng.randrange(begin, sectors + 1) * SECTOR)


LEFT = {'nothing': nothing, 'everything': everything, 'some': some, 'torn': torn}


class CutDisks:
    """Makes the disks after cuts, which come in the order of the record."""

    def __init__(self, record, blank, top):
        self.record, self.flushed, self.done = record, os.path.join(top, 'flushed'), 0
        self.image = os.path.join(top, 'cut')
        subprocess.run(['cp', blank, self.flushed], check=True)

    def make(self, cut, left, rng):
        """The path of an image, which the next call writes anew."""
        safe = self.record.last_flush(cut)
        with open(self.flushed, 'r+b') as file:
            self.record.apply(file.fileno(), self.done, safe)
        self.done = safe
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.image)  # a loop device that is still going away has the old one
        subprocess.run(['cp', self.flushed, self.image], check=True)
        entries = [entry for entry in self.record.entries[safe:cut] if entry[0] != FLUSH]
        with open(self.image, 'r+b') as file:
            LEFT[left](self.record, file.fileno(), entries, rng)
        return self.image
