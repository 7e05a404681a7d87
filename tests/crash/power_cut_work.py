"""The work that power_cuts.py does on a disk that is recorded, and a note of everything that was promised meanwhile."""
import ctypes
import json
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading

from power_cut_models import (Broken, DatabaseHistory, Deed, FileHistory, History, NameHistory, SessionHistory,
                              blob_id)

MiB = 1 << 20
PUNCH_AND_KEEP_SIZE = 3
SIZES = {'s/f0': 8 * MiB, 's/f1': 3 * MiB + 77777, 's/f2': MiB + 200000, 's/f3': 60000, 'u/f0': 1500000}
# What `escrow run` runs, and what is done again beside the disk to know what comes of it.
EDIT = r"""
import os, random, sys
rng = random.Random(int(sys.argv[1]))
for name in rng.sample(['r/f0', 'r/f1', 'r/text1', 'r/text2'], 3):
    fd = os.open(name, os.O_RDWR)
    for _ in range(rng.randrange(1, 6)):
        os.pwrite(fd, rng.randbytes(rng.randrange(1, 90000)), rng.randrange(os.fstat(fd).st_size))
    if rng.randrange(2):
        os.fsync(fd)
    os.close(fd)
os.makedirs('r/new', exist_ok=True)
for n in range(rng.choice((2, 5, 120))):
    with open('r/new/%s-%d' % (sys.argv[1], n), 'wb') as out:
        out.write(rng.randbytes(rng.randrange(3000)))
names = sorted(os.listdir('r/new'))
os.rename('r/new/' + names[0], 'r/moved')
os.unlink('r/new/' + names[1])
if len(sys.argv) > 2:
    with open('r/huge', 'wb') as out:
        for _ in range(int(sys.argv[2])):
            out.write(rng.randbytes(1 << 20))
"""


def files_below(top, *folders):
    """{path: blob id} of a directory on the host."""
    found = {}
    for folder in folders:
        for directory, _, names in os.walk(os.path.join(top, folder)):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, 'rb') as file:
                    found[os.path.relpath(path, top)] = blob_id(file.read())
    return found


class Work:
    def __init__(self, escrow, disk, top, seed):
        self.escrow, self.disk, self.rng, self.seed = escrow, disk, random.Random(seed), seed
        self.repo = os.path.join(disk.where, 'data.git')
        self.mount, self.second = os.path.join(top, 'mount'), os.path.join(top, 'second')
        self.base, self.mirror, self.result = (os.path.join(top, name) for name in ('base', 'mirror', 'result'))
        self.history, self.failures, self.edits, self.hosts = History(), [], 0, []
        self.after, self.names, self.rows = {}, {}, {}  # what a committed session left: files, names, databases
        for directory in (self.mount, self.second, self.base):
            os.makedirs(directory)

    # ---- notes ----

    def began(self, **about):
        self.history.deeds += 1
        return Deed(self.disk.position(), **about)

    def done(self, deed):
        deed.done = self.disk.position()

    def run(self, *args, statuses=(0,)):
        done = subprocess.run([self.escrow, '--repo', self.repo, *args], capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode not in statuses:
            raise Broken(f'while recording: escrow {" ".join(args)[:300]} ended with {done.returncode}: '
                         f'{done.stderr.strip()}')
        return done

    def git(self, *args):
        return subprocess.run(['git', '-C', self.repo, *args], check=True, capture_output=True, text=True).stdout

    # ---- the repository ----

    def begin(self):
        rng = random.Random(f'base {self.seed}')
        sizes = {**SIZES, 'r/f0': 2 * MiB, 'r/f1': 5 * MiB + 4097, **{f'r/text{n}': 500 * n for n in range(1, 12)}}
        for name, size in sizes.items():
            os.makedirs(os.path.dirname(f'{self.base}/{name}'), exist_ok=True)
            with open(f'{self.base}/{name}', 'wb') as out:
                out.write(rng.randbytes(size))
        for kind in ('db-wal', 'db-delete'):
            os.makedirs(f'{self.base}/{kind}')
            DatabaseHistory.create(f'{self.base}/{kind}/data.db', kind[3:])
        shutil.copytree(f'{self.base}/r', f'{self.mirror}/r')
        self.history.made = self.began()
        self.run('init')
        self.done(self.history.made)
        self.history.imported = self.began(expected=files_below(self.base, *os.listdir(self.base)))
        self.run('import', self.base, '--message', 'base')
        self.done(self.history.imported)
        self.history.imported.commit = self.git('rev-parse', 'main').strip()
        self.history.commits.append(self.history.imported)

    def commit_of(self, session):
        return json.loads(self.run('status', session.identity, '--json').stdout)['commit']

    # ---- commands that need no mount of ours ----

    def edit_words(self, megabytes=0):
        self.edits += 1
        words = [sys.executable, '-c', EDIT, str(self.edits + 1000 * self.seed)]
        return words + [str(megabytes)] if megabytes else words

    def note_run(self, deed, state, words, status):
        """`escrow run` has ended; what it reported is promised."""
        with open(self.result, encoding='utf-8') as file:
            result = json.load(file)
        if result['state'] != state or result['run_exit_code'] != status:
            raise Broken(f'while recording: a run says {result}')
        session = SessionHistory(result['session'], deed, state)
        self.history.sessions.append(session)
        if words:
            subprocess.run(words, cwd=self.mirror, check=True)
            deed.expected = files_below(self.mirror, 'r')
        if result['commit']:
            deed.commit = result['commit']
            self.history.commits.append(deed)
        return session, result

    def do_run(self, megabytes=0):
        words = self.edit_words(megabytes)
        deed = self.began()
        self.run('run', '--result', self.result, '--', *words)
        self.done(deed)
        self.note_run(deed, 'committed', words, 0)

    def do_failing_run(self):
        deed = self.began()
        self.run('run', '--result', self.result, '--', 'sh', '-c', 'date > r/failed; echo x >> s/f0; exit 3',
                 statuses=(3,))
        self.done(deed)
        self.note_run(deed, 'rolled_back', None, 3)

    def do_review(self, verb):
        words = self.edit_words()
        deed = self.began()
        self.run('run', '--require-approval', '--result', self.result, '--', *words, statuses=(123,))
        self.done(deed)
        session, result = self.note_run(deed, 'awaiting_approval', words if verb == 'approve' else None, 123)
        session.result = result['result']
        review = self.began()
        if verb == 'approve':
            review.expected = deed.expected
        self.run(verb, session.identity)
        self.done(review)
        session.add(review, 'committed' if verb == 'approve' else 'rolled_back')
        if verb == 'approve':
            review.commit = self.commit_of(session)
            self.history.commits.append(review)

    def do_approve(self):
        self.do_review('approve')

    def do_reject(self):
        self.do_review('reject')

    def do_gc(self):
        self.run('gc')

    # A session that is edited, detached, and then brought onto what others committed meanwhile.
    def do_update(self):
        host, session = self.open_session(self.second)
        files = Files(self, session, self.second, ['u/f0'], random.Random(self.rng.random()))
        for _ in range(6):
            files.step()
        files.sync('u/f0')
        files.close()
        self.close_session(host, self.second)
        self.do_run()
        session.bases.append((self.began(), self.git('rev-parse', 'main').strip()))
        self.run('update', session.identity)
        self.done(session.bases[-1][0])
        self.end_session(session, self.rng.choice(('commit', 'rollback')), {'u/f0': files.content('u/f0')})

    # ---- mounted sessions ----

    def open_session(self, where, session=None):
        deed = self.began()
        words = ['--session', session.identity] if session else []
        io = self.rng.choice(('auto', 'cached', 'passthrough'))
        host = subprocess.Popen([self.escrow, '--repo', self.repo, 'mount', where, '--foreground', '--io', io, *words],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.hosts.append(host)
        line = host.stdout.readline()
        if not line:
            raise Broken(f'while recording: escrow mount says: {host.stderr.read().strip()}')
        self.done(deed)
        if session is None:
            session = SessionHistory(line.split()[-1], deed, 'open')
            self.history.sessions.append(session)
        return host, session

    @staticmethod
    def close_session(host, where):
        subprocess.run(['umount', where], check=True, capture_output=True, timeout=300)
        host.communicate(timeout=300)

    def end_session(self, session, verb, contents):
        deed = self.began()
        session.add(deed, 'committed' if verb == 'commit' else 'rolled_back')
        self.run(verb, session.identity)
        self.done(deed)
        if verb == 'commit':
            deed.commit = self.commit_of(session)
            deed.expected = {name: blob_id(data) for name, data in contents.items()}
            self.history.commits.append(deed)
            self.after.update(contents)
            self.names.update({name: contents.get(name) for name in session.names})
            self.rows.update({kind: database.last() for kind, database in session.databases.items()})

    def beside_writers(self, session, actions):
        """Does the actions while the session is written to from all sides."""
        stop = threading.Event()
        writers = [Files(self, session, self.mount, names, random.Random(self.rng.random()))
                   for names in (['s/f0', 's/f3'], ['s/f1', 's/f2'])]
        writers += [Names(self, session, self.mount, random.Random(self.rng.random()))]
        writers += [Database(self, session, self.mount, kind) for kind in ('db-wal', 'db-delete')]
        threads = [threading.Thread(target=self.repeat, args=(writer, stop)) for writer in writers]
        for thread in threads:
            thread.start()
        try:
            for action in actions:
                action()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            for writer in writers:
                writer.close()
        if self.failures:
            raise self.failures[0]

    # The number of writes has a bound, so that a slow machine does not make a longer record.
    def repeat(self, writer, stop):
        try:
            for _ in range(150):
                writer.step()
                if stop.wait(0.02):
                    return
        except Exception as error:  # it is raised by beside_writers()
            self.failures.append(error)

    def round(self, large):
        """The life of one session, and what others do meanwhile."""
        verbs = [self.do_run, self.do_failing_run, self.do_approve, self.do_reject, self.do_gc, self.do_update]
        if large:
            verbs.append(lambda: self.do_run(130 + self.rng.randrange(10)))
        self.rng.shuffle(verbs)
        host, session = self.open_session(self.mount)
        self.beside_writers(session, verbs[:len(verbs) // 2])
        self.close_session(host, self.mount)
        host, _ = self.open_session(self.mount, session)
        self.beside_writers(session, verbs[len(verbs) // 2:])
        contents = {}
        for name in [*session.files, *session.names, *(f'{kind}/data.db' for kind in session.databases)]:
            if os.path.exists(f'{self.mount}/{name}'):
                with open(f'{self.mount}/{name}', 'rb') as file:
                    contents[name] = file.read()
        for name, file in session.files.items():
            if contents[name] != file.now:
                raise Broken(f'while recording: {name} is not what was written to it')
        verb = self.rng.choice(('commit', 'commit', 'rollback'))
        is_mounted = self.rng.randrange(2)
        if not is_mounted:
            self.close_session(host, self.mount)
        self.end_session(session, verb, contents)
        if is_mounted:
            host.communicate(timeout=300)

    # ---- the end ----

    def give_up(self):
        for host in self.hosts:
            host.kill()
        for where in (self.mount, self.second, self.disk.where):
            subprocess.run(['umount', '-l', where], capture_output=True, check=False)

    def finish(self):
        """Each commit that was reported has exactly the bytes that were written."""
        history = self.history
        history.branch = self.git('rev-list', '--reverse', 'main').split()
        history.entries = self.disk.position()
        for deed in history.commits:
            listing = subprocess.run(['git', '-C', self.repo, 'ls-tree', '-r', '-z', deed.commit], check=True,
                                     capture_output=True).stdout
            found = {}
            for line in filter(None, listing.split(b'\0')):
                about, name = line.split(b'\t', 1)
                found[os.fsdecode(name)] = about.split()[2].decode()
            for name, blob in deed.expected.items():
                if found.get(name) != blob:
                    raise Broken(f'while recording: {name} is not in commit {deed.commit} as it was written')
        return history


class Files:
    """Writes at random into large files, through calls and mappings."""

    def __init__(self, work, session, mount, names, rng):
        self.work, self.session, self.mount, self.names, self.rng = work, session, mount, names, rng
        self.open = {name: os.open(f'{mount}/{name}', os.O_RDWR) for name in names}
        for name in names:
            if name not in session.files:
                session.files[name] = FileHistory(self.base_of(name))

    def base_of(self, name):
        if name in self.work.after:
            return self.work.after[name]
        with open(f'{self.work.base}/{name}', 'rb') as file:
            return file.read()

    def content(self, name):
        return bytes(self.session.files[name].now)

    def step(self):
        name = self.rng.choice(self.names)
        self.rng.choice((self.write, self.write, self.write, self.store, self.resize, self.punch, self.sync,
                         self.sync))(name)

    def spot(self, name):
        size = len(self.session.files[name].now)
        length = self.rng.choice((10, 4096, 5000, 70000, 300000)) + self.rng.randrange(100)
        offset = self.rng.randrange(size + 1)
        return (offset // 4096 * 4096 if self.rng.randrange(2) else offset), length

    def did(self, name, **about):
        deed = self.work.began(**about)
        self.session.files[name].add(deed)
        return deed

    def write(self, name):
        offset, length = self.spot(name)
        offset = min(offset, 10 * MiB)
        deed = self.did(name, how='write', offset=offset, data=self.rng.randbytes(length))
        if os.pwrite(self.open[name], deed.data, offset) != length:
            raise Broken(f'while recording: {name} took less than was written')
        self.work.done(deed)

    def store(self, name):
        """Through a mapping, and then msync(2)."""
        size = len(self.session.files[name].now)
        offset, length = self.spot(name)
        length = min(length, size - offset)
        if length <= 0:
            return
        deed = self.did(name, how='write', offset=offset, data=self.rng.randbytes(length))
        with mmap.mmap(self.open[name], size) as mapping:
            mapping[offset:offset + length] = deed.data
            synced = self.did(name, how='sync')
            mapping.flush()
        self.work.done(synced)

    def resize(self, name):
        size = len(self.session.files[name].now)
        deed = self.did(name, how='truncate', size=max(MiB // 2, size - 200000 + self.rng.randrange(400000)))
        os.ftruncate(self.open[name], deed.size)
        self.work.done(deed)

    def punch(self, name):
        offset, length = self.spot(name)
        deed = self.did(name, how='punch', offset=offset, size=length)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(self.open[name], PUNCH_AND_KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise Broken(f'while recording: no hole in {name}: {os.strerror(ctypes.get_errno())}')
        self.work.done(deed)

    def sync(self, name):
        deed = self.did(name, how='sync')
        self.rng.choice((os.fsync, os.fdatasync))(self.open[name])
        self.work.done(deed)

    def close(self):
        for fd in self.open.values():
            os.close(fd)


class Names:
    """Makes, replaces and removes small files."""

    def __init__(self, work, session, mount, rng):
        self.work, self.session, self.top, self.rng = work, session, mount, rng
        for n in range(3):
            os.makedirs(f'{mount}/n{n}', exist_ok=True)

    def step(self):
        name = f'n{self.rng.randrange(3)}/{self.rng.randrange(8)}'
        path = f'{self.top}/{name}'
        history = self.session.names.setdefault(name, NameHistory(self.work.names.get(name)))
        there = os.path.exists(path)
        how = self.rng.choice(('swap', 'remove')) if there else self.rng.choice(('swap', 'make'))
        data = self.rng.randbytes(self.rng.choice((0, 100, 5000, 90000)))
        deed = self.work.began(how=how, content=None if how == 'remove' else data)
        history.deeds.append(deed)
        if how == 'remove':
            os.unlink(path)
        else:
            with open(path if how == 'make' else f'{path}.tmp', 'wb', buffering=0) as out:
                out.write(data)
                os.fsync(out.fileno())
        if how == 'swap':
            os.rename(f'{path}.tmp', path)
        if how != 'make':
            directory = os.open(os.path.dirname(path), os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        self.work.done(deed)

    def close(self):
        pass


class Database:
    """Commits transactions to a SQLite database; each is durable when its COMMIT returns."""

    def __init__(self, work, session, mount, kind):
        self.work, self.path = work, f'{mount}/{kind}/data.db'
        session.databases.setdefault(kind, DatabaseHistory(f'{work.seed} {kind} {session.identity}',
                                                           work.rows.get(kind)))
        self.history, self.connection = session.databases[kind], None

    def step(self):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            # FULL does not sync the directory when the journal is removed.
            self.connection.execute('PRAGMA synchronous = EXTRA')
            self.connection.execute('PRAGMA wal_autocheckpoint = 200')
        deed = self.work.began()
        self.history.deeds.append(deed)
        self.history.transact(self.connection, self.history.first + len(self.history.deeds))
        self.work.done(deed)

    def close(self):
        if self.connection is not None:
            self.connection.close()
