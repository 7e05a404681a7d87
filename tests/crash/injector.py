"""Runs a program under syscall_faults, which lets one of its system calls fail: see syscall_faults.cc."""
import ctypes
import json
import os
import signal
import socket
import subprocess

LIBC, MNT_DETACH = ctypes.CDLL(None), 2
ERRORS = ('ENOSPC', 'EIO', 'EMFILE', 'ENOMEM', 'EDQUOT')
SYNCS = 'fsync,fdatasync,sync_file_range,syncfs'
# What a full disk refuses on every file system; deleting goes on working on most.
GROWTH = SYNCS + (',write,pwrite64,writev,pwritev,copy_file_range,fallocate,open,openat,creat,mkdir,mkdirat,'
                  'link,linkat,symlink,symlinkat')
# A kind of fault: the error, how often from the first on, and of which calls.
FAULTS = {kind: (kind, 1, '*') for kind in (*ERRORS, 'SHORT', 'KILL')} | {
    'FULL': ('ENOSPC', 1 << 30, GROWTH), 'SYNC': ('EIO', 1, SYNCS)}


def a_share(kinds, parts, seed, at):
    """One of `parts` shares of the kinds of fault, and the others: scene number `at` is struck by the share, or by the
    first of the others that strikes a call of it. As many scenes in a row as there are parts meet all kinds."""
    first = (seed + at) % parts
    return kinds[first::parts], [kind for n, kind in enumerate(kinds) if n % parts != first]


def detach(where):
    """Unmounts as umount -l does; it is no error when nothing is mounted there."""
    LIBC.umount2(os.fsencode(where), MNT_DETACH)


def reason_to_skip():
    """Only root may mount below a filter of seccomp, which takes the rights of programs like fusermount."""
    if os.geteuid() == 0 and os.path.exists('/dev/fuse'):
        return None
    print('skipped: takes root and /dev/fuse')
    return 1 if os.environ.get('REQUIRE_FUSE') else 77


class Injected:
    """A program that runs, and what is to happen to its system calls."""

    def __init__(self, tool, command, below, arm=None, **options):
        self.control, theirs = socket.socketpair()
        self.control.settimeout(300)
        self.lines = self.control.makefile('r', encoding='utf-8', errors='surrogateescape')
        words = [tool, '--control', str(theirs.fileno())]
        for directory in below:
            words += ['--below', directory]
        self.process = subprocess.Popen([*words, '--', *command], pass_fds=[theirs.fileno()], start_new_session=True,
                                        **options)
        theirs.close()
        if arm:
            self.arm(*arm)
        self.say('start')

    def say(self, line):
        self.control.sendall(line.encode() + b'\n')

    def answer(self, word):
        while True:
            line = self.lines.readline()
            if not line:
                raise EOFError('syscall_faults is gone')
            found, _, rest = line.rstrip('\n').partition(' ')
            if found == word:
                return rest

    def arm(self, kind, first, times=1, calls='*'):
        self.say(f'arm {kind} {first} {times} {calls}')
        self.answer('armed')

    def disarm(self):
        self.say('disarm')
        return json.loads(self.answer('report'))

    def kill(self):
        """Ends the program and all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.close()

    def close(self):
        self.lines.close()
        self.control.close()


class Ended:
    """What became of a program that ran to its end."""

    def __init__(self, status, out, err, report):
        self.status, self.out, self.err, self.report = status, out, err, report
        self.struck = report['struck'][0] if report['struck'] else None


def run_injected(tool, command, below, arm, timeout=60, **options):
    """TimeoutExpired: it hangs, and was killed."""
    program = Injected(tool, command, below, arm, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, **options)
    try:
        program.control.settimeout(timeout)
        try:
            status = int(program.answer('exited'))
        except TimeoutError:
            raise subprocess.TimeoutExpired(command, timeout) from None
        report = json.loads(program.answer('report'))
        out, err = program.process.communicate(timeout=timeout)
        return Ended(status, out.decode(errors='replace'), err.decode(errors='replace'), report)
    finally:
        program.kill()
