#!/usr/bin/env python3
"""Refusals that belong to no other test: codes that api/openapi.yaml names for an operation, by a direct request."""
import os
import sqlite3
import subprocess

from service import eventually, expect, expect_equal, main, write
from table_test import Held, ask, ask_apart, bring, is_sealed


def WhatCannotBeRegisteredIsRefusedByItsReason(start):
    with start() as service:
        def made(name):
            path = f'{service.repositories}/{name}.git'
            subprocess.run(['git', 'init', '--bare', '--quiet', path], check=True, timeout=300)
            subprocess.run([service.escrow_binary, '--repo', path, 'init'], check=True, timeout=99, capture_output=True)
            return path
        def register(path):
            return service.post('/v1/repositories', {'name': 'other', 'path': path})
        os.mkdir(f'{service.repositories}/empty')
        register(f'{service.repositories}/empty').expect(404, 'no_repository')
        subprocess.run(['git', 'init', '--bare', '--quiet', '--object-format=sha256', f'{service.repositories}/sha256'],
                       check=True, timeout=300)
        register(f'{service.repositories}/sha256').expect(422, 'unsupported_repository')
        newer = made('newer')
        catalogs = [name for name in os.listdir(f'{newer}/escrow') if name.endswith('.db')]
        with sqlite3.connect(f'{newer}/escrow/{catalogs[0]}') as connection:
            connection.execute('PRAGMA user_version = 9999')
        connection.close()
        register(newer).expect(500, 'newer_state')
        damaged = made('damaged')
        for name in os.listdir(f'{damaged}/escrow'):
            if name.startswith(catalogs[0]):
                write(f'{damaged}/escrow/{name}', 'no database' * 1000)
        register(damaged).expect(500, 'damaged_repository')
        expect_equal('registered', len(service.get('/v1/repositories').json['repositories']), 1)


def ABranchThatWasCheckedOutMeanwhileDoesNotMove(start):
    """Nobody takes the work tree along: its next plain commit would take the session's back."""
    with start() as service:
        for name, mountpoint in (('detached', ''), ('mounted', f'{service.mounts}/work')):
            session = service.open(**({'mountpoint': mountpoint} if mountpoint else {}))['session']
            service.put(f'/v1/sessions/{session}/files/{name}', b'new').expect(201)
            tree, before = f'{service.directory}/tree', service.git('rev-parse', 'main')
            service.git('worktree', 'add', '--quiet', tree, 'main')
            for verb, body in (('commit', {}), ('finish', {'exit_code': 0})):
                refused = ask(service, session, verb, body).expect(409, 'wrong_state')
                expect('is checked out in the work tree of' in refused['detail'], refused)
            expect_equal('the branch', service.git('rev-parse', 'main'), before)
            service.git('worktree', 'remove', '--force', tree)
            ask(service, session, 'commit', {}).expect(200)
            expect_equal('the file', service.git('show', f'main:{name}'), 'new')


def ARunsSessionIsItsRuns(start):
    with start() as service:
        run = service.post('/v1/runs', {'repository': 'data', 'command': ['sleep', '600'],
                                        'external_id': 'one'}).expect(201)['run']
        again = {'repository': 'data', 'command': ['true'], 'external_id': 'one'}
        service.post('/v1/runs', again).expect(409, 'exists')
        for verb in ('commit', 'unmount', 'update'):
            ask(service, run, verb, {}).expect(409, 'wrong_state')
        for verb, body in (('finish', {'exit_code': 0}), ('mount', {'mountpoint': f'{service.mounts}/one'}),
                           ('changes', None), ('entries', None), ('GET', None), ('PUT', None), ('DELETE', None)):
            ask(service, run, verb, body).expect(409, 'attached_elsewhere')
        expect_equal('the run', service.get(f'/v1/runs/{run}').expect(200)['state'], 'running')
        ask(service, run, 'rollback', {}).expect(200)
        ended = service.get(f'/v1/runs/{run}/wait?timeout_ms=250000').expect(200)
        expect_equal('rolled back by hand', (ended['state'], ended['session']['state']), ('ended', 'rolled_back'))


def WhatIsAskedWronglyIsRefusedByItsName(start):
    with start() as service:
        session = service.open(path_prefix='dir')['session']
        at = f'/v1/sessions/{session}'
        for verb, body, status, code in (
                ('commit', {'message': 5}, 400, 'invalid_value'), ('reject', {'comment': 5}, 400, 'invalid_value'),
                ('rollback', {'keep_result': 5}, 400, 'invalid_value'),
                ('discard', {'paths': ['../x']}, 400, 'bad_request'),
                ('discard', {'paths': ['a.txt']}, 404, 'not_found')):
            ask(service, session, verb, body).expect(status, code)
        for target in ('wait?states=x', 'wait?timeout_ms=-1'):
            service.get(f'{at}/{target}').expect(400, 'invalid_value')
        service.get('/v1/repositories/data/log?limit=many').expect(400, 'invalid_value')
        run = service.post('/v1/runs', {'repository': 'data', 'command': ['true']}).expect(201)['run']
        service.get(f'/v1/runs/{run}/wait?timeout_ms=x').expect(400, 'invalid_value')
        service.delete(f'{at}/files/dir/none').expect(404, 'not_found')
        service.put('/v1/sessions/0123456789abcdef/files/a.txt', b'x').expect(404, 'no_session')
        for route, more in (('sessions', {}), ('runs', {'command': ['true']})):
            opening = {'repository': 'data', **more}
            service.post(f'/v1/{route}', {**opening, 'branch': 'no/such'}).expect(404, 'no_branch')
            service.post(f'/v1/{route}', {**opening, 'branch': 'a..b'}).expect(400, 'bad_request')
        os.makedirs(f'{service.mounts}/full/of')
        service.post('/v1/sessions', {'repository': 'data', 'mountpoint': f'{service.mounts}/full'}).expect(
            400, 'bad_request')
        service.open_mounted('taken')
        answer = service.post('/v1/sessions', {'repository': 'data', 'mountpoint': f'{service.mounts}/taken'})
        expect_equal('a mountpoint that is taken', (answer.status, answer.json['code']), (403, 'forbidden'))


def WhileAnotherIsAtItItIsBusy(start):
    with start() as service:
        session, _ = bring(service, 'open')
        ask(service, session, 'PUT').expect(200)  # the first notes who writes, and would wait for the commit
        with Held(service, 'gc.lock'):
            thread, answers = ask_apart(service, session)
            eventually('it is sealed', lambda: is_sealed(service, session))
            service.get(f'/v1/sessions/{session}?with_changes=true').expect(409, 'busy')
            # Two have their turn; which of the three has none, and whether it hears so at once, is open.
            def clean_up(number):
                apart = {'Prefer': 'respond-async', 'Idempotency-Key': f'gc-{number}'}
                return service.post('/v1/repositories/data/gc', headers=apart)
            refused = []
            def one_is_refused():
                refused.extend(answer for answer in map(clean_up, range(3)) if answer.status not in (202, 409))
                return refused
            eventually('one is refused', one_is_refused)
            refused[0].expect(503, 'unavailable')
        thread.join(300)
        expect_equal('the commit', answers[0].status, 200)


def WhatTheServiceItselfFailsAtIsInternal(start):
    with start() as service:
        session = service.open()['session']
        state = f'{service.directory}/state'
        os.rename(state, state + '.away')
        problem = service.put(f'/v1/sessions/{session}/files/a.txt', b'x').expect(500, 'internal')
        expect('nothing was changed' in problem['detail'], problem['detail'])
        os.rename(state + '.away', state)
        service.put(f'/v1/sessions/{session}/files/a.txt', b'x').expect(200)


if __name__ == '__main__':
    main(globals())
