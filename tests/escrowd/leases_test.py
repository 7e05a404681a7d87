#!/usr/bin/env python3
"""How long sessions stay: leases, deadlines, and clients that do not wait for a long commit."""
import signal
import sqlite3
import subprocess

from clock import HOUR_S, Clock
from service import UnixConnection, eventually, expect, expect_equal, fail, main, write


def ended(service, session, seconds=250):
    view = service.get(f'/v1/sessions/{session}/wait?timeout_ms={seconds * 1000}').expect(200)
    return view['state'], view['reason']


def ALeaseThatIsNotRenewedRollsBack(start):
    with start() as service:
        head = service.git('rev-parse', 'main')
        kept = service.open(lease_ms=9000)['session']
        mounted, point = service.open_mounted(lease_ms=9000)
        detached = service.open(lease_ms=9000)['session']
        without = service.open()['session']
        write(f'{point}/new.txt', 'new')
        expect_equal('the lease', service.get(f'/v1/sessions/{kept}').json['lease_ms'], 9000)
        def others_have_ended():
            view = service.post(f'/v1/sessions/{kept}/lease').expect(200)
            expect(view['lease_expires'] is not None, 'no end is shown')
            return all(service.state(session) != 'open' for session in (mounted, detached))
        # The first lease of `kept` began before theirs: only its renewals have kept it.
        eventually('what is not renewed has ended', others_have_ended)
        # However long the rest takes.
        longer = service.post(f'/v1/sessions/{kept}/lease', {'lease_ms': 600_000}).expect(200)
        expect_equal('a longer one', longer['lease_ms'], 600_000)
        for session in (mounted, detached):
            expect_equal('the outcome', ended(service, session), ('rolled_back', 'lease_expired'))
            service.post(f'/v1/sessions/{session}/lease').expect(409, 'session_finished')
            service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(409, 'session_finished')
        expect(not service.is_mounted(point), 'the mount is still there')
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        expect_equal('renewed', service.state(kept), 'open')
        expect_equal('without a lease', service.state(without), 'open')
        service.post(f'/v1/sessions/{without}/lease').expect(409, 'wrong_state')
        with sqlite3.connect(f'file:{service.repository}/escrow/catalog.db?mode=ro', uri=True) as catalog:
            rows = catalog.execute("SELECT who FROM history WHERE session = ? AND to_state = 'rolled_back'", (mounted,))
            expect_equal('who', rows.fetchall(), [('escrowd',)])
        catalog.close()
        for wrong in ({'lease_ms': 0}, {'lease_ms': 'x'}, {'colour': 'red'}):
            expect_equal(f'{wrong}', service.post(f'/v1/sessions/{kept}/lease', wrong).status, 400)


def LeasesAndDeadlinesHoldOverRestarts(start):
    with start() as service:
        clock = Clock(service)
        leased, _ = service.open_mounted('leased', lease_ms=600_000)
        renewed = service.open(lease_ms=600_000)['session']
        timed, point = service.open_mounted('timed', timeout_ms=2 * HOUR_S * 1000)
        sooner = service.open(timeout_ms=HOUR_S * 1000)['session']
        short, short_point = service.open_mounted('short', lease_ms=3_000)
        service.stop(signal.SIGKILL)
        clock.advance(HOUR_S + HOUR_S // 2)
        service.start()
        # Nobody could renew while no service was running.
        expect_equal('just after the start', service.state(leased), 'open')
        longer = service.post(f'/v1/sessions/{renewed}/lease', {'lease_ms': 1_200_000}).expect(200)
        expect_equal('a longer lease', longer['lease_ms'], 1_200_000)
        expect_equal('a deadline that came meanwhile', ended(service, sooner), ('rolled_back', 'timed_out'))
        expect_equal('one that has half an hour left', service.state(timed), 'open')
        clock.advance(HOUR_S)
        expect_equal('the deadline', ended(service, timed), ('rolled_back', 'timed_out'))
        expect(not service.is_mounted(point), 'the mount is still there')
        expect_equal('the lease', ended(service, short), ('rolled_back', 'lease_expired'))
        expect(not service.is_mounted(short_point), 'the mount is still there')
        expect_equal('renewed', service.state(renewed), 'open')
        expect_equal('a lease that has time left', service.state(leased), 'open')


def AnExpiryThatTakesLongHoldsNobodyElseUp(start):
    with start() as service:
        # Long, until all that is to be in them has been written.
        terms = {'keep_on_failure': True, 'lease_ms': 600_000}
        slow = [service.open_mounted(f'slow-{number}', **terms) for number in range(2)]
        for _, point in slow:
            with open(f'{point}/large', 'wb') as file:
                file.truncate(20 << 30)
        quick = [service.open(**terms)['session'] for _ in range(4)]
        for session in quick:
            service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
        for session in [*(session for session, _ in slow), *quick]:
            service.post(f'/v1/sessions/{session}/lease', {'lease_ms': 500}).expect(200)
        for session in quick:
            expect_equal('the outcome', ended(service, session), ('rolled_back', 'lease_expired'))
            expect_equal('what is kept', service.git('show', f'refs/sessions/{session}:new'), 'new')
        expect_equal('the slow ones', [service.state(session) for session, _ in slow], ['open', 'open'])
        service.stop(signal.SIGKILL)  # it would wait for them


def sealed_before_its_lease_ends(service, **terms):
    """(session, lease_ms) of a session that awaits approval; its lease is the shortest in which it could be sealed."""
    for lease_ms in (1_000, 4_000, 16_000):
        session, point = service.open_mounted(f'sealed-{lease_ms}', lease_ms=600_000, require_approval=True, **terms)
        write(f'{point}/new.txt', 'new')
        service.post(f'/v1/sessions/{session}/lease', {'lease_ms': lease_ms}).expect(200)
        service.finish(session, {'exit_code': 0})
        if service.state(session) == 'awaiting_approval':
            return session, lease_ms
        expect_equal('why it was not sealed', ended(service, session), ('rolled_back', 'lease_expired'))
    return fail('no session could be sealed before its lease ended')


def ATimedOutSessionIsRolledBackWhateverComesLater(start):
    with start() as service:
        clock = Clock(service)
        session, point = service.open_mounted(timeout_ms=HOUR_S * 1000)
        write(f'{point}/new.txt', 'new')
        with subprocess.Popen(['sleep', '300'], cwd=point) as holder:
            clock.advance(HOUR_S)
            expect_equal('the outcome', ended(service, session), ('rolled_back', 'timed_out'))
            holder.kill()
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(409, 'session_finished')
        service.post(f'/v1/sessions/{session}/finish', {'timed_out': True}).expect(200)
        sealed, lease_ms = sealed_before_its_lease_ends(service, timeout_ms=HOUR_S * 1000)
        later = [service.open(lease_ms=lease_ms)['session'], service.open(timeout_ms=HOUR_S * 1000)['session']]
        clock.advance(HOUR_S)
        for session, reason in zip(later, ('lease_expired', 'timed_out')):
            expect_equal('what began later', ended(service, session), ('rolled_back', reason))
        expect_equal('a sealed result waits for its reviewer', service.state(sealed), 'awaiting_approval')


def large(service, name, files=3000):
    """A session whose commit takes a while."""
    session, point = service.open_mounted(name)
    for number in range(files):
        write(f'{point}/{name}-{number}', str(number))
    return session


def AClientNeedNotWaitForALongCommit(start):
    with start() as service:
        session = large(service, 'async')
        key = {'Prefer': 'respond-async', 'Idempotency-Key': 'commit-1'}
        answer = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}, headers=key)
        expect_equal('the answer', (answer.status, answer.headers['location'], answer.headers['preference-applied']),
                     (202, f'/v1/sessions/{session}', 'respond-async'))
        expect_equal('the state', service.get(answer.headers['location'] + '/wait').json['state'], 'committed')
        def again():
            return service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}, headers=key)
        eventually('the first request is answered', lambda: again().status == 200)
        expect_equal('the outcome', again().json['state'], 'committed')
        session = large(service, 'waited', 5)
        answer = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}, headers={'Prefer': 'wait=30'})
        expect_equal('within its time', (answer.status, answer.headers['preference-applied'], answer.json['state']),
                     (200, 'wait=30', 'committed'))
        for ignored in ('colour=red', 'wait=x', ''):
            session = service.open()['session']
            answer = service.post(f'/v1/sessions/{session}/commit', headers={'Prefer': ignored})
            expect_equal(f'Prefer: {ignored}', (answer.status, 'preference-applied' in answer.headers), (200, False))
        answer = service.post('/v1/sessions/0123456789abcdef/commit', headers={'Prefer': 'wait=5'})
        answer.expect(404, 'no_session')


def ACommitThatNobodyWaitsForOutlivesItsClientAndIsDrained(start):
    with start() as service:
        session = large(service, 'alone', 2000)
        client = UnixConnection(service.socket)
        client.request('POST', f'/v1/sessions/{session}/finish', '{"exit_code": 0}',
                       {'Prefer': 'wait=60', 'Content-Type': 'application/json'})
        eventually('the commit has begun', lambda: service.state(session) != 'open')
        client.close()
        expect_equal('the exit status', service.stop(), 0)
        service.start()
        expect_equal('the outcome', ended(service, session), ('committed', 'success'))


if __name__ == '__main__':
    main(globals())
