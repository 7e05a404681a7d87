"""Real docker and podman for the tests beside it: started here, with everything of theirs in a directory of its own,
and with mounts of their own.

The image has one program, busybox. Nothing is pulled from anywhere.
"""
import argparse
import contextlib
import glob
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = os.path.realpath(f'{os.path.dirname(os.path.abspath(__file__))}/../..')
sys.path.insert(0, f'{SOURCE}/tests/support')
from expectations import (  # pylint: disable=wrong-import-position,unused-import
    SKIPPED, UnixConnection, eventually, expect, expect_equal, fail, nightly, only, run_cases)
from private_mounts import enter_private_mounts  # pylint: disable=wrong-import-position

IMAGE = 'escrow-test'
# A container that goes on when the test says so, however long that takes.
WAITS = 'until [ -e /tmp/go ]; do sleep 0.1; done'


def source(path):
    """What a file of the project says."""
    with open(f'{SOURCE}/{path}', encoding='utf-8') as file:
        return file.read()


def is_alive(pid_file):
    """Whether the process of this file is there, and no zombie."""
    with contextlib.suppress(OSError):
        with open(pid_file, encoding='ascii') as file, open(f'/proc/{file.read().strip()}/stat', 'rb') as stat:
            return stat.read().rsplit(b')', 1)[1].split()[0] != b'Z'
    return False


def go_on(machine, name):
    process = machine.run(machine.runtime.name, 'container', 'inspect', '--format', '{{.State.Pid}}', name)
    with open(f'/proc/{process}/root/tmp/go', 'w', encoding='ascii'):
        pass


def forget_events(machine, pairs=150):
    """Makes the runtime forget what has happened: docker keeps the newest 256 events of everything, podman a file."""
    if machine.runtime.name == 'podman':
        os.truncate(f'{machine.directory}/runtime/tmp/events/events.log', 0)
        return
    for _ in range(pairs):
        for method, route in (('POST', f'/images/{IMAGE}/tag?repo=other&tag=x'), ('DELETE', '/images/other:x')):
            status, body = machine.request_runtime(method, route)
            expect(status in (200, 201), f'{method} {route}: {status} {body}')


class Docker:
    # To make a network namespace, even for `none`, dockerd starts itself twice: 0.2 s of CPU for each container.
    name, network = 'docker', 'host'

    def __init__(self, directory):
        self.environment = {'DOCKER_HOST': f'unix://{directory}/docker.sock'}
        self.containerd = f'{directory}/exec/containerd/containerd.pid'
        self.log = open(f'{directory}/dockerd.log', 'wb')  # pylint: disable=consider-using-with
        self.api = f'{directory}/docker.sock'
        self.command = [
            'dockerd', '--data-root', f'{directory}/data', '--exec-root', f'{directory}/exec',
            '-p', f'{directory}/pid', '-H', f'unix://{directory}/docker.sock',
            '--iptables=false', '--ip6tables=false', '--bridge=none',
            '--storage-driver', 'overlay2', '--exec-opt', 'native.cgroupdriver=cgroupfs',
            '--default-ulimit', 'nofile=4096:4096', '--default-ulimit', 'nproc=4096:4096']
        self.start()

    def start(self):
        # One that is on its way out, or a zombie, would be taken for one that serves.
        eventually("the containerd of the dockerd before has ended", lambda: not is_alive(self.containerd))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.containerd)
        self.server = subprocess.Popen(  # pylint: disable=consider-using-with
            self.command, stdout=self.log, stderr=self.log)
        eventually('dockerd answers', self.answers)

    def answers(self):
        if self.server.poll() is not None:
            with open(self.log.name, encoding='utf-8', errors='replace') as log:
                fail(f'dockerd exited with {self.server.returncode}: {log.read()[-2000:]}')
        with contextlib.suppress(OSError, http.client.HTTPException):
            with contextlib.closing(UnixConnection(self.api, timeout=20)) as connection:
                connection.request('GET', '/_ping')
                return connection.getresponse().status == 200
        return False

    def stop(self):
        self.server.terminate()
        self.server.wait(timeout=100)

    def kill(self):
        """For clean-up, where its state no longer matters: in order, dockerd needs a second to stop."""
        self.server.kill()
        self.server.wait(timeout=100)


class Podman:
    name, network = 'podman', 'none'

    def __init__(self, directory):
        with open(f'{directory}/containers.conf', 'w', encoding='utf-8') as file:
            file.write('[containers]\nnetns = "none"\ncgroups = "enabled"\n'
                       'default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
                       '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                       f'tmp_dir = "{directory}/tmp"\n')
        with open(f'{directory}/storage.conf', 'w', encoding='utf-8') as file:
            file.write(f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/data"\nrunroot = "{directory}/run"\n')
        self.environment = {'CONTAINERS_CONF': f'{directory}/containers.conf',
                            'CONTAINERS_STORAGE_CONF': f'{directory}/storage.conf'}
        self.conf, self.api = f'{directory}/containers.conf', f'{directory}/podman.sock'
        self.server = None

    def start(self):
        """The API: podman itself needs no server."""
        self.server = subprocess.Popen(  # pylint: disable=consider-using-with
            ['podman', 'system', 'service', '--time', '0', f'unix://{self.api}'],
            env={**os.environ, **self.environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually('podman answers', self.answers)

    def answers(self):
        """Its socket is there a moment before it listens."""
        with contextlib.suppress(OSError), contextlib.closing(UnixConnection(self.api)) as connection:
            connection.connect()
            return True
        return False

    def stop(self):
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=100)

    def kill(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait(timeout=100)


class ContainerHost:
    """One runtime with one image, in a directory of its own."""

    def __init__(self, arguments, runtime_class):
        self.arguments = arguments
        self.escrow_program = os.path.abspath(arguments.escrow)
        # Short: the paths of docker's sockets have a bound.
        self.directory = tempfile.mkdtemp(prefix='esc.', dir='/var/tmp')
        self.runtime = None
        try:
            # Conmon writes a file `oom` in the directory that podman was started in.
            os.chdir(self.directory)
            self.prepare(runtime_class)
        except BaseException:
            self.close()
            raise

    def prepare(self, runtime_class):
        os.mkdir(f'{self.directory}/runtime')
        self.runtime = runtime_class(f'{self.directory}/runtime')
        self.environment = {**os.environ, **self.runtime.environment}
        self.make_image(IMAGE)

    def make_image(self, name, *changes):
        root = f'{self.directory}/image'
        os.makedirs(f'{root}/bin', exist_ok=True)
        os.makedirs(f'{root}/tmp', exist_ok=True)
        shutil.copy('/bin/busybox', f'{root}/bin/busybox')
        for program in ('sh', 'cat', 'id', 'ls', 'sleep', 'tail', 'touch', 'rm', 'echo', 'head', 'date', 'stat'):
            if not os.path.lexists(f'{root}/bin/{program}'):
                os.symlink('busybox', f'{root}/bin/{program}')
        archive = f'{self.directory}/image.tar'
        subprocess.run(['tar', '-C', root, '-cf', archive, '.'], check=True)
        options = [word for change in changes for word in ('--change', change)]
        self.run(self.runtime.name, 'import', *options, archive, name)

    def write_in_image(self, path, text):
        """For images that are made from now on."""
        os.makedirs(os.path.dirname(f'{self.directory}/image/{path}'), exist_ok=True)
        with open(f'{self.directory}/image/{path}', 'w', encoding='ascii') as file:
            file.write(text)

    def close(self):
        if self.runtime is not None:
            self.runtime.kill()
        self.remove()

    def remove(self):
        """Ends all that was started in the directory, and removes it."""
        # A killed dockerd leaves its containerd, and the shims of containers with what runs in them.
        with contextlib.suppress(SystemExit):
            eventually('all of the runtime has ended', self.has_killed_all)
        remove_cgroups(containers_below(self.directory) + named_by_podman(self.directory))
        with open('/proc/mounts', encoding='utf-8', errors='surrogateescape') as mounts:
            for line in reversed(mounts.readlines()):
                if line.split()[1].startswith(self.directory):
                    subprocess.run(['umount', '-l', line.split()[1]], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def has_killed_all(self):
        pids = list(started_below(self.directory))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    def run(self, *command):
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=200)
        if result.returncode != 0:
            fail(f'{command} exited with {result.returncode}: {result.stderr}')
        return result.stdout.strip()

    def request_runtime(self, method, route):
        """(status, body) of an answer of the runtime's API."""
        with contextlib.closing(UnixConnection(self.runtime.api, timeout=200)) as connection:
            connection.request(method, route)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def ask_runtime(self, route):
        """The body of the runtime API's answer to a GET. For polls: a start of the runtime's program costs more."""
        status, body = self.request_runtime('GET', route)
        if status != 200:
            fail(f'{route}: {status} {body.decode(errors="replace")}')
        return body


class SharedHost(ContainerHost):
    """One for several cases, one after the other. For docker: it asks the runtime's API."""

    kept = frozenset()

    def keep_contents(self):
        """From now on: clean() removes only what is made later."""
        self.kept = self.contents()

    def contents(self):
        """The route of each container, image, network and volume that the runtime has."""
        lists = {'containers': '/containers/json?all=1', 'images': '/images/json?all=1', 'networks': '/networks'}
        routes = {f'/{kind}/{one["Id"]}' for kind, listed in lists.items()
                  for one in json.loads(self.ask_runtime(listed))}
        volumes = json.loads(self.ask_runtime('/volumes'))['Volumes'] or []
        return routes | {f'/volumes/{one["Name"]}' for one in volumes}

    def clean(self):
        eventually('the runtime has nothing of the case', self.has_removed_all)

    def has_removed_all(self):
        # Containers come first: they use the others.
        left = sorted(self.contents() - self.kept)
        for route in left:
            self.request_runtime('DELETE', f'{route}?force=1')
        return not left


class Machine(ContainerHost):
    """One repository, and the runtime of `shared` or one of its own; `escrow` talks to them."""

    def __init__(self, arguments, runtime_class, shared=None):
        self.shared = shared
        super().__init__(arguments, runtime_class)

    def prepare(self, runtime_class):
        if self.shared is None:
            super().prepare(runtime_class)
        else:
            self.runtime, self.environment = self.shared.runtime, self.shared.environment
        self.repository = f'{self.directory}/data.git'
        self.escrow('init')
        os.makedirs(f'{self.directory}/tree/sub')
        for name, text in (('a.txt', 'a\n'), ('sub/b.txt', 'b\n')):
            with open(f'{self.directory}/tree/{name}', 'w', encoding='ascii') as file:
                file.write(text)
        self.escrow('import', f'{self.directory}/tree', '--message', 'first')
        self.imported = json.loads(self.escrow('audit', '--json'))

    def close(self):
        if self.shared is None:
            super().close()
        else:
            # Of a case that fails. Of one that passes main() has removed everything.
            with contextlib.suppress(SystemExit, OSError, http.client.HTTPException):
                self.shared.clean()
            self.remove()

    def compose(self, example, replacements, *words):
        """(status, what it said) of docker-compose with an example of deploy/docker, its names replaced."""
        text = source(f'deploy/docker/{example}')
        for name, ours in replacements.items():
            expect(name in text, f'{example} does not name {name}')
            text = text.replace(name, ours)
        file = f'{self.directory}/{example}'
        with open(file, 'w', encoding='utf-8') as copy:
            copy.write(text)
        result = subprocess.run(['docker-compose', '--project-name', 'example', '--file', file, *words], text=True,
                                capture_output=True, check=False, timeout=400, env=self.environment)
        return result.returncode, result.stdout + result.stderr

    def escrow(self, *command):
        return self.run(self.escrow_program, '--repo', self.repository, *command)

    def git(self, *command):
        return self.run('git', '--git-dir', self.repository, *command)

    def container_command(self, options, script, image=IMAGE):
        command = [self.escrow_program, '--repo', self.repository, 'run', '--runtime', self.runtime.name,
                   '--image', image, '--pull', 'never', *options]
        if '--network' not in options:
            command += ['--network', self.runtime.network]
        return command + (['--', 'sh', '-c', script] if script is not None else [])

    def container(self, options, script, image=IMAGE, environment=None):
        """(status, standard output, standard error) of `escrow run --image`."""
        result = subprocess.run(self.container_command(options, script, image), capture_output=True, text=True,
                                check=False, timeout=300, env={**self.environment, **(environment or {})})
        return result.returncode, result.stdout, result.stderr

    def start_container(self, options, script, environment=None):
        return subprocess.Popen(self.container_command(options, script), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**self.environment, **(environment or {})})

    def output(self, container):
        """What it has written so far, between the headers of the API's frames."""
        return self.ask_runtime(f'/containers/{container}/logs?stdout=1&stderr=1')

    def await_output(self, container, words):
        """For what takes long: docker says when it comes, and is not asked again and again."""
        with contextlib.closing(UnixConnection(self.runtime.api, timeout=100)) as connection:
            connection.request('GET', f'/containers/{container}/logs?stdout=1&stderr=1&follow=1')
            answer, said = connection.getresponse(), b''
            while words not in said:
                more = answer.read1()
                expect(more, f'{container} ended and has not said {words}: {said}')
                said += more

    def state(self, container):
        return json.loads(self.ask_runtime(f'/containers/{container}/json'))['State']

    def containers(self):
        """The names of all. Docker's API is there without a further process."""
        if self.runtime.name == 'docker':
            return [name.removeprefix('/') for one in json.loads(self.ask_runtime('/containers/json?all=1'))
                    for name in one['Names'] or []]
        return self.run('podman', 'ps', '--all', '--format', '{{.Names}}').split()

    def last_session(self):
        """As the audit has it: it ended, or waits for approval."""
        return max(json.loads(self.escrow('audit', '--json')), key=lambda one: one['created'])

    def expect_clean(self):
        """Nothing of a run is left but what it committed."""
        expect_equal('containers', self.containers(), [])
        inside = [command_of(pid) for pid in processes() if is_inside(pid, (self.shared or self).directory)]
        expect_equal('processes in containers', inside, [])
        with open('/proc/mounts', encoding='utf-8', errors='surrogateescape') as mounts:
            found = {line.split()[0] for line in mounts}
        # Afterwards: a listing mends what a kill left.
        ours = {f'escrow:{one["session"]}' for one in json.loads(self.escrow('sessions', '--all', '--json'))}
        left = sorted(found & ours)
        expect_equal('mounts', left, [])
        self.git('fsck', '--strict')


def containers_below(directory):
    """The ids of the containers that the runtime there has on its disk."""
    return [name for place in ('containers', 'overlay-containers')
            for name in glob.glob('[0-9a-f]' * 64, root_dir=f'{directory}/runtime/data/{place}')]


def named_by_podman(directory):
    """The ids of its containers, and of images. Podman may leave the cgroups of a container that it has removed."""
    with contextlib.suppress(FileNotFoundError):
        with open(f'{directory}/runtime/tmp/events/events.log', encoding='utf-8') as events:
            return re.findall('[0-9a-f]{64}', events.read())
    return []


def remove_cgroups(containers):
    """The runtime would have removed them, had it not been killed."""
    # Of each hierarchy, or of the only one.
    for pattern in ('docker/*', 'libpod_parent/*', '*/docker/*', '*/libpod_parent/*'):
        for place in glob.glob(pattern, root_dir='/sys/fs/cgroup'):
            if any(container in place for container in containers):
                for directory, _, _ in os.walk(f'/sys/fs/cgroup/{place}', topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(directory)


def processes():
    """The pids of all but this one."""
    return [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) != os.getpid()]


def command_of(pid):
    """The words of its command; none: it has ended."""
    with contextlib.suppress(OSError), open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
        return file.read().split('\0')
    return []


def is_inside(pid, directory):
    """Whether a process is in a container whose root is on the runtime's disk there, also in one that the runtime has
    forgotten.
    """
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/mountinfo', encoding='utf-8', errors='surrogateescape') as mounts_of_it:
            return any(line.split()[4] == '/' and f'{directory}/' in line for line in mounts_of_it)
    return False


def started_below(directory):
    """Processes whose command lines name the directory, or that are in a container of it."""
    names = [directory, *containers_below(directory)]
    for pid in processes():
        with contextlib.suppress(OSError):
            with open(f'/proc/{pid}/cmdline', 'rb') as command, open(f'/proc/{pid}/cgroup', 'rb') as cgroup:
                said = command.read() + cgroup.read()
            if any(name.encode() in said for name in names) or is_inside(pid, directory):
                yield pid


def obstacle():
    if os.geteuid() != 0:
        return 'only root can start containers'
    for program in ('dockerd', 'docker', 'docker-compose', 'podman', 'runc', 'busybox'):
        if not shutil.which(program):
            return f'{program} is not installed'
    return None if os.path.exists('/dev/fuse') else 'there is no /dev/fuse'


def main(cases, machine_class=Machine, own_runtime=(), make_image=None):
    """Several cases share one docker, which each of them leaves as it was; those of `own_runtime`, which stop or kill
    the runtime, have one of their own. Podman needs no server: each case has a store of its own. make_image(host) makes
    one more image that all cases need.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument('--escrow', required=True)
    parser.add_argument('--escrowd')
    parser.add_argument('--runtime', required=True, choices=['docker', 'podman'])
    parser.add_argument('cases', nargs='+')
    arguments = parser.parse_args()
    why = obstacle()
    if why:
        print(why, file=sys.stderr)
        sys.exit(1 if os.environ.get('REQUIRE_FUSE') else SKIPPED)
    programs = [os.path.realpath(path) for path in (arguments.escrow, arguments.escrowd) if path]
    needed = [SOURCE, os.path.realpath(tempfile.gettempdir()), *programs]
    runtime = Docker if arguments.runtime == 'docker' else Podman
    shared, parent = None, os.getpid()

    def run(case):
        host = None if cases[case] in own_runtime else shared
        if host is None:
            enter_private_mounts(needed)
        with contextlib.closing(machine_class(arguments, runtime, host)) as machine:
            if host is None and make_image:
                make_image(machine)
            cases[case](machine)
            if host is not None:
                host.clean()

    try:
        if runtime is Docker and sum(cases[case] not in own_runtime for case in arguments.cases) > 1:
            enter_private_mounts(needed)
            shared = SharedHost(arguments, runtime)
            if make_image:
                make_image(shared)
            shared.keep_contents()
        run_cases(arguments.cases, run)
    finally:
        # A case that fails comes here, too, in a process of its own.
        if shared is not None and os.getpid() == parent:
            shared.close()
