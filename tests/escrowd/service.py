"""A real escrowd over a real repository, and clients of it: other users, raw sockets, curl. For the tests beside it.

Every answer to request() is checked against api/openapi.yaml (description.py), and every request that was not refused.
"""
import contextlib
import glob
import json
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from description import DESCRIPTION
from expectations import (  # pylint: disable=unused-import
    UnixConnection, eventually, expect, expect_equal, fail, nightly, run_cases)

NOBODY = 65534
NOBODY_NAME = 'user:' + pwd.getpwuid(NOBODY).pw_name
JSON = {'Content-Type': 'application/json'}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    @property
    def json(self):
        return json.loads(self.body)

    def expect(self, status, code=None):
        """The JSON of an answer with this status, of a problem with this code."""
        if self.status != status:
            fail(f'got {self.status} {self.body!r}, expected {status} {code or ""}')
        if status < 400:
            return self.json
        expect_equal('the content type of a problem', self.headers['content-type'], 'application/problem+json')
        problem = self.json
        expect_equal('the problem', (problem['code'], problem['status']), (code, status))
        for member in ('type', 'title', 'detail', 'retryable', 'exit_code'):
            expect(member in problem, f'{problem} has no {member}')
        return problem


def request(path, method, target, body=None, headers=None, timeout=300):
    connection = UnixConnection(path, timeout)
    try:
        is_document = isinstance(body, (dict, list, str, int, float))
        sent = json.dumps(body).encode() if is_document else body
        try:
            connection.request(method, target, sent, {**(JSON if body is not None else {}), **(headers or {})})
        except (BrokenPipeError, ConnectionResetError):
            pass  # a refusal came before the whole body was sent, and was not waited for any longer
        response = connection.getresponse()
        answer = Answer(response.status, response.getheaders(), response.read())
        DESCRIPTION.check(method, target, body if is_document else None, answer)
        return answer
    finally:
        connection.close()


def as_user(uid, action, groups=None):
    """What `action` returns (as JSON) when another user does it, in a process of its own, in its group or in these."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            os.setgroups([uid] if groups is None else groups)
            os.setgid(uid)
            os.setuid(uid)
            os.write(writer, json.dumps(action()).encode())
            status = 0
        except BaseException as error:  # pylint: disable=broad-except
            print(f'as uid {uid}: {error!r}', file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, 'rb') as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    expect(status == 0, f'the child of uid {uid} failed')
    return json.loads(text)


def open_files(pid):
    """What the descriptors of a process stand for; those that are closed meanwhile are left out."""
    links = []
    try:
        for name in os.listdir(f'/proc/{pid}/fd'):
            try:
                links.append(os.readlink(f'/proc/{pid}/fd/{name}'))
            except FileNotFoundError:
                pass
    except OSError:
        pass  # it has ended
    return links


def let_go(clients):
    """Poll results of the clients whose connection the service has closed, also before they have read all of it."""
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLRDHUP)
    return poll.poll(0)


def has_locked(pid, file):
    """Whether one of a process's descriptors holds a lock of the file whose path ends so (one that is only open does
    not: who looks whether it is locked opens it, too)."""
    try:
        for name in os.listdir(f'/proc/{pid}/fd'):
            try:
                if os.readlink(f'/proc/{pid}/fd/{name}').endswith(file):
                    with open(f'/proc/{pid}/fdinfo/{name}', encoding='ascii') as about:
                        if 'lock:' in about.read():
                            return True
            except FileNotFoundError:
                pass  # it was closed meanwhile
    except OSError:
        pass  # the process has ended
    return False


def host_of(session):
    """The process that has the session's directory locked."""
    for name in os.listdir('/proc'):
        if name.isdigit() and has_locked(int(name), f'/sessions/{session}/lock'):
            return int(name)
    return None


def seed_directory(escrow, directory):
    """What a service's directory has at first: a repository with the file a.txt and the directory dir, no mounts."""
    os.mkdir(f'{directory}/mounts')
    os.mkdir(f'{directory}/repositories')
    os.makedirs(f'{directory}/in/dir/sub')
    for name in ('a.txt', 'dir/b.txt', 'dir/sub/c.txt'):
        write(f'{directory}/in/{name}', name + '\n')
    for command in (['init'], ['import', f'{directory}/in', '--message', 'first import']):
        subprocess.run([escrow, '--repo', f'{directory}/repositories/data.git', *command], check=True, timeout=300,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Service:
    """A service with one registered repository, `data`. `seed`: a directory that seed_directory() has made, to copy."""

    def __init__(self, escrow, escrowd, seed=None, **config):
        self.escrow_binary, self.escrowd_binary = escrow, escrowd
        self.directory = os.path.realpath(tempfile.mkdtemp(prefix='escrowd-test-'))
        self.socket = f'{self.directory}/escrowd.sock'
        self.repositories, self.mounts = f'{self.directory}/repositories', f'{self.directory}/mounts'
        self.repository = f'{self.repositories}/data.git'
        self.process, self.before = None, []  # what escrowd is started with
        if seed is None:
            seed_directory(escrow, self.directory)
        else:
            shutil.copytree(seed, self.directory, symlinks=True, dirs_exist_ok=True)
        os.chmod(self.directory, 0o755)
        self.config = {'socket': self.socket, 'socket_group': 'nogroup', 'state_directory': f'{self.directory}/state',
                       'repository_roots': [self.repositories], 'mount_roots': [self.mounts], **config,
                       'operators': ['user:root', *config.get('operators', [])]}
        self.config_path = f'{self.directory}/escrowd.json'
        self.write_config()

    def __enter__(self):
        try:
            self.start()
            self.post('/v1/repositories', {'name': 'data', 'path': self.repository}).expect(201)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.end_hosts()
        # The mounts of runs lie elsewhere, in a directory of their own each.
        sessions = {'escrow:' + os.path.basename(one) for one in glob.glob(f'{self.repositories}/*/escrow/sessions/*')}
        with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
            points = [line.split()[1] for line in table
                      if line.split()[0] in sessions or line.split()[1].startswith(self.directory + '/')]
        for point in points:
            # As mount(8) writes a name: with its odd bytes in octal.
            point = re.sub(r'\\(\d{3})', lambda match: chr(int(match[1], 8)), point)
            subprocess.run(['umount', '-l', os.fsencode(point)], check=False)
            with contextlib.suppress(OSError):
                os.rmdir(point)
                os.rmdir(os.path.dirname(point))
        if kind not in (None, SystemExit) or (kind is SystemExit and value.code):
            self.show_log()
        shutil.rmtree(self.directory, ignore_errors=True)

    def end_hosts(self):
        """They outlive escrowd, and would go on with a commit that takes minutes beside the next tests."""
        for name in os.listdir('/proc'):
            is_other = name.isdigit() and int(name) != os.getpid()
            if is_other and any(link.startswith(f'{self.directory}/') for link in open_files(int(name))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(name), signal.SIGKILL)

    def show_log(self):
        with open(f'{self.directory}/log', encoding='utf-8', errors='replace') as log:
            print('--- escrowd said:\n' + log.read(), file=sys.stderr)

    def write_config(self):
        with open(self.config_path, 'w', encoding='utf-8') as file:
            json.dump(self.config, file)

    def start(self):
        with open(f'{self.directory}/log', 'ab') as log:
            self.process = subprocess.Popen([*self.before, self.escrowd_binary, '--config', self.config_path],
                                            stderr=log, stdin=subprocess.DEVNULL)
        def answers():
            if self.process.poll() is not None:
                self.show_log()
                fail(f'escrowd ended with {self.process.returncode}')
            try:
                return self.get('/v1/health').status == 200
            except OSError:
                return False
        eventually('escrowd answers', answers)

    def stop(self, how=signal.SIGTERM, seconds=100):
        self.process.send_signal(how)
        return self.process.wait(seconds)

    def escrow(self, *arguments, expect_status=0):
        result = subprocess.run([self.escrow_binary, '--repo', self.repository, *arguments], capture_output=True,
                                text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
        expect_equal(f'escrow {" ".join(arguments)}: {result.stderr}', result.returncode, expect_status)
        return result.stdout.strip()

    def git(self, *arguments):
        return self.git_with('', *arguments)

    def git_with(self, standard_input, *arguments):
        done = subprocess.run(['git', '-c', 'safe.directory=*', '--git-dir', self.repository, *arguments], check=False,
                              capture_output=True, text=True, timeout=300, input=standard_input)
        if done.returncode != 0:
            fail(f'git {" ".join(arguments)} ended with {done.returncode}: {done.stderr[:2000]}')
        return done.stdout.strip()

    def get(self, target, **keywords):
        return request(self.socket, 'GET', target, **keywords)

    def post(self, target, body=None, **keywords):
        return request(self.socket, 'POST', target, {} if body is None else body, **keywords)

    def put(self, target, content, headers=None, **keywords):
        return request(self.socket, 'PUT', target, content, {'Content-Type': 'application/octet-stream',
                                                             **(headers or {})}, **keywords)

    def delete(self, target, **keywords):
        return request(self.socket, 'DELETE', target, **keywords)

    def open(self, **fields):
        return self.post('/v1/sessions', {'repository': 'data', **fields}).expect(201)

    def open_mounted(self, name='work', **fields):
        point = f'{self.mounts}/{name}'
        return self.open(mountpoint=point, **fields)['session'], point

    def finish(self, session, ending):
        """The answer, when no other request on the session is under way any more."""
        while True:
            answer = self.post(f'/v1/sessions/{session}/finish', ending)
            if answer.status != 409 or answer.json['code'] != 'busy':
                return answer
            time.sleep(0.01)

    def open_files(self):
        expect_equal('the service', self.process.poll(), None)
        return open_files(self.process.pid)

    def is_mounted(self, point):
        with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
            return any(line.split()[1] == point for line in table)

    def state(self, session):
        return self.get(f'/v1/sessions/{session}').expect(200)['state']


def write(path, text):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main(tests):
    """escrowd's tests are functions, run by name from ctest: FILE --escrow PATH --escrowd PATH NAME..."""
    escrow, escrowd = sys.argv[2], sys.argv[4]
    if os.geteuid() != 0 or not os.access('/dev/fuse', os.R_OK | os.W_OK):
        if os.environ.get('REQUIRE_FUSE'):
            fail('REQUIRE_FUSE is set, and this is not root or /dev/fuse cannot be opened')
        sys.exit(77)
    seed, process = tempfile.mkdtemp(prefix='escrowd-seed-'), os.getpid()
    try:
        seed_directory(escrow, seed)
        run_cases(sys.argv[5:], lambda name: tests[name](lambda **config: Service(escrow, escrowd, seed, **config)))
    finally:
        if os.getpid() == process:  # not that of a case which fails
            shutil.rmtree(seed)
