#!/usr/bin/env python3
"""api/typescript/README.md as it is written: the client is generated from api/openapi.yaml, each program of the page is
type-checked and run against a real escrowd, and must print what the page says.

Needs node and what npm installs, so it is a command of its own and not in the gate:

    tests/typescript/run.py --escrow build/dev/daemon/escrow --escrowd build/dev/daemon/escrowd
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, f'{ROOT}/tests/escrowd')
from service import expect, expect_equal, main  # noqa: E402  pylint: disable=wrong-import-position

TSCONFIG = '''{
  "compilerOptions": {
    "strict": true, "noEmit": true, "target": "es2022", "module": "esnext", "moduleResolution": "bundler",
    "skipLibCheck": true, "types": ["node"]
  },
  "include": ["*.ts", "client/**/*.ts"]
}
'''


def command(words, directory, **keywords):
    result = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, timeout=600, **keywords)
    expect(result.returncode == 0, f'{" ".join(words)}: {result.stdout}{result.stderr}')
    return result.stdout


def ThePageIsTrue(start):
    with open(f'{ROOT}/api/typescript/README.md', encoding='utf-8') as file:
        page = file.read()
    programs = dict(re.findall(r'^```ts\n// (\S+)\n(.*?)^```', page, re.MULTILINE | re.DOTALL))
    transcripts = re.findall(r'^```console\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    expect(len(programs) == 3 and len(transcripts) == 2, f'{len(programs)} programs, {len(transcripts)} transcripts')
    place = tempfile.mkdtemp(prefix='escrow-typescript-')
    try:
        shutil.copy(f'{ROOT}/api/openapi.yaml', place)
        for name, text in [('package.json', '{"private": true, "type": "module"}'), ('tsconfig.json', TSCONFIG),
                           *programs.items()]:
            with open(f'{place}/{name}', 'w', encoding='utf-8') as file:
                file.write(text)
        with start() as service:
            is_checked = False
            for transcript in transcripts:
                for line, said in re.findall(r'^\$ (.*)\n((?:[^$].*\n)*)', transcript, re.MULTILINE):
                    words = [service.socket if word == '/run/escrowd.sock' else word for word in line.split()]
                    if words[:2] == ['npx', 'tsx'] and not is_checked:
                        command(['npx', 'tsc', '-p', '.'], place)
                        is_checked = True
                    out = command(words, place)
                    if words[:2] == ['npx', 'tsx']:
                        expect_equal(line, out, said)
            expect_equal('what was committed', service.git('show', 'main:notes/today.txt'), 'tried three ways')
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == '__main__':
    sys.argv.append('ThePageIsTrue')
    main({'ThePageIsTrue': ThePageIsTrue})
