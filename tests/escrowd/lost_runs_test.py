#!/usr/bin/env python3
"""Runs of which the record or the repository is gone: what has no process has ended, whatever else is known of it."""
import os
import signal
import time

from runs_test import awaited, below, eventually_says, output, run, shell
from service import NOBODY, as_user, eventually, expect_equal, has_locked, main, request


def delete(service, name):
    return request(service.socket, 'DELETE', f'/v1/runs/{name}')


def forget_records(service, names):
    """As escrow.auditRetention has them forgotten by gc."""
    service.git('config', 'escrow.auditRetention', '1s')
    def are_forgotten():
        time.sleep(0.5)
        service.post('/v1/repositories/data/gc', timeout=300).expect(200)
        return all(service.get(f'/v1/sessions/{name}').status == 404 for name in names)
    eventually('the records are forgotten', are_forgotten)


def ARunWhoseRecordIsForgottenHasEnded(start):
    with start(max_runs=2) as service:
        names = [run(service, shell(f'echo {number}')) for number in range(2)]
        for name in names:
            awaited(service, name)
        forget_records(service, names)
        for restart in (False, True):
            if restart:
                service.stop()
                service.start()
            for number, name in enumerate(names):
                view = service.get(f'/v1/runs/{name}').expect(200)
                expect_equal('the run', (view['state'], view['session'], view['stdout']['bytes']), ('ended', None, 2))
                expect_equal('its output', output(service, name), f'{number}\n')
                expect_equal('who waits', awaited(service, name)['run'], name)
                service.post(f'/v1/runs/{name}/cancel').expect(409, 'session_finished')
            expect_equal('the list', [one['run'] for one in service.get('/v1/runs').json['runs']], names)
            expect_equal('what runs', service.get('/v1/runs?state=running').json['runs'], [])
            expect_equal('what has ended', len(service.get('/v1/runs?state=ended').json['runs']), 2)
        # They are in nobody's way, and can be freed, by their owner alone.
        more = [run(service, shell('true')) for _ in range(2)]
        as_nobody = as_user(NOBODY, lambda: request(service.socket, 'DELETE', f'/v1/runs/{names[0]}').status)
        expect_equal('another', as_nobody, 404)
        for name in names:
            expect_equal('freed', delete(service, name).expect(200)['session'], None)
            delete(service, name).expect(404, 'not_found')
        expect_equal('what is kept', sorted(os.listdir(f'{service.directory}/state/runs')), sorted(more))


def ARunOfABrokenRepositoryEndsWithItsProcess(start):
    with start(max_runs=2) as service:
        other = f'{service.repositories}/other.git'
        service.post('/v1/repositories', {'name': 'other', 'path': other, 'create': True}).expect(201)
        ended = run(service, shell('echo over', repository='other'))
        awaited(service, ended)
        running = run(service, shell('echo ready; sleep 1000', repository='other'))
        eventually_says(service, running, 'ready')
        service.stop()
        # Unreadable, and mounted in: the host of the run goes on.
        os.rename(f'{other}/HEAD', f'{other}/HEAD-that-was')
        os.rename(f'{other}/objects', f'{other}/objects-that-were')
        service.start()
        expect_equal('what cannot be used', service.get('/v1/ready').expect(200)['unusable'], ['other'])
        view = service.get(f'/v1/runs/{ended}').expect(200)
        expect_equal('the one that had ended', (view['state'], view['session']), ('ended', None))
        expect_equal('the one that runs', service.get(f'/v1/runs/{running}').expect(200)['state'], 'running')
        delete(service, running).expect(409, 'wrong_state')
        # One of the two that may run at once does.
        first = run(service, shell('echo ready; sleep 1000'))
        service.post('/v1/runs', shell('true')).expect(503, 'unavailable')
        for pid in hosts_of(service, running):
            for one in below(pid):
                try:
                    os.kill(one, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        eventually('it has ended', lambda: service.get(f'/v1/runs/{running}').json['state'] == 'ended')
        awaited(service, run(service, shell('true')))
        for name in (ended, running):
            delete(service, name).expect(200)
            service.get(f'/v1/runs/{name}').expect(404, 'not_found')
        service.post(f'/v1/runs/{first}/cancel').expect(202)
        awaited(service, first)


def hosts_of(service, name):
    """The process that holds the lock of the run's directory; the service only looks, with the file open, too."""
    file = f'{service.directory}/state/runs/{name}/host'
    return [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and has_locked(int(pid), file)]


if __name__ == '__main__':
    main(globals())
