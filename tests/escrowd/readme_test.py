#!/usr/bin/env python3
"""The commands of api/README.md, block after block as they are written, in one shell.

The shell has the places that they name (/srv, /run, /var/lib) to itself: a mount namespace. Between the blocks the test
does what the text around them asks for, a Makefile, a data set, a source root. Left out are the lines that ask another
machine (builds.example.org). What follows without an end is ended after some seconds.
"""
import os
import re
import shutil
import subprocess
import tempfile

from service import expect, expect_equal, fail, main

PLACES = ('/srv', '/run', '/var/lib')
# What is to be there before a block, by its first words.
BEFORE = {
    'run=$(post runs': r'''
printf 'report:\n\techo what it says; echo made > report.txt\n' > Makefile
session=$(post sessions '{"repository": "data"}' | sed 's/.*"session":"\([^"]*\)".*/\1/')
curl -sf --unix-socket /run/escrowd.sock -T Makefile -H 'Content-Type: application/octet-stream' \
  http://escrowd/v1/sessions/$session/files/Makefile
post sessions/$session/finish '{"exit_code": 0}'
''',
    'tar -c -C dataset': 'mkdir -p dataset/deep; echo 1 > dataset/deep/one.txt\n',
    'post repositories/data/imports': r'''
mkdir -p /srv/datasets/2026; echo 2 > /srv/datasets/2026/two.txt
kill $!; wait $!
sed -i 's|{|{"source_roots": ["/srv/datasets"], |' escrowd.json
escrowd --config escrowd.json &
until curl -s --unix-socket /run/escrowd.sock http://escrowd/v1/ready; do sleep 0.1; done
''',
}


def blocks():
    with open(f'{os.path.dirname(os.path.abspath(__file__))}/../../api/README.md', encoding='utf-8') as file:
        return re.findall(r'^```sh\n(.*?)^```', file.read(), re.MULTILINE | re.DOTALL)


def script_of(found):
    lines = ['set -e'] + [f'mount -t tmpfs tmpfs {place}' for place in PLACES]
    for number, block in enumerate(found):
        prepare = [text for begin, text in BEFORE.items() if block.startswith(begin)]
        kept = ''.join(line + '\n' for line in block.splitlines() if 'example.org' not in line)
        endless = '/v1/events' in block
        lines += [*prepare, f'echo "=== {number}"', f'timeout 3 {kept.strip()} || test $? = 124' if endless else kept]
    done = ['echo "=== done"', 'git -C /srv/repositories/data.git ls-tree -r --name-only main']
    return '\n'.join(lines + done)


def TheOrchestratorsCommandsWorkAsWritten(start):
    found = blocks()
    for begin in BEFORE:
        expect(any(block.startswith(begin) for block in found), f'no block begins with {begin!r}')
    with start() as service:  # for its programs; the one of the blocks is another
        programs = {os.path.dirname(path) for path in (service.escrow_binary, service.escrowd_binary)}
    place = tempfile.mkdtemp(prefix='escrowd-readme-')
    try:
        ran = subprocess.run(['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'bash', '-c',
                              script_of(found)], cwd=place, text=True, check=False, timeout=300, capture_output=True,
                             stdin=subprocess.DEVNULL, env={'PATH': ':'.join([*programs, os.environ['PATH']])})
        said = f'{ran.stdout}\n{ran.stderr}'
        expect_equal(f'the exit status of {script_of(found)}: {said}', ran.returncode, 0)
        answers = dict(zip(*[iter(re.split(r'^=== (\S+)\n', ran.stdout, flags=re.MULTILINE)[1:])] * 2))
        check(answers)
    finally:
        shutil.rmtree(place)


def check(answers):
    """What each block answered, by its number."""
    expected = (
        ('0', '"status":"ready"', '"name":"data"', '"state":"committed"', '"reason":"success"'),
        ('1', 'what it says', '"state":"ended"', '"state":"committed"'),
        ('2', 'SESSION', 'committed', 'models'),
        ('3', 'event: session.state', 'event: branch.updated'),
        ('4', '"source":"import"', '"state":"committed"'),
        ('5', '"source":"import"', '"state":"committed"'),
    )
    expect_equal('the blocks', sorted(answers), [*(one[0] for one in expected), 'done'])
    for number, *texts in expected:
        for text in texts:
            if text not in answers[number]:
                fail(f'block {number} did not say {text}: {answers[number]}')
        expect('urn:escrow:problem' not in answers[number], f'block {number}: {answers[number]}')
    expect_equal('the files', answers['done'].split(), ['two.txt'])


if __name__ == '__main__':
    main(globals())
