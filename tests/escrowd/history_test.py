#!/usr/bin/env python3
"""Sessions that have ended cost nothing: counted are the bytes that a process and its children read, not its time."""
import os
import subprocess

from service import expect, expect_equal, main
from ended_sessions import add_ended_sessions, add_service_facts  # beside expectations.py, which service.py finds

# The catalog has 20 MB then, and the service's database as many.
MANY = 20_000
# A look at every row of either reads all of it.
MOST_MORE_BYTES = 2_000_000


def bytes_read(pid):
    """Of a process and of the children that it has waited for, so far (proc_pid_io(5))."""
    with open(f'/proc/{pid}/io', encoding='ascii') as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith('rchar:'))


def read_by(pid, work):
    before = bytes_read(pid)
    work()
    return bytes_read(pid) - before


def commands(service, session, kept):
    """What each command of the command line reads."""
    def escrow(*arguments):
        result = subprocess.run([service.escrow_binary, '--repo', service.repository, *arguments], check=False,
                                capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        expect_equal(f'escrow {arguments}: {result.stderr}', result.returncode, 0)
    lines = (('run', '--', 'true'), ('sessions', '--limit', '10'), ('sessions', '--open', '--json'),
             ('status', session[:12]), ('audit', '--session', kept), ('audit', '--since', '1h'))
    return {line: read_by(os.getpid(), lambda line=line: escrow(*line)) for line in lines}


def requests(service, session):
    """What each request makes the service read."""
    targets = ('/v1/sessions?limit=1', '/v1/sessions?order=newest&limit=1', '/v1/sessions?ended=false',
               '/v1/sessions?state=open', '/v1/sessions?state=commit_failed', '/v1/sessions?external_id=mine',
               '/v1/sessions?principal=user:nobody', f'/v1/sessions?id_prefix={session[:12]}',
               f'/v1/sessions/{session}', '/v1/runs?limit=1', '/v1/repositories/data/audit?limit=1', '/v1/ready',
               '/metrics')
    def get(target):
        expect_equal(target, service.get(target).status, 200)
    read = {target: read_by(service.process.pid, lambda target=target: get(target)) for target in targets}
    def live():
        opened = service.open()['session']
        service.finish(opened, {'exit_code': 0}).expect(200)
    read['an opening and its end'] = read_by(service.process.pid, live)
    return read


def WhatHasEndedIsNotRead(start):
    with start() as service:
        session = service.open(external_id='mine')['session']
        ended = service.open(external_id='ended')['session']
        service.finish(ended, {'exit_code': 0}).expect(200)
        few = {**commands(service, session, ended), **requests(service, session)}
        service.stop()
        add_ended_sessions(service.repository, ended, MANY)
        add_service_facts(f'{service.directory}/state', ended, MANY)
        expect(os.stat(f'{service.repository}/escrow/catalog.db').st_size > 5 * MOST_MORE_BYTES, 'the catalog is small')
        service.start()
        many = {**commands(service, session, ended), **requests(service, session)}
        for what, read in many.items():
            expect(read < few[what] + MOST_MORE_BYTES, f'{what}: {few[what]} bytes read before, now {read}')
        # From its start to here: recovering, taking up what is mounted, looking for what was never opened.
        expect(bytes_read(service.process.pid) < 5 * MOST_MORE_BYTES, f'{bytes_read(service.process.pid)} bytes in all')
        # And everything is there.
        shown = service.get('/metrics').body.decode()
        expect(f'escrow_sessions{{state="committed"}} {MANY + ended_before(service)}' in shown, shown)
        listed = service.escrow('sessions', '--limit', '3').splitlines()
        expect_equal('the header, the open one and three', len(listed), 5)
        everything = service.escrow('sessions', '--all').splitlines()
        expect_equal('all of them', len(everything), MANY + ended_before(service) + 2)


def ended_before(service):
    """Those that are not of the history that was added."""
    names = [one['session'] for one in service.get('/v1/sessions?order=newest&ended=true&limit=1000').json['sessions']]
    return sum(int(name, 16) > MANY * 16 for name in names)


if __name__ == '__main__':
    main(globals())
