#!/usr/bin/env python3
"""escrowd is stopped, killed and started again: no session is lost, and no run of anybody else's is disturbed."""
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time

from service import UnixConnection, eventually, expect, expect_equal, host_of, main, read, write


def SigtermLeavesMountsAloneAndARestartFindsThem(start):
    with start() as service:
        session, point = service.open_mounted()
        with open(f'{point}/kept', 'w', encoding='ascii') as file:
            expect_equal('the exit status', service.stop(), 0)
            expect(not os.path.exists(service.socket), 'the socket is still there')
            expect_equal('attachment', json.loads(service.escrow('status', session, '--json'))['attachment'], 'mounted')
            file.write('kept')
        expect_equal('the content', read(f'{point}/kept'), 'kept')
        service.start()
        view = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('the view', (view['state'], view['attachment'], view['mountpoint']), ('open', 'mounted', point))
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the content', service.git('show', 'main:kept'), 'kept')


def AKilledServiceLosesNoSession(start):
    with start() as service:
        session, point = service.open_mounted()
        unmounted = service.open(external_id='pod-1')['session']
        descriptor = os.open(f'{point}/kept', os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b'kept')
        os.fsync(descriptor)
        service.stop(signal.SIGKILL)
        try:
            os.close(descriptor)
        except OSError as error:
            dead = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)  # the last with io_uring
            expect(error.errno in dead, f'closing a file of a dead mount: {error}')
        service.start()
        expect_equal('the content', read(f'{point}/kept'), 'kept')
        expect_equal('the other one', service.get('/v1/sessions?external_id=pod-1').json['sessions'][0]['session'],
                     unmounted)
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the content', service.git('show', 'main:kept'), 'kept')
        service.escrow('verify')


class Catalog:
    """The catalog of a service's repository, while that service is stopped."""

    def __init__(self, service):
        self.path, self.copies = f'{service.repository}/escrow/catalog.db', service.directory

    def save(self, name):
        with sqlite3.connect(self.path) as catalog, sqlite3.connect(f'{self.copies}/{name}') as copy:
            catalog.backup(copy)
        catalog.close()
        copy.close()

    def put_back(self, name):
        for end in ('', '-wal', '-shm'):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path + end)
        shutil.copyfile(f'{self.copies}/{name}', self.path)


def WhatAServiceKnowsOfItsSessionsOutlivesAnOlderCatalog(start):
    with start() as service:
        catalog = Catalog(service)
        service.stop()
        catalog.save('older')
        service.start()
        asked = {'repository': 'data', 'external_id': 'job', 'labels': {'team': 'a'}, 'timeout_ms': 3_600_000}
        key = {'Idempotency-Key': 'k'}
        session = service.post('/v1/sessions', asked, headers=key).expect(201)['session']
        ended = service.open(external_id='ended', labels={'team': 'b'})['session']
        service.finish(ended, {'exit_code': 1}).expect(200)
        mounted, point = service.open_mounted()
        def views():
            def view(one):
                shown = service.get(f'/v1/sessions/{one}').expect(200)
                return {'deadline': shown['deadline'] is not None,
                        **{name: shown[name] for name in ('external_id', 'labels', 'state', 'mountpoint')}}
            return {one: view(one) for one in (session, ended, mounted)}
        before = views()
        host = host_of(mounted)
        service.stop()
        os.kill(host, signal.SIGKILL)
        catalog.save('newer')
        with sqlite3.connect(f'{service.directory}/state/escrowd.db') as database:
            # As if it had been killed before it kept the answers.
            database.execute('UPDATE request SET status = NULL')
        database.close()
        eventually('the host has gone', lambda: host_of(mounted) is None)
        catalog.put_back('older')
        # Twice: at the end, too, it forgets what it takes to be gone.
        for _ in range(2):
            service.start()
            service.get(f'/v1/sessions/{session}').expect(404, 'no_session')
            service.post('/v1/sessions', asked, headers=key).expect(409, 'exists')
            service.post('/v1/sessions', {**asked, 'external_id': 'ended'}).expect(409, 'exists')
            service.stop()
        catalog.put_back('newer')
        service.start()
        expect_equal('what it knows', views(), before)
        expect(service.is_mounted(point), 'it is not mounted again')
        for query, one in (('external_id=job', session), ('label=team:a', session), ('external_id=ended', ended),
                           ('label=team:b', ended)):
            found = service.get('/v1/sessions?' + query).expect(200)['sessions']
            expect_equal(query, [view['session'] for view in found], [one])
        expect_equal('by its key', service.post('/v1/sessions', asked, headers=key).expect(201)['session'], session)


def AKillInTheMiddleOfACommitLeavesAllOrNothing(start):
    with start() as service:
        for turn in range(8):
            session, point = service.open_mounted()
            for number in range(100):
                write(f'{point}/file-{turn}-{number}', 'x')
            def finish():
                try:
                    service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0})
                except OSError:
                    pass
            finisher = threading.Thread(target=finish)
            finisher.start()
            time.sleep(0.01 * turn)
            service.stop(signal.SIGKILL)
            finisher.join()
            service.start()
            # The session's host may still be at what the service that was killed had asked for.
            view = service.finish(session, {'exit_code': 0}).expect(200)
            expect_equal('the state', view['state'], 'committed')
            names = [name for name in service.git('ls-tree', '--name-only', 'main').split('\n')
                     if name.startswith(f'file-{turn}-')]
            # What was written and not synced may be lost with the host, but a commit has all that its session had.
            commits = service.git('log', '--format=%B', 'main').count(f'Escrow-Session: {session}')
            expect_equal('the commits of the session', commits, 1 if names else 0)
            expect_equal('the commit', view['commit'] is not None, bool(names))


def AKillWhileASessionIsOpenedOpensItOnce(start):
    with start() as service:
        for turn in range(12):
            key = {'Idempotency-Key': f'key-{turn}'}
            body = {'repository': 'data', 'labels': {'turn': str(turn)}}
            def open_one():
                try:
                    service.post('/v1/sessions', body, headers=key)
                except OSError:
                    pass
            opener = threading.Thread(target=open_one)
            opener.start()
            time.sleep(0.002 * turn)
            service.stop(signal.SIGKILL)
            opener.join()
            service.start()
            session = service.post('/v1/sessions', body, headers=key).expect(201)['session']
            found = service.get(f'/v1/sessions?label=turn:{turn}').json['sessions']
            expect_equal('the sessions of the key', [one['session'] for one in found], [session])
        opened = [one for one in service.get('/v1/sessions?state=open').json['sessions'] if not one['labels']]
        expect_equal('sessions that nobody was told of', opened, [])


def change_requests(service, change):
    """In the state of a service that is not running."""
    with sqlite3.connect(f'{service.directory}/state/escrowd.db') as database:
        expect(database.execute(f'UPDATE request SET {change}').rowcount > 0, 'no request was kept')


def AKeyIsHeldToItsBodyOverAKillAndForgottenAfterADay(start):
    with start() as service:
        def opened(branch='main'):
            return service.post('/v1/sessions', {'repository': 'data', 'branch': branch},
                                headers={'Idempotency-Key': 'k'})
        first = opened().expect(201)['session']
        service.stop(signal.SIGKILL)
        change_requests(service, 'status = NULL')  # as if it had been killed before it kept its answer
        service.start()
        opened('other').expect(422, 'idempotency_key_reused')
        expect_equal('the session after a kill', opened().expect(201)['session'], first)
        os.mkdir(f'{service.directory}/sources')
        write(f'{service.directory}/sources/file', 'x')
        def imported():
            return service.post('/v1/repositories/data/imports', {'source': f'{service.directory}/sources'},
                                headers={'Idempotency-Key': 'k'})
        service.stop()
        service.config['source_roots'] = [f'{service.directory}/sources']
        service.write_config()
        service.start()
        nightly = imported().expect(201)['session']
        expect_equal('the import again', imported().expect(201)['session'], nightly)
        def started():
            return service.post('/v1/runs', {'repository': 'data', 'command': ['true']},
                                headers={'Idempotency-Key': 'k'}).expect(201)['run']
        ran = started()
        expect_equal('the run again', started(), ran)
        service.get(f'/v1/runs/{ran}/wait?timeout_ms=250000').expect(200)
        service.stop()
        change_requests(service, 'created_s = created_s - 86500')
        service.start()
        expect(imported().expect(201)['session'] != nightly, 'the key of the import is not forgotten')
        expect(opened().expect(201)['session'] != first, 'the key is not forgotten')
        expect(started() != ran, 'the key of the run is not forgotten')


def RequestsUnderWayAreAnsweredBeforeTheEnd(start):
    with start() as service:
        session = service.open()['session']
        waiter = UnixConnection(service.socket)
        waiter.request('GET', f'/v1/sessions/{session}/wait?timeout_ms=300000')
        expect_equal('one that came later', service.get('/v1/health').status, 200)  # so the first is in
        expect_equal('the exit status', service.stop(), 0)  # long before its five minutes
        expect_equal('the answer', json.loads(waiter.getresponse().read())['state'], 'open')


def RunsOfOthersAreNotDisturbed(start):
    with start() as service:
        go = f'{service.directory}/go'
        script = f'echo one > one; until test -e {go}; do sleep 0.1; done; echo two > two'
        run = subprocess.Popen([service.escrow_binary, '--repo', service.repository, 'run', '--', 'sh', '-c', script],
                               stderr=subprocess.PIPE)
        # It is seen before it is mounted.
        eventually('the run is mounted', lambda: [one['attachment'] for one in service.get(
            '/v1/sessions?state=open').json['sessions']] == ['mounted'])
        session = service.get('/v1/sessions?state=open').json['sessions'][0]
        expect_equal('the session', (session['run'], session['attachment']), (True, 'mounted'))
        service.post(f'/v1/sessions/{session["session"]}/finish', {'exit_code': 0}).expect(409, 'attached_elsewhere')
        service.stop()
        service.start()
        service.stop(signal.SIGKILL)
        service.start()
        write(go, '')
        _, said = run.communicate(timeout=300)
        expect_equal(f'the run: {said}', run.returncode, 0)
        expect_equal('the content', service.git('show', 'main:two'), 'two')
        expect_equal('the state', service.state(session['session']), 'committed')


def OneServiceHasTheState(start):
    with start() as service:
        second = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--socket',
                                 f'{service.directory}/second.sock'], capture_output=True, text=True, check=False,
                                timeout=300)
        expect_equal('the exit status', second.returncode, 125)
        expect('another escrowd uses it' in second.stderr, second.stderr)
        third = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--state-directory',
                                f'{service.directory}/other'], capture_output=True, text=True, check=False, timeout=300)
        expect_equal('the exit status', third.returncode, 125)
        expect('another server listens there' in third.stderr, third.stderr)
        service.get('/v1/health').expect(200)


def TheConfigurationIsCheckedByName(start):
    with start() as service:
        def check(**members):
            path = f'{service.directory}/checked.json'
            with open(path, 'w', encoding='utf-8') as file:
                json.dump({**service.config, **members}, file)
            return subprocess.run([service.escrowd_binary, '--config', path, '--check-config'], capture_output=True,
                                  text=True, check=False, timeout=300)
        expect_equal('a good one', (check().returncode, check().stderr), (0, ''))
        os.symlink(service.mounts, f'{service.directory}/link')
        for members, words in (({'colour': 'red'}, '"colour" is not known here'),
                               ({'mount_roots': 'x'}, '"mount_roots" is not an array'),
                               ({'mount_roots': ['/no/such']}, 'mount_roots: /no/such cannot be used'),
                               ({'mount_roots': [f'{service.directory}/link']}, 'is not in its one form'),
                               ({'source_roots': ['/no/such']}, 'source_roots: /no/such cannot be used'),
                               ({'operators': ['root']}, "'root' is not user:NAME"),
                               ({'socket': 'x'}, 'not an absolute path'),
                               ({'max_body_bytes': 1}, '"max_body_bytes" is not a whole number')):
            answer = check(**members)
            expect_equal(f'{members}: {answer.stderr}', answer.returncode, 2)
            expect(words in answer.stderr and answer.stderr.count('\n') == 1, f'{members}: {answer.stderr!r}')


def TheServiceManagerIsToldWhenItIsReady(start):
    with start() as service:
        service.stop()
        path = f'{service.directory}/notify'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(100)
            os.environ['NOTIFY_SOCKET'] = path
            try:
                service.start()
            finally:
                del os.environ['NOTIFY_SOCKET']
            expect_equal('first', notify.recv(100), b'READY=1')
            service.stop()
            expect_equal('then', notify.recv(100), b'STOPPING=1')


def start_with_given_socket(service, listener, count=1):
    """As a service manager starts it: the listening socket is descriptor 3, and 4 again where it gives two."""
    def give():
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
    script = f'LISTEN_PID=$$ LISTEN_FDS={count} exec "$0" --config "$1"' + (' 4<&3' if count == 2 else '')
    return subprocess.Popen(['sh', '-c', script, service.escrowd_binary, service.config_path], stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, preexec_fn=give, close_fds=False)


def ASocketOfTheServiceManagerOutlivesTheService(start):
    with start() as service:
        service.stop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(service.socket)
            listener.listen(16)
            for _ in range(2):
                answers = []
                # Asked while nobody is there: answered by the one that comes.
                asker = threading.Thread(target=lambda: answers.append(service.get('/v1/health').status))
                asker.start()
                service.process = start_with_given_socket(service, listener)
                asker.join()
                expect_equal('the answer', answers, [200])
                about = os.stat(service.socket)
                expect_equal('mode and group', (about.st_mode & 0o777, about.st_gid), (0o660, 65534))
                expect_equal('the exit status', service.stop(), 0)
                expect(os.path.exists(service.socket), 'the service has removed the socket that it was given')
            for path, count, words in (('elsewhere', 1, 'the service manager listens elsewhere'),
                                       ('both', 2, 'handed over 2 sockets')):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                    other.bind(f'{service.directory}/{path}')
                    other.listen(1)
                    refused = start_with_given_socket(service, other, count)
                    _, said = refused.communicate(timeout=300)
                    expect_equal('the exit status', refused.returncode, 125)
                    expect(words in said and said.count('\n') == 1, said)


def WhoHasJustComeIsAnsweredWhileTheServiceStops(start):
    question = b'GET /v1/health HTTP/1.1\r\nHost: escrowd\r\n\r\n'
    with start() as service:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late:
            late.connect(service.socket)
            late.settimeout(100)
            expect_equal('one that came later', service.get('/v1/health').status, 200)  # so the first is in
            service.process.send_signal(signal.SIGTERM)
            def is_shut():
                try:
                    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                        other.connect(service.socket)
                    return False
                except OSError:
                    return True
            eventually('nobody else gets in', is_shut)
            late.sendall(question)
            expect_equal('the answer', late.recv(4096)[:15], b'HTTP/1.1 200 OK')
        expect_equal('the exit status', service.process.wait(100), 0)
        # A silent client may be idle for a day, but the end of the service does not wait for it.
        service.config.update(stop_grace_ms=86_400_000, request_timeout_ms=86_400_000, idle_timeout_ms=86_400_000)
        service.write_config()
        service.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.connect(service.socket)
            expect_equal('the exit status', service.stop(), 0)


if __name__ == '__main__':
    main(globals())
