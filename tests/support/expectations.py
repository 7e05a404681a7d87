"""What the tests that are programs of their own expect, and end with a sentence when it is not so; and HTTP over a Unix
socket.
"""
import http.client
import socket
import sys
import time


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


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=300):
        super().__init__('escrowd', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
