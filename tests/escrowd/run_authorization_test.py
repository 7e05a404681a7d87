#!/usr/bin/env python3
"""What a hostile client tries on escrowd's runs, as an unprivileged user of the machine: one test for each hole."""
import os

from authorization_test import asked, refused
from runs_test import awaited, below, eventually_says, host_of, ordering, outcome, output, run, shell
from service import NOBODY, NOBODY_NAME, as_user, expect, expect_equal, main


def NobodyRunsACommandAsSomebodyElse(start):
    with start(operators=[NOBODY_NAME]) as service:
        # Also an operator is not root, and nobody's commands are theirs.
        for somebody in ('user:root', 'user:daemon'):
            problem = refused(service, 'POST', '/v1/runs', 403, 'forbidden', shell('id', committer=somebody))
            expect_equal('the field', problem['field'], 'committer')
        for name in ('uid', 'gid'):
            problem = refused(service, 'POST', '/v1/runs', 403, 'forbidden', shell('id', **{name: 1}))
            expect_equal('the field', problem['field'], name)
    with start(run_as={NOBODY_NAME: ['agent:helper', 'user:daemon', 'user:no-such-user']}) as service:
        for body, status, code, field in (
                (shell('id', committer='user:root'), 403, 'forbidden', 'committer'),
                (shell('id', committer='user:0'), 403, 'forbidden', 'committer'),
                (shell('id', committer='user:bin'), 403, 'forbidden', 'committer'),
                (shell('id', committer='user:no-such-user'), 400, 'invalid_value', 'committer'),
                (shell('id', uid=0), 403, 'forbidden', 'uid'), (shell('id', gid=0), 403, 'forbidden', 'gid'),
                (shell('id', user='root'), 400, 'unknown_field', 'user'),
                (shell('id', confined=False), 403, 'forbidden', 'confined'),
                (shell('id', network='host'), 403, 'forbidden', 'network')):
            problem = refused(service, 'POST', '/v1/runs', status, code, body)
            expect_equal('the field', problem['field'], field)
        expect_equal('the runs', service.get('/v1/runs').json['runs'], [])
        for committer, uid in (('agent:helper', NOBODY), ('user:daemon', 1)):
            _, view = asked(service, 'POST', '/v1/runs', shell('id -u; echo x >> new', committer=committer))
            view = awaited(service, view['run'])
            expect_equal('the outcome', outcome(view), ('committed', 'success', 0))
            expect_equal('whose the command was', output(service, view['run']), f'{uid}\n')
            message = service.git('log', '-1', '--format=%B', 'main').split('\n')
            expect(f'Escrow-Committer: {committer}' in message and f'Escrow-Issuer: {NOBODY_NAME}' in message,
                   f'the message is {message}')
        view = awaited(service, run(service, shell('id -u', committer=NOBODY_NAME)))
        expect_equal("root's run as another", output(service, view['run']), f'{NOBODY}\n')


def AConfinedRunFindsNothingOfTheMachine(start):
    os.environ['TOKEN'] = 'a secret of the service'
    with start(host_network=[NOBODY_NAME]) as service:
        script = ('env; ls -a / /etc; ls /proc/self/fd | wc -l; ls /sys/class/net /proc/net 2>&1; '
                  'grep -c : /proc/net/dev; ps -ef 2>/dev/null | wc -l; '
                  f'cat /etc/shadow {service.config_path} {service.directory}/state/lock {service.socket}; '
                  'kill -0 1 && echo one lives; touch /usr/x /x; grep Cap /proc/self/status; ulimit -n')
        _, view = asked(service, 'POST', '/v1/runs', shell(script))
        name = view['run']
        awaited(service, name)
        said, complaints = output(service, name), output(service, name, 'stderr')
        expect('secret' not in said + complaints, f'the environment is passed on: {said}')
        expect('ESCROW_SESSION=' + name in said, said)
        for hidden in ('shadow', 'escrowd.json', 'lock', 'escrowd.sock'):
            expect(f'{hidden}: No such file' in complaints, f'{hidden} is there: {complaints}')
        for path in ('/usr/x', '/x'):
            expect(f"'{path}': Read-only file system" in complaints, f'{path} was made: {complaints}')
        lines = said.split('\n')
        for wanted in ('CapEff:\t0000000000000000', 'CapBnd:\t0000000000000000', '1024'):
            expect(wanted in lines, f'{wanted} is not in {said}')
        expect('4' in lines, f'more descriptors than its own: {said}')  # and that of the listing
        _, view = asked(service, 'POST', '/v1/runs', ordering('cat', '/proc/net/dev'))
        awaited(service, view['run'])
        devices = [line.split(':')[0].strip() for line in output(service, view['run']).split('\n')[2:-1]]
        expect_equal('the devices', devices, ['lo'])
        _, view = asked(service, 'POST', '/v1/runs', shell('readlink /proc/self/ns/net', network='host'))
        awaited(service, view['run'])
        expect_equal('the granted network', output(service, view['run']).strip(), os.readlink('/proc/self/ns/net'))
        def look():
            try:
                return os.listdir(f'{service.directory}/state/runs/{name}')
            except PermissionError:
                return 'refused'
        expect_equal('its output, for others', as_user(NOBODY, look), 'refused')


def NoVariableOfARunReachesAProgramOutsideOfIt(start):
    names = ('LD_AUDIT', 'LD_LIBRARY_PATH', 'GCONV_PATH', 'LOCPATH', 'LANGUAGE', 'NLSPATH', 'GLIBC_TUNABLES', 'TMPDIR',
             'BASH_ENV', 'ENV', 'MALLOC_TRACE', 'PYTHONPATH', 'PYTHONSTARTUP', 'DOCKER_HOST', 'GIT_EXEC_PATH',
             'odd.name')
    variables = {name: f'dir/{name}-marked-0451' for name in names} | {'GLIBC_TUNABLES': 'a.marked-0451=1'}
    variables['LD_PRELOAD'] = 'dir/preload-marked-0451.so'
    with start() as service:
        _, view = asked(service, 'POST', '/v1/runs', shell('echo ready; exec sleep 1000', env=variables))
        name = view['run']
        eventually_says(service, name, 'ready')
        host = host_of(service)
        ours, programs = os.readlink('/proc/self/ns/mnt'), {}
        for pid in below(host):
            try:
                if os.readlink(f'/proc/{pid}/ns/mnt') != ours:
                    continue
                about = {}
                for file in ('comm', 'environ', 'cmdline', 'maps'):
                    with open(f'/proc/{pid}/{file}', 'rb') as stream:
                        about[file] = stream.read()
            except OSError:
                continue  # it has ended
            programs[about['comm'].decode().strip()] = pid
            for file, text in about.items():
                expect(b'marked-0451' not in text, f'{file} of {about["comm"]}: {text}')
        expect({'escrow-host', 'escrow-run', 'bwrap'} <= set(programs), f'seen: {programs}')
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        awaited(service, name)
        # The loader complains of each program that it could not preload the library into: of those inside only.
        expect_equal('whom the loader complains to', {line.split(':')[0] for line in
                     output(service, name, 'stderr').split('\n') if line}, {'ERROR'})
        _, view = asked(service, 'POST', '/v1/runs', shell('env', env=variables | {'LD_PRELOAD': ''}))
        awaited(service, view['run'])
        for variable, value in variables.items():
            if variable not in ('LD_PRELOAD', 'odd.name'):  # sh(1) drops the name that it could not use
                expect(f'{variable}={value}\n' in output(service, view['run']), f'{variable} is not set inside')
        for fields in ({'env': {'A': 'x' * (128 << 10)}}, {'env': {f'V{n}': 'x' for n in range(3000)}},
                       {'command': ['true', 'x' * (128 << 10)]}, {'command': ['true'] * 8100}):
            problem = refused(service, 'POST', '/v1/runs', 400, 'invalid_value', {**ordering('true'), **fields})
            expect_equal('the field', problem['field'], 'command')
        _, view = asked(service, 'POST', '/v1/runs', ordering('sh', '-c', 'echo $#', *['x'] * 7900))
        awaited(service, view['run'])
        expect_equal('its arguments', output(service, view['run']), '7899\n')


def ForeignRunsDoNotExist(start):
    with start() as service:
        name = run(service, shell('echo secret; echo ready; sleep 1000'))
        eventually_says(service, name, 'ready')
        for method, path in (('GET', ''), ('GET', '/wait?timeout_ms=0'), ('GET', '/output'),
                             ('GET', '/output?follow=true'), ('POST', '/cancel'), ('DELETE', '')):
            body = {} if method == 'POST' else None
            theirs = refused(service, method, f'/v1/runs/{name}{path}', 404, 'not_found', body)
            unknown = refused(service, method, f'/v1/runs/0123456789abcdef{path}', 404, 'not_found', body)
            expect_equal('a foreign one looks like none', theirs['detail'].replace(name, ''),
                         unknown['detail'].replace('0123456789abcdef', ''))
        refused(service, 'GET', f'/v1/runs/wait?ids={name}', 404, 'not_found')
        expect_equal('the list', asked(service, 'GET', '/v1/runs')[1]['runs'], [])
        expect_equal('all of theirs', asked(service, 'GET', '/v1/runs/wait')[1], {'runs': [], 'done': True})
        # A session is not a run.
        session = service.open()['session']
        service.get(f'/v1/runs/{session}').expect(404, 'not_found')
        for target in ('/v1/runs/..%2f..', f'/v1/runs/{name[:6]}', f'/v1/runs/{name}%2foutput', '/v1/runs/%00',
                       f'/v1/runs/..%2f{name}', f'/v1/runs/{name}%00', '/v1/runs/wait?ids=../..', '/v1/runs/.'):
            service.get(target).expect(404, 'not_found')
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        awaited(service, name)
    with start(reviewers=[NOBODY_NAME]) as service:
        name = run(service, shell('echo hi; echo ready; sleep 1000'))
        eventually_says(service, name, 'ready')
        expect_equal('a reviewer sees it', asked(service, 'GET', f'/v1/runs/{name}')[1]['run'], name)
        refused(service, 'POST', f'/v1/runs/{name}/cancel', 403, 'forbidden', {})
        refused(service, 'DELETE', f'/v1/runs/{name}', 403, 'forbidden')
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        awaited(service, name)


def AServiceWithoutRunsRefusesThem(start):
    with start(max_runs=0) as service:
        before = service.get('/v1/sessions').expect(200)['sessions']
        problem = service.post('/v1/runs', shell('true')).expect(403, 'forbidden')
        expect('max_runs' in problem['detail'], problem)
        expect_equal('sessions', service.get('/v1/sessions').expect(200)['sessions'], before)


def RunsOverTheLimitAndMalformedOnesAreRefused(start):
    with start(max_runs=1) as service:
        name = run(service, shell('echo ready; sleep 1000'))
        problem = service.post('/v1/runs', shell('true')).expect(503, 'unavailable')
        expect('max_runs' in problem['detail'] and problem['retryable'], problem)
        _, other = asked(service, 'POST', '/v1/runs', shell('true'))
        awaited(service, other['run'])
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        awaited(service, name)
        for fields, field in (({'command': []}, 'command'), ({'command': 'ls'}, 'command'),
                              ({'command': ['']}, 'command'), ({'command': ['a', 1]}, 'command'),
                              ({'command': ['a\0b']}, 'command'), ({'env': {'A=B': 'c'}}, 'env'),
                              ({'env': {'': 'c'}}, 'env'), ({'env': {'A': 'b\0'}}, 'env'),
                              ({'env': ['A=b']}, 'env'), ({'timeout_ms': 0}, 'timeout_ms'),
                              ({'timeout_ms': '5'}, 'timeout_ms'), ({'grace_ms': 60001}, 'grace_ms'),
                              ({'memory_bytes': 0}, 'memory_bytes'), ({'memory_bytes': -1}, 'memory_bytes'),
                              ({'millicpus': 9}, 'millicpus'), ({'millicpus': 1 << 30}, 'millicpus'),
                              ({'max_processes': 0}, 'max_processes'), ({'max_processes': '9'}, 'max_processes'),
                              ({'max_processes': 1 << 23}, 'max_processes'), ({'confined': 'no'}, 'confined'),
                              ({'network': 'some'}, 'network'),
                              ({'mountpoint': '/usr/x'}, 'mountpoint'), ({'mountpoint': 'x'}, 'mountpoint'),
                              ({'mountpoint': '/work', 'confined': False}, 'mountpoint'),
                              ({'path_prefix': '../x'}, 'path_prefix')):
            problem = service.post('/v1/runs', {**ordering('true'), **fields}).expect(400, 'invalid_value')
            expect_equal(f'the field of {fields}', problem['field'], field)
        service.post('/v1/runs', {'repository': 'data'}).expect(400, 'invalid_value')
        service.post('/v1/runs', ordering('true', colour='red')).expect(400, 'unknown_field')
        service.post('/v1/runs', ordering('true', repository='other')).expect(404, 'no_repository')
        service.post('/v1/runs', ordering('true', branch='nope')).expect(404, 'no_branch')
        service.post('/v1/runs', ordering('true', path_prefix='a.txt')).expect(409, 'wrong_state')
        service.get('/v1/runs?state=asleep').expect(400, 'invalid_value')
        expect_equal('what runs', service.get('/v1/runs?state=running').json['runs'], [])
        expect_equal('what is kept', len(os.listdir(f'{service.directory}/state/runs')), 2)


if __name__ == '__main__':
    main(globals())
