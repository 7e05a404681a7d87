#!/usr/bin/env python3
"""What root over the socket may: nothing more than its process could do without escrowd."""
import json
import os
import subprocess

from imports_test import IMPORTS
from runs_test import awaited, output
from service import NOBODY, eventually, expect, expect_equal, main, read, write

# Root in a container has the number of root and little else. What each lacks:
LESSER_ROOTS = {
    'capabilities': ['setpriv', '--bounding-set=-all', '--inh-caps=-all'],
    'one capability': ['setpriv', '--bounding-set=-sys_admin', '--inh-caps=-sys_admin'],
    'our PID namespace': ['unshare', '--pid', '--fork'],
    'our user namespace': ['unshare', '--user', '--map-root-user'],
}
RUN = {'repository': 'data', 'command': ['sh', '-c', 'id -u; grep CapEff /proc/self/status']}


def asked(service, wrapper, method, target, body=None):
    """(status, document) that root gets behind the wrapper."""
    command = [*wrapper, 'curl', '--silent', '--max-time', '250', '--unix-socket', service.socket, '-X', method,
               '--write-out', '\n%{http_code}', f'http://escrowd{target}']
    if body is not None:
        command += ['--header', 'Content-Type: application/json', '--data', json.dumps(body)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    document, _, status = ran.stdout.rpartition('\n')
    expect(status.isdigit() and document, f'{command}: {ran.stdout} {ran.stderr}')
    return int(status), json.loads(document)


def RootWithoutTheServicesRightsIsNoOperator(start):
    with start() as service:
        theirs = service.open()['session']
        os.mkdir(f'{service.mounts}/theirs')
        for lack, wrapper in LESSER_ROOTS.items():
            for what, method, target, body in (
                    ('registering', 'POST', '/v1/repositories', {'name': 'mine', 'path': service.repository}),
                    ('gc', 'POST', '/v1/repositories/data/gc', {}),
                    ('verify', 'POST', '/v1/repositories/data/verify', {}),
                    ('unconfined', 'POST', '/v1/runs', {**RUN, 'confined': False}),
                    ('network', 'POST', '/v1/runs', {**RUN, 'network': 'host'}),
                    ('another user', 'POST', '/v1/runs', {**RUN, 'committer': 'user:nobody'}),
                    ('a number', 'POST', '/v1/runs', {**RUN, 'uid': NOBODY}),
                    ('a group', 'POST', '/v1/runs', {**RUN, 'gid': NOBODY}),
                    ('another\'s session', 'POST', '/v1/sessions', {'repository': 'data', 'uid': NOBODY}),
                    ('links', 'POST', '/v1/sessions', {'repository': 'data', 'symlinks': 'any'})):
                status, problem = asked(service, wrapper, method, target, body)
                expect_equal(f'{what} without {lack} ({problem})', (status, problem.get('code')), (403, 'forbidden'))
            status, problem = asked(service, wrapper, 'POST', '/v1/repositories/data/gc', {})
            expect('only with the capabilities of this service' in problem['detail'], problem['detail'])
            # What everybody may it may, too: a confined command has no rights, whoever asks.
            status, view = asked(service, wrapper, 'POST', '/v1/runs', RUN)
            expect_equal(f'a confined run without {lack} ({view})', status, 201)
            view = awaited(service, view['run'])
            expect_equal('what it has', output(service, view['run']), '0\nCapEff:\t0000000000000000\n')
        expect_equal('the session of root', service.state(theirs), 'open')
        # With its rights it is one.
        for wrapper in ([], ['unshare', '--mount'], ['unshare', '--net']):
            status, _ = asked(service, wrapper, 'POST', '/v1/repositories/data/gc', {})
            expect_equal(f'gc behind {wrapper}', status, 200)
        status, view = asked(service, [], 'POST', '/v1/runs', {**RUN, 'confined': False, 'committer': 'user:nobody'})
        view = awaited(service, view['run'])
        expect(output(service, view['run']).startswith(f'{NOBODY}\n'), output(service, view['run']))


def RootIsNoOperatorUnlessTheConfigurationSaysSo(start):
    with start() as service:
        service.stop()
        del service.config['operators']
        other = f'{service.repositories}/other.git'
        subprocess.run([service.escrow_binary, '--repo', other, 'init'], check=True, capture_output=True, timeout=300)
        service.config['repositories'] = {'data': service.repository, 'other': other}
        service.write_config()
        service.start()
        names = [one['name'] for one in service.get('/v1/repositories').json['repositories']]
        expect_equal('what the configuration registers', names, ['data', 'other'])
        problem = service.post('/v1/repositories/data/gc').expect(403, 'forbidden')
        expect('"operators": ["user:root"]' in problem['detail'], problem['detail'])
        service.post('/v1/runs', {**RUN, 'confined': False}).expect(403, 'forbidden')
        view = awaited(service, service.post('/v1/runs', RUN).expect(201)['run'])
        expect_equal('a confined run', output(service, view['run']).split()[0], '0')
        # Over a restart; and what contradicts what is known is said.
        service.stop()
        service.config['repositories'] = {'data': other}
        service.write_config()
        refused = subprocess.run([service.escrowd_binary, '--config', service.config_path], capture_output=True,
                                 text=True, check=False, timeout=300)
        expect(refused.returncode != 0 and "the repository 'data' is another one" in refused.stderr,
               f'{refused.returncode} {refused.stderr}')
        for repositories, what in (({'.x': other}, "has '.x'"), ({'x': 'other'}, 'not an absolute path')):
            service.config['repositories'] = repositories
            service.write_config()
            refused = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--check-config'],
                                     capture_output=True, text=True, check=False, timeout=300)
            expect(refused.returncode == 2 and what in refused.stderr, f'{refused.returncode} {refused.stderr}')
        del service.config['repositories']
        service.write_config()
        service.start()
        eventually('the log says it', lambda: 'operators: nobody is one' in read(f'{service.directory}/log'))


def ARepositoryOfTheConfigurationThatCannotBeOpenedStopsNobody(start):
    with start() as service:
        service.stop()
        service.config['repositories'] = {'gone': f'{service.repositories}/gone.git'}
        service.write_config()
        service.start()
        gone, = [one for one in service.get('/v1/repositories').json['repositories'] if one['name'] == 'gone']
        expect(gone['error'], gone)
        service.open()


def AnOrdinaryUsersServiceHasThatUserAsItsOperator(start):
    with start() as service:
        service.stop()
        subprocess.run(['chown', '-R', f'{NOBODY}:{NOBODY}', service.directory], check=True, timeout=300)
        as_nobody = ['env', 'HOME=/', 'setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups']
        service.before = as_nobody
        del service.config['operators']
        service.write_config()
        service.start()
        for lack, wrapper, status in (('nothing', [], 200), ('our PID namespace', ['unshare', '--pid', '--fork'], 403)):
            got, answer = asked(service, [*wrapper, *as_nobody], 'POST', '/v1/repositories/data/gc', {})
            expect_equal(f'without {lack} ({answer})', got, status)
        got, answer = asked(service, [], 'POST', '/v1/repositories/data/gc', {})
        expect_equal(f'root, who is not named ({answer})', got, 403)


def RootWithoutCapabilitiesImportsWhatItCouldRead(start):
    with start() as service:
        sources = f'{service.directory}/sources'
        os.makedirs(f'{sources}/theirs')
        os.mkdir(f'{sources}/open')
        write(f'{sources}/theirs/secret', 'x')
        write(f'{sources}/open/plain', 'x')
        os.chown(f'{sources}/theirs', NOBODY, NOBODY)
        os.chmod(f'{sources}/theirs', 0o700)
        service.stop()
        service.config['source_roots'] = [sources]
        service.write_config()
        service.start()
        for lack, wrapper in LESSER_ROOTS.items():
            status, problem = asked(service, wrapper, 'POST', IMPORTS, {'source': f'{sources}/theirs'})
            expect_equal(f'without {lack} ({problem})', (status, problem.get('code')), (403, 'forbidden'))
            status, made = asked(service, wrapper, 'POST', IMPORTS, {'source': f'{sources}/open'})
            expect_equal(f'what everybody may read, without {lack} ({made})', status, 201)
        status, made = asked(service, [], 'POST', IMPORTS, {'source': f'{sources}/theirs'})
        expect_equal(f'with every right ({made})', status, 201)


if __name__ == '__main__':
    main(globals())
