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

from runtimes import SOURCE, UnixConnection, eventually, expect, expect_equal, main, nightly, source

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
                             ('security_opt', '--security-opt'), ('tmpfs', '--tmpfs'), ('group_add', '--group-add')):
            values = [value for value in service.get(name, []) if f'{name}={value}' != without]
            options += [word for value in values for word in (option, value)]
        for volume in service['volumes']:
            mount = f'type=bind,source={volume["source"].replace(STATE, self.place)},target={volume["target"]}'
            propagation = volume.get('bind', {}).get('propagation')
            if propagation and propagation != without:
                mount += f',bind-propagation={propagation}'
            if volume.get('read_only'):
                mount += ',readonly'
            options += ['--mount', mount]
        if service.get('read_only'):
            options.append('--read-only')
        if 'user' in service:
            options += ['--user', service['user']]
        return options + ['--network', service['network_mode']]

    def start(self, without=None):
        self.machine.run('docker', 'run', '--detach', '--name', 'service', *self.options(compose()['escrowd'], without),
                         IMAGE)

    def stop(self):
        # In order, and not killed after docker's usual ten seconds.
        self.machine.run('docker', 'stop', '--time', '100', 'service')
        self.machine.run('docker', 'rm', 'service')

    def ask(self, method, route, body=None):
        connection = UnixConnection(f'{self.place}/run/escrowd.sock')
        with contextlib.closing(connection):
            connection.request(method, f'/v1/{route}', None if body is None else json.dumps(body),
                               {'Content-Type': 'application/json'})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def ask_all_from(self, options, requests):
        """(status, answer) for each request of one process, of a container with these options of `docker run`."""
        words = []
        for method, route, body in requests:
            words += ['--next', '--silent', '--unix-socket', '/run/escrowd/escrowd.sock', '--write-out',
                      '\n%{http_code}\n=====\n', '-X', method, '--header', 'Content-Type: application/json',
                      f'http://escrowd/v1/{route}']
            if body is not None:
                words += ['--data', json.dumps(body)]
        said = self.machine.run('docker', 'run', '--rm', *options, '--entrypoint', 'curl', IMAGE, *words[1:])
        answers = []
        for one in said.split('=====')[:-1]:
            document, _, status = one.strip().rpartition('\n')
            answers.append((int(status), json.loads(document or '{}')))
        expect_equal('answers', len(answers), len(requests))
        return answers

    def ask_from(self, options, method, route, body=None):
        return self.ask_all_from(options, [(method, route, body)])[0]

    def is_up(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask('GET', 'health')[0] == 200
        return False

    def job_command(self, *command, options=(), user=None):
        service = {**compose()['job'], **({'user': user} if user else {})}
        program, *arguments = service['entrypoint']
        return ['docker', 'run', *options, *self.options(service), '--entrypoint', program, IMAGE, *arguments,
                *(command or service['command'])]

    def job(self, *command):
        """(status, what it said) of the compose file's job with another command."""
        result = subprocess.run(self.job_command(*command, options=['--rm']), env=self.machine.environment,
                                capture_output=True, text=True, check=False, timeout=200)
        return result.returncode, result.stdout + result.stderr

    def start_job(self, script, *options, user=None):
        """(container, session) of a job that has begun; its script says so."""
        name = self.machine.run(*self.job_command('sh', '-c', script, options=['--detach', *options], user=user))
        eventually('the job speaks', lambda: self.machine.output(name) != b'')
        open_now = [one for one in self.ask_sessions(user or compose()['job']['user']) if one['state'] == 'open']
        return name, open_now[0]['session']

    def ask_sessions(self, user):
        options = self.options({**compose()['job'], 'user': user})
        return self.ask_from(options, 'GET', 'sessions')[1]['sessions']

    def said(self, name='service'):
        result = subprocess.run(['docker', 'logs', name], env=self.machine.environment, capture_output=True,
                                text=True, check=False, timeout=30)
        return result.stdout + result.stderr

    def let_go(self, name):
        self.machine.run('docker', 'exec', name, 'touch', '/tmp/go')

    @staticmethod
    def is_mounted(session):
        with open('/proc/mounts', encoding='utf-8', errors='surrogateescape') as mounts:
            return any(line.startswith(f'escrow:{session} ') for line in mounts)

    def end_of(self, session):
        """(state, reason), once it has ended."""
        ended = []
        def has_ended():
            if self.is_mounted(session):
                return False
            ended[:] = [(one['state'], one['reason']) for one in json.loads(self.machine.escrow('audit', '--json'))
                        if one['session'] == session and one['state'] not in ('open', 'committing')]
            return ended
        eventually(f'{session} has ended', has_ended)
        return ended[0]

    def works(self):
        """Empty, or what does not work."""
        deadline = time.monotonic() + 60
        while not self.is_up():
            state = self.machine.state('service')['Status']
            if state == 'exited' or time.monotonic() > deadline:
                return f'the service is {state}: {self.said()}'
            time.sleep(0.05)
        before = self.machine.git('rev-parse', 'main')
        status, said = self.job()
        if status != 0:
            return f'the job ended with {status}: {said}'
        expect(self.machine.git('rev-parse', 'main') != before, f'the job said nothing and committed nothing: {said}')
        return ''


def copy_with_libraries(root, program, target):
    os.makedirs(os.path.dirname(f'{root}{target}'), exist_ok=True)
    # As in the package. Most of a program of the `dev` build is debug information.
    subprocess.run(['strip', '--strip-debug', '-o', f'{root}{target}', program], check=True)
    listing = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r'(/\S+) \(0x', listing):
        os.makedirs(os.path.dirname(f'{root}{library}'), exist_ok=True)
        shutil.copy(library, f'{root}{library}')


def make_image(host):
    """What the Dockerfile makes of the package, as far as escrowd and the job need it."""
    root = f'{host.directory}/service-image'
    build = os.path.dirname(host.escrow_program)
    for name in ('bin', 'lib', 'lib64'):
        os.makedirs(f'{root}/usr/{name}')
        os.symlink(f'usr/{name}', f'{root}/{name}')
    for program in ('escrow', 'escrowd'):
        copy_with_libraries(root, f'{build}/{program}', f'/usr/bin/{program}')
    for program in ('curl', 'git'):
        copy_with_libraries(root, f'/usr/bin/{program}', f'/usr/bin/{program}')
    shutil.copy('/bin/busybox', f'{root}/usr/bin/busybox')
    for program in ('sh', 'grep', 'date', 'hostname', 'cat', 'sleep', 'id', 'rm', 'ls', 'touch', 'env'):
        os.symlink('busybox', f'{root}/usr/bin/{program}')
    for directory in ('tmp', 'etc/escrow', 'run/escrowd', 'var/lib/escrowd', 'var/lib/escrow/repositories',
                      'var/lib/escrow/sessions', 'usr/local/bin'):
        os.makedirs(f'{root}/{directory}', exist_ok=True)
    os.chmod(f'{root}/tmp', 0o1777)
    shutil.copy(f'{SOURCE}/deploy/docker/escrowd.json', f'{root}/etc/escrow')
    shutil.copy(f'{SOURCE}/deploy/docker/escrow-job', f'{root}/usr/local/bin')
    jobs = re.search(r'groupadd --system --gid (\d+) escrow', source('deploy/docker/Dockerfile')).group(1)
    for name, text in (('passwd', f'root:x:0:0:root:/:/bin/sh\njob:x:{jobs}:{jobs}::/nonexistent:/bin/sh\n'),
                       ('group', f'root:x:0:\nescrow:x:{jobs}:\n')):
        with open(f'{root}/etc/{name}', 'w', encoding='ascii') as file:
            file.write(text)
    archive = f'{host.directory}/service.tar'
    subprocess.run(['tar', '-C', root, '-cf', archive, '.'], check=True)
    entries = re.findall(r'^(?:ENTRYPOINT|CMD) .*', source('deploy/docker/Dockerfile'), re.MULTILINE)
    host.run('docker', 'import', *[word for entry in entries for word in ('--change', entry)], archive, IMAGE)


def ItsServiceWorksWithTheRightsThatAreListed(machine):
    service = Service(machine)
    service.start()
    expect_equal('the service', service.works(), '')
    about = os.stat(f'{service.place}/run/escrowd.sock')
    expect_equal('the socket', (about.st_mode & 0o777, about.st_gid), (0o660, 47100))
    expect_equal('what the job wrote', machine.git('show', '--format=', '--name-only', 'main'), 'built')
    expect_equal('whose it is', machine.git('log', '-1', '--format=%(trailers:key=Escrow-Committer,valueonly)', 'main'),
                 'user:job')
    before = machine.git('rev-parse', 'main')
    status, said = service.job('sh', '-c', 'echo x > lost; exit 3')
    expect_equal(f'a job that fails ({said})', (status, machine.git('rev-parse', 'main')), (3, before))

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


def NobodyInAContainerIsMoreThanAUserOfSessions(machine):
    service = Service(machine)
    service.start()
    expect_equal('the service', service.works(), '')
    job = compose()['job']
    command = {'repository': 'data', 'command': ['id']}
    demands = [('repositories', {'name': 'mine', 'path': '/var/lib/escrow/repositories/data.git'}), ('runs', command),
               ('runs', {**command, 'confined': False, 'network': 'host'}), ('repositories/data/gc', {}),
               ('sessions', {'repository': 'data', 'mountpoint': '/var/lib/escrow/sessions/x', 'uid': 12, 'gid': 12}),
               ('sessions', {'repository': 'data', 'mountpoint': '/var/lib/escrow/sessions/x', 'symlinks': 'any'}),
               ('repositories/data/imports', {'source': '/etc', 'branch': 'main', 'message': 'x'})]
    root = {**job, 'user': '0:0'}
    for who, options in (('the user of jobs', service.options(job)),
                         ('root without capabilities', service.options(root)),
                         ('root', service.options({**root, 'cap_drop': []}))):
        answers = service.ask_all_from(options, [('POST', route, body) for route, body in demands])
        for (route, body), (status, answer) in zip(demands, answers, strict=True):
            expect(status == 403, f'{who} is answered {status} for {route} of {body}: {answer}')
    # Users of the socket's group have sessions of their own.
    name, session = service.start_job('echo secret > mine; echo ready; sleep 1000')
    other = '1001:47100'
    options = service.options({**job, 'user': other})
    expect_equal("another user's list", service.ask_sessions(other), [])
    for method, route, body in (('GET', f'sessions/{session}/files/mine', None), ('POST', f'sessions/{session}/finish',
                                                                                  {'exit_code': 0})):
        expect_equal('what others are answered', service.ask_from(options, method, route, body)[0], 404)
    result = subprocess.run(['docker', 'run', '--rm', *options, '--entrypoint', 'sh', IMAGE, '-c',
                             'cat /var/lib/escrow/sessions/*/mine'], env=machine.environment, check=False, timeout=200,
                            capture_output=True, text=True)
    expect(result.returncode != 0 and 'secret' not in result.stdout, f'others read {result.stdout}')
    machine.run('docker', 'rm', '--force', name)


def AJobThatIsStoppedOrKilledIsRolledBack(machine):
    service = Service(machine)
    service.start()
    expect_equal('the service', service.works(), '')
    before = machine.git('rev-parse', 'main')
    traps = 'echo x > lost; trap "exit 0" TERM; echo ready; while :; do sleep 0.1; done'
    name, session = service.start_job(traps)
    machine.run('docker', 'stop', '--time', '60', name)
    expect_equal('the status of the stopped', machine.run('docker', 'inspect', '--format', '{{.State.ExitCode}}', name),
                 '143')
    expect_equal('the stopped', service.end_of(session), ('rolled_back', 'cancelled'))
    # Longer than its lease as long as it lives.
    name, session = service.start_job('echo x > lost; echo ready; sleep 15; echo later; sleep 1000', '--env',
                                      'ESCROW_JOB_LEASE_S=12')
    machine.await_output(name, b'later')  # it has outlived its lease
    expect_equal('the state meanwhile', [one['state'] for one in service.ask_sessions(compose()['job']['user'])
                                         if one['session'] == session], ['open'])
    machine.run('docker', 'kill', name)
    expect_equal('the killed', service.end_of(session)[0], 'rolled_back')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    eventually('no mount and no mountpoint is left', lambda: os.listdir(service.sessions) == [])


@nightly()
def AJobWaitsForTheServiceAndSaysHowItsSessionEnded(machine):
    service = Service(machine)
    late = subprocess.Popen(service.job_command(), env=machine.environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    eventually('the job is there', lambda: json.loads(machine.ask_runtime('/containers/json')) != [])
    service.start()
    said, _ = late.communicate(timeout=200)
    expect_equal(f'a job that came before the service ({said})', late.returncode, 0)
    expect_equal('what it wrote', machine.git('show', '--format=', '--name-only', 'main'), 'built')
    # It stops and starts again just when the command ends.
    waits = 'cd /; echo ready; until [ -e /tmp/go ]; do sleep 0.1; done'
    name, _ = service.start_job(f'echo x > restarted; {waits}')
    service.stop()
    service.let_go(name)
    eventually('the command has ended', lambda: not re.search(r'^ *\d+ +sh -c', machine.run(
        'docker', 'top', name, '-o', 'pid,args'), re.MULTILINE))
    service.start()
    expect_equal('a job that ends during a restart', machine.run('docker', 'wait', name), '0')
    expect_equal('what it wrote', machine.git('show', '--format=', '--name-only', 'main'), 'restarted')
    # Somebody else changes the same file.
    name, session = service.start_job(f'echo job > a.txt; {waits}')
    machine.escrow('run', '--', 'sh', '-c', 'echo other > a.txt')
    service.let_go(name)
    expect_equal('a job with a conflict', machine.run('docker', 'wait', name), '122')
    expect('a.txt' in service.said(name), 'it does not say which path')
    expect_equal('its session', service.end_of(session)[0], 'commit_failed')
    machine.git('config', 'escrow.main.requireApproval', 'true')
    expect_equal('a job whose result waits for approval', service.job()[0], 123)


@nightly()
def ComposeRunsItsServiceAndItsJob(machine):
    service = Service(machine)
    def compose_up(*words):
        return machine.compose('compose.yaml', {STATE: service.place}, *words)
    # As its header says, with a repository that is made by it.
    shutil.rmtree(machine.repository)
    repository = '/var/lib/escrow/repositories/data.git'
    command = ['run', '--rm', '--entrypoint', 'escrow', 'escrowd', '--repo', repository]
    status, said = compose_up(*command, 'init')
    expect_equal(f'init ({said})', status, 0)
    status, said = compose_up('up', '--detach', 'escrowd')
    expect_equal(f'up ({said})', status, 0)
    status, said = compose_up('run', '--rm', 'job')
    expect_equal(f'the job ({said})', status, 0)
    expect_equal('what it wrote', machine.git('show', '--format=', '--name-status', 'main'), 'A\tbuilt')
    before = machine.git('rev-parse', 'main')
    status, said = compose_up('run', '--rm', 'job', 'sh', '-c', 'rm built; exit 3')
    expect_equal(f'a job that fails ({said})', (status, machine.git('rev-parse', 'main')), (3, before))
    status, said = compose_up(*command, 'log')
    expect(status == 0 and 'user:job' in said, f'the log ({status}): {said}')
    for verb in ('gc', 'verify'):
        status, said = compose_up(*command, verb)
        expect_equal(f'{verb} ({said})', status, 0)
    status, said = compose_up('down')
    expect_equal(f'down ({said})', status, 0)


@nightly()
def ItsServiceNeedsEveryRightThatIsListed(machine):
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
    main(globals(), make_image=make_image)
