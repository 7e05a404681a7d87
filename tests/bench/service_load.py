#!/usr/bin/env python3
"""How many durable commits escrowd takes from 1, 8 and 64 clients on one branch, against git worktree scripts.

usage: service_load.py --build DIR [--clients 1,8,64] [--seconds 15] [--directory DIR] [--systems NAME,...]

Each client, again and again, opens a session, rewrites its own file in the session's mount and ends the session with
exit status 0; `finish` is answered when the commit is on disk. With `--systems "escrow run"` each client runs a process
of its own for each commit. The other side does the same work with git alone: git
worktree add, the file, git commit, and git update-ref onto a head that is still the one it was rebased on, with every
object and reference synced. Needs root and /dev/fuse. Prints a table; exits with 1 when anything was answered with an
error, or when a commit that was reported is not in the branch. It is no test of speed.
"""
import argparse
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, f'{os.path.dirname(os.path.abspath(__file__))}/../support')
from expectations import UnixConnection  # pylint: disable=wrong-import-position

GIT = ('git', '-c', 'user.name=load', '-c', 'user.email=load@example.org', '-c', 'gc.auto=0', '-c',
       'maintenance.auto=false', '-c', 'core.fsync=all', '-c', 'core.fsyncMethod=fsync')
FILES = 1000


def path_of(client):
    return f'd{client % 20}/client-{client}.txt'


def make_repository(directory):
    """1,000 small files in 20 directories, and one for each client."""
    source = f'{directory}/source'
    for number in range(FILES):
        os.makedirs(f'{source}/d{number % 20}', exist_ok=True)
        with open(f'{source}/d{number % 20}/file-{number}.txt', 'w', encoding='ascii') as file:
            file.write(f'content of file {number}\n' * 20)
    subprocess.run([*GIT, 'init', '--quiet', '--bare', '--initial-branch=main', f'{directory}/data.git'], check=True)
    for arguments in (('add', '-A'), ('commit', '--quiet', '--message', 'base')):
        subprocess.run([*GIT, '--git-dir', f'{directory}/data.git', '--work-tree', source, '-c', 'core.bare=false',
                        *arguments], check=True, cwd=source)
    os.unlink(f'{directory}/data.git/index')
    shutil.rmtree(source)
    return f'{directory}/data.git'


class Escrow:
    """escrowd over a fresh copy of the repository."""
    name = 'escrowd'

    def __init__(self, programs, directory, seed):
        self.directory = f'{directory}/escrow'
        os.makedirs(f'{self.directory}/mounts')
        self.repository, self.socket = f'{self.directory}/data.git', f'{self.directory}/escrowd.sock'
        shutil.copytree(seed, self.repository)
        subprocess.run([f'{programs}/escrow', '--repo', self.repository, 'init'], check=True, capture_output=True)
        config = {'socket': self.socket, 'state_directory': f'{self.directory}/state',
                  'repository_roots': [self.directory], 'mount_roots': [f'{self.directory}/mounts'],
                  'operators': ['user:root']}
        with open(f'{self.directory}/config.json', 'w', encoding='ascii') as file:
            json.dump(config, file)
        self.log = open(f'{self.directory}/log', 'wb')
        self.process = subprocess.Popen([f'{programs}/escrowd', '--config', f'{self.directory}/config.json'],
                                        stderr=self.log)
        while not os.path.exists(self.socket):
            time.sleep(0.02)
        connection = UnixConnection(self.socket, timeout=120)
        self.ask(connection, '/v1/repositories', {'name': 'data', 'path': self.repository})

    def client(self, number):
        return UnixConnection(self.socket, timeout=120)

    def ask(self, connection, target, body):
        connection.request('POST', target, json.dumps(body), {'Content-Type': 'application/json'})
        response = connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f'{target}: {response.status} {text.decode()}')
        return json.loads(text)

    def commit(self, connection, number, turn):
        point = f'{self.directory}/mounts/client-{number}'
        session = self.ask(connection, '/v1/sessions', {'repository': 'data', 'mountpoint': point})['session']
        with open(f'{point}/{path_of(number)}', 'w', encoding='ascii') as file:
            file.write(f'turn {turn} of client {number}\n')
        ended = self.ask(connection, f'/v1/sessions/{session}/finish', {'exit_code': 0})
        if ended['state'] != 'committed':
            raise RuntimeError(f'the session is {ended}')
        return ended['commit']

    def processes(self):
        """escrowd and the hosts of its sessions."""
        pid = self.process.pid
        with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as children:
            found = [pid, *map(int, children.read().split())]
        for thread in os.listdir(f'/proc/{pid}/task'):
            try:
                with open(f'/proc/{pid}/task/{thread}/children', encoding='ascii') as children:
                    found += map(int, children.read().split())
            except OSError:
                pass  # it has ended
        return set(found)

    def resident_kib(self):
        """Pages of files, which the processes share, count once. (Their smaps would take the time of the load.)"""
        pages = 0
        for pid in self.processes():
            try:
                with open(f'/proc/{pid}/statm', encoding='ascii') as memory:
                    _, resident, of_files, *_ = map(int, memory.read().split())
            except (OSError, ValueError):
                continue  # it has ended
            pages += resident if pid == self.process.pid else resident - of_files
        return pages * os.sysconf('SC_PAGE_SIZE') // 1024

    def cpu_seconds(self):
        """Also of hosts that have ended and were reaped."""
        ticks = 0
        for pid in self.processes():
            try:
                with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
                    ticks += sum(map(int, stat.read().rpartition(')')[2].split()[11:15]))
            except OSError:
                pass  # it has ended
        return ticks / os.sysconf('SC_CLK_TCK')

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()


class Runs:
    """The same, each by an `escrow run` of its own: processes that know nothing of one another."""
    name = 'escrow run'

    def __init__(self, programs, directory, seed):
        self.directory, self.program = f'{directory}/runs', f'{programs}/escrow'
        os.makedirs(self.directory)
        self.repository = f'{self.directory}/data.git'
        shutil.copytree(seed, self.repository)
        subprocess.run([self.program, '--repo', self.repository, 'init'], check=True, capture_output=True)

    def client(self, number):
        return f'{self.directory}/result-{number}.json'

    def commit(self, connection, number, turn):
        ended = subprocess.run([self.program, '--repo', self.repository, 'run', '--result', connection, '--',
                                'sh', '-c', f'echo turn {turn} of client {number} > {path_of(number)}'],
                               capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise RuntimeError(f'the run ended with {ended.returncode}: {ended.stderr}')
        with open(connection, encoding='utf-8') as file:
            return json.load(file)['commit']

    def resident_kib(self):
        return 0

    def cpu_seconds(self):
        own = os.times()
        return own.children_user + own.children_system

    def stop(self):
        pass


class Worktrees:
    """The same with git worktree: every client has its own, for one commit."""
    name = 'git worktree'

    def __init__(self, _programs, directory, seed):
        self.directory = f'{directory}/git'
        os.makedirs(self.directory)
        self.repository = f'{self.directory}/data.git'
        shutil.copytree(seed, self.repository)

    def client(self, number):
        return None

    def git(self, *arguments, may_fail=False):
        result = subprocess.run([*GIT, *arguments], capture_output=True, text=True, check=False)
        if result.returncode != 0 and not may_fail:
            raise RuntimeError(f'git {arguments}: {result.stderr}')
        return result.stdout.strip() if result.returncode == 0 else None

    def add_tree(self, tree):
        # Several at once find each other's half-made entries: git then says no, and the script tries again.
        for _ in range(100):
            if self.git('-C', self.repository, 'worktree', 'add', '--quiet', '--detach', '--force', tree, 'main',
                        may_fail=True) is not None:
                return
            time.sleep(0.01)
        raise RuntimeError(f'no worktree {tree}')

    def commit(self, connection, number, turn):
        tree = f'{self.directory}/tree-{number}-{turn}'
        self.add_tree(tree)
        with open(f'{tree}/{path_of(number)}', 'w', encoding='ascii') as file:
            file.write(f'turn {turn} of client {number}\n')
        self.git('-C', tree, 'add', '-A')
        self.git('-C', tree, 'commit', '--quiet', '--message', f'turn {turn} of client {number}')
        while True:
            head = self.git('-C', tree, 'rev-parse', 'refs/heads/main')
            self.git('-C', tree, 'rebase', '--quiet', head)
            commit = self.git('-C', tree, 'rev-parse', 'HEAD')
            if self.git('-C', tree, 'update-ref', 'refs/heads/main', commit, head, may_fail=True) is not None:
                break
        self.git('-C', self.repository, 'worktree', 'remove', '--force', tree, may_fail=True)
        return commit

    def resident_kib(self):
        return 0

    def cpu_seconds(self):
        own = os.times()
        return own.children_user + own.children_system

    def stop(self):
        pass


def measure(system, clients, seconds, first_turn):
    """What `clients` did in so many seconds: (commits with latency, errors, memory now and then, seconds, CPU)."""
    done, errors, resident, cpu = [], [], [system.resident_kib()], system.cpu_seconds()
    deadline = time.monotonic() + seconds
    barrier = threading.Barrier(clients)

    def work(number):
        connection = system.client(number)
        barrier.wait()
        turn = first_turn
        while time.monotonic() < deadline:
            begun = time.monotonic()
            try:
                commit = system.commit(connection, number, turn)
            except (RuntimeError, OSError, http.client.HTTPException) as error:
                errors.append(str(error))
                return
            done.append((commit, time.monotonic() - begun))
            turn += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.25)
        resident.append(system.resident_kib())
    taken = time.monotonic() - begun
    resident = resident[::max(1, len(resident) // 5)]
    return done, errors, resident, taken, system.cpu_seconds() - cpu


def check(system, commits):
    """Every commit that was reported is in the branch."""
    found = set(subprocess.run(['git', '-c', 'safe.directory=*', '--git-dir', system.repository, 'rev-list', 'main'],
                               check=True, capture_output=True, text=True).stdout.split())
    return [commit for commit in commits if commit not in found]


def percentile(sorted_values, part):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * part))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--build', required=True)
    parser.add_argument('--clients', default='1,8,64')
    parser.add_argument('--seconds', type=float, default=15)
    parser.add_argument('--directory', default=None, help='on the disk to be measured')
    parser.add_argument('--systems', default='escrowd,git worktree')
    options = parser.parse_args()
    directory = os.path.realpath(tempfile.mkdtemp(prefix='escrowd-load-', dir=options.directory))
    failed, systems = False, []
    try:
        seed = make_repository(directory)
        print('| clients | system | commits/s | p50 ms | p99 ms | CPU ms a commit | errors | resident MiB over time |')
        print('|---|---|---|---|---|---|---|---|', flush=True)
        wanted = [system for system in (Escrow, Runs, Worktrees) if system.name in options.systems.split(',')]
        for system in wanted:
            systems.append(system(f'{options.build}/daemon', directory, seed))
        for turn, clients in enumerate(int(text) for text in options.clients.split(',')):
            for system in systems:
                done, errors, resident, taken, cpu = measure(system, clients, options.seconds, turn * 1_000_000)
                lost = check(system, [commit for commit, _ in done])
                failed = failed or bool(errors or lost)
                times = sorted(seconds * 1000 for _, seconds in done) or [0]
                memory = ' '.join(str(kib // 1024) for kib in resident) if resident[0] else ''
                print(f'| {clients} | {system.name} | {len(done) / taken:.1f} | {percentile(times, 0.5):.0f} | '
                      f'{percentile(times, 0.99):.0f} | {cpu * 1000 / max(1, len(done)):.1f} | '
                      f'{len(errors) + len(lost)} | {memory} |', flush=True)
                for message in errors[:3]:
                    print(message, file=sys.stderr)
    finally:
        for system in systems:
            system.stop()
        with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
            points = [line.split()[1] for line in table if line.split()[1].startswith(directory + '/')]
        for point in points:
            subprocess.run(['umount', '-l', point], check=False)
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
