#!/usr/bin/env python3
"""What a principal may have at most, whatever it asks for."""
import threading

from service import NOBODY, NOBODY_NAME, as_user, expect, expect_equal, main, request

LIMITS = {'staged_bytes': 200_000, 'files': 3}


def as_nobody(service, *asked):
    """[(status, document)] of (method, target, body), one after the other, by one who is no operator."""
    def ask():
        answers = [request(service.socket, *one) for one in asked]
        return [(answer.status, answer.json) for answer in answers]
    return as_user(NOBODY, ask)


def opening(**fields):
    return 'POST', '/v1/sessions', {'repository': 'data', **fields}


def roll_back_all(service):
    _, listed = as_nobody(service, ('GET', '/v1/sessions?ended=false', None))[0]
    as_nobody(service, *[('POST', f'/v1/sessions/{one["session"]}/rollback', {}) for one in listed['sessions']])


def SessionsAndRunsOverTheQuotaAreRefused(start):
    with start(quotas={'*': {'sessions': 0}, NOBODY_NAME: {'sessions': 2, 'runs': 1}}) as service:
        answers = as_nobody(service, opening(), opening(), opening())
        expect_equal('statuses', [status for status, _ in answers], [201, 201, 429])
        problem = answers[2][1]
        expect_equal('the problem', (problem['code'], problem['retryable']), ('quota_exceeded', True))
        expect('2 sessions' in problem['detail'], problem['detail'])
        # An operator has none.
        for _ in range(4):
            service.open()
        # A key is not spent by it.
        keyed = {'Idempotency-Key': 'later'}
        def ask_with_key():
            return request(service.socket, *opening(), keyed).status
        expect_equal('with a key', as_user(NOBODY, ask_with_key), 429)
        ended = answers[0][1]['session']
        expect_equal('the end of one', as_nobody(service, ('POST', f'/v1/sessions/{ended}/rollback', {}))[0][0], 200)
        expect_equal('the same request again', as_user(NOBODY, ask_with_key), 201)
        # However many ask at once.
        roll_back_all(service)
        def crowd():
            statuses = []
            def ask():
                statuses.append(request(service.socket, *opening()).status)
            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return statuses
        statuses = as_user(NOBODY, crowd)
        expect(1 <= statuses.count(201) <= 2, f'{statuses}')
        expect_equal('the others', statuses.count(429), 12 - statuses.count(201))
        # A run is a session, too.
        roll_back_all(service)
        run = ('POST', '/v1/runs', {'repository': 'data', 'command': ['sleep', '600']})
        answers = as_nobody(service, run, run, opening(), opening())
        expect_equal('runs', [status for status, _ in answers], [201, 429, 201, 429])
        expect('runs at once' in answers[1][1]['detail'], answers[1][1]['detail'])
        cancelled = answers[0][1]['run']
        as_nobody(service, ('POST', f'/v1/runs/{cancelled}/cancel', {}),
                  ('GET', f'/v1/runs/{cancelled}/wait?timeout_ms=250000', None))
        expect_equal('after its end', as_nobody(service, run)[0][0], 201)


def WhatASessionMayStageIsBoundedForWhoIsNoOperator(start):
    with start(quotas={'*': LIMITS}) as service:
        status, session = as_nobody(service, opening())[0]
        expect_equal('unasked', (status, session['limits']), (201, LIMITS))
        less = {'staged_bytes': 100_000, 'files': 2}
        expect_equal('less', as_nobody(service, opening(limits=less))[0][1]['limits'], less)
        for name, value in (('staged_bytes', 200_001), ('files', 4)):
            status, problem = as_nobody(service, opening(limits={name: value}))[0]
            expect_equal(name, (status, problem['code'], problem['field']), (403, 'forbidden', f'limits.{name}'))
        # And it holds.
        path = f'/v1/sessions/{session["session"]}/files'
        def put(name, size):
            return as_user(NOBODY, lambda: request(service.socket, 'PUT', f'{path}/{name}', b'x' * size,
                                                   {'Content-Type': 'application/octet-stream'}).status)
        expect_equal('what fits', put('one', 100_000), 201)
        expect_equal('what does not', put('two', 200_000), 507)
        status, problem = as_nobody(service, ('POST', '/v1/runs', {
            'repository': 'data', 'command': ['true'], 'limits': {'files': 4}}))[0]
        expect_equal('of a run', (status, problem['code']), (403, 'forbidden'))
        expect_equal('an operator', service.open(limits={'files': 100})['limits']['files'], 100)


if __name__ == '__main__':
    main(globals())
