#!/usr/bin/env python3
"""Kills the process that hosts a session with SIGKILL at random instants, and checks what it had promised.

A witness outside the mount holds every acknowledged fsync and every acknowledged commit. After each kill the session
is opened again, and all of it must be there, byte for byte; what was not acknowledged is there whole or not at all.

  campaign.py --escrow PATH [--kills 200] [--seed N] [--keep]

The seed is printed; the same seed makes the same workload (the instants are the scheduler's). Exit status 1 names the
first broken promise and keeps the repository.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from seed import seed_of_this_run  # noqa: E402

WRITER = r"""
import hashlib, os, random, sys
mount, witness_fd, seed, first = sys.argv[1], *map(int, sys.argv[2:])
rng = random.Random(seed)
os.chdir(mount)
for n in range(first, first + 1000000):
    name = 'w%d/f%d' % (rng.randrange(3), rng.randrange(6))
    os.makedirs(os.path.dirname(name), exist_ok=True)
    data = (b'%d %s ' % (n, name.encode())) * rng.randrange(1, 3000)
    how = rng.randrange(4)
    target = name + '.tmp' if how == 0 else name
    fd = os.open(target, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if how < 3 else 0), 0o644)
    os.pwrite(fd, data, 0)
    if how == 3:
        os.ftruncate(fd, len(data))
    os.fsync(fd)
    if how == 0:
        os.rename(target, name)
        os.fsync(fd)
        dir_fd = os.open(os.path.dirname(name), os.O_RDONLY)
        os.fsync(dir_fd)
        os.close(dir_fd)
    inode = os.fstat(fd).st_ino
    os.close(fd)
    os.write(witness_fd, b'%s\t%s\t%d\t%d\n' % (name.encode(), hashlib.sha256(data).hexdigest().encode(), n, inode))
"""


class Broken(Exception):
    pass


class Campaign:
    def __init__(self, escrow, seed, top):
        self.escrow, self.random, self.top = escrow, random.Random(seed), top
        self.repo = os.path.join(top, 'data.git')
        self.commits = []
        self.run('init')
        base = os.path.join(top, 'base')
        for d in range(3):
            os.makedirs(f'{base}/w{d}')
            for f in range(6):
                with open(f'{base}/w{d}/f{f}', 'w') as out:
                    out.write('base ' * (1 + d * 5000))
        self.run('import', base, '--message', 'base')

    def command(self, *args):
        return [self.escrow, '--repo', self.repo, *args]

    def run(self, *args, check=True):
        done = subprocess.run(self.command(*args), capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise Broken(f'escrow {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()}')
        return done

    def git(self, *args):
        return subprocess.run(['git', '-C', self.repo, *args], check=True, capture_output=True, text=True).stdout

    # ---- fsync ----

    def fsync_round(self):
        mount = os.path.join(self.top, 'mount')
        os.makedirs(mount, exist_ok=True)
        host = subprocess.Popen(self.command('mount', mount, '--foreground'), stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.DEVNULL)
        session = host.stdout.readline().strip().split()[-1]
        acknowledged, tried = {}, {}
        for life in range(self.random.randrange(1, 3)):
            self.write_until_killed(host, mount, life * 1000000, acknowledged)
            subprocess.run(['umount', '-l', mount], check=False, capture_output=True)
            host = subprocess.Popen(self.command('mount', mount, '--session', session, '--foreground'),
                                    stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE)
            if not host.stdout.readline():
                raise Broken(f'session {session} does not open again: {host.stderr.read()}')
            self.check_files(mount, acknowledged)
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        subprocess.run(['umount', '-l', mount], check=False, capture_output=True)
        self.run('rollback', session)

    def write_until_killed(self, host, mount, first, acknowledged):
        reader, writer = os.pipe()
        worker = subprocess.Popen([sys.executable, '-c', WRITER, mount, str(writer),
                                   str(self.random.randrange(1 << 30)), str(first)],
                                  pass_fds=[writer], stderr=subprocess.DEVNULL)
        os.close(writer)
        time.sleep(self.random.uniform(0.1, 0.5))
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        with os.fdopen(reader) as lines:
            for line in lines:
                if not line.endswith('\n'):
                    continue
                name, digest, number, inode = line.rstrip('\n').split('\t')
                acknowledged[name] = (digest, int(number), int(inode))
        worker.wait()

    # A file is as it was acknowledged, or newer: the writer may have got further than its last word.
    @staticmethod
    def check_files(mount, acknowledged):
        for name, (digest, number, inode) in acknowledged.items():
            try:
                with open(os.path.join(mount, name), 'rb') as file:
                    data = file.read()
                    found = os.fstat(file.fileno()).st_ino
            except OSError as error:
                raise Broken(f'{name}: acknowledged as write {number}, now: {error}') from error
            if hashlib.sha256(data).hexdigest() == digest:
                if found != inode:
                    raise Broken(f'{name}: its inode number was {inode} and is {found} after the restart')
                continue
            # The one write that was under way when the host died may have landed, in part.
            if os.path.getsize(os.path.join(mount, name)) and data.split(b' ', 1)[0].isdigit():
                if int(data.split(b' ', 1)[0]) > number:
                    continue
            if not data:
                continue  # truncated by the next write's open, which was not acknowledged
            raise Broken(f'{name}: write {number} was acknowledged and is not there')

    # ---- commits ----

    def commit_round(self, number):
        token = f'token-{number}'
        script = f'for i in 1 2 3; do echo {token} > c$i; done; mkdir -p d && echo {token} > d/{token}'
        witness = os.path.join(self.top, 'witness')
        before = self.git('rev-parse', 'main').strip()
        run = subprocess.Popen(self.command('run', '-m', token, '--result', witness, '--', 'sh', '-c', script),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(abs(self.random.gauss(self.run_time * 0.8, self.run_time * 0.4)))
        killed = run.poll() is None
        if killed:
            os.kill(run.pid, signal.SIGKILL)
        run.stderr.read()
        status = run.wait()
        begin = time.monotonic()
        self.run('sessions')  # recovers
        # It takes moments; beside any load less than this.
        if time.monotonic() - begin > 60:
            raise Broken(f'recovering after {token} took {time.monotonic() - begin:.1f} s')
        after = self.git('rev-parse', 'main').strip()
        landed = after != before
        if status == 0 and not landed:
            raise Broken(f'commit {token} was acknowledged and is not there')
        if landed:
            files = {self.git('show', f'main:{path}').strip() for path in ('c1', 'c2', 'c3', f'd/{token}')}
            if files != {token}:
                raise Broken(f'commit {token} is partial: {files}')
            if self.git('rev-parse', 'main^').strip() != before:
                raise Broken(f'commit {token} does not follow {before}')
            self.commits.append(after)
        return landed, killed

    def measure_run(self):
        start = time.monotonic()
        self.run('run', '--', 'true')
        self.run_time = time.monotonic() - start

    def check_end(self):
        history = self.git('rev-list', 'main').split()
        for commit in self.commits:
            if commit not in history:
                raise Broken(f'acknowledged commit {commit} left the branch')
        subprocess.run(['git', '-C', self.repo, 'fsck', '--strict'], check=True, capture_output=True)
        self.run('verify')
        left = os.listdir(os.path.join(self.repo, 'escrow', 'sessions'))
        if left:
            raise Broken(f'session directories are left: {left}')
        ours = {'escrow:' + session['session'] for session in json.loads(self.run('sessions', '--json').stdout)}
        with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
            mounts = [line for line in table if line.split()[0] in ours]
        if mounts:
            raise Broken(f'mounts are left: {mounts}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--kills', type=int, default=200)
    parser.add_argument('--seed', type=int, help='default: that of tests/support/seed.py')
    parser.add_argument('--keep', action='store_true', help='keep the repository afterwards')
    options = parser.parse_args()
    if options.seed is None:
        options.seed = seed_of_this_run()
    if not os.path.exists('/dev/fuse') and not os.environ.get('REQUIRE_FUSE'):
        print('skipped: no /dev/fuse')
        return 77
    top = tempfile.mkdtemp(prefix='escrow-crash-')
    print(f'{options.kills} kills, in {top}', flush=True)
    campaign = Campaign(os.path.abspath(options.escrow), options.seed, top)
    landed = killed = fsyncs = 0
    try:
        campaign.measure_run()
        for number in range(options.kills):
            if number % 4 == 0:
                campaign.fsync_round()
                fsyncs += 1
            else:
                result = campaign.commit_round(number)
                landed += result[0]
                killed += result[1]
        campaign.check_end()
    except (Broken, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f'BROKEN: {error}\nthe repository is kept: {campaign.repo}')
        return 1
    print(f'{fsyncs} fsync rounds, {options.kills - fsyncs} commit rounds ({killed} killed, {landed} landed): '
          'every promise was kept')
    if not options.keep:
        shutil.rmtree(top)
    return 0


if __name__ == '__main__':
    sys.exit(main())
