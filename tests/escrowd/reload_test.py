#!/usr/bin/env python3
"""The configuration of a service that runs is read again: by a signal, by a request and by `escrowd reload`."""
import os
import signal
import ssl
import subprocess

from remote_test import AGENT, Remote, make_certificate, make_token
from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, main, read, request


def reload(service, expect_status=0):
    result = subprocess.run([service.escrowd_binary, '--config', service.config_path, 'reload'], check=False,
                            capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    expect_equal(f'escrowd reload: {result.stdout}{result.stderr}', result.returncode, expect_status)
    return result.stdout + result.stderr


def change(service, **config):
    service.config.update(config)
    service.write_config()


def RolesRootsAndLimitsCountFromTheReloadOn(start):
    with start() as service:
        following = service.open()['session']
        def nobody(method, target, body=None):
            return as_user(NOBODY, lambda: request(service.socket, method, target, body).status)
        expect_equal('a foreign session', nobody('GET', f'/v1/sessions/{following}'), 404)
        other = f'{service.directory}/elsewhere'
        os.makedirs(f'{other}/mounts')
        large = {'repository': 'data', 'message': 'x' * 3000}
        service.post('/v1/sessions', large).expect(201)
        service.post('/v1/sessions', {'repository': 'data', 'mountpoint': f'{other}/mounts/a'}).expect(403, 'forbidden')
        change(service, reviewers=[NOBODY_NAME], mount_roots=[service.mounts, f'{other}/mounts'], max_body_bytes=2048)
        expect_equal('nothing happens by itself', nobody('GET', f'/v1/sessions/{following}'), 404)
        expect('was read again' in reload(service), 'it says so')
        expect_equal('seen by a reviewer', nobody('GET', f'/v1/sessions/{following}'), 200)
        service.post('/v1/sessions', large).expect(413, 'body_too_large')
        mounted = service.post('/v1/sessions', {'repository': 'data', 'mountpoint': f'{other}/mounts/a'}).expect(201)
        # A root that is taken away takes no mount away.
        del service.config['reviewers']
        change(service, mount_roots=[service.mounts])
        service.process.send_signal(signal.SIGHUP)
        eventually('the signal counts', lambda: nobody('GET', f'/v1/sessions/{following}') == 404)
        expect(service.is_mounted(f'{other}/mounts/a'), 'the mount is gone')
        expect_equal('it works', read(f'{other}/mounts/a/a.txt'), 'a.txt\n')
        service.post(f'/v1/sessions/{mounted["session"]}/rollback').expect(200)
        service.post('/v1/sessions', {'repository': 'data', 'mountpoint': f'{other}/mounts/b'}).expect(403, 'forbidden')
        # What counts from the next start on is said.
        change(service, stop_grace_ms=5000)
        expect('"stop_grace_ms" counts from the next start on' in reload(service), 'it is not said')
        expect_equal('over the API', service.post('/v1/reload').expect(200), {'at_next_start': ['stop_grace_ms']})
        expect_equal('for another user', nobody('POST', '/v1/reload', {}), 403)


def AWrongConfigurationChangesNothing(start):
    with start() as service:
        good = dict(service.config)
        def wrong(problem, **config):
            service.config = {**good, 'max_body_bytes': 2048, **config}
            service.write_config()
            detail = service.post('/v1/reload').expect(409 if problem == 'exists' else 400, problem)['detail']
            # The signal says the same in the log.
            before = read(f'{service.directory}/log').count('the configuration stays as it was')
            service.process.send_signal(signal.SIGHUP)
            eventually('it is in the log', lambda: read(f'{service.directory}/log').count(
                'the configuration stays as it was') > before)
            service.post('/v1/sessions', {'repository': 'data', 'message': 'x' * 3000}).expect(201)
            return detail
        expect('operators' in wrong('bad_request', operators=['nobody in particular']), 'the member is not named')
        expect('mount_roots' in wrong('bad_request', mount_roots=['/nothing/there']), 'the member is not named')
        expect('coulour' in wrong('unknown_field', coulour='red'), 'the member is not named')
        expect('data' in wrong('exists', repositories={'other': service.repository}), 'the name is not named')
        with open(service.config_path, 'w', encoding='utf-8') as file:
            file.write('{')
        expect('stays as it was' in reload_with(service, good, expect_status=2), 'the command does not say so')
        os.unlink(service.config_path)
        service.post('/v1/reload').expect(400, 'bad_request')
        service.config = {**good, 'repositories': {'data': service.repository}}
        service.write_config()
        reload(service)
        service.delete('/v1/repositories/data').expect(409, 'wrong_state')  # it is of the configuration now


def reload_with(service, config, expect_status):
    """By a command that has another configuration, with the same socket, than that which the service reads."""
    path = f'{service.directory}/other.json'
    with open(path, 'w', encoding='utf-8') as file:
        file.write('{"socket": "%s", "state_directory": "%s"}' % (config['socket'], config['state_directory']))
    result = subprocess.run([service.escrowd_binary, '--config', path, 'reload'], check=False, capture_output=True,
                            text=True, timeout=300, stdin=subprocess.DEVNULL)
    expect_equal(f'escrowd reload: {result.stdout}{result.stderr}', result.returncode, expect_status)
    return result.stderr


def TokensAndCertificatesAreReplacedWithoutAPause(start):
    with Remote(start) as remote:
        service = remote.service
        # A client that is connected stays so, with what it came with.
        following = remote.connect()
        head = f'GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {remote.token}\r\n\r\n'
        following.sendall(head.encode())
        expect(following.recv(100).startswith(b'HTTP/1.1 200'), 'it follows')
        old_token, old_context = remote.token, remote.context
        token, hashed = make_token(service)
        make_certificate(service.directory)
        change(service, tokens={AGENT: [hashed]})
        reload(service)
        remote.context = ssl.create_default_context(cafile=f'{service.directory}/cert.pem')
        remote.ask('GET', '/v1/version', token=token).expect(200)
        remote.ask('GET', '/v1/version', token=old_token).expect(401, 'unauthenticated')
        remote.context = old_context
        try:
            remote.ask('GET', '/v1/version', token=token)
            expect(False, 'the old certificate is shown still')
        except ssl.SSLError:
            pass
        # What happens is told to whoever followed before.
        session = service.open()['session']
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        following.settimeout(100)
        expect(following.recv(100), 'the connection was closed')
        following.close()


def NobodyToReloadIsSaid(start):
    with start() as service:
        service.stop()
        expect(service.socket in reload(service, expect_status=125), 'the socket is not named')


if __name__ == '__main__':
    main(globals())
