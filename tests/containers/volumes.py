"""A machine with a real escrowd that serves volumes to one real runtime, for the tests of volumes."""
import contextlib
import http.client
import json
import os
import signal
import subprocess

from runtimes import IMAGE, Machine, UnixConnection, eventually, expect, expect_equal, fail

TRAPS = 'trap "exit 0" TERM; echo x > /data/new; echo up; while true; do sleep 0.1; done'


class VolumeMachine(Machine):
    """`self.driver` is the plugin's name in the runtime."""

    service, config = None, None
    before = ()  # what escrowd is started with

    def prepare(self, runtime_class):
        self.escrowd_program = os.path.abspath(self.arguments.escrowd)
        super().prepare(runtime_class)
        self.is_docker = self.runtime.name == 'docker'
        # Docker finds plugins by their name in a directory of the machine's, and goes on asking each that it has found:
        # the services of cases that share a docker are one plugin, which restarts.
        self.driver = 'escrow-' + os.path.basename((self.shared or self).directory).replace('.', '-')
        socket = f'/run/docker/plugins/{self.driver}.sock' if self.is_docker else f'{self.directory}/plugin.sock'
        self.config = {'operators': ['user:root'], 'repository_roots': [self.directory],
                       'socket': f'{self.directory}/escrowd.sock',
                       'state_directory': f'{self.directory}/state',
                       'volume_plugin': {'socket': socket, 'runtimes': [f'unix://{self.runtime.api}']}}
        if not self.is_docker:
            with open(self.runtime.conf, 'a', encoding='utf-8') as file:
                file.write(f'[engine.volume_plugins]\n{self.driver} = "{socket}"\n')
            self.runtime.start()
        self.start_service()
        self.ask('POST', 'repositories', {'name': 'data', 'path': self.repository})
        self.first = self.git('rev-parse', 'main')

    def give_up_soon(self):
        """For an end that no event tells. Elsewhere the default holds: on a busy machine an event may take its time."""
        self.stop_service()
        self.start_service(lost_after_ms=1500)

    def start_service(self, **plugin):
        self.config['volume_plugin'].update(plugin)
        with open(f'{self.directory}/escrowd.json', 'w', encoding='utf-8') as file:
            json.dump(self.config, file)
        with open(f'{self.directory}/escrowd.log', 'ab') as log:
            self.service = subprocess.Popen(  # pylint: disable=consider-using-with
                [*self.before, self.escrowd_program, '--config', f'{self.directory}/escrowd.json'], stderr=log,
                stdin=subprocess.DEVNULL)
        eventually('escrowd answers', self.answers)

    def stop_service(self, how=signal.SIGTERM):
        self.service.send_signal(how)
        self.service.wait(timeout=200)

    def close(self):
        super().close()  # which kills the service, once docker needs it no more to remove volumes
        if self.service is not None:
            self.service.wait()
        if self.config is not None and os.path.exists(self.config['volume_plugin']['socket']):
            os.unlink(self.config['volume_plugin']['socket'])

    def log(self):
        with open(f'{self.directory}/escrowd.log', encoding='utf-8', errors='replace') as file:
            return file.read()

    def request(self, method, target, body=None):
        """(status, body) of an answer of the service's API."""
        with contextlib.closing(UnixConnection(self.config['socket'], timeout=20)) as connection:
            connection.request(method, f'/v1/{target}', None if body is None else json.dumps(body),
                               {'Content-Type': 'application/json'} if body is not None else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request('GET', 'health')[0] == 200
        return False

    def ask(self, method, target, body=None):
        try:
            status, text = self.request(method, target, body)
        except (OSError, http.client.HTTPException) as error:
            fail(f'{method} {target}: {error!r}')
        if status >= 400:
            fail(f'{method} {target}: {status} {text}')
        return json.loads(text)

    def runtime_command(self, *words):
        """(status, standard output, standard error) of docker or podman."""
        result = subprocess.run([self.runtime.name, *words], capture_output=True, text=True, check=False, timeout=100,
                                env=self.environment)
        return result.returncode, result.stdout.strip(), result.stderr.strip()

    def volume(self, name='work', **options):
        words = [word for option, value in {'repository': 'data', **options}.items()
                 for word in ('-o', f'{option}={value}')]
        self.run(self.runtime.name, 'volume', 'create', '--driver', self.driver, *words, name)
        return name

    def volumes(self):
        """The names of all volumes that the runtime has; fails if one is of another plugin."""
        listed = self.run(self.runtime.name, 'volume', 'ls', '--format', '{{.Driver}} {{.Name}}')
        drivers = {line.split()[0] for line in listed.splitlines()}
        expect(drivers <= {self.driver}, f'volumes of other drivers: {listed}')
        return [line.split()[1] for line in listed.splitlines()]

    def command(self, script, *options, volume='work:/data', image=IMAGE):
        # Podman tells nobody of a stop: only one that cannot be trapped can be told from success.
        stop = [] if self.is_docker else ['--stop-signal', 'SIGKILL']
        mount = ['-v', volume] if volume else []
        return ['run', f'--network={self.runtime.network}', *stop, *mount, *options, image, 'sh', '-c', script]

    def container(self, script, *options, **keywords):
        return self.runtime_command(*self.command(script, *options, **keywords))

    def start_container(self, script, *options, **keywords):
        """Its id, once it has said a line."""
        name = self.run(self.runtime.name, *self.command(script, '--detach', *options, **keywords))
        eventually('the container speaks', lambda: self.output(name) != b'')
        return name

    def wait(self, name):
        return self.run(self.runtime.name, 'wait', name)

    def sessions(self):
        """Of volumes, oldest first, as the API shows them."""
        return [one for one in self.ask('GET', 'sessions?limit=1000')['sessions'] if one['labels']]

    def session(self):
        return self.sessions()[-1]

    def expect_end(self, state, *reasons):
        """The newest session, once it has ended for one of the reasons."""
        name = self.session()['session']
        def has_ended():
            return self.ask('GET', f'sessions/{name}')['state'] not in ('open', 'committing')
        eventually('the session has ended', has_ended)
        now = self.ask('GET', f'sessions/{name}')
        expect(now['state'] == state and now['reason'] in reasons,
               f"the end is {now['state']}, {now['reason']}, not {state}, {reasons}: {self.log()[-2000:]}")
        return now

    def expect_no_trace(self):
        """As if there had been no session at all."""
        expect_equal('sessions', self.sessions(), [])
        expect_equal('the audit', json.loads(self.escrow('audit', '--json')), self.imported)
        expect_equal('references', self.git('for-each-ref', '--format=%(refname)'), 'refs/heads/main')
        expect_equal('directories', os.listdir(f'{self.repository}/escrow/sessions'), [])
        expect_equal('mounts', os.listdir(f'{self.directory}/state/volumes'), [])

    def expect_unchanged(self):
        expect_equal('the branch', self.git('rev-parse', 'main'), self.first)

    def expect_clean(self):
        """No container, no mount, no host process, and nothing in the plugin's directory."""
        self.runtime_command('rm', '-f', *self.containers())
        eventually('the mounts are gone', lambda: os.listdir(f'{self.directory}/state/volumes') == [])
        super().expect_clean()
        expect('ERROR' not in self.log(), self.log())


def refusal(machine):
    """Escrow's own answer to the removal of a volume that is in use."""
    return machine.run('curl', '--silent', '--unix-socket', machine.config['volume_plugin']['socket'],
                       '-d', '{"Name": "work"}', 'http://escrow/VolumeDriver.Remove')
