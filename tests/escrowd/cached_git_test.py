#!/usr/bin/env python3
"""A .git in a cache, over the API."""
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


if __name__ == '__main__':
    main(globals())
