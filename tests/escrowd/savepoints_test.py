#!/usr/bin/env python3
"""Savepoints over the API, and with `escrow --host`: of sessions that are mounted, and of those that are not."""
import fcntl
import os
import subprocess

from authorization_test import refused
from service import eventually, expect, expect_equal, main, read, write
from table_test import Held, ask_apart

OTHER = '0123456789abcdef'


def names(answer):
    return [one['name'] for one in answer['savepoints']]


def ASavepointIsGoneBackToMountedOrNot(start):
    with start() as service:
        mounted, point = service.open_mounted()
        for session in (mounted, service.open()['session']):
            at = f'/v1/sessions/{session}'
            def put(text, at=at):
                service.put(f'{at}/files/a.txt', text.encode()).expect(200)
            def content(at=at):
                return service.get(f'{at}/files/a.txt').body.decode()
            put('first')
            expect_equal('made', names(service.post(f'{at}/savepoints', {'name': 'first'}).expect(200)), ['first'])
            put('second')
            diff = service.get(f'{at}/diff?since=first&format=name_status').body
            expect_equal('the diff', diff, b'M\ta.txt\n')
            back = service.post(f'{at}/savepoints/first/restore').expect(200)
            expect_equal('content', content(), 'first')
            service.post(f'{at}/savepoints/{back["undo"]}/restore').expect(200)
            expect_equal('undone', content(), 'second')
            listed = service.get(f'{at}/savepoints').expect(200)
            expect(back['undo'] in names(listed) and listed['undo'] is None, f'the list is {listed}')
            expect('first' not in names(service.delete(f'{at}/savepoints/first').expect(200)), 'it is still there')
        expect_equal('in the mount', read(f'{point}/a.txt'), 'second')


def CachesBeginAnewAndTheAnswerNamesThem(start):
    with start() as service:
        session, point = service.open_mounted(mounts=[{'path': 'build', 'source': 'cache:objects'},
                                                      {'path': 'tmp', 'source': 'scratch'}])
        at = f'/v1/sessions/{session}/savepoints'
        expect_equal('of one that is made', service.post(at, {'name': 'first'}).expect(200)['warning'], None)
        write(f'{point}/build/wreck', 'x')
        back = service.post(f'{at}/first/restore').expect(200)
        expect_equal('the warning', back['warning'],
                     "savepoints hold files of the repository only: the cache 'objects' begins anew as last published, "
                     "and what is below 'tmp' stays as it is")
        expect_equal('the cache', os.listdir(f'{point}/build'), [])
        write(f'{point}/build/wreck', 'x')
        command = ['--host', f'unix://{service.socket}', 'savepoint', 'restore', session, 'first']
        ran = subprocess.run([service.escrow_binary, *command], check=True, capture_output=True, text=True, timeout=300)
        expect_equal('of a command', ran.stderr, f'escrow: {back["warning"]}\n')
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        _, point = service.open_mounted(mounts=[{'path': 'build', 'source': 'cache:objects'}])
        expect_equal('published', os.listdir(f'{point}/build'), [])


def ThroughAServiceTheCommandIsTheSame(start):
    with start() as service:
        session, point = service.open_mounted()
        def escrow(*arguments):
            command = [service.escrow_binary, '--host', f'unix://{service.socket}', 'savepoint', *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.strip()
        write(f'{point}/a.txt', 'first')
        escrow('create', session, 'tests-pass')
        write(f'{point}/a.txt', 'second')
        expect('tests-pass' in escrow('list', session), 'it is not listed')
        expect_equal('the diff', escrow('diff', session, 'tests-pass', '--name-status'), 'M\ta.txt')
        expect('before-restore-1' in escrow('restore', session, 'tests-pass'), 'the way back is not named')
        expect_equal('in the mount', read(f'{point}/a.txt'), 'first')
        escrow('drop', session, 'tests-pass')


def WhatIsWrongWithASavepointIsSaid(start):
    with start() as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}/savepoints'
        for body, status, code in (({'name': '../x'}, 400, 'bad_request'), ({'name': 5}, 400, 'invalid_value'),
                                   ({}, 400, 'invalid_value')):
            service.post(at, body).expect(status, code)
        service.post(at, {'name': 'one'}).expect(200)
        service.post(at, {'name': 'one'}).expect(409, 'exists')
        service.post(f'{at}/none/restore').expect(404, 'not_found')
        service.delete(f'{at}/none').expect(404, 'not_found')
        service.delete(f'{at}/one?colour=1').expect(400, 'unknown_field')
        missing = f'/v1/sessions/{OTHER}/savepoints'
        service.get(missing).expect(404, 'no_session')
        service.post(missing, {'name': 'one'}).expect(404, 'no_session')
        service.post(f'{missing}/one/restore').expect(404, 'no_session')
        service.delete(f'{missing}/one').expect(404, 'no_session')
        # Others moved the branch, and the session with it.
        ordered = {'repository': 'data', 'command': ['sh', '-c', 'echo x > other']}
        run = service.post('/v1/runs', ordered).expect(201)['run']
        service.get(f'/v1/runs/{run}/wait?timeout_ms=250000').expect(200)
        service.post(f'/v1/sessions/{session}/update').expect(200)
        service.post(f'{at}/one/restore').expect(409, 'wrong_state')
        number = 0
        while (answer := service.post(at, {'name': f'many-{number}'})).status == 200:
            number += 1
        answer.expect(409, 'wrong_state')


def ASessionThatAnotherProcessHasIsLeftToIt(start):
    with start() as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}/savepoints'
        with open(f'{service.repository}/escrow/sessions/{session}/lock', 'ab') as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            service.get(at).expect(409, 'attached_elsewhere')
            service.post(at, {'name': 'one'}).expect(409, 'attached_elsewhere')
            service.post(f'{at}/one/restore').expect(409, 'attached_elsewhere')
            service.delete(f'{at}/one').expect(409, 'attached_elsewhere')


def SavepointsAreHisWhoseTheSessionIs(start):
    with start(reviewers=['user:nobody']) as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}/savepoints'
        service.post(at, {'name': 'one'}).expect(200)
        refused(service, 'POST', at, 403, 'forbidden', {'name': 'two'})
        refused(service, 'POST', f'{at}/one/restore', 403, 'forbidden')
        refused(service, 'DELETE', f'{at}/one', 403, 'forbidden')
        with Held(service, 'gc.lock'):
            service.put(f'/v1/sessions/{session}/files/a.txt', b'x').expect(200)
            thread, answers = ask_apart(service, session)
            eventually('it is sealed', lambda: service.get(at).status == 409)
            service.get(at).expect(409, 'busy')
            service.post(at, {'name': 'two'}).expect(409, 'busy')
            service.post(f'{at}/one/restore').expect(409, 'busy')
            service.delete(f'{at}/one').expect(409, 'busy')
        thread.join(300)
        expect_equal('the commit', answers[0].status, 200)
        service.get(at).expect(409, 'session_finished')
        service.post(at, {'name': 'two'}).expect(409, 'session_finished')
        service.post(f'{at}/one/restore').expect(409, 'session_finished')
        service.delete(f'{at}/one').expect(409, 'session_finished')


if __name__ == '__main__':
    main(globals())
