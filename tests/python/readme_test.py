#!/usr/bin/env python3
"""The examples of api/python/README.md, one after the other in one program, and what each prints.

A ```text block is the output of the ```python block before it. The tokens, the directory of the mounts, and the host
and certificate of the examples over TLS are put in their places.
"""
import os
import re
import subprocess
import sys

from client import ROOT, escrow, expect, expect_equal, main
from remote_test import Remote, make_token

CUT = '\n=== cut ===\n'


def examples():
    """[(code, output)]"""
    with open(f'{ROOT}/api/python/README.md', encoding='utf-8') as file:
        found = re.findall(r'^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?', file.read(), re.MULTILINE | re.DOTALL)
    expect(len(found) > 8, f'{len(found)} examples')
    return found


def TheReadmeIsRunAsWritten(start):
    found = examples()
    expect(found[0][0].startswith('import escrow\n'), 'the first example is not the first ten lines')
    expect(found[0][0].count('\n') <= 10, 'the first example has more than ten lines')
    with Remote(start, reviewers=['user:alice']) as remote:
        service = remote.service
        reviewers_token, hashed = make_token(service)
        service.config['tokens']['user:alice'] = [hashed]
        service.write_config()
        service.stop()
        script = ['import sys', f'token = {remote.token!r}', f'reviewers_token = {reviewers_token!r}']
        for code, _ in found:
            for written, real in (('https://builds.example.org:8443', f'https://127.0.0.1:{remote.port}'),
                                  ('"ca.pem"', f'"{service.directory}/cert.pem"'), ('/srv/sessions', service.mounts)):
                code = code.replace(written, real)
            script += [code, f'print({CUT!r}, end="", flush=True)']
        service.start()
        ran = subprocess.run([sys.executable, '-W', 'error', '-c', '\n'.join(script)], text=True, check=False,
                             timeout=500, capture_output=True, cwd=service.directory, stdin=subprocess.DEVNULL,
                             env={'PYTHONPATH': f'{escrow.__path__[0]}/..', 'PYTHONDONTWRITEBYTECODE': '1',
                                  'ESCROW_HOST': f'unix://{service.socket}', 'PATH': os.environ['PATH']})
        expect_equal(f'the exit status: {ran.stdout}\n{ran.stderr}', (ran.returncode, ran.stderr), (0, ''))
        said = ran.stdout.split(CUT)
        for (code, output), printed in zip(found, said):
            expect_equal(f'what is printed by\n{code}', printed, output)


if __name__ == '__main__':
    main(globals())
