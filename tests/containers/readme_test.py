#!/usr/bin/env python3
"""The container quick start of deploy/README.md, line by line as it is written, with real docker. The image of its
name is made here from busybox, and what its first line installs is there: deploy/try-containers.sh does all of it on a
fresh machine.
"""
import os
import re
import subprocess

from runtimes import expect, expect_equal, main, nightly, source


def commands():
    section = source('deploy/README.md').split('## In a container\n')[1].split('\n## ')[0]
    return re.search(r'^```sh\n(.*?)^```', section, re.MULTILINE | re.DOTALL).group(1).splitlines()


@nightly()
def TheQuickStartWorksAsWritten(machine):
    first, *lines = commands()
    expect(first.startswith('sudo apt-get install '), f'not what a fresh machine begins with: {first}')
    machine.make_image('debian:12')
    place = f'{machine.directory}/quick'
    os.mkdir(place)
    environment = {**machine.environment, 'PATH': f'{os.path.dirname(machine.escrow_program)}:{os.environ["PATH"]}'}
    script, statuses = '', []
    for line in lines:
        script += f'{line}\necho "$?" >&3\n'
        statuses.append(int((re.findall(r"exit (\d)'", line) or ['0'])[0]))
    with open(f'{place}/statuses', 'wb') as file:
        result = subprocess.run(['bash', '-c', script], cwd=place, env=environment, text=True, check=False, timeout=120,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                preexec_fn=lambda: os.dup2(file.fileno(), 3), close_fds=False)
    with open(f'{place}/statuses', encoding='ascii') as file:
        expect_equal(f'the statuses of {lines}: {result.stdout}', [int(word) for word in file], statuses)
    machine.repository = f'{place}/data.git'
    files = machine.git('ls-tree', '-r', '--name-only', 'main').split()
    expect_equal('the files', files, ['built', 'models/new', 'who'])
    expect_equal('who', machine.git('show', 'main:who'), '1000')
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals())
