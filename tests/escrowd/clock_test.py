#!/usr/bin/env python3
"""Clocks that are set, machines that sleep, and services that are stopped: how long leases, deadlines and keys last.

The service's clocks are moved by clock.py; a process that is stopped, and another boot's id, are real.
"""
import datetime
import signal
import time

from clock import DAY_S, HOUR_S, Clock
from leases_test import ended
from service import eventually, expect, expect_equal, main, write


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace('Z', '+00:00')[:19] + '+00:00').timestamp()


def renewed(service, session, **lease):
    return service.post(f'/v1/sessions/{session}/lease', lease).expect(200)


def expect_in_time(service, clock, what, timed, sooner):
    """The deadline of `timed` has two hours left, that of `sooner` one: neither session ends before its deadline."""
    clock.advance(HOUR_S + HOUR_S // 2)
    expect_equal(f'the sooner deadline, {what}', ended(service, sooner), ('rolled_back', 'timed_out'))
    expect_equal(f'before the deadline, {what}', service.state(timed), 'open')
    clock.advance(HOUR_S)
    expect_equal(f'the deadline, {what}', ended(service, timed), ('rolled_back', 'timed_out'))


def SettingTheClockEndsNoLeaseAndStopsNoTimeout(start):
    with start(gc_every_s={'*': 0}) as service:
        clock = Clock(service)
        for days in (1, -2, 400, -4000):
            leased = service.open(lease_ms=600_000)['session']
            distant = service.open(timeout_ms=24 * HOUR_S * 1000)['session']
            timed, _ = service.open_mounted(timeout_ms=2 * HOUR_S * 1000)
            sooner = service.open(timeout_ms=HOUR_S * 1000)['session']
            short = service.open(lease_ms=2_000)['session']
            clock.move(wall_s=days * DAY_S)
            # Each session ends in its time, whatever the wall clock says.
            expect_in_time(service, clock, f'{days} days on', timed, sooner)
            expect_equal(f'the short lease, {days} days on', ended(service, short), ('rolled_back', 'lease_expired'))
            view = renewed(service, leased)
            expect_equal(f'the lease, {days} days on', view['state'], 'open')
            left = seconds_of(view['lease_expires']) - clock.now()
            expect(500 < left < 605, f'the lease of 600 s is said to end in {left} s')
            view = service.get(f'/v1/sessions/{distant}').expect(200)
            left = seconds_of(view['deadline']) - clock.now() + 2.5 * HOUR_S
            expect(24 * HOUR_S - 600 < left < 24 * HOUR_S + 5, f'the day is said to have had {left} s left')
            expect_equal('the distant deadline', view['state'], 'open')


def AClockThatIsSetWhileNoServiceRunsChangesNothing(start):
    with start(gc_every_s={'*': 0}) as service:
        clock = Clock(service)
        for days, how in ((2, signal.SIGKILL), (-5, signal.SIGTERM)):
            opening = {'repository': 'data', 'timeout_ms': 7 * DAY_S * 1000}
            def opened(name, days=days, opening=opening):
                """The session that the first request with this key opened; another one if the key was forgotten."""
                key = {'Idempotency-Key': f'{name}-{days}'}
                return service.post('/v1/sessions', opening, headers=key).expect(201)['session']
            by_old_key = opened('yesterday')
            clock.advance(22 * HOUR_S)
            keyed = opened('today')
            leased = service.open(lease_ms=600_000)['session']
            timed = service.open(timeout_ms=2 * HOUR_S * 1000)['session']
            sooner = service.open(timeout_ms=HOUR_S * 1000)['session']
            service.stop(how)
            clock.move(wall_s=days * DAY_S)
            service.start()
            for session in (timed, sooner):
                expect_equal('a deadline just after the start', service.state(session), 'open')
            expect_equal('the lease', renewed(service, leased)['state'], 'open')
            expect_in_time(service, clock, f'{days} days on', timed, sooner)
            # A key is forgotten a day after its use. Today's key stays, although the wall clock went two days on.
            eventually('the old key is forgotten', lambda: opened('yesterday') != by_old_key)
            expect_equal('what the key has opened', opened('today'), keyed)
            expect_equal('the week', service.state(keyed), 'open')


def AMachineThatSleepsEndsNoLease(start):
    with start() as service:
        clock = Clock(service)
        leased = service.open(lease_ms=600_000)['session']
        hour = service.open(timeout_ms=3_600_000)['session']
        week = service.open(timeout_ms=7 * DAY_S * 1000)['session']
        clock.advance(DAY_S)
        # The client slept, too. Its session has the rest of its lease; those whose time passed meanwhile end.
        expect_equal('the lease', renewed(service, leased)['state'], 'open')
        expect_equal('an hour', ended(service, hour), ('rolled_back', 'timed_out'))
        expect_equal('a week', service.state(week), 'open')
        renewed(service, leased, lease_ms=500)
        expect_equal('not renewed after that', ended(service, leased), ('rolled_back', 'lease_expired'))


def AServiceThatIsStoppedEndsNoLease(start):
    with start() as service:
        clock = Clock(service)
        leased = service.open(lease_ms=600_000)['session']
        forgotten = service.open(lease_ms=3_000)['session']
        service.process.send_signal(signal.SIGSTOP)
        clock.advance(HOUR_S)
        service.process.send_signal(signal.SIGCONT)
        expect_equal('after the stop', service.state(leased), 'open')
        expect_equal('renewed', renewed(service, leased)['state'], 'open')
        expect_equal('not renewed', ended(service, forgotten), ('rolled_back', 'lease_expired'))
        expect_equal('the renewed one', service.state(leased), 'open')


def AfterAnotherBootWhatWasLeftOfATimeIsLeft(start):
    with start(gc_every_s={'*': 0}) as service:
        clock = Clock(service)
        leased = service.open(lease_ms=600_000)['session']
        timed = service.open(timeout_ms=2 * HOUR_S * 1000)['session']
        sooner = service.open(timeout_ms=HOUR_S * 1000)['session']
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
        expect_equal('a day', service.state(day), 'open')
        left = seconds_of(service.get(f'/v1/sessions/{day}').json['deadline']) - clock.now()
        expect(DAY_S - 300 < left <= DAY_S + 2, f'of the day {left} s are said to be left')
        expect_in_time(service, clock, 'after another boot', timed, sooner)
        expect_equal('a day', service.state(day), 'open')
        eventually('the other boot goes on', lambda: service.stop() == 0)
        service.start()
        expect_equal('a day', service.state(day), 'open')


if __name__ == '__main__':
    main(globals())
