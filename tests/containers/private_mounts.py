"""A mount namespace of its own for each test that starts a container runtime.

Docker looks for plugins in one directory of the machine and asks each of them, also one that has just been killed. All
podmans have their locks in one file in /dev/shm. With both directories private, no test waits for another test. Sockets
of containerd's shims and the state of runc are private, too: a killed runtime leaves none of them on the machine.
"""
import ctypes
import errno
import os
import re
import sys
import tempfile

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_DETACH = 2
PRIVATE = ('/run/docker', '/run/containerd', '/run/runc', '/dev/shm')


def system_call(name, *arguments, ignored=()):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0 and ctypes.get_errno() not in ignored:
        sys.exit(f'{name}{arguments}: {os.strerror(ctypes.get_errno())}')


def is_at_or_below(path, directory):
    return f'{path}/'.startswith(f'{directory.rstrip("/")}/')


def mounts():
    """(mountpoint, type) of each mount that this process sees."""
    with open('/proc/self/mountinfo', encoding='utf-8', errors='surrogateescape') as file:
        for line in file:
            before, _, after = line.partition(' - ')
            yield re.sub(r'\\(\d{3})', lambda match: chr(int(match[1], 8)), before.split()[4]), after.split()[0]


def enter_private_mounts(needed):
    """Moves this process into a mount namespace of its own; it must have one thread. Processes that it starts follow.

    Mounts of other tests are dropped, except those that a path of `needed` is on.
    """
    system_call('unshare', CLONE_NEWNS)
    system_call('mount', None, b'/', None, MS_REC | MS_PRIVATE, None)
    # The copy of another test's mount would keep its file system alive after that test has unmounted it.
    temporary = {os.path.realpath(tempfile.gettempdir()), '/tmp', '/var/tmp'}
    for place, kind in list(mounts()):
        of_a_test = kind == 'fuse' or kind.startswith('fuse.') or any(
            is_at_or_below(place, directory) for directory in temporary - {place})
        if of_a_test and not any(is_at_or_below(path, place) for path in needed):
            # It may have gone: with the mount that it was on, or because its test has just removed the mountpoint.
            system_call('umount2', os.fsencode(place), MNT_DETACH, ignored=(errno.EINVAL, errno.ENOENT))
    for directory in PRIVATE:
        os.makedirs(directory, exist_ok=True)
        system_call('mount', b'tmpfs', os.fsencode(directory), b'tmpfs', 0, None)
