#!/usr/bin/env python3
"""Statuses of the API that belong to no other test."""
import os
import re

from authorization_test import refused
from description import DESCRIPTION
from service import NOBODY_NAME, expect, expect_equal, main, write


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


def EveryOperationHasANameOfItsOwn(_start):
    names = [operation.get('operationId') for _, _, operation in DESCRIPTION.operations()]
    expect(len(names) > 30, f'{len(names)} operations')
    for name in names:
        expect(re.fullmatch('[a-z][A-Za-z]+', name or ''), f'an operation is called {name}')
        expect_equal(f'operations that are called {name}', names.count(name), 1)


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
        view = service.get(f'/v1/sessions/{session}/wait?states=committed&timeout_ms=250000').json
        expect_equal('approved', (view['state'], view['reviewer']), ('committed', 'user:root'))


if __name__ == '__main__':
    main(globals())
