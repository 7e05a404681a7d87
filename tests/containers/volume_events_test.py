#!/usr/bin/env python3
"""What docker and podman tell of containers with volumes, and what they have forgotten by the time they are asked."""
import os

from runtimes import expect, expect_equal, main
from volumes import VolumeMachine


def TheAuditNamesTheImageThatRan(machine):
    """Not the one that has its name by then."""
    machine.volume()
    for name, change in (('job-image', 'ENV RUNS=yes'), ('later-image', 'ENV RUNS=no')):
        machine.make_image(name, change)
    ids = [machine.run(machine.runtime.name, 'image', 'inspect', '--format', '{{.Id}}', name).removeprefix('sha256:')
           for name in ('job-image', 'later-image')]
    expect(ids[0] != ids[1], 'both images are one')
    command = machine.command('echo $RUNS > /data/new', '--name', 'job', image='job-image')
    machine.run(machine.runtime.name, 'create', *command[1:])
    machine.run(machine.runtime.name, 'tag', 'later-image', 'job-image')
    machine.run(machine.runtime.name, 'start', '--attach', 'job')
    machine.expect_end('committed', 'success')
    expect_equal('what ran', machine.git('show', 'main:new'), 'yes')
    named = machine.git('log', '-1', '--format=%(trailers:key=Escrow-Image,valueonly)', 'main')
    expect_equal(f'the image in {named}', named.strip().split('@sha256:')[-1], ids[0])
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals(), VolumeMachine)
