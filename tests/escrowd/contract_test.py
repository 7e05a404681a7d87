#!/usr/bin/env python3
"""The table of the API: what each verb is answered in each state of a session."""
import os
import re

from holes_test import refused
from service import DESCRIPTION, NOBODY_NAME, expect, expect_equal, main, write

OK, FINISHED, WRONG = (200, None), (409, 'session_finished'), (409, 'wrong_state')
# The rows and columns of the table in api/openapi.yaml; `committing` is held by the request that commits.
VERBS = {
    'mount': lambda service, view: {'mountpoint': f'{service.mounts}/other-{view["session"]}'},
    'unmount': lambda *_: {},
    'lease': lambda *_: {},
    'update': lambda *_: {},
    'discard': lambda *_: {'paths': ['a.txt']},
    'finish 0': lambda *_: {'exit_code': 0},
    'finish 1': lambda *_: {'exit_code': 1},
    'finish cancelled': lambda *_: {'cancelled': True},
    'commit': lambda *_: {},
    'rollback': lambda *_: {},
    'approve': lambda _, view: {'result': view['result'] or '0' * 40},
    'reject': lambda *_: {},
}
FILES = {
    'changes': ('GET', 'changes'), 'diff': ('GET', 'diff'), 'GET': ('GET', 'files/a.txt'),
    'PUT': ('PUT', 'files/a.txt'), 'DELETE': ('DELETE', 'files/a.txt'),
}
ENDED = {'mount': FINISHED, 'unmount': FINISHED, 'lease': FINISHED, 'update': FINISHED, 'discard': FINISHED,
         'changes': FINISHED, 'diff': (409, None),
         'GET': FINISHED, 'PUT': FINISHED, 'DELETE': FINISHED, 'finish 1': FINISHED, 'finish cancelled': FINISHED}
EXPECTED = {
    'open': {'mount': OK, 'unmount': OK, 'lease': OK, 'update': OK, 'discard': OK,
             'finish 0': OK, 'finish 1': OK, 'finish cancelled': OK, 'commit': OK, 'rollback': OK,
             'approve': WRONG, 'reject': WRONG,
             'changes': OK, 'diff': OK, 'GET': OK, 'PUT': OK, 'DELETE': OK},
    'awaiting_approval': {**ENDED, 'finish 0': OK, 'commit': OK, 'rollback': OK, 'approve': OK, 'reject': OK,
                          'changes': OK, 'diff': OK, 'GET': OK},
    'committed': {**ENDED, 'finish 0': OK, 'commit': OK, 'rollback': FINISHED, 'approve': FINISHED,
                  'reject': FINISHED},
    'committed after approval': {**ENDED, 'finish 0': OK, 'commit': OK, 'rollback': FINISHED, 'approve': OK,
                                 'reject': FINISHED},
    'commit_failed': {**ENDED, 'finish 0': OK, 'commit': FINISHED, 'rollback': FINISHED, 'approve': FINISHED,
                      'reject': FINISHED},
    'rolled_back': {**ENDED, 'finish 0': FINISHED, 'finish 1': OK, 'commit': FINISHED, 'rollback': OK,
                    'approve': FINISHED, 'reject': FINISHED},
    'rolled_back by a reviewer': {**ENDED, 'finish 0': OK, 'commit': FINISHED, 'rollback': OK, 'approve': FINISHED,
                                  'reject': OK},
}


def bring(service, state):
    """A session in this state, with a mount as long as it is open."""
    approval = state in ('awaiting_approval', 'committed after approval', 'rolled_back by a reviewer')
    # Each on a mountpoint of its own: some stay open.
    name = f'work-{len(os.listdir(service.mounts))}'
    session, point = service.open_mounted(name, lease_ms=600_000, require_approval=approval)
    write(f'{point}/new-{session}.txt', 'new')
    if state == 'commit_failed':
        write(f'{point}/a.txt', 'mine')
        other, point = service.open_mounted('theirs')
        write(f'{point}/a.txt', f'theirs {session}')
        service.finish(other, {'exit_code': 0}).expect(200)
    if state != 'open':
        service.finish(session, {'exit_code': 1 if state == 'rolled_back' else 0}).expect(200)
    view = service.get(f'/v1/sessions/{session}').expect(200)
    if state == 'committed after approval':
        service.post(f'/v1/sessions/{session}/approve', {'result': view['result']}).expect(200)
    if state == 'rolled_back by a reviewer':
        service.post(f'/v1/sessions/{session}/reject').expect(200)
    view = service.get(f'/v1/sessions/{session}').expect(200)
    expect_equal('the state', view['state'], state.split()[0])
    return session, view


def asked(service, session, view, verb):
    if verb in FILES:
        method, route = FILES[verb]
        if method == 'PUT':
            return service.put(f'/v1/sessions/{session}/{route}', b'new content')
        return service.get(f'/v1/sessions/{session}/{route}') if method == 'GET' else service.delete(
            f'/v1/sessions/{session}/{route}')
    if verb == 'mount' and view['state'] == 'open':
        service.post(f'/v1/sessions/{session}/unmount').expect(200)
    return service.post(f'/v1/sessions/{session}/{verb.split()[0]}', VERBS[verb](service, view))


def EveryVerbInEveryStateIsAnsweredAsTheTableSays(start):
    with start() as service:
        for state, row in EXPECTED.items():
            expect_equal(f'the verbs of {state}', set(row), set(VERBS) | set(FILES))
            session = None
            for verb, (status, code) in row.items():
                if session is None:
                    session, view = bring(service, state)
                answer = asked(service, session, view, verb)
                said = f'{verb} of a session that is {state}: {answer.status} {answer.body[:300]!r}'
                expect(answer.status == status, said)
                if status < 400:
                    if verb in VERBS:
                        again = asked(service, session, answer.json, verb) if verb != 'mount' else answer
                        expect(again.status == 200, f'again: {said}')
                    if state in ('open', 'awaiting_approval'):
                        session = None  # it is another one now
                    continue
                expect(code is None or answer.json['code'] == code, said)
                expect('state' not in answer.json or answer.json['state'] == view['state'], said)
                now = service.get(f'/v1/sessions/{session}').expect(200)
                for member in ('state', 'reason', 'commit', 'result'):
                    expect_equal(f'{member} after {said}', now[member], view[member])


def TheServiceSaysWhetherItsRepositoriesCanBeUsed(start):
    with start() as service:
        expect_equal('the version', service.get('/v1/version').expect(200)['api'], 1)
        expect_equal('ready', service.get('/v1/ready').expect(200)['status'], 'ready')
        service.stop()
        os.rename(service.repository, service.repository + '.away')
        service.start()
        problem = service.get('/v1/ready').expect(503, 'unavailable')
        expect('data' in problem['detail'], problem['detail'])
        service.get('/v1/health').expect(200)
        expect(service.get('/v1/repositories').json['repositories'][0]['error'] is not None, 'no error is shown')
        os.rename(service.repository + '.away', service.repository)
        # Found again when it is asked for.
        service.open()
        service.get('/v1/ready').expect(200)


def AReviewerNeitherRenewsNorMounts(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        session = service.open(lease_ms=600_000)['session']
        refused(service, 'POST', f'/v1/sessions/{session}/lease', 403, 'forbidden', {})
        refused(service, 'POST', f'/v1/sessions/{session}/update', 403, 'forbidden', {})
        refused(service, 'POST', f'/v1/sessions/{session}/discard', 403, 'forbidden', {'paths': ['a.txt']})
        refused(service, 'POST', f'/v1/sessions/{session}/mount', 403, 'forbidden', {'mountpoint': service.mounts})
        refused(service, 'POST', '/v1/sessions/0123456789abcdef/reject', 404, 'no_session', {})
        service.post('/v1/sessions/0123456789abcdef/lease').expect(404, 'no_session')


def ADiffThatIsTooLargeIsRefused(start):
    with start() as service:
        session = service.open()['session']
        lines = b'a line of a text that is long enough\n' * 200_000
        for number in range(10):
            service.put(f'/v1/sessions/{session}/files/large-{number}', lines).expect(201)
        service.get(f'/v1/sessions/{session}/diff').expect(422, 'result_too_large')
        one = service.get(f'/v1/sessions/{session}/diff?path=large-3')
        expect_equal('of one file', (one.status, one.body.count(b'\n+a line')), (200, 200_000))


def EveryLongVerbNeedNotBeWaitedFor(start):
    with start() as service:
        now = {'Prefer': 'respond-async'}
        session, point = service.open_mounted('one')
        write(f'{point}/file', 'x')
        service.post(f'/v1/sessions/{session}/commit', headers=now).expect(202)
        expect_equal('committed', service.get(f'/v1/sessions/{session}/wait').json['state'], 'committed')
        session, point = service.open_mounted('two', require_approval=True)
        write(f'{point}/file-2', 'x')
        result = service.finish(session, {'exit_code': 0}).expect(200)['result']
        service.post(f'/v1/sessions/{session}/approve', {'result': result}, headers=now).expect(202)
        view = service.get(f'/v1/sessions/{session}/wait?states=committed').json
        expect_equal('approved', (view['state'], view['reviewer']), ('committed', 'user:root'))


def TheTableOfTheDescriptionIsTheTableThatWasWalked(start):
    del start
    text = DESCRIPTION.document['info']['description']
    states = {match.group(1) for match in re.finditer(r'^\| (\w+)(?:, \w+)* \|', text, re.MULTILINE)} - {'state'}
    walked = {state.split()[0] for state in EXPECTED} | {'committing'}
    expect_equal('the states', states, walked)
    columns = ' '.join(re.findall(r'^\| state \|(.*)$', text, re.MULTILINE))
    verbs = set(re.findall(r'\w+', columns)) - {'of', 'a', 'file'}
    expect_equal('the verbs', verbs, {verb.split()[0] for verb in VERBS} | set(FILES))


if __name__ == '__main__':
    main(globals())
