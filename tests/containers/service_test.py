#!/usr/bin/env python3
"""escrowd in a container, with the rights that deploy/docker/compose.yaml gives it: with all it works, and without any
one of them it does not. The image has the programs of this build where the Dockerfile's package puts them.
"""
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import time

import yaml

from runtimes import UnixConnection, eventually, expect, expect_equal, main, source, SOURCE

IMAGE = 'escrowd'
STATE = '/srv/escrow'  # in the compose file; the test has a directory of its own


def compose():
    return yaml.safe_load(source('deploy/docker/compose.yaml'))['services']


class Service:
    """The service of the compose file, its directories below the machine's own."""

    def __init__(self, machine):
        self.machine = machine
        self.place = f'{machine.directory}/srv'
        for name in ('repositories', 'sessions', 'state', 'run'):
            os.makedirs(f'{self.place}/{name}')
        os.rename(machine.repository, f'{self.place}/repositories/data.git')
        machine.repository = f'{self.place}/repositories/data.git'
        self.sessions = f'{self.place}/sessions'
        subprocess.run(['mount', '--bind', self.sessions, self.sessions], check=True)
        subprocess.run(['mount', '--make-shared', self.sessions], check=True)

    def options(self, service, without=None):
        """Of `docker run`, for a service of the compose file, without one of its rights (`name` or `name=value`)."""
        options = []
        for name, option in (('cap_drop', '--cap-drop'), ('cap_add', '--cap-add'), ('devices', '--device'),
                             ('security_opt', '--security-opt'), ('tmpfs', '--tmpfs')):
            values = [value for value in service.get(name, []) if f'{name}={value}' != without]
            options += [word for value in values for word in (option, value)]
        for volume in service['volumes']:
            mount = f'type=bind,source={volume["source"].replace(STATE, self.place)},target={volume["target"]}'
            propagation = volume.get('bind', {}).get('propagation')
            if propagation and propagation != without:
                mount += f',bind-propagation={propagation}'
            options += ['--mount', mount]
        if service.get('read_only'):
            options.append('--read-only')
        return options + ['--network', service['network_mode']]

    def start(self, without=None):
        self.machine.run('docker', 'run', '--detach', '--name', 'service', *self.options(compose()['escrowd'], without),
                         IMAGE)

    def log(self):
        result = subprocess.run(['docker', 'logs', 'service'], env=self.machine.environment, capture_output=True,
                                text=True, check=False, timeout=30)
        return result.stdout + result.stderr

    def stop(self):
        self.machine.run('docker', 'stop', 'service')
        self.machine.run('docker', 'rm', 'service')

    def ask(self, method, route, body=None):
        connection = UnixConnection(f'{self.place}/run/escrowd.sock')
        with contextlib.closing(connection):
            connection.request(method, f'/v1/{route}', None if body is None else json.dumps(body),
                               {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def is_up(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask('GET', 'health')[0] == 200
        return False

    def job(self, *command):
        """(status, what it said) of the compose file's job with another command."""
        service = compose()['job']
        program, *arguments = service['entrypoint']
        result = subprocess.run(['docker', 'run', '--rm', *self.options(service), '--entrypoint', program, IMAGE,
                                 *arguments, *(command or service['command'])], env=self.machine.environment,
                                capture_output=True, text=True, check=False, timeout=60)
        return result.returncode, result.stdout + result.stderr

    def works(self):
        """Empty, or what does not work."""
        deadline = time.monotonic() + 10
        while not self.is_up():
            state = self.machine.run('docker', 'inspect', '--format', '{{.State.Status}}', 'service')
            if state == 'exited' or time.monotonic() > deadline:
                return f'the service is {state}: {self.log()}'
            time.sleep(0.05)
        status, answer = self.ask('POST', 'repositories', {'name': 'data',
                                                           'path': '/var/lib/escrow/repositories/data.git'})
        if status not in (200, 201) and answer.get('code') != 'already_exists':
            return f'the repository cannot be registered: {answer}'
        before = self.machine.git('rev-parse', 'main')
        status, said = self.job()
        if status != 0:
            return f'the job ended with {status}: {said}'
        expect(self.machine.git('rev-parse', 'main') != before, f'the job said nothing and committed nothing: {said}')
        return ''


def copy_with_libraries(root, program, target):
    os.makedirs(os.path.dirname(f'{root}{target}'), exist_ok=True)
    shutil.copy(program, f'{root}{target}')
    listing = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r'(/\S+) \(0x', listing):
        os.makedirs(os.path.dirname(f'{root}{library}'), exist_ok=True)
        shutil.copy(library, f'{root}{library}')


def make_image(machine):
    """What the Dockerfile makes of the package, as far as escrowd and the job need it."""
    root = f'{machine.directory}/service-image'
    build = os.path.dirname(machine.escrow_program)
    for name in ('bin', 'lib', 'lib64'):
        os.makedirs(f'{root}/usr/{name}')
        os.symlink(f'usr/{name}', f'{root}/{name}')
    copy_with_libraries(root, f'{build}/escrowd', '/usr/bin/escrowd')
    copy_with_libraries(root, '/usr/bin/curl', '/usr/bin/curl')
    shutil.copy('/bin/busybox', f'{root}/usr/bin/busybox')
    for program in ('sh', 'grep', 'date', 'hostname', 'cat'):
        os.symlink('busybox', f'{root}/usr/bin/{program}')
    for directory in ('tmp', 'etc/escrow', 'run/escrowd', 'var/lib/escrowd', 'var/lib/escrow/repositories',
                      'var/lib/escrow/sessions', 'usr/local/bin'):
        os.makedirs(f'{root}/{directory}', exist_ok=True)
    shutil.copy(f'{SOURCE}/deploy/packaging/escrowd.json', f'{root}/etc/escrow')
    shutil.copy(f'{SOURCE}/deploy/docker/escrow-job', f'{root}/usr/local/bin')
    for name, text in (('passwd', 'root:x:0:0:root:/:/bin/sh\n'), ('group', 'root:x:0:\nescrow:x:999:\n')):
        with open(f'{root}/etc/{name}', 'w', encoding='ascii') as file:
            file.write(text)
    archive = f'{machine.directory}/service.tar'
    subprocess.run(['tar', '-C', root, '-cf', archive, '.'], check=True)
    entries = re.findall(r'^(?:ENTRYPOINT|CMD) .*', source('deploy/docker/Dockerfile'), re.MULTILINE)
    machine.run('docker', 'import', *[word for entry in entries for word in ('--change', entry)], archive, IMAGE)


def ItsServiceWorksWithTheRightsThatAreListed(machine):
    make_image(machine)
    service = Service(machine)
    service.start()
    expect_equal('the service', service.works(), '')
    about = os.stat(f'{service.place}/run/escrowd.sock')
    expect_equal('the socket', (about.st_mode & 0o777, about.st_gid), (0o660, 999))
    expect_equal('what the job wrote', machine.git('show', '--format=', '--name-only', 'main'), 'built')
    before = machine.git('rev-parse', 'main')
    status, said = service.job('sh', '-c', 'echo x > lost; exit 3')
    expect_equal(f'a job that fails ({said})', (status, machine.git('rev-parse', 'main')), (3, before))

    # Whoever the other container runs as: the session says whose its files are.
    status, answer = service.ask('POST', 'sessions', {'repository': 'data', 'uid': 1000, 'gid': 1000,
                                                      'mountpoint': '/var/lib/escrow/sessions/theirs'})
    expect_equal(f'opening ({answer})', status, 201)
    script = 'cd /var/lib/escrow/sessions/theirs && cat built > copy && echo x >> a.txt'
    machine.run('docker', 'run', '--rm', '--user', '1000:1000', *service.options(compose()['job']),
                '--entrypoint', 'sh', IMAGE, '-c', script)
    status, answer = service.ask('POST', f'sessions/{answer["session"]}/finish', {'exit_code': 0})
    expect_equal(f'finishing ({answer})', status, 200)
    expect_equal('what it wrote', machine.git('diff', '--name-status', 'main^', 'main'), 'M\ta.txt\nA\tcopy')

    # A session goes on in the next container, and until then nobody sees it.
    point = {'repository': 'data', 'mountpoint': '/var/lib/escrow/sessions/kept'}
    status, answer = service.ask('POST', 'sessions', point)
    expect_equal(f'opening ({answer})', status, 201)
    with open(f'{service.sessions}/kept/file', 'w', encoding='ascii') as file:
        file.write('kept')
    service.stop()
    expect_equal('what is seen meanwhile', os.listdir(f'{service.sessions}/kept'), [])
    service.start()
    eventually('the service is up again', service.is_up)
    with open(f'{service.sessions}/kept/file', encoding='ascii') as file:
        expect_equal('the file', file.read(), 'kept')
    status, answer = service.ask('POST', f'sessions/{answer["session"]}/finish', {'exit_code': 0})
    expect_equal('finishing', (status, answer.get('state')), (200, 'committed'))
    service.stop()
    expect_equal('the content', machine.git('show', 'main:file'), 'kept')


def ComposeRunsItsServiceAndItsJob(machine):
    make_image(machine)
    service = Service(machine)
    def compose_up(*words):
        return machine.compose('compose.yaml', {STATE: service.place}, *words)
    status, said = compose_up('up', '--detach', 'escrowd')
    expect_equal(f'up ({said})', status, 0)
    eventually('the service is up', service.is_up)
    status, answer = service.ask('POST', 'repositories', {'name': 'data',
                                                          'path': '/var/lib/escrow/repositories/data.git'})
    expect_equal(f'registering ({answer})', status, 201)
    status, said = compose_up('run', '--rm', 'job')
    expect_equal(f'the job ({said})', status, 0)
    expect_equal('what it wrote', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tbuilt')
    before = machine.git('rev-parse', 'main')
    status, said = compose_up('run', '--rm', 'job', 'sh', '-c', 'rm built; exit 3')
    expect_equal(f'a job that fails ({said})', (status, machine.git('rev-parse', 'main')), (3, before))
    status, said = compose_up('down')
    expect_equal(f'down ({said})', status, 0)


def ItsServiceNeedsEveryRightThatIsListed(machine):
    make_image(machine)
    service = Service(machine)
    definition = compose()['escrowd']
    rights = [f'{kind}={value}' for kind in ('cap_add', 'devices') for value in definition[kind]]
    rights += [volume['bind']['propagation'] for volume in definition['volumes'] if 'bind' in volume]
    if os.path.exists('/sys/kernel/security/apparmor'):
        rights.append('security_opt=apparmor:unconfined')
    expect(len(rights) >= 4, f'too few rights were found: {rights}')
    for right in rights:
        service.start(without=right)
        obstacle = service.works()
        print(f'without {right}: {obstacle.strip()}')
        expect(obstacle, f'it works without {right}: it is not to have it')
        expect_equal(f'what is left of it without {right}', os.listdir(f'{service.place}/repositories/data.git/escrow/'
                                                                       'sessions'), [])
        service.stop()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals())
