#!/usr/bin/env python3
"""Repositories in object storage, with the real command, mounts and git, on several "hosts" of one machine.

Without --endpoint the service is fake_s3.py; run.py gives a real one. A host is a state directory of its own: two share
nothing but the bucket. All requests of Escrow's go through fault_proxy.py.
"""
import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '..', 'support'))
# pylint: disable=wrong-import-position
from expectations import eventually, expect, expect_equal, fail, run_cases  # noqa: E402
from fake_s3 import FakeS3  # noqa: E402
from fault_proxy import FaultProxy  # noqa: E402

HEAD = '/refs/heads/main'


class Host:
    """A machine that works with the bucket: its own state, its own home."""

    def __init__(self, scene, name):
        self.scene, self.home = scene, os.path.join(scene.directory, name)
        os.makedirs(self.home)

    def environment(self, endpoint=None, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('AWS_', 'ESCROW_', 'XDG_'))}
        return {**kept, 'HOME': self.home, 'XDG_STATE_HOME': self.home + '/state', 'ESCROW_REPO': self.scene.name,
                'AWS_ACCESS_KEY_ID': self.scene.keys[0], 'AWS_SECRET_ACCESS_KEY': self.scene.keys[1],
                'AWS_ENDPOINT_URL': endpoint or self.scene.proxy.endpoint, **more}

    def start(self, *words, **options):
        return subprocess.Popen([self.scene.escrow, *words], env=self.environment(**options), cwd=self.home,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def escrow(self, *words, status=0, **options):
        process = self.start(*words, **options)
        out, errors = process.communicate(timeout=200)
        if process.returncode != status:
            fail(f'escrow {words} exited with {process.returncode}, not {status}: {out}{errors}')
        return out + errors

    def sh(self, script, *words, status=0, **options):
        return self.escrow('run', '-m', 'test', *words, '--', 'sh', '-c', script, status=status, **options)

    def files(self):
        """What the branch holds, by name."""
        out = self.sh('for f in $(find . -type f | sort); do echo "$f $(cat $f)"; done')
        return dict(line.removeprefix('./').split(' ', 1) for line in out.splitlines() if line.startswith('./'))


class Scene:
    def __init__(self, arguments, ignores_conditions=False):
        self.escrow, self.directory = os.path.abspath(arguments.escrow), tempfile.mkdtemp(prefix='escrow-bucket-')
        self.keys = (arguments.access_key, arguments.secret_key)
        self.fake = None if arguments.endpoint and not ignores_conditions else FakeS3(ignores_conditions)
        given = urllib.parse.urlsplit(arguments.endpoint or '')
        self.backend = self.fake.address if self.fake else (given.hostname, given.port)
        self.proxy = FaultProxy(self.backend)
        self.prefix = 'repositories/' + uuid.uuid4().hex[:8]
        self.name = f's3://bucket/{self.prefix}'
        self.one, self.two = Host(self, 'one'), Host(self, 'two')

    def clone(self):
        """As git reads it over plain HTTP, without Escrow and without keys."""
        place = os.path.join(self.directory, 'clone-' + uuid.uuid4().hex[:8])
        url = f'http://{self.backend[0]}:{self.backend[1]}/bucket/{self.prefix}'
        self.git('clone', '--quiet', url, place)
        self.git('-C', place, 'fsck', '--strict')
        return place

    @staticmethod
    def git(*words):
        done = subprocess.run(['git', *words], capture_output=True, text=True, check=False, timeout=200)
        if done.returncode != 0:
            fail(f'git {words}: {done.stderr}')
        return done.stdout

    def history(self):
        """The commits of main, newest first: subject and parents."""
        return self.git('-C', self.clone(), 'log', '--format=%H %P').splitlines()

    def close(self):
        self.proxy.stop()
        if self.fake:
            self.fake.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def ARepositoryInABucketIsCommittedToOnOneHostAndReadOnAnother(scene):
    made = scene.one.escrow('init')
    expect(scene.name in made, f'init said {made!r}')
    scene.one.sh('mkdir -p a/b; echo deep > a/b/c; echo top > t')
    expect_equal('what another host reads', scene.two.files(), {'a/b/c': 'deep', 't': 'top'})
    scene.two.sh('rm t; echo more > a/d')
    expect_equal('what the first host reads', scene.one.files(), {'a/b/c': 'deep', 'a/d': 'more'})
    clone = scene.clone()
    expect_equal('what git cloned', scene.git('-C', clone, 'ls-files').split(), ['a/b/c', 'a/d'])
    expect_equal('the branch that git checked out', scene.git('-C', clone, 'branch', '--show-current').strip(), 'main')
    expect_equal('commits', len(scene.history()), 2)
    expect(len(re.findall('test', scene.two.escrow('log'))) == 2, 'escrow log shows both commits')
    scene.one.sh('test -z "$AWS_ACCESS_KEY_ID$AWS_SECRET_ACCESS_KEY"')
    scene.one.sh('exit 3', status=3)
    expect_equal('commits after a failure', len(scene.history()), 2)
    again = scene.one.escrow('init')
    expect('ready' in again, f'init of what is there said {again!r}')
    missing = Host(scene, 'three').escrow('run', '--', 'true', status=125, ESCROW_REPO=scene.name + '-not')
    expect('there is no repository at' in missing and 'init' in missing, f'a repository that is not there: {missing!r}')


def SessionsMountsImportsAndApprovalsAreAsOnALocalRepository(scene):
    scene.one.escrow('init')
    os.makedirs(scene.one.home + '/data/deep')
    with open(scene.one.home + '/data/deep/one', 'w', encoding='ascii') as file:
        file.write('1\n')
    scene.one.escrow('import', './data', '-m', 'first')
    os.mkdir(scene.two.home + '/work')
    session = scene.two.escrow('mount', 'work').split()[0]
    with open(scene.two.home + '/work/deep/two', 'w', encoding='ascii') as file:
        file.write('2\n')
    expect('deep/two' in scene.two.escrow('diff', session), 'the diff names the new file')
    scene.two.escrow('commit', session, '-m', 'by hand')
    said = scene.two.escrow('run', '--require-approval', '--', 'sh', '-c', 'rm deep/one', status=123)
    waiting = re.search(r'session ([0-9a-f]{16})', said).group(1)
    expect_equal('before the approval', scene.one.files(), {'deep/one': '1', 'deep/two': '2'})
    scene.two.escrow('approve', waiting)
    expect_equal('after it', scene.one.files(), {'deep/two': '2'})
    for command in ('gc', 'verify'):
        said = scene.one.escrow(command, status=1)
        expect('is not for repositories in object storage yet' in said, f'{command} said {said!r}')


def FilesOfGitLfsAreRefusedByName(scene):
    pointer = 'version https://git-lfs.github.com/spec/v1\noid sha256:' + 'a' * 64 + '\nsize 5\n'
    scene.one.escrow('init')
    scene.one.sh(f"printf '{pointer}' > a.bin; echo '*.bin filter=lfs' > .gitattributes; echo text > t")
    said = scene.two.sh('cat a.bin', status=1)
    expect('Input/output error' in said and 'are not for repositories in object storage yet' in said,
           f'reading one: {said!r}')
    expect_equal('a pointer', scene.two.sh('cat a.bin', '--lfs', 'off').split('size')[0], pointer.split('size')[0])
    said = scene.two.sh('echo new > b.bin', status=125)
    expect('are not for repositories in object storage yet' in said, f'committing one: {said!r}')
    (session,) = [line.split()[0] for line in scene.two.escrow('sessions', '--open').splitlines() if 'open' in line]
    scene.two.escrow('rollback', session)
    scene.two.sh('echo more > t; git mv a.bin c.bin 2>/dev/null || mv a.bin c.bin')
    expect_equal('what is beside it', scene.one.sh('cat t; ls').split()[:3], ['more', 'c.bin', 't'])


def TheCacheIsBoundedAndWhatWentIsFetchedAgain(scene):
    scene.one.escrow('init')
    scene.one.sh('for i in $(seq 40); do head -c 500000 /dev/urandom > file-$i; done')
    wanted = scene.one.sh('cat file-* | sha1sum').split()[0]
    limit = 6_000_000
    for _ in range(2):
        out = scene.two.sh('cat file-* | sha1sum; for i in 1 2 3 40; do cat file-$i > /dev/null || exit 9; done',
                           ESCROW_BUCKET_CACHE=str(limit))
        expect_equal('all files', out.split()[0], wanted)
    (place,) = os.listdir(scene.two.home + '/state/escrow/buckets')
    packs = f'{scene.two.home}/state/escrow/buckets/{place}/cache/pack'
    kept = sum(os.path.getsize(f'{packs}/{name}') for name in os.listdir(packs))
    expect(kept < limit + 2_000_000, f'{kept} bytes are kept, with a limit of {limit}')


def HostsThatCommitAtOnceLoseNothing(scene):
    scene.one.escrow('init')
    hosts, rounds = [scene.one, scene.two], 4
    failures = []

    def work(number, host):
        try:
            for turn in range(rounds):
                host.sh(f'echo {turn} > file-{number}-{turn}')
        except SystemExit as failure:
            failures.append(str(failure))

    threads = [threading.Thread(target=work, args=(i, host)) for i, host in enumerate(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, f'hosts failed: {failures}')
    expect_equal('files', sorted(scene.one.files()),
                 sorted(f'file-{i}-{turn}' for i in range(len(hosts)) for turn in range(rounds)))
    history = scene.history()
    expect_equal('commits', len(history), len(hosts) * rounds)
    expect(all(len(line.split()) == 2 for line in history[:-1]), f'one line of history: {history}')


def TheSamePathOnTwoHostsIsAConflict(scene):
    scene.one.escrow('init')
    scene.one.sh('echo 0 > same')
    held = scene.one.start('run', '--', 'sh', '-c', f'touch {scene.directory}/begun; echo 1 > same; '
                           f'until [ -e {scene.directory}/go ]; do sleep 0.05; done')
    eventually('the first session has begun', lambda: os.path.exists(scene.directory + '/begun'))
    scene.two.sh('echo 2 > same')
    open(scene.directory + '/go', 'w', encoding='ascii').close()
    _, errors = held.communicate(timeout=200)
    expect_equal('exit status of the second to commit', held.returncode, 122)
    expect('same' in errors, f'the conflict names the path: {errors!r}')
    expect_equal('the branch', scene.two.files(), {'same': '2'})


def EveryKindOfFaultLosesNoCommitAndDoublesNone(scene):
    scene.one.escrow('init')
    expected = {}
    for fault in ('error', 'slow down', 'cut', 'refuse', 'lose', 'wrong'):
        # Every third request meets it; a request that is sent again mostly does not.
        scene.proxy.rule = lambda request, fault=fault: (
            fault if request.number % 3 == 1 and (fault != 'wrong' or '/objects/pack/' in request.path) else None)
        name = fault.replace(' ', '-')
        scene.one.sh(f'echo {name} > {name}')
        expected[name] = name
        expect_equal(f'read on another host, with {fault}', scene.two.files(), expected)
        scene.proxy.rule = lambda request: None
        expect_equal(f'commits after {fault}', len(scene.history()), len(expected))


def ALostAnswerIsFoundOutAlsoBehindAnotherHostsCommit(scene):
    scene.one.escrow('init')
    scene.one.sh('echo 0 > zero')
    lost = []

    def lose_once(others):
        def rule(request):
            if request.method != 'PUT' or not request.path.endswith(HEAD) or lost:
                return None
            lost.append(request.path)

            def after():
                others()
                return 'lose'
            return after
        return rule

    scene.proxy.rule = lose_once(lambda: None)
    scene.one.sh('echo 1 > one')
    expect_equal('requests whose answer was lost', len(lost), 1)
    expect_equal('commits', len(scene.history()), 2)
    lost.clear()
    direct = 'http://%s:%d' % scene.backend
    scene.proxy.rule = lose_once(lambda: scene.two.sh('echo 2 > two', endpoint=direct))
    said = scene.one.sh('echo 3 > three')
    expect('was committed' in said, f'the first host said {said!r}')
    expect_equal('requests whose answer was lost', len(lost), 1)
    expect_equal('commits', len(scene.history()), 4)
    expect_equal('files', sorted(scene.one.files()), ['one', 'three', 'two', 'zero'])


def AHostThatIsKilledAtTheMoveOfTheHeadHasCommittedOnce(scene):
    scene.one.escrow('init')
    scene.one.sh('echo 0 > zero')
    for is_carried_out in (True, False):
        running, killed = [], []

        def rule(request):
            if request.method != 'PUT' or not request.path.endswith(HEAD) or killed:
                return None
            killed.append(request.path)

            def kill():
                os.kill(running[0].pid, signal.SIGKILL)
                return 'lose'
            if is_carried_out:  # pylint: disable=cell-var-from-loop
                return kill
            kill()
            return 'refuse'

        scene.proxy.rule = rule
        name = f'killed-{is_carried_out}'
        running.append(scene.one.start('run', '--', 'sh', '-c', f'echo 1 > {name}'))
        running[0].communicate(timeout=200)
        expect_equal('kills', len(killed), 1)
        scene.proxy.rule = lambda request: None
        scene.one.escrow('sessions')
        eventually('the next command has recorded what became of it',
                   lambda: 'committing' not in scene.one.escrow('sessions'))
        files = scene.two.files()
        expect(name in files, f'the commit that a process died in is made, then or by recovery: {files}')
    expect_equal('commits', len(scene.history()), 3)


def AServiceThatIgnoresConditionsIsRefusedByName(scene):
    said = scene.one.escrow('init', status=1)
    expect('it ignores If-None-Match' in said and scene.proxy.endpoint in said, f'init said {said!r}')
    expect(not scene.fake.objects, f'nothing is left: {list(scene.fake.objects)}')


def WrongBytesAreAnErrorAndNeverContent(scene):
    scene.one.escrow('init')
    scene.one.sh('echo good > file')
    scene.one.sh('echo more > other')
    for pack in ('.pack', '.idx'):
        host = Host(scene, 'reader' + pack)
        scene.proxy.rule = lambda request, pack=pack: (
            'wrong' if request.method == 'GET' and request.path.endswith(pack) else None)
        said = host.escrow('run', '--', 'cat', 'file', status=125)
        expect('damaged' in said and 'good' not in said, f'wrong bytes in {pack}: {said!r}')
        scene.proxy.rule = lambda request: None
        expect_equal('once they are right', host.files(), {'file': 'good', 'other': 'more'})


def WithoutTheServiceWhatIsCachedIsReadAndTheRestIsAnErrorInTime(scene):
    scene.one.escrow('init')
    # Random bytes do not shrink: the pack is larger than one that is fetched whole.
    scene.one.sh('head -c 12000000 /dev/urandom > large; echo small > small')
    script = (f'cat small; touch {scene.directory}/read; until [ -e {scene.directory}/go ]; do sleep 0.05; done; '
              'cat small; cat large > /dev/null && exit 9; exit 7')
    reader = scene.two.start('run', '--', 'sh', '-c', script)
    eventually('the small file was read', lambda: os.path.exists(scene.directory + '/read'))
    scene.proxy.rule = lambda request: 'refuse'
    open(scene.directory + '/go', 'w', encoding='ascii').close()
    out, errors = reader.communicate(timeout=200)
    expect_equal('exit status of the reader', (reader.returncode, out), (7, 'small\nsmall\n'))
    expect('Input/output error' in errors, f'the reader was told {errors!r}')
    said = scene.two.escrow('run', '--', 'true', status=125)
    expect('cannot read s3://bucket/' in said and 'check the service' in said, f'a new session was told {said!r}')
    scene.proxy.rule = lambda request: None
    expect_equal('the large file', scene.two.sh('stat -c %s large; sha1sum < large').split()[:2],
                 ['12000000', scene.one.sh('sha1sum < large').split()[0]])


def OneSmallFileOfALargePackIsReadByRange(scene):
    scene.one.escrow('init')
    scene.one.sh('for i in $(seq 40); do head -c 500000 /dev/urandom > file-$i; done; mkdir d; echo x > d/x')
    before = scene.proxy.bytes_read
    expect_equal('the small file', scene.two.sh('cat d/x').split()[0], 'x')
    read = scene.proxy.bytes_read - before
    expect(read < 4_000_000, f'{read} bytes were read of a pack of 20,000,000')
    wanted = scene.one.sh('cat file-* | sha1sum').split()[0]
    expect_equal('all files', scene.two.sh('cat file-* | sha1sum').split()[0], wanted)


def CredentialsComeFromTheSharedFileToo(scene):
    os.makedirs(scene.one.home + '/.aws')
    with open(scene.one.home + '/.aws/credentials', 'w', encoding='ascii') as file:
        file.write(f'[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n\n[data]\n'
                   f'aws_access_key_id={scene.keys[0]}\naws_secret_access_key = {scene.keys[1]}\n')
    none = {'AWS_ACCESS_KEY_ID': '', 'AWS_SECRET_ACCESS_KEY': ''}
    scene.one.escrow('init', AWS_PROFILE='data', **none)
    said = scene.one.escrow('init', status=1, **none)
    expect('check the credentials' in said, f'wrong keys: {said!r}')
    said = scene.one.escrow('init', status=1, AWS_PROFILE='absent', **none)
    expect('there are no credentials' in said, f'no keys: {said!r}')


CASES = [name for name, value in list(globals().items()) if name[0].isupper() and callable(value)
         and getattr(value, '__module__', '') == __name__ and name not in ('Host', 'Scene')]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--escrow', required=True)
    parser.add_argument('--endpoint', help='of an S3 service with a bucket named "bucket" that everybody may read')
    parser.add_argument('--access-key', default='AK')
    parser.add_argument('--secret-key', default='SK')
    parser.add_argument('cases', nargs='*')
    arguments = parser.parse_args()
    if not os.path.exists('/dev/fuse'):
        sys.exit(1 if os.environ.get('REQUIRE_FUSE') else 77)

    def run(case):
        with contextlib.closing(Scene(arguments, 'IgnoresConditions' in case)) as scene:
            globals()[case](scene)
        print(case, flush=True)

    run_cases(arguments.cases or CASES, run)


if __name__ == '__main__':
    main()
