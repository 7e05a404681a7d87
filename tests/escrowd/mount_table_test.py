#!/usr/bin/env python3
"""`mounts` of sessions and runs over the API: files that are sent, host directories below source_roots with the rights
of the caller, and a table that a session keeps.
"""
import base64
import errno
import fcntl
import os
import signal
import subprocess

from authorization_test import asked, refused
from runs_test import awaited, ordering, outcome, output, run
from service import eventually, expect, expect_equal, main, read, write
from table_test import Held, ask_apart


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


def EntriesAreAddedReplacedAndRemovedWhileASessionIsMounted(start):
    with started(start) as service:
        source = f'{service.directory}/sources'
        write(f'{source}/file', 'host')
        mounted, point = service.open_mounted()
        def paths(answer):
            return [one['path'] for one in answer.expect(200)['mounts']]
        for session in (mounted, service.open()['session']):
            at = f'/v1/sessions/{session}/mounts'
            expect_equal('none', paths(service.get(at)), [])
            entry = {'path': 'libs/tools', 'source': 'inject', 'files': sent(run='old', lib__a='a')}
            expect_equal('added', paths(service.post(at, {'entry': entry})), ['libs/tools'])
            service.post(at, {'entry': entry}).expect(409, 'exists')
            entry['files'] = sent(run='new')
            expect_equal('replaced', paths(service.post(at, {'entry': entry, 'replace': True})), ['libs/tools'])
            more = {'path': 'copy', 'source': f'inject:{source}', 'mode': 'overlay'}
            expect_equal('one more', paths(service.post(at, {'entry': more})), ['libs/tools', 'copy'])
            service.post(at, {'entry': {'path': 'tmp', 'source': 'scratch'}}).expect(200)
            expect_equal('one less', paths(service.delete(f'{at}/tmp')), ['libs/tools', 'copy'])
            service.delete(f'{at}/tmp').expect(404, 'not_found')
        expect_equal('listed', (os.listdir(f'{point}/libs'), os.listdir(f'{point}/libs/tools')), (['tools'], ['run']))
        expect_equal('files', (read(f'{point}/libs/tools/run'), read(f'{point}/copy/file')), ('new', 'host'))
        service.delete(f'/v1/sessions/{mounted}/mounts/libs%2Ftools').expect(200)
        expect(not os.path.exists(f'{point}/libs'), 'it is there still')
        # Each open of a host directory has to reach the service.
        host = {'path': 'ext', 'source': f'host:{source}'}
        service.post(f'/v1/sessions/{mounted}/mounts', {'entry': host}).expect(409, 'wrong_state')
        service.stop(signal.SIGKILL)
        service.start()
        expect_equal('after a kill', paths(service.get(f'/v1/sessions/{mounted}/mounts')), ['copy'])


def WhatIsBelowAnEntryIsTheSameMountedOrNot(start):
    with started(start) as service:
        sessions = [service.open_mounted()[0], service.open()['session']]
        for session in sessions:
            at = f'/v1/sessions/{session}'
            service.put(f'{at}/files/q/hidden', b'of the repository').expect(201)
            entry = {'path': 'q', 'source': 'inject', 'files': sent(sent='hi')}
            service.post(f'{at}/mounts', {'entry': entry}).expect(200)
            found = [service.get(f'{at}/files/q/hidden').status, service.get(f'{at}/files/q/sent').status,
                     service.put(f'{at}/files/q/new', b'new').status, service.put(f'{at}/files/q/sent', b'new').status,
                     service.delete(f'{at}/files/q/hidden').status, service.put(f'{at}/files/beside', b'1').status]
            expect_equal('the statuses', found, [404, 200, 403, 403, 404, 201])
        service.post(f'/v1/sessions/{sessions[1]}/finish', {'exit_code': 0}).expect(200)
        expect_equal('below it', service.git('ls-tree', '-r', '--name-only', 'main', 'q').split(), ['q/hidden'])


def ThroughAServiceMountsAreChangedByTheSameCommand(start):
    with started(start) as service:
        write(f'{service.directory}/sources/file', 'host')
        session, point = service.open_mounted()
        def escrow(*arguments):
            command = [service.escrow_binary, '--host', f'unix://{service.socket}', 'mounts', *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.strip()
        escrow('add', session, '--inject', f'ext={service.directory}/sources')
        expect_equal('in the mount', read(f'{point}/ext/file'), 'host')
        expect('read-only' in escrow('list', session), 'it is not listed')
        escrow('remove', session, 'ext')
        expect(not os.path.exists(f'{point}/ext'), 'it is there still')


def WhatIsWrongWithAnEntryIsSaid(start):
    with started(start) as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}/mounts'
        for body in ({}, {'entry': 1}, {'entry': []}, {'entry': {'path': 'x', 'source': 'scratch'}, 'rights': '0:0:'},
                     {'entry': {'path': 'x', 'source': 'scratch'}, 'replace': 1}):
            service.post(at, body).expect(400, 'invalid_value')
        for entry in ({'path': 'x'}, {'path': 'x', 'source': 'nothing'}, {'path': '', 'source': 'scratch'}):
            service.post(at, {'entry': entry}).expect(400, 'bad_request')
        service.post(at, {'entry': {'path': 'x', 'source': 'host:/etc'}, 'more': 1}).expect(400, 'unknown_field')
        service.delete(f'{at}/..%2Fx').expect(400, 'bad_request')
        service.post(at, {'entry': {'path': 'x', 'source': 'scratch'}}).expect(200)
        service.post(at, {'entry': {'path': 'x/y', 'source': 'scratch'}}).expect(400, 'bad_request')
        service.get('/v1/sessions/0123456789abcdef/mounts').expect(404, 'no_session')
        service.post('/v1/sessions/0123456789abcdef/mounts', {'entry': {'path': 'x', 'source': 'scratch'}}).expect(
            404, 'no_session')
        service.delete('/v1/sessions/0123456789abcdef/mounts/x').expect(404, 'no_session')
        with open(f'{service.repository}/escrow/sessions/{session}/lock', 'ab') as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            service.get(at).expect(409, 'attached_elsewhere')
            service.post(at, {'entry': {'path': 'z', 'source': 'scratch'}}).expect(409, 'attached_elsewhere')
            service.delete(f'{at}/x').expect(409, 'attached_elsewhere')


def AMountTableIsHisWhoseTheSessionIs(start):
    with start(reviewers=['user:nobody']) as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}/mounts'
        entry = {'entry': {'path': 'x', 'source': 'scratch'}}
        service.post(at, entry).expect(200)
        refused(service, 'POST', at, 403, 'forbidden', entry)
        refused(service, 'DELETE', f'{at}/x', 403, 'forbidden')
        with Held(service, 'gc.lock'):
            service.put(f'/v1/sessions/{session}/files/a.txt', b'x').expect(200)
            thread, answers = ask_apart(service, session)
            eventually('it is sealed', lambda: service.get(at).status == 409)
            service.get(at).expect(409, 'busy')
            service.post(at, entry).expect(409, 'busy')
            service.delete(f'{at}/x').expect(409, 'busy')
        thread.join(300)
        expect_equal('the commit', answers[0].status, 200)
        service.get(at).expect(409, 'session_finished')
        service.post(at, entry).expect(409, 'session_finished')
        service.delete(f'{at}/x').expect(409, 'session_finished')


def ARunWithManyEntriesIsInItsSession(start):
    """Each entry holds a directory of the host open, and none of them is mounted over."""
    with started(start) as service:
        source = f'{service.directory}/sources'
        made = run(service, ordering('sh', '-c', 'ls -d entries/* | wc -l; echo x > made', mounts=[
            {'path': f'entries/{number}', 'source': f'host:{source}'} for number in range(120)]))
        view = awaited(service, made)
        expect_equal(f'the outcome: {output(service, made, "stderr")}', outcome(view)[0], 'committed')
        expect_equal('entries', output(service, made).strip(), '120')
        expect_equal('the content', service.git('show', 'main:made'), 'x')
        expect_equal('in the directory of the host', os.listdir(source), [])


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
