"""The situations in which faults.py lets a system call fail: what there is before, the command, what follows it.

A scene is prepared once; each fault then meets a copy of it. `expected` are the files that the branch has in the end.
Scenes that are played in the same directory share how they begin: once() makes it for the first and copies it for the
others.
"""
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess

MiB = 1 << 20


class Broken(Exception):
    """A promise that was not kept."""


class Bench:
    """A repository in a directory of its own, and the commands that are used on it. `made`: the copies that once()
    keeps. A repository knows its path, so they are of use only to a bench in the same directory."""

    def __init__(self, escrow, top, made=None):
        self.escrow, self.top, self.made = escrow, top, made
        self.repo, self.mount = os.path.join(top, 'data.git'), os.path.join(top, 'mount')
        self.out = os.path.join(top, 'out')  # what a command writes beside the repository
        self.parent = ''  # of a fork: the session
        for directory in (self.mount, self.out):
            os.makedirs(directory, exist_ok=True)

    def copy_to(self, where):
        shutil.copytree(self.top, where, symlinks=True)

    def become(self, where):
        """A copy of what was kept there."""
        shutil.rmtree(self.top)
        shutil.copytree(where, self.top, symlinks=True)

    def command(self, *args):
        return [self.escrow, '--repo', self.repo, *args]

    def run(self, *args, statuses=(0,)):
        done = subprocess.run(self.command(*args), capture_output=True, text=True, errors='replace', timeout=180,
                              check=False, stdin=subprocess.DEVNULL)
        if statuses and done.returncode not in statuses:
            raise Broken(f'escrow {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()}')
        return done

    def git(self, *args):
        done = subprocess.run(['git', '-C', self.repo, *args], capture_output=True, text=True, check=False, timeout=180)
        if done.returncode != 0:
            raise Broken(f'git {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()}{done.stdout[:500]}')
        return done.stdout.strip()

    @contextlib.contextmanager
    def mounted(self, *args):
        """The id of a session; it is mounted meanwhile, and open and detached afterwards."""
        host = subprocess.Popen(self.command('mount', self.mount, '--foreground', *args), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = host.stdout.readline()
        if not line:
            raise Broken(f'escrow mount says: {host.stderr.read().strip()}')
        try:
            yield line.split()[-1]
        finally:
            subprocess.run(['umount', self.mount], check=True, capture_output=True, timeout=180)
            host.communicate(timeout=180)


def put(top, name, data):
    path = os.path.join(top, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as out:
        out.write(data)


def random_bytes(seed, size):
    return random.Random(seed).randbytes(size)


def once(key, prepare):
    """As `prepare`, which is done the first time in each directory; later a copy of what it made is there."""
    def prepared(bench):
        if bench.made is None:
            return prepare(bench)
        if key in bench.made:
            where, session, files = bench.made[key]
            bench.become(where)
        else:
            session, files = prepare(bench)
            where = f'{bench.top}-made{len(bench.made)}'
            bench.copy_to(where)
            bench.made[key] = where, session, files
        return session, dict(files)
    return prepared


def big_file():
    """Above the size from which a block map says what was written. It repeats: zlib takes longer for random bytes."""
    return random_bytes(1, 1 << 10) * 1280


def base_files():
    files = {f'd/f{n}': b'base %d\n' % n * 100 for n in range(12)}
    files['big'] = big_file()
    files['deep/er/and/deeper'] = b'deep\n'
    files['goes'] = b'goes\n'
    return files


def init(bench):
    bench.run('init')


def import_base(bench):
    """The files of the branch."""
    return once('base', made_with_base)(bench)[1]


def made_with_base(bench):
    init(bench)
    return '', others_commit(bench, {}, base_files(), 'base')


def edit(bench, files, many):
    """Writes into the mount; the files that a commit makes of it."""
    after = dict(files)
    for n in range(4):
        after[f'd/f{n}'] += b'more\n'
        put(bench.mount, f'd/f{n}', after[f'd/f{n}'])
    with open(f'{bench.mount}/big', 'r+b') as out:
        out.seek(MiB + 100)
        out.write(b'x' * 5000)
    after['big'] = files['big'][:MiB + 100] + b'x' * 5000 + files['big'][MiB + 5100:]
    os.unlink(f'{bench.mount}/goes')
    del after['goes']
    os.rename(f'{bench.mount}/deep/er', f'{bench.mount}/deep/ly')
    after['deep/ly/and/deeper'] = after.pop('deep/er/and/deeper')
    after['large'] = random_bytes(2, 300_000)
    put(bench.mount, 'large', after['large'])
    for n in range(120 if many else 4):
        after[f'n/n{n}'] = b'new %d\n' % n * (n + 1)
        put(bench.mount, f'n/n{n}', after[f'n/n{n}'])
    return after


def others_commit(bench, files, changed, message='theirs'):
    """A commit of somebody else; the branch's files then."""
    source = os.path.join(bench.top, 'source')
    files = {**files, **changed}
    for name, data in files.items():
        put(source, name, data)
    bench.run('import', source, '--message', message)
    shutil.rmtree(source)
    return files


class Scene:
    """`status` is the command's when nothing fails; `then` are commands that follow, with their statuses."""

    def __init__(self, prepare, command, status=0, then=(), staged=False, opens=False, row=None):
        self.prepare, self.words, self.status, self.then = prepare, command, status, then
        self.row = row  # where the last sync that its promise needs is made, when it is not the last of all
        self.opens = opens  # whether it opens sessions, which nothing that follows ends
        self.staged = staged  # whether it says that what is staged is on disk

    def promises(self, sync):
        """Whether the command may not say that it is done when this sync has failed."""
        return self.staged or not re.search(r'/escrow/sessions/\w+(/(staging|session\.db)|$)', sync)


def edited(many, *options):
    def prepare(bench):
        files = import_base(bench)
        with bench.mounted(*options) as session:
            after = edit(bench, files, many)
        return session, after
    return once((many, options), prepare)


def pointer_to(data):
    return b'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n' % (
        hashlib.sha256(data).hexdigest().encode(), len(data))


def edited_lfs(*options):
    """Files of Git LFS: one that is there and changed, one that is there and goes, and new ones."""
    def prepare(bench):
        init(bench)
        old, new = random_bytes(1, 300_000), random_bytes(2, 200_000)
        files = {'.gitattributes': b'*.bin filter=lfs\n', 'old.bin': old, 'goes.bin': b'goes'}
        for name, data in files.items():
            put(os.path.join(bench.top, 'base'), name, data)
        bench.run('import', os.path.join(bench.top, 'base'), '--message', 'base')
        with bench.mounted(*options) as session:
            with open(f'{bench.mount}/old.bin', 'r+b') as out:
                out.write(b'changed')
            os.unlink(f'{bench.mount}/goes.bin')
            for name in ('d/new.bin', 'd/same.bin'):
                put(bench.mount, name, new)
        return session, {'.gitattributes': files['.gitattributes'], 'old.bin': pointer_to(b'changed' + old[7:]),
                         'd/new.bin': pointer_to(new), 'd/same.bin': pointer_to(new)}
    return prepare


def rejected_lfs(bench):
    session, files = edited_lfs('--require-approval')(bench)
    bench.run('commit', session, statuses=(123,))
    old = random_bytes(1, 300_000)
    return session, {'.gitattributes': files['.gitattributes'], 'old.bin': pointer_to(old),
                     'goes.bin': pointer_to(b'goes')}


def merged(bench):
    session, after = edited(False)(bench)
    theirs = {'d/f9': b'theirs\n', 'theirs/new': b'theirs\n'}
    others_commit(bench, base_files(), theirs)
    return session, {**after, **theirs}


def conflicting(bench):
    session, _ = edited(False)(bench)
    return session, others_commit(bench, base_files(), {'d/f1': b'theirs\n', 'd/f9': b'theirs\n'})


def resolved(bench):
    session, after = edited(False)(bench)
    theirs = {'d/f1': b'theirs\n', 'd/f9': b'theirs\n'}
    others_commit(bench, base_files(), theirs)
    return session, {**after, **theirs}


def kept(bench):
    """A session that has failed and kept its result; others have changed one of its files."""
    files = import_base(bench)
    bench.run(*[word.replace('{mount}', bench.mount) for word in RUN_KEEPING], FAILS, statuses=(3,))
    [session] = [one['session'] for one in json.loads(bench.run('sessions', '--json').stdout)
                 if one['state'] == 'rolled_back']
    return session, others_commit(bench, files, {'d/f1': b'theirs\n', 'd/f9': b'theirs\n'})


def unchanged(bench):
    files = import_base(bench)
    with bench.mounted() as session:
        pass
    return session, files


def rolled_back(bench):
    session, _ = edited(True)(bench)
    return session, base_files()


def sealed(bench):
    session, after = edited(False, '--require-approval')(bench)
    bench.run('commit', session, statuses=(123,))
    return session, after


def ruled(bench):
    """The branch asks for approval, not the session."""
    session, after = edited(False)(bench)
    bench.git('config', 'escrow.requireApproval', 'true')
    return session, after


def rejected(bench):
    session, _ = sealed(bench)
    return session, base_files()


def discarded(bench):
    session, after = edited(False)(bench)
    after['d/f1'] = base_files()['d/f1']
    after['goes'] = base_files()['goes']
    return session, {name: data for name, data in after.items() if not name.startswith('n/')}


def nothing(bench):
    put(bench.top, 'base/file', b'file\n')
    return '', {'file': b'file\n'}


def empty(bench):
    init(bench)
    for name, data in base_files().items():
        put(bench.top, 'base/' + name, data)
    return '', base_files()


def imported(bench):
    files = import_base(bench) | {f'more/{n}': b'more %d\n' % n for n in range(150)}
    for name, data in files.items():
        put(bench.top, f'base/{name}', data)
    return '', files


def littered(bench):
    """Packs, loose objects, what nothing needs any more, and a session whose base the branch has left."""
    session, after = edited(False)(bench)
    files = base_files()
    for n in range(3):
        files = others_commit(bench, files, {f'theirs/{n}': b'theirs %d\n' % n})
    bench.run('run', '--keep-on-failure', '--', 'sh', '-c', 'echo kept > kept; exit 1', statuses=(1,))
    lost = subprocess.run(['git', '-C', bench.repo, 'hash-object', '-w', '--stdin'], input=b'lost', check=True,
                          capture_output=True)
    assert lost.stdout
    return session, {**after, **{f'theirs/{n}': b'theirs %d\n' % n for n in range(3)}}


def saved(bench):
    """A session that was edited, has a savepoint, and was edited on."""
    session, files = edited(True)(bench)
    bench.run('savepoint', 'create', session, 'before')
    with bench.mounted('--session', session):
        put(bench.mount, 'd/f5', b'afterwards\n')
        put(bench.mount, 'afterwards', b'afterwards\n')
        os.unlink(f'{bench.mount}/n/n1')
    return session, files


def forked(bench):
    """The fork of a session: both have changed since."""
    session, files = edited(False)(bench)
    bench.parent = session
    fork = bench.run('fork', session).stdout.split()[0]
    for one, name in ((session, 'd/f6'), (fork, 'd/f7')):
        with bench.mounted('--session', one):
            put(bench.mount, name, b'changed\n')
            put(bench.mount, f'made/{name}', random_bytes(3, 200_000))
        files[name], files[f'made/{name}'] = b'changed\n', random_bytes(3, 200_000)
    return fork, files


def exported(bench):
    session, _ = edited(True)(bench)
    bench.run('export', session, os.path.join(bench.out, 'before'))
    bench.run('rollback', session)
    return '', base_files()


def run_with(script):
    def prepare(bench):
        files = import_base(bench)
        files['d/f1'] = b'changed\n'
        files['made'] = b'made\n' * 100_000
        return '', base_files() if script == FAILS else files
    return prepare


SUCCEEDS = 'echo changed > d/f1 && yes made | head -100000 > made'
FAILS = SUCCEEDS + '; exit 3'
READS = 'cat d/f2 deep/er/and/deeper > /dev/null; ls d > /dev/null; test ! -e absent; '
COMMIT, ROLL_BACK = ['commit', '{session}'], ['rollback', '{session}']
RUN = ['run', '--mountpoint', '{mount}', '--io-uring', 'off', '--', 'sh', '-c']
RUN_KEEPING = ['run', '--keep-on-failure', *RUN[1:]]

SCENES = {
    'init': Scene(nothing, ['init'], then=[(['import', '{top}/base'], 0)]),
    'import-first': Scene(empty, ['import', '{top}/base']),
    'import': Scene(imported, ['import', '{top}/base']),
    'commit': Scene(edited(False), COMMIT),
    'commit-pack': Scene(edited(True), COMMIT),
    'commit-lfs': Scene(edited_lfs(), COMMIT),
    'reject-lfs': Scene(rejected_lfs, ['reject', '{session}']),
    'commit-merge': Scene(merged, COMMIT),
    'commit-conflict': Scene(conflicting, COMMIT, 122, then=[(ROLL_BACK, 0)]),
    'commit-nothing': Scene(unchanged, COMMIT),
    'rollback': Scene(rolled_back, ROLL_BACK),
    'update': Scene(merged, ['update', '{session}'], then=[(COMMIT, 0)], staged=True),
    'update-conflict': Scene(conflicting, ['update', '{session}'], 122, then=[(ROLL_BACK, 0)]),
    'discard': Scene(discarded, ['discard', '{session}', 'd/f1', 'goes', 'n'], then=[(COMMIT, 0)], staged=True),
    'resolve': Scene(resolved, ['resolve', '{session}', 'd/f1', '--theirs'], then=[(COMMIT, 0)], staged=True),
    'resume': Scene(kept, ['resume', '{session}'], staged=True, opens=True),
    'savepoint': Scene(edited(True), ['savepoint', 'create', '{session}', 'here'], then=[(COMMIT, 0)], staged=True),
    'restore': Scene(saved, ['savepoint', 'restore', '{session}', 'before'], then=[(COMMIT, 0)], staged=True),
    'fork': Scene(edited(True), ['fork', '{session}'], then=[([*COMMIT, '--discard-forks'], 0)], staged=True),
    'commit-fork': Scene(forked, COMMIT, then=[(['commit', '{parent}'], 0)], staged=True, row='/catalog.db-wal'),
    'export': Scene(edited(True), ['export', '{session}', '{out}/state'], then=[(COMMIT, 0)]),
    'import-session': Scene(exported, ['import-session', '{out}/before'], staged=True, opens=True),
    'seal': Scene(edited(True, '--require-approval'), COMMIT, 123, then=[(['approve', '{session}'], 0)]),
    'seal-by-rule': Scene(ruled, COMMIT, 123, then=[(['approve', '{session}'], 0)]),
    'approve': Scene(sealed, ['approve', '{session}']),
    'reject': Scene(rejected, ['reject', '{session}']),
    'gc': Scene(littered, ['gc'], then=[(COMMIT, 0)]),
    'diff': Scene(merged, ['diff', '{session}', '--patch'], then=[(COMMIT, 0)]),
    'run': Scene(run_with(SUCCEEDS), [*RUN, SUCCEEDS]),
    'run-fails': Scene(run_with(FAILS), [*RUN, FAILS], 3),
    'run-serializable': Scene(run_with(SUCCEEDS), ['run', '--isolation', 'serializable', *RUN[1:], READS + SUCCEEDS]),
}


def blob_id(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()
