#!/usr/bin/env python3
"""What the service does by itself: it cleans up repositories on schedule, and forgets what has had its time."""
import re
import signal
import subprocess

from events_test import Follower
from reload_test import change
from service import eventually, expect, expect_equal, main
from upkeep_test import signal_all, verifiers

KEY = {'Idempotency-Key': 'one-key'}


def metric(service, name, **labels):
    """Of /metrics; None: it is not there."""
    for line in service.get('/metrics').body.decode().splitlines():
        match = re.fullmatch(r'(\w+)\{(.*)\} (\S+)', line)
        if match and match[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', match[2])) == labels:
            return float(match[3])
    return None


def done(service, repository):
    return metric(service, 'escrow_gc_runs_total', repository=repository, outcome='done') or 0


def reload(service, **config):
    change(service, **config)
    service.post('/v1/reload').expect(200)


def with_two(service):
    service.post('/v1/repositories', {'name': 'other', 'create': True}).expect(201)


def gcs(service):
    """Processes that clean up any repository: pids."""
    found = subprocess.run(['pgrep', '-f', f'^/proc/self/exe gc {service.repositories}/'], check=False,
                           capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


def RepositoriesAreCleanedUpOnScheduleOneAtATime(start):
    with start(gc_every_s={'*': 0}) as service:
        with_two(service)
        expect_equal('none is due', gcs(service), [])
        reload(service, gc_every_s={'other': 1, '*': 0})
        eventually('the other one has its turns', lambda: done(service, 'other') >= 2)
        expect_equal('never', metric(service, 'escrow_gc_runs_total', repository='data', outcome='done'), None)
        expect(metric(service, 'escrow_gc_last_run_seconds', repository='other') > 0, 'it took no time')
        # While one is cleaned up the next waits, and whoever asks for it does not.
        reload(service, gc_every_s={'*': 1})
        held = []
        def is_held():
            held[:] = verifiers(service, b'gc')
            signal_all(held, signal.SIGSTOP)
            return held
        eventually('data is cleaned up', is_held)
        others = done(service, 'other')
        service.post('/v1/repositories/other/gc').expect(200)
        expect_equal('at once', gcs(service), held)
        expect_equal('the other one meanwhile', done(service, 'other'), others)
        signal_all(held, signal.SIGCONT)
        eventually('both go on', lambda: done(service, 'other') > others and done(service, 'data') >= 2)
        # What goes wrong is said and counted.
        service.config['gc_every_s'] = {'data': 1, '*': 0}
        reload(service)
        eventually('it is killed', lambda: [signal_all(verifiers(service, b'gc'), signal.SIGKILL), metric(
            service, 'escrow_gc_runs_total', repository='data', outcome='failed')][1])
        with open(f'{service.directory}/log', encoding='utf-8') as log:
            expect("the repository 'data' is cleaned up later" in log.read(), 'it is not said')
        runs = done(service, 'data')
        eventually('it is tried again', lambda: done(service, 'data') > runs)


def ARestartKeepsTheTurnsAndBreaksOffNothingOfWorth(start):
    with start(gc_every_s={'data': 1}) as service:
        eventually('it is cleaned up', lambda: done(service, 'data') >= 1)
        held = []
        def is_held():
            held[:] = verifiers(service, b'gc')
            signal_all(held, signal.SIGSTOP)
            return held
        eventually('it is being cleaned up', is_held)
        # The service does not wait for it (stop_grace_ms is half a minute), and leaves none behind.
        expect_equal('the exit status', service.stop(), 0)
        eventually('it has gone', lambda: not verifiers(service, b'gc'))
        change(service, gc_every_s={'data': 86_400})
        service.start()
        expect(metric(service, 'escrow_gc_last_success_timestamp_seconds', repository='data') > 1_600_000_000,
               'when it was last is not known any more')
        expect_equal('it has had its turn', done(service, 'data'), 0)
        service.post('/v1/repositories/data/verify').expect(200)


def WhatHasHadItsTimeIsForgotten(start):
    with start(gc_every_s={'*': 0}) as service:
        first = service.post('/v1/sessions', {'repository': 'data'}, headers=KEY).expect(201)['session']
        expect_equal('by its key', service.post('/v1/sessions', {'repository': 'data'}, headers=KEY).json['session'],
                     first)
        named = {'repository': 'data', 'external_id': 'named'}
        service.finish(service.post('/v1/sessions', named).expect(201)['session'], {'exit_code': 0}).expect(200)
        service.put(f'/v1/sessions/{first}/files/kept', b'kept').expect(201)
        service.finish(first, {'exit_code': 0}).expect(200)
        still_open = service.open()['session']
        ended = service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)['token']
        service.delete(f'/v1/tokens/{ended}').expect(200)
        kept = service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)['token']
        with Follower(service, last_id=0) as follower:
            follower.wait_for('token.revoked', token=ended)
        reload(service, retention={'sessions_s': 1, 'events_s': 1, 'idempotency_keys_s': 1, 'tokens_s': 0})
        def opened():
            return service.post('/v1/sessions', {'repository': 'data'}, headers=KEY).expect(201)['session']
        eventually('the key opens another one', lambda: opened() != first)
        eventually('the ended token', lambda: service.get(f'/v1/tokens/{ended}').status == 404)
        service.get(f'/v1/tokens/{kept}').expect(200)
        def first_told():
            with Follower(service, last_id=0) as late:
                eventually('something is told', lambda: late.events)
                return late.events[0]['type']
        service.open()
        eventually('the events', lambda: first_told() == 'gap')
        # Sessions go when the repository is cleaned up; what they have committed stays.
        service.get(f'/v1/sessions/{first}').expect(200)
        reload(service, gc_every_s={'data': 1})
        eventually('the ended session', lambda: service.get(f'/v1/sessions/{first}').status == 404)
        expect_equal('the open one', service.state(still_open), 'open')
        expect_equal('the file', service.git('show', 'main:kept'), 'kept')
        # By number.
        reload(service, retention={'events': 3, 'sessions_s': 1})
        for _ in range(4):
            service.open()
        def told():
            with Follower(service, last_id=0) as late:
                eventually('something is told', lambda: late.events)
                gap = late.of('gap')
                return gap and int(late.events[-1]['id']) - gap[0]['until'] <= 3
        eventually('three events are kept', told)
        def is_external_id_free():
            service.stop()  # then it forgets what it knows of sessions whose records are forgotten
            service.start()
            return service.post('/v1/sessions', named).status == 201
        eventually('the external id', is_external_id_free)


if __name__ == '__main__':
    main(globals())
