#!/usr/bin/env python3
"""Many sessions that are committed to one branch at the same moment, and what a kill leaves of them."""
import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

from remote_test import Remote
from service import eventually, expect, expect_equal, host_of, main, read, write
from seed import seed_of_this_run

CROWD = 12
WORKERS = 16  # of the service: so many requests at once are carried out


def finish_all(service, sessions):
    """Everybody at once; what is not answered, because the service was killed, is left out."""
    answers = {}
    def finish(session):
        try:
            answers[session] = service.finish(session, {'exit_code': 0})
        except OSError:
            pass
    threads = [threading.Thread(target=finish, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    return threads, answers


def AKillWhileManyCommitLeavesEachCommittedOnceOrOpen(start):
    with start() as service:
        rounds = random.Random(seed_of_this_run())
        for turn in range(6):
            sessions = {}
            for number in range(CROWD):
                session, point = service.open_mounted(f'work-{turn}-{number}')
                # One directory for all, so that each commit's trees depend on those of the one before.
                write(f'{point}/dir/file-{turn}-{number}', f'{turn} {number}')
                service.post(f'/v1/sessions/{session}/unmount').expect(200)
                sessions[session] = f'dir/file-{turn}-{number}'
            threads, answers = finish_all(service, sessions)
            time.sleep(rounds.uniform(0, 0.25))
            service.stop(signal.SIGKILL)
            for thread in threads:
                thread.join()
            head = service.git('rev-parse', 'main')
            service.start()
            for session, answer in answers.items():
                if answer.status == 200:
                    service.git('merge-base', '--is-ancestor', answer.json['commit'], head)
            threads, answers = finish_all(service, sessions)
            for thread in threads:
                thread.join()
            log = service.git('log', '--format=%B', 'main')
            for session, path in sessions.items():
                view = answers[session].expect(200)
                expect_equal(f'session {session}', (view['state'], view['reason']), ('committed', 'success'))
                expect_equal(f'commits of {session}', log.count(f'Escrow-Session: {session}'), 1)
                changed = service.git('diff-tree', '--no-commit-id', '--name-only', '-r', view['commit'])
                expect_equal(f'what the commit of {session} changed', changed, path)
        names = service.git('ls-tree', '-r', '--name-only', 'main').split('\n')
        expect_equal('the files', len([name for name in names if '/file-' in name]), 6 * CROWD)
        service.escrow('verify')
        service.git('fsck', '--strict')


def ManyThatCommitAtOnceEachHaveTheirOwnCommit(start):
    with start() as service:
        sessions = {}
        for number in range(40):
            session, point = service.open_mounted(f'work-{number}')
            if number % 10 == 9:
                write(f'{point}/a.txt', f'contested {number}')
            elif number % 10 == 8:
                write(f'{point}/dir/same', 'the same')
            else:
                write(f'{point}/dir/file-{number}', str(number))
            sessions[session] = number
        threads, answers = finish_all(service, sessions)
        for thread in threads:
            thread.join()
        states = {number: answers[session].expect(200) for session, number in sessions.items()}
        contested = [states[number]['state'] for number in (9, 19, 29, 39)]
        expect_equal('of those that conflict', sorted(contested), ['commit_failed'] * 3 + ['committed'])
        same = [states[number] for number in (8, 18, 28, 38)]
        expect_equal('of those that are the same', [view['state'] for view in same], ['committed'] * 4)
        expect_equal('their commits', len([view for view in same if view['commit'] is not None]), 1)
        others = [view for number, view in states.items() if number % 10 < 8]
        expect(all(view['state'] == 'committed' and view['commit'] for view in others), 'one was not committed')
        expect_equal('the commits', service.git('rev-list', '--count', 'main'), str(1 + 32 + 2))
        expect_equal('a line of history', service.git('rev-list', '--merges', '--count', 'main'), '0')
        reflog = service.git('reflog', 'show', '--format=%gs', 'main')
        for session, number in sessions.items():
            if states[number]['commit']:
                expect(f'escrow: session {session}' in reflog, f'{session} is not in the reflog')


def PushesInBetweenAreNotLost(start):
    with start() as service:
        subprocess.run(['git', '-c', 'safe.directory=*', 'clone', '-q', service.repository,
                        f'{service.directory}/clone'], check=True, capture_output=True)
        sessions = []
        for number in range(24):
            session, point = service.open_mounted(f'work-{number}')
            write(f'{point}/dir/file-{number}', str(number))
            sessions.append(session)
        threads, answers = finish_all(service, sessions)
        git = ['git', '-c', 'safe.directory=*', '-c', 'user.name=x', '-c', 'user.email=x@example.org', '-C',
               f'{service.directory}/clone']
        pushed = 0
        while any(thread.is_alive() for thread in threads):
            write(f'{service.directory}/clone/pushed-{pushed}', 'x')
            subprocess.run([*git, 'add', '-A'], check=True, capture_output=True)
            subprocess.run([*git, 'commit', '-q', '-m', f'pushed {pushed}'], check=True, capture_output=True)
            pushed += 1
            while subprocess.run([*git, 'push', '-q'], check=False, capture_output=True).returncode != 0:
                subprocess.run([*git, 'pull', '-q', '--rebase'], check=True, capture_output=True)
        for session in sessions:
            expect_equal('the state', answers[session].expect(200)['state'], 'committed')
        subjects = service.git('log', '--format=%s', 'main').split('\n')
        expect_equal('the pushes', len([one for one in subjects if one.startswith('pushed ')]), pushed)
        expect_equal('the sessions', len(subjects), 1 + 24 + pushed)


@contextlib.contextmanager
def all_workers_busy(service):
    """They commit, and wait for a collection of garbage."""
    sessions = [service.open()['session'] for _ in range(WORKERS)]
    for session in sessions:
        service.put(f'/v1/sessions/{session}/files/{session}', b'x').expect(201)
    with open(f'{service.repository}/escrow/gc.lock', 'r+b') as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        inode = os.fstat(lock.fileno()).st_ino
        threads, answers = finish_all(service, sessions)
        def waiting():
            with open('/proc/locks', encoding='ascii') as locks:  # proc_locks(5)
                return sum('->' in line and f':{inode} ' in line for line in locks)
        eventually('all workers wait', lambda: waiting() == WORKERS)
        yield
    for thread in threads:
        thread.join()
    for session in sessions:
        answers[session].expect(200)


def posting(route, document, *headers):
    body = json.dumps(document).encode()
    head = (f'POST /v1/{route} HTTP/1.1', 'Host: x', 'Content-Type: application/json', f'Content-Length: {len(body)}')
    return '\r\n'.join((*head, *headers, '', '')).encode() + body


def opening(name, *headers):
    return posting('sessions', {'repository': 'data', 'external_id': name}, *headers)


def connect(service):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(300)
    client.connect(service.socket)
    return client


def ARequestWhoseClientHasGoneBeforeItBeganIsDropped(start):
    with Remote(start) as remote:
        service = remote.service
        with all_workers_busy(service):
            for client, request in ((connect(service), opening('gone')),
                                    (connect(service), opening('keyed', 'Idempotency-Key: k')),
                                    (connect(service), opening('preferred', 'Prefer: respond-async')),
                                    (remote.connect(), opening('far', f'Authorization: Bearer {remote.token}'))):
                with client:
                    client.sendall(request)
            # It sends no more, and waits for its answer.
            half = connect(service)
            half.sendall(opening('half'))
            half.shutdown(socket.SHUT_WR)
            # One thread reads all requests, one after the other; these are answered by a worker of their own.
            for _ in range(5):
                service.get('/v1/health').expect(200)
        with half:
            expect_equal('the answer', half.recv(12), b'HTTP/1.1 201')
        def found(name):
            return len(service.get(f'/v1/sessions?external_id={name}').expect(200)['sessions'])
        for name in ('keyed', 'preferred', 'half'):
            eventually(f'{name} is carried out', lambda name=name: found(name) == 1)
        def dropped():
            return read(f'{service.directory}/log').count('was dropped before it began')
        eventually('each is decided', lambda: dropped() + found('gone') + found('far') == 2)
        expect_equal('what was carried out', (found('gone'), found('far')), (0, 0))


def ARequestWhoseClientGivesUpWhileAHostIsStoppedIsDropped(start):
    with Remote(start) as remote:
        service = remote.service
        near, _ = service.open_mounted('near')
        mounted = {'repository': 'data', 'mountpoint': f'{service.mounts}/far'}
        far = remote.ask('POST', '/v1/sessions', mounted).expect(201)['session']
        for session, client, headers in ((near, connect(service), ()),
                                         (far, remote.connect(), (f'Authorization: Bearer {remote.token}',))):
            service.put(f'/v1/sessions/{session}/files/{session}', b'x').expect(201)
            host = host_of(session)
            os.kill(host, signal.SIGSTOP)
            with client:
                client.sendall(posting(f'sessions/{session}/rollback', {}, *headers))
            words = f'a request to session {session} was stopped'
            eventually('it is given up', lambda words=words: words in read(f'{service.directory}/log'))
            os.kill(host, signal.SIGCONT)
            expect_equal('the state', service.get(f'/v1/sessions/{session}').expect(200)['state'], 'open')
            expect_equal('its end', service.finish(session, {'exit_code': 0}).expect(200)['state'], 'committed')


if __name__ == '__main__':
    main(globals())
