"""What the tests that are programs of their own expect, and end with a sentence when it is not so; and HTTP over a Unix
socket.
"""
import gc
import http.client
import os
import socket
import sys
import time

SKIPPED = 77


# Marks of a case, which python_cases.py reads from the source. They change nothing of it.
def nightly(*_suites):
    """Only deploy/campaigns.sh runs the case, in these suites; in each, when none is named."""
    return lambda case: case


def only(*_suites):
    """The case is one of these suites only, of those of its file."""
    return lambda case: case


def fail(message):
    sys.exit(message)


def expect(condition, what):
    if not condition:
        fail(what)


def expect_equal(what, actual, expected):
    if actual != expected:
        fail(f'{what}: got {actual!r}, expected {expected!r}')


# Generous: what is waited for takes moments, also beside a load on every processor.
def eventually(what, condition, seconds=100):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            fail(f'not within {seconds} s: {what}')
        time.sleep(0.02)


def run_cases(names, run):
    """Calls run(name): of one case here, of several in a process of its own each, which has what this one has imported.

    Fails with the names of those that failed. Is skipped if one was skipped, so that this is seen.
    """
    if len(names) == 1:
        run(names[0])
        return
    gc.freeze()  # so that no collection in a child copies the pages that it shares with this one
    statuses = {name: status_of(name, run) for name in names}
    failed = [name for name, status in statuses.items() if status not in (0, SKIPPED)]
    if failed:
        fail(f'failed: {" ".join(failed)}')
    skipped = [name for name, status in statuses.items() if status == SKIPPED]
    if skipped:
        print(f'skipped: {" ".join(skipped)}', file=sys.stderr)
        sys.exit(SKIPPED)


def flush():
    sys.stdout.flush()
    sys.stderr.flush()


def status_of(name, run):
    """Of a process that calls run(name); an exception ends it as it would end this one."""
    print(f'== {name}', file=sys.stderr)
    flush()
    child = os.fork()
    if child == 0:
        run(name)
        flush()
        os._exit(0)  # to tidy up the interpreter would copy each of its pages
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=300):
        super().__init__('escrowd', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
