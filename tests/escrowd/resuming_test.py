#!/usr/bin/env python3
"""The way out of a conflict over the API, and with `escrow --host`: a session is resumed, and its paths are settled."""
import fcntl
import json
import subprocess

from authorization_test import refused
from quotas_test import as_nobody
from service import NOBODY_NAME, eventually, expect, expect_equal, main, read
from table_test import Held, ask_apart, others_change

OTHER = '0123456789abcdef'


def failed(service, path='a.txt'):
    """A session whose commit has met a conflict there."""
    session = service.open()['session']
    service.put(f'/v1/sessions/{session}/files/{path}', b'mine')
    service.put(f'/v1/sessions/{session}/files/kept.txt', b'kept')
    others_change(service, path)
    service.finish(session, {'exit_code': 0}).expect(200)
    expect_equal('the state', service.state(session), 'commit_failed')
    return session


def ASessionThatConflictedIsResumedAndSettled(start):
    with start() as service:
        older = failed(service)
        answer = service.post(f'/v1/sessions/{older}/resume')
        made = answer.expect(201)
        at = f'/v1/sessions/{made["session"]}'
        expect_equal('where it is', answer.headers['location'], at)
        expect_equal('it resumes', (made['resumes'], made['state'], made['source']), (older, 'open', 'sandbox'))
        expect_equal('the older one', service.get(f'/v1/sessions/{older}').expect(200)['resumed_as'], made['session'])
        listed = service.get(f'{at}/unresolved').expect(200)
        expect_equal('the paths', [one['path'] for one in listed['unresolved']], ['a.txt'])
        blob = listed['unresolved'][0]['theirs']['id']
        expect(service.git('cat-file', 'blob', blob).startswith('theirs'), 'another version')
        service.post(f'{at}/commit').expect(409, 'conflict')
        done = service.post(f'{at}/resolve', {'paths': ['a.txt'], 'how': 'mine'}).expect(200)
        expect_equal('settled', ([one['path'] for one in done['settled']], done['unresolved']), (['a.txt'], []))
        service.post(f'{at}/commit').expect(200)
        expect_equal('the branch', (service.git('show', 'main:a.txt'), service.git('show', 'main:kept.txt')),
                     ('mine', 'kept'))


def ThroughAServiceTheCommandsAreTheSame(start):
    with start() as service:
        older, point = failed(service), f'{service.mounts}/resumed'
        def escrow(*arguments, status=0):
            command = [service.escrow_binary, '--host', f'unix://{service.socket}', *arguments]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
            expect_equal(f'{arguments}: {done.stderr}', done.returncode, status)
            return done.stdout.strip(), done.stderr
        session, said = escrow('resume', older, point)
        expect('a.txt: the session modified it, the branch modified it' in said, said)
        expect_equal('in the mount', read(f'{point}/a.txt'), 'mine')
        expect('a.txt' in escrow('resolve', session)[0], 'it is not listed')
        escrow('commit', session, status=122)
        expect('1 path' in escrow('resolve', session, 'a.txt', '--theirs')[0], 'it is not settled')
        expect(read(f'{point}/a.txt').startswith('theirs'), 'it is not in the mount')
        escrow('commit', session)
        again = json.loads(escrow('resume', older, '--json')[0])
        expect_equal('once more', again['resumes'], older)
        expect('was resumed before, as ' in escrow('resume', older)[1], 'the other is not named')


def WhatIsWrongWithResumingIsSaid(start):
    with start() as service:
        session = service.open()['session']
        at = f'/v1/sessions/{session}'
        for body, status, code in (({'how': 'mine'}, 400, 'invalid_value'), ({'paths': ['a']}, 400, 'invalid_value'),
                                   ({'paths': ['a'], 'how': 'ours'}, 400, 'invalid_value'),
                                   ({'paths': ['../a'], 'how': 'mine'}, 400, 'bad_request'),
                                   ({'paths': ['a.txt'], 'how': 'mine'}, 404, 'not_found')):
            service.post(f'{at}/resolve', body).expect(status, code)
        service.post(f'{at}/resume').expect(409, 'wrong_state')
        settled = {'paths': ['a.txt'], 'how': 'mine'}
        service.get(f'/v1/sessions/{OTHER}/unresolved').expect(404, 'no_session')
        service.post(f'/v1/sessions/{OTHER}/resolve', settled).expect(404, 'no_session')
        service.post(f'/v1/sessions/{OTHER}/resume').expect(404, 'no_session')
        with open(f'{service.repository}/escrow/sessions/{session}/lock', 'ab') as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            service.get(f'{at}/unresolved').expect(409, 'attached_elsewhere')
            service.post(f'{at}/resolve', settled).expect(409, 'attached_elsewhere')
        with Held(service, 'gc.lock'):
            service.put(f'{at}/files/a.txt', b'x').expect(200)
            thread, answers = ask_apart(service, session)
            eventually('it is sealed', lambda: service.get(f'{at}/unresolved').status == 409)
            service.get(f'{at}/unresolved').expect(409, 'busy')
            service.post(f'{at}/resolve', settled).expect(409, 'busy')
            service.post(f'{at}/resume').expect(409, 'busy')
        thread.join(300)
        expect_equal('the commit', answers[0].status, 200)
        service.get(f'{at}/unresolved').expect(409, 'session_finished')
        service.post(f'{at}/resolve', settled).expect(409, 'session_finished')
        older = failed(service)
        service.git('update-ref', '-d', 'refs/heads/main')
        service.post(f'/v1/sessions/{older}/resume').expect(404, 'no_branch')


def AResumedSessionIsHisWhoseTheOlderOneIs(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        older = failed(service)
        session = service.open()['session']
        refused(service, 'POST', f'/v1/sessions/{older}/resume', 403, 'forbidden', {})
        refused(service, 'POST', f'/v1/sessions/{session}/resolve', 403, 'forbidden',
                {'paths': ['a.txt'], 'how': 'mine'})


def AResumedSessionCountsAndHasNoMoreThanOneThatIsOpenedAnew(start):
    opening = ('POST', '/v1/sessions', {'repository': 'data', 'limits': {'files': 9}})
    with start(quotas={NOBODY_NAME: {'sessions': 1, 'files': 10}}) as service:
        (status, older), = as_nobody(service, opening)
        expect_equal('opened', status, 201)
        at = f'/v1/sessions/{older["session"]}'
        as_nobody(service, ('POST', f'{at}/rollback', {'keep_result': True}))
        again = ('POST', f'{at}/resume', {})
        (first, made), (second, problem) = as_nobody(service, again, again)
        expect_equal('statuses', (first, second, problem['code']), (201, 429, 'quota_exceeded'))
        expect_equal('limits', made['limits']['files'], 9)


if __name__ == '__main__':
    main(globals())
