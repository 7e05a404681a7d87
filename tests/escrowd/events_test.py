#!/usr/bin/env python3
"""GET /v1/events: what clients that follow are told, by whoever it was done and also after restarts."""
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time

from description import DESCRIPTION, exercised
from service import NOBODY, as_user, eventually, expect, expect_equal, fail, let_go, main, read, write


class Follower:
    """Reads server-sent events on a thread of its own, as the HTML standard parses them."""

    def __init__(self, service, target='/v1/events', last_id=None):
        self.events, self.last_id, self.closed, self.wrong = [], last_id, False, []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(service.socket)
        header = f'Last-Event-ID: {last_id}\r\n' if last_id is not None else ''
        self.socket.sendall(f'GET {target} HTTP/1.1\r\nHost: escrowd\r\n{header}\r\n'.encode())
        self.stream = self.socket.makefile('rb')
        status = self.stream.readline().decode()
        expect('200' in status, f'following was answered {status!r}')
        self.headers = {}
        while (line := self.stream.readline().decode().strip()) != '':
            name, _, value = line.partition(':')
            self.headers[name.lower()] = value.strip()
        expect_equal('the content type', self.headers['content-type'], 'text/event-stream')
        exercised('GET /v1/events 200')
        self.begin()

    def begin(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        eventually('the position is told', lambda: self.last_id is not None)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(10)
        expect_equal('what is wrong with the events', self.wrong[:3], [])

    def chunks(self):
        while True:
            size = int(self.stream.readline() or b'0', 16)
            if size == 0:
                return
            yield self.stream.read(size)
            self.stream.readline()

    def run(self):
        text, event = b'', {}
        try:
            for chunk in self.chunks():
                text += chunk
                while b'\n' in text:
                    line, _, text = text.partition(b'\n')
                    name, _, value = line.decode().partition(': ')
                    if line:
                        event[name] = value
                        continue
                    self.last_id = event.get('id', self.last_id)
                    if 'data' in event:
                        document = json.loads(event['data'])
                        self.wrong += [wrong for wrong in [DESCRIPTION.check_event(event['event'], document)] if wrong]
                        self.events.append({'id': int(event['id']), 'type': event['event'], **document})
                    event = {}
        except OSError:
            pass
        self.closed = True

    def of(self, kind, **members):
        return [one for one in list(self.events)
                if one['type'] == kind and all(one.get(name) == value for name, value in members.items())]

    def wait_for(self, kind, **members):
        eventually(f'an event {kind} {members} among {self.events}', lambda: self.of(kind, **members))
        return self.of(kind, **members)[0]


def StatesAndBranchesAreToldInOrder(start):
    with start() as service, Follower(service) as follower:
        head = service.git('rev-parse', 'main')
        session, point = service.open_mounted()
        write(f'{point}/new.txt', 'new')
        os.makedirs(point.encode() + b'/dir/\xff\n\x1b')
        with open(point.encode() + b'/dir/\xff\n\x1b/file', 'wb') as file:
            file.write(b'x')
        commit = service.finish(session, {'exit_code': 0}).expect(200)['commit']
        done = follower.wait_for('session.state', session=session, state='committed')
        expect_equal('the last', (done['from'], done['reason'], done['commit'], done['who'], done['repository']),
                     ('committing', 'success', commit, 'user:root', 'data'))
        opened = follower.of('session.state', session=session, state='open')
        expect_equal('the first', ['from' in one for one in opened], [False])
        moved = follower.wait_for('branch.updated', branch='main')
        expect_equal('the move', (moved['old'], moved['new'], moved['more_paths']), (head, commit, False))
        expect_equal('the paths', [one.get('path_base64') or one['path'] for one in moved['paths']],
                     ['ZGlyL/8KGy9maWxl', 'new.txt'])
        expect(moved['id'] < done['id'], 'the session was told before its branch')
        expect_equal('the ids', [one['id'] for one in follower.events], sorted(one['id'] for one in follower.events))


def WhatOtherProcessesDoIsTold(start):
    with start() as service, Follower(service) as follower:
        service.escrow('run', '--', 'sh', '-c', 'echo by a run > run.txt')
        moved = follower.wait_for('branch.updated')
        expect_equal('the paths', [one['path'] for one in moved['paths']], ['run.txt'])
        done = follower.wait_for('session.state', state='committed')
        expect_equal('the new head', moved['new'], done['commit'])
        clone = f'{service.directory}/clone'
        def git(*arguments):
            subprocess.run(['git', '-c', 'safe.directory=*', '-c', 'user.name=t', '-c', 'user.email=t@t', *arguments],
                           check=True, capture_output=True, timeout=300)
        git('clone', '-q', service.repository, clone)
        write(f'{clone}/pushed.txt', 'pushed')
        git('-C', clone, 'add', '.')
        git('-C', clone, 'commit', '-qm', 'pushed')
        git('-C', clone, 'push', '-q', 'origin', 'HEAD:main')
        pushed = follower.wait_for('branch.updated', old=moved['new'])
        expect_equal('the push', [one['path'] for one in pushed['paths']], ['pushed.txt'])
        git('-C', clone, 'push', '-q', 'origin', 'HEAD:refs/heads/team/one')
        made = follower.wait_for('branch.updated', branch='team/one')
        expect_equal('a new branch', (made['old'], made['new']), (None, pushed['new']))
        git('-C', clone, 'commit', '-q', '--allow-empty', '-m', 'more')
        git('-C', clone, 'push', '-q', 'origin', 'HEAD:refs/heads/team/one')
        follower.wait_for('branch.updated', branch='team/one', old=pushed['new'])
        service.git('pack-refs', '--all')
        git('-C', clone, 'push', '-q', 'origin', ':refs/heads/team/one')
        follower.wait_for('branch.updated', branch='team/one', new=None)


def AFollowerMissesNothingOverRestarts(start):
    with start() as service:
        with Follower(service) as follower:
            first = service.open()['session']
            follower.wait_for('session.state', session=first)
            last = follower.last_id
        second = service.open()['session']
        service.stop(signal.SIGKILL)
        # While no service runs.
        service.escrow('rollback', first)
        service.escrow('run', '--', 'sh', '-c', 'echo x > meanwhile.txt')
        service.start()
        third = service.open()['session']
        with Follower(service, last_id=last) as again:
            again.wait_for('session.state', session=third)
            for session, state in ((second, 'open'), (first, 'rolled_back')):
                expect_equal(f'{session} became {state}', len(again.of('session.state', session=session, state=state)),
                             1)
            expect_equal('what was told before', again.of('session.state', session=first, state='open'), [])
            moved = again.wait_for('branch.updated')
            expect_equal('the paths', [one['path'] for one in moved['paths']], ['meanwhile.txt'])
            numbers = [one['id'] for one in again.events]
            expect_equal('the ids', numbers, list(range(int(last) + 1, int(last) + 1 + len(numbers))))
            # The end of the run may be told after its move.
            eventually('the position is the last event', lambda: again.last_id == str(again.events[-1]['id']))
            service.stop()
            eventually('the stream ends with the service', lambda: again.closed)


def old_move(number):
    return json.dumps({'time': '2026-01-01T00:00:00Z', 'repository': 'data', 'branch': f'branch-{number}', 'old': None,
                       'new': None, 'paths': [], 'more_paths': False})


def WhatWasDroppedIsSaid(start):
    with start() as service:
        service.open()
        service.stop()
        database = f'{service.directory}/state/events.db'
        with sqlite3.connect(database) as connection:
            connection.executemany('INSERT INTO event (type, repository, session, issuer, document) VALUES '
                                   "('branch.updated', 'data', '', '', ?)", [(old_move(n),) for n in range(10500)])
        connection.close()
        service.start()
        with Follower(service) as follower:
            session = service.open()['session']
            follower.wait_for('session.state', session=session)  # then the oldest have gone
        with Follower(service, last_id=0) as follower:
            follower.wait_for('session.state', session=session)
            gap = follower.events[0]
            expect_equal('the first', (gap['type'], gap['after']), ('gap', 0))
            expect_equal('what follows it', follower.events[1]['id'], gap['until'] + 1)
            expect(9000 < len(follower.events) <= 10001, f'{len(follower.events)} events were kept')
        with Follower(service, last_id=10 ** 12) as follower:
            expect_equal('an id of another log', follower.wait_for('gap')['after'], 10 ** 12)
        for wrong in ('x', '-1', '1 2'):
            service.get('/v1/events', headers={'Last-Event-ID': wrong}).expect(400, 'invalid_value')
        service.get('/v1/events?colour=red').expect(400, 'unknown_field')


def OnlySessionsThatOneMaySeeAreTold(start):
    with start() as service:
        session = service.open()['session']
        def follow():
            with Follower(service, last_id=0) as follower:
                own = service.post('/v1/sessions', {'repository': 'data'}).expect(201)['session']
                follower.wait_for('session.state', session=own)
                service.post(f'/v1/sessions/{own}/rollback').expect(200)
                follower.wait_for('session.state', session=own, state='rolled_back')
                return own, [one.get('session') for one in follower.events], [one['type'] for one in follower.events]
        own, seen, _ = as_user(NOBODY, follow)
        expect_equal('the sessions', set(seen) - {None}, {own})
        expect(session not in seen, 'a foreign session was told')
        with Follower(service, f'/v1/events?session={own}', last_id=0) as operator:
            operator.wait_for('session.state', session=own, state='rolled_back')
            expect_equal('the sessions asked for', {one['session'] for one in operator.events}, {own})
        with Follower(service, '/v1/events?repository=other', last_id=0) as other:
            service.post('/v1/repositories', {'name': 'other', 'create': True}).expect(201)
            there = service.post('/v1/sessions', {'repository': 'other'}).expect(201)['session']
            # Events are told in order: those of the first repository would have come before this one.
            other.wait_for('session.state', session=there)
            expect_equal('another repository', {one['repository'] for one in other.events}, {'other'})


def DenialsAndConflictsAreTold(start):
    with start() as service, Follower(service) as follower:
        policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['write'], 'paths': ['dir/']}]}
        session, point = service.open_mounted(policy=policy)
        for _ in range(50):
            try:
                write(f'{point}/dir/b.txt', 'x')
                expect(False, 'it was allowed')
            except PermissionError:
                pass
        denied = follower.wait_for('session.denied', session=session)
        expect_equal('what', [(one['path'], 'deny dir/' in one['rule']) for one in denied['denials']][:1],
                     [('dir/b.txt', True)])
        mine, first = service.open_mounted('mine')
        theirs, second = service.open_mounted('theirs')
        write(f'{first}/a.txt', 'mine')
        write(f'{second}/a.txt', 'theirs')
        service.finish(theirs, {'exit_code': 0}).expect(200)
        service.post(f'/v1/sessions/{mine}/commit').expect(409, 'conflict')
        expect_equal('by hand', follower.wait_for('session.conflict', session=mine)['state'], 'open')
        service.finish(mine, {'exit_code': 0}).expect(200)
        conflict = follower.wait_for('session.conflict', session=mine, state='commit_failed')
        expect_equal('the paths', conflict['paths'], [{'path': 'a.txt'}])
        follower.wait_for('session.state', session=mine, state='commit_failed', reason='conflict')


def expect_denied(directory):
    try:
        os.mkdir(directory)
        fail('it was allowed')
    except PermissionError:
        pass


def AStormOfDenialsIsFewEvents(start):
    with start() as service, Follower(service) as follower:
        policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['create'], 'paths': ['dir/']}]}
        session, point = service.open_mounted(policy=policy)
        begun, number = time.monotonic(), 0
        while time.monotonic() - begun < 3 or number < 1500:
            number += 1
            expect_denied(f'{point}/dir/{number}')
        def counted():
            return service.get(f'/v1/sessions/{session}').expect(200)['denials']['count']
        eventually('all are counted', lambda: counted() == number)
        # Denials are told in the order of the catalog: the last of these comes with that of another session, or before.
        other, other_point = service.open_mounted('other', policy=policy)
        expect_denied(f'{other_point}/dir/one')
        follower.wait_for('session.denied', session=other)
        told, seconds = follower.of('session.denied', session=session), time.monotonic() - begun
        expect(len(told) <= seconds + 3, f'{number} denials were {len(told)} events in {seconds:.1f} s')
        expect(all(len(one['denials']) <= 10 for one in told), 'an event has too many kinds')


def ManyFollowersAndSlowOnesDoNotHoldAnybodyUp(start):
    with start(stop_grace_ms=86_400_000, request_timeout_ms=86_400_000, idle_timeout_ms=86_400_000) as service:
        def resident():
            for line in read(f'/proc/{service.process.pid}/status').splitlines():
                if line.startswith('VmRSS'):
                    return int(line.split()[1])
            return 0
        slow = []
        for _ in range(50):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(service.socket)
            client.sendall(b'GET /v1/events HTTP/1.1\r\nHost: escrowd\r\nLast-Event-ID: 0\r\n\r\n')
            slow.append(client)
        before = resident()
        with Follower(service) as follower:
            for number in range(20):
                session, point = service.open_mounted()
                for turn in range(150):
                    write(f'{point}/{"long-name-" * 10}{number}-{turn}', 'x')
                service.finish(session, {'exit_code': 0}).expect(200)
            follower.wait_for('session.state', session=session, state='committed')
            expect_equal('the commits', len(follower.of('session.state', state='committed')), 20)
        expect_equal('no commit waited for their end', let_go(slow), [])
        # 50 clients that read nothing, and 20 events of 16 KiB: a queue for each would be 16 MiB.
        expect(resident() - before < 40_000, f'resident memory grew from {before} to {resident()} KiB')
        # Each of them may be slow for a day, but the end of the service does not wait for them.
        expect_equal('the exit status', service.stop(), 0)
        for client in slow:
            client.close()


if __name__ == '__main__':
    main(globals())
