"""What the tests of Git LFS work with: a bare repository, the real git and git-lfs, and Escrow over it."""
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from expectations import fail  # noqa: E402

FILTER = ('[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n'
          '\tprocess = git-lfs filter-process\n\trequired = true\n')
WHO = '[user]\n\tname = Tester\n\temail = tester@example.org\n[init]\n\tdefaultBranch = main\n'
POINTER = 'version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n'


def bytes_of(seed, size):
    return random.Random(seed).randbytes(size)


def oid_of(content):
    return hashlib.sha256(content).hexdigest()


def pointer_to(content):
    return POINTER.format(oid_of(content), len(content)).encode()


class Scene:
    def __init__(self, escrow):
        self.escrow_program, self.directory = os.path.abspath(escrow), tempfile.mkdtemp(prefix='escrow-lfs-')
        self.repository = self.path('repository.git')
        self.filters = True
        for home, text in (('with', WHO + FILTER), ('without', WHO)):
            os.mkdir(self.path(home))
            self.write(f'{home}/.gitconfig', text.encode())
        self.git('init', '--quiet', '--bare', self.repository)

    def close(self):
        for words in (['fusermount3', '-uzq', self.path('mount')],):
            if os.path.ismount(self.path('mount')):
                subprocess.run(words, check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, content):
        with open(self.path(name), 'wb') as file:
            file.write(content)

    def read(self, name):
        with open(self.path(name), 'rb') as file:
            return file.read()

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('GIT_', 'ESCROW_', 'XDG_'))}
        return {**kept, 'HOME': self.path('with' if self.filters else 'without'), 'GIT_CONFIG_NOSYSTEM': '1',
                'ESCROW_REPO': self.repository, **more}

    def call(self, *words, status=0, cwd=None, **more):
        """Standard output, as bytes; also errors when another status than 0 is expected."""
        done = subprocess.run(words, env=self.environment(**more), cwd=cwd or self.directory, capture_output=True,
                              check=False, timeout=280, stdin=subprocess.DEVNULL)
        if done.returncode != status:
            fail(f'{words} exited with {done.returncode}, not {status}: {done.stdout[-2000:]!r} '
                 f'{done.stderr[-2000:]!r}')
        self.errors = done.stderr.decode(errors='replace')
        return done.stdout if status == 0 else done.stdout + done.stderr

    def git(self, *words, **options):
        return self.call('git', *words, **options)

    def escrow(self, *words, **options):
        return self.call(self.escrow_program, *words, **options)

    def run(self, script, *options, **more):
        """A session with a command of the shell; its standard output."""
        return self.escrow('run', '-m', 'a session', *options, '--', 'sh', '-ec', script, **more)

    def committed(self, path, branch='main'):
        """The blob that the branch has at the path."""
        return self.git('-C', self.repository, 'cat-file', 'blob', f'{branch}:{path}')

    def object_path(self, content):
        oid = oid_of(content)
        return os.path.join(self.repository, 'lfs', 'objects', oid[:2], oid[2:4], oid)

    def objects(self):
        """The names of the objects of Git LFS that the repository has."""
        return sorted(name for _, _, names in os.walk(os.path.join(self.repository, 'lfs')) for name in names)

    def clone(self, name):
        self.git('clone', '--quiet', self.repository, self.path(name))
        return self.path(name)

    def push(self, files, attributes=b'*.bin filter=lfs diff=lfs merge=lfs -text\n'):
        """A first commit by git and git-lfs, pushed into the repository, which is then made Escrow's."""
        clone = self.clone('first')
        if attributes is not None:
            files = {'.gitattributes': attributes, **files}
        for path, content in files.items():
            os.makedirs(os.path.dirname(os.path.join(clone, path)), exist_ok=True)
            self.write(f'first/{path}', content)
        self.git('-C', clone, 'lfs', 'install', '--local')
        self.git('-C', clone, 'add', '--all')
        self.git('-C', clone, 'commit', '--quiet', '--message', 'by git')
        self.git('-C', clone, 'push', '--quiet', 'origin', 'HEAD:main')
        self.escrow('init')
        return clone

    def mount(self, *options):
        os.makedirs(self.path('mount'), exist_ok=True)
        return self.escrow('mount', self.path('mount'), *options).split()[0].decode()

    def status(self, session):
        return json.loads(self.escrow('status', session, '--json'))
