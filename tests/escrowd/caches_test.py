#!/usr/bin/env python3
"""Caches of sessions that are opened over the API."""
import os

from authorization_test import asked
from runs_test import awaited, outcome, run, shell
from service import expect, expect_equal, main, write

CACHE = [{'path': 'build', 'source': 'cache:objects'}]


def AGitOfACacheIsShownToTheCallerWhoseSessionsWroteToItAlone(start):
    with start() as service:
        count = 0

        def seen(ask, path, make=None):
            nonlocal count
            count += 1
            point = f'{service.mounts}/{count}'
            status, opened = ask('POST', '/v1/sessions', {'repository': 'data', 'mountpoint': point, 'mounts': CACHE})
            expect_equal(f'{opened}', status, 201)
            is_there = os.path.exists(f'{point}/{path}')
            if make:
                os.makedirs(f'{point}/{make}')
            status, ended = ask('POST', f'/v1/sessions/{opened["session"]}/finish', {'exit_code': 0})
            expect_equal(f'{ended}', status, 200)
            return is_there

        def one(*call):
            return asked(service, *call)

        def other(method, target, body):
            answer = service.post(target, body)
            return answer.status, answer.json

        seen(other, '', make='build/plain')  # by the user of the runs; there is no .git yet
        seen(one, '', make='build/own/.git')
        expect_equal('its own, later', seen(one, 'build/own/.git'), True)
        expect_equal('of another caller', seen(other, 'build/own/.git'), False)
        view = awaited(service, run(service, shell('test -e build/own/.git && mkdir -p build/sub/.git', mounts=CACHE)))
        expect_equal('a confined run', outcome(view)[1:], ('no_changes', 0))
        expect_equal('of two hands', seen(one, 'build/own/.git'), False)
        expect_equal('of a run', seen(one, 'build/sub/.git'), False)
        view = awaited(service, run(service, shell('test ! -e build/sub/.git && test -e build/sub', mounts=CACHE,
                                                   confined=False)))
        expect_equal('an unconfined run', outcome(view)[1:], ('no_changes', 0))


def MountsShareACacheWhereContainersAloneWorkInThem(start):
    with start() as service:
        def opened(number, **fields):
            point = f'{service.mounts}/{number}'
            return service.post('/v1/sessions', {'repository': 'data', 'mountpoint': point, 'mounts': CACHE, **fields})

        first = opened(1).expect(201)['session']
        for fields in ({}, {'mount_options': ['in_container']}):
            problem = opened(2, **fields).expect(409, 'wrong_state')
            expect(f"the cache 'objects' is in use by session {first}" in problem['detail'], problem)
        service.post(f'/v1/sessions/{first}/unmount').expect(200)
        opened(2, mount_options=['in_container']).expect(201)
        opened(3, mount_options=['in_container']).expect(201)
        again = f'/v1/sessions/{first}/mount'
        service.post(again, {'mountpoint': f'{service.mounts}/1'}).expect(409, 'wrong_state')
        service.post(again, {'mountpoint': f'{service.mounts}/1', 'mount_options': ['in_container']}).expect(200)
        service.stop()
        service.start()
        for number in (1, 2, 3):
            expect_equal('after a restart', os.listdir(f'{service.mounts}/{number}/build'), [])


if __name__ == '__main__':
    main(globals())
