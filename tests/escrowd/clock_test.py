#!/usr/bin/env python3
"""Clocks that are set, machines that sleep, and services that are stopped: how long leases, deadlines and keys last.

The service's clocks are moved by moved_clock.cc; a process that is stopped, and another boot's id, are real.
"""
import datetime
import os
import signal
import struct
import time

from leases_test import ended
from service import eventually, expect, expect_equal, main, write

DAY_S = 86_400
CLOCK = os.environ.get('MOVED_CLOCK_LIBRARY', '')


class Clock:
    """Of a service that is started after this."""

    def __init__(self, service):
        self.path = f'{service.directory}/clock'
        self.wall_s = self.boot_s = 0
        self.move()
        service.stop()
        service.before = ['env', f'LD_PRELOAD={CLOCK}', f'MOVED_CLOCK={self.path}',
                          'ASAN_OPTIONS=verify_asan_link_order=0']
        service.start()
        self.service = service
        expect('moved_clock' in open(f'/proc/{service.process.pid}/maps', encoding='utf-8').read(), 'no clock is moved')

    def move(self, wall_s=0, boot_s=0):
        self.wall_s += wall_s
        self.boot_s += boot_s
        # Mapped by the service: written, never replaced.
        with open(self.path, 'r+b' if os.path.exists(self.path) else 'wb') as file:
            file.write(struct.pack('=qq', self.wall_s, self.boot_s))

    def now(self):
        return time.time() + self.wall_s


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace('Z', '+00:00')[:19] + '+00:00').timestamp()


def renewed(service, session, **lease):
    return service.post(f'/v1/sessions/{session}/lease', lease).expect(200)


def SettingTheClockEndsNoLeaseAndStopsNoTimeout(start):
    with start() as service:
        clock = Clock(service)
        for days in (1, -2, 400, -4000):
            leased = service.open(lease_ms=60_000)['session']
            short = service.open(lease_ms=2_000)['session']
            distant = service.open(timeout_ms=3_600_000)['session']
            timed, point = service.open_mounted(timeout_ms=9_000)
            write(f'{point}/new', 'x')
            clock.move(wall_s=days * DAY_S)
            # Its time comes, no sooner and no later; of what has time left, nothing ends before it does.
            expect_equal(f'the deadline, {days} days on', ended(service, timed), ('rolled_back', 'timed_out'))
            expect_equal(f'the short lease, {days} days on', ended(service, short), ('rolled_back', 'lease_expired'))
            view = renewed(service, leased)
            expect_equal(f'the lease, {days} days on', view['state'], 'open')
            left = seconds_of(view['lease_expires']) - clock.now()
            expect(30 < left < 65, f'the lease of 60 s is said to end in {left} s')
            view = service.get(f'/v1/sessions/{distant}').expect(200)
            left = seconds_of(view['deadline']) - clock.now()
            expect(3_000 < left < 3_605, f'the hour is said to end in {left} s')
            expect_equal('the distant deadline', view['state'], 'open')


def AClockThatIsSetWhileNoServiceRunsChangesNothing(start):
    with start() as service:
        clock = Clock(service)
        for days, how in ((2, signal.SIGKILL), (-5, signal.SIGTERM)):
            key = {'Idempotency-Key': f'key-{days}'}
            opening = {'repository': 'data', 'timeout_ms': 3_600_000}
            keyed = service.post('/v1/sessions', opening, headers=key).expect(201)['session']
            leased = service.open(lease_ms=30_000)['session']
            opened = time.monotonic()
            timed = service.open(timeout_ms=10_000)['session']
            service.stop(how)
            clock.move(wall_s=days * DAY_S)
            service.start()
            state = service.state(timed)
            if time.monotonic() - opened < 8:  # also when that was answered
                expect_equal('the deadline just after the start', state, 'open')
            expect_equal('the lease', renewed(service, leased)['state'], 'open')
            expect_equal('the deadline in time', ended(service, timed), ('rolled_back', 'timed_out'))
            # A key of today is not two days old.
            time.sleep(0.5)
            again = service.post('/v1/sessions', opening, headers=key).expect(201)['session']
            expect_equal('what the key has opened', again, keyed)
            expect_equal('the hour', service.state(keyed), 'open')


def AMachineThatSleepsEndsNoLease(start):
    with start() as service:
        clock = Clock(service)
        leased = service.open(lease_ms=60_000)['session']
        hour = service.open(timeout_ms=3_600_000)['session']
        week = service.open(timeout_ms=7 * DAY_S * 1000)['session']
        clock.move(wall_s=DAY_S, boot_s=DAY_S)
        # The client slept, too. Its session has the rest of its lease; those whose time passed meanwhile end.
        expect_equal('the lease', renewed(service, leased)['state'], 'open')
        expect_equal('an hour', ended(service, hour), ('rolled_back', 'timed_out'))
        expect_equal('a week', service.state(week), 'open')
        expect_equal('renewed after that', renewed(service, leased, lease_ms=3_000)['state'], 'open')
        expect_equal('not renewed after that', ended(service, leased), ('rolled_back', 'lease_expired'))


def AServiceThatIsStoppedEndsNoLease(start):
    with start() as service:
        leased = service.open(lease_ms=15_000)['session']
        forgotten = service.open(lease_ms=15_000)['session']
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(17)
        service.process.send_signal(signal.SIGCONT)
        for session in (leased, forgotten):
            expect_equal('after the stop', service.state(session), 'open')
        renewed(service, leased)
        expect_equal('not renewed', ended(service, forgotten), ('rolled_back', 'lease_expired'))


def AfterAnotherBootWhatWasLeftOfATimeIsLeft(start):
    with start() as service:
        clock = Clock(service)
        leased = service.open(lease_ms=30_000)['session']
        timed = service.open(timeout_ms=20_000)['session']
        day = service.open(timeout_ms=DAY_S * 1000)['session']
        service.stop()
        # The new boot has just begun, and its clock is wrong by ten years.
        boot = f'{service.directory}/boot_id'
        write(boot, '00000000-1111-2222-3333-444444444444\n')
        service.before = ['unshare', '--mount', 'sh', '-c',
                          f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"', 'sh', *service.before]
        clock.move(wall_s=3650 * DAY_S, boot_s=-int(time.clock_gettime(time.CLOCK_BOOTTIME)) + 3)
        service.start()
        expect_equal('the lease', renewed(service, leased)['state'], 'open')
        expect_equal('the deadline', ended(service, timed), ('rolled_back', 'timed_out'))
        expect_equal('a day', service.state(day), 'open')
        left = seconds_of(service.get(f'/v1/sessions/{day}').json['deadline']) - clock.now()
        expect(DAY_S - 300 < left <= DAY_S + 2, f'of the day {left} s are said to be left')
        eventually('the other boot goes on', lambda: service.stop() == 0)
        service.start()
        expect_equal('a day', service.state(day), 'open')


if __name__ == '__main__':
    main(globals())
