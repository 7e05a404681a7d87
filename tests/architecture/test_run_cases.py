#!/usr/bin/env python3
"""run_cases() of tests/support/expectations.py, by which the gate runs several cases in Python as one test: what one of
them does is what the test does.
"""
import itertools
import os
import subprocess
import sys

SUPPORT = f'{os.path.dirname(os.path.abspath(__file__))}/../support'
PROGRAM = f'''
import os, signal, sys
sys.path.append({SUPPORT!r})
from expectations import expect, run_cases
CASES = dict(
    Passes=lambda: print('passes'),
    Expects=lambda: expect(False, 'it is not so'),
    Raises=lambda: [][0],
    IsKilled=lambda: os.kill(os.getpid(), signal.SIGKILL),
    Exits=lambda: sys.exit(3),
    IsSkipped=lambda: sys.exit(77))
run_cases(sys.argv[1:], lambda name: CASES[name]())
'''
FAIL = {'Expects', 'Raises', 'IsKilled', 'Exits'}


def check(names):
    """What a program with these cases does."""
    done = subprocess.run([sys.executable, '-c', PROGRAM, *names], capture_output=True, text=True, check=False)
    failed = [name for name in names if name in FAIL]
    expected = 1 if failed else 77 if 'IsSkipped' in names else 0
    last = done.stderr.strip().split('\n')[-1]
    assert done.returncode == expected, (names, done)
    assert not failed or last == f'failed: {" ".join(failed)}', (names, done)
    assert done.stdout.count('passes\n') == names.count('Passes'), (names, done)


if __name__ == '__main__':
    for names in itertools.permutations(['Passes', 'IsSkipped', *sorted(FAIL)], 2):
        check(names)
    check(['IsSkipped', 'Raises', 'Passes', 'IsKilled'])
