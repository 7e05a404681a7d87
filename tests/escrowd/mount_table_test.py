#!/usr/bin/env python3
"""`mounts` of sessions and runs over the API: files that are sent, host directories below source_roots with the rights
of the caller, and a table that a session keeps.
"""
import base64
import errno
import os
import signal

from authorization_test import asked
from runs_test import awaited, ordering, outcome, output, run
from service import expect, expect_equal, main, read, write


def started(start, **config):
    service = start(**config)
    os.mkdir(f'{service.directory}/sources')
    service.config['source_roots'] = [f'{service.directory}/sources']
    service.write_config()
    return service


def sent(**files):
    return {name.replace('__', '/'): base64.b64encode(text.encode()).decode() for name, text in files.items()}


def error_of(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0


def ASessionHasTheEntriesThatItWasOpenedWithHoweverOftenItIsMounted(start):
    with started(start) as service:
        source = f'{service.directory}/sources'
        write(f'{source}/file', 'host')
        mounts = [{'path': 'tools', 'source': 'inject', 'files': sent(run='#!/bin/sh', lib__a='a'),
                   'executable': ['run']},
                  {'path': 'mine', 'source': 'inject', 'mode': 'overlay', 'files': sent(a='a')},
                  {'path': 'ext', 'source': f'host:{source}'},
                  {'path': 'copy', 'source': f'inject:{source}'},
                  {'path': 'old', 'source': 'rev:main'},
                  {'path': 'tmp', 'source': 'scratch', 'write_bytes_limit': 3}]
        session, point = service.open_mounted(mounts=mounts)
        def check():
            expect_equal('the entries', {name for name in os.listdir(point) if name != 'kept'} &
                         {'tools', 'mine', 'ext', 'copy', 'old', 'tmp'}, {'tools', 'mine', 'ext', 'copy', 'old', 'tmp'})
            expect_equal('files', (read(f'{point}/tools/lib/a'), read(f'{point}/ext/file'), read(f'{point}/copy/file')),
                         ('a', 'host', 'host'))
            expect(os.access(f'{point}/tools/run', os.X_OK), 'a program is none')
            expect_equal('a write', error_of(lambda: write(f'{point}/tools/new', 'x')), errno.EACCES)
            expect_equal('more', error_of(lambda: write(f'{point}/tmp/new', 'four')), errno.EDQUOT)
        check()
        write(f'{point}/mine/a', 'changed')
        write(f'{point}/kept', 'kept')
        service.post(f'/v1/sessions/{session}/unmount', {}).expect(200)
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        check()
        expect_equal('an overlay', read(f'{point}/mine/a'), 'changed')
        service.stop(signal.SIGKILL)
        service.start()
        check()
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        names = service.git('ls-tree', '--name-only', 'main').split('\n')
        expect('kept' in names and not {'tools', 'mine', 'ext', 'copy', 'old', 'tmp'} & set(names), f'{names}')


def HostDirectoriesAreReadWithTheRightsOfWhoAsks(start):
    with started(start) as service:
        source = f'{service.directory}/sources'
        os.mkdir(f'{source}/open')
        write(f'{source}/open/public', 'public')
        write(f'{source}/open/secret', 'secret')
        os.chmod(f'{source}/open/secret', 0o600)
        os.mkdir(f'{source}/closed', 0o700)
        def opened(mounts):
            return asked(service, 'POST', '/v1/sessions', {'repository': 'data', 'mounts': mounts})
        for path, status in ((f'{source}/closed', 403), ('/etc', 403), (f'{source}/../state', 403),
                             (f'{source}/none', 400)):
            for kind in ('host', 'inject'):
                got, problem = opened([{'path': 'x', 'source': f'{kind}:{path}'}])
                expect_equal(f'{kind} {path}', (got, problem.get('field')), (status, 'mounts'))
        got, problem = opened([{'path': 'x', 'source': f'host:{source}/open', 'mode': 'read-write'}])
        expect_equal('read-write', got, 403)
        got, problem = opened([{'path': 'x', 'source': f'inject:{source}/open'}])
        expect(got not in (200, 201), f'what nobody may read was copied: {got}')
        got, view = opened([{'path': 'x', 'source': f'host:{source}/open'}])
        expect_equal('opened', got, 201)
        point = f'{service.mounts}/theirs'
        got, answer = asked(service, 'POST', f'/v1/sessions/{view["session"]}/mount', {'mountpoint': point})
        expect_equal(f'mounted: {answer}', got, 200)
        # This process is root, and reads in the mount what the session's owner may read on the host.
        expect_equal('what all may read', read(f'{point}/x/public'), 'public')
        expect_equal('what they may not', error_of(lambda: read(f'{point}/x/secret')), errno.EACCES)
        os.chmod(f'{source}/open/secret', 0o644)
        expect_equal('what they may now', read(f'{point}/x/secret'), 'secret')


def WhatIsWrongWithAMountTableOpensNoSession(start):
    with started(start) as service:
        for mounts in ('x', 1, ['x'], [{'path': 'x'}], [{'path': 'x', 'source': 'nothing'}],
                       [{'path': '', 'source': 'scratch'}], [{'path': '../x', 'source': 'scratch'}],
                       [{'path': 'x', 'source': 'scratch'}] * 2, [{'path': 'x', 'source': 'scratch', 'uid': 0}],
                       [{'path': 'x', 'source': 'inject', 'files': {'a': '?'}}],
                       [{'path': 'x', 'source': 'inject', 'files': {'/../a': ''}}],
                       [{'path': 'x', 'source': 'inject', 'content': '..', 'files': {}}]):
            service.post('/v1/sessions', {'repository': 'data', 'mounts': mounts}).expect(400, 'invalid_value')
        service.post('/v1/sessions', {'repository': 'data', 'mount_rights': '0:0:0'}).expect(400, 'unknown_field')
        expect_equal('sessions', service.get('/v1/sessions?ended=false').json['sessions'], [])


def ARunImportsAModuleThatWasSent(start):
    with started(start) as service:
        made = run(service, ordering(
            'python3', '-c', 'import told; open("out", "w").write(told.WORD)', python_path=['libs'],
            mounts={'path': 'libs', 'source': 'inject', 'files': sent(**{'told.py': 'WORD = "sent"'})}))
        view = awaited(service, made)
        expect_equal(f'the outcome: {output(service, made, "stderr")}', outcome(view)[0], 'committed')
        expect_equal('the content', service.git('show', 'main:out'), 'sent')
        service.post('/v1/runs', ordering('true', python_path=['a:b'])).expect(400, 'invalid_value')


if __name__ == '__main__':
    main(globals())
