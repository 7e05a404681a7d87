"""What is looked at on the disk that a power cut left."""
import json
import os
import re
import subprocess

from faults import leftovers
from power_cut_models import Broken, blob_id
from power_cut_work import files_below


class AfterCut:
    """The repository on a disk after a cut; it is changed by the checks."""

    def __init__(self, escrow, history, where, top, cut, rng):
        self.escrow, self.history, self.cut, self.rng = escrow, history, cut, rng
        self.repo, self.mount, self.base = (os.path.join(where, 'data.git'), os.path.join(top, 'mount'),
                                            os.path.join(top, 'base'))

    def run(self, *args, statuses=(0,)):
        done = subprocess.run([self.escrow, '--repo', self.repo, *args], capture_output=True, text=True,
                              errors='replace', timeout=300, stdin=subprocess.DEVNULL, check=False)
        if done.returncode not in statuses:
            raise Broken(f'escrow {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()} '
                         f'{done.stdout.strip()[:2000]}')
        return done

    def git(self, *args):
        done = subprocess.run(['git', '-C', self.repo, *args], capture_output=True, text=True, errors='replace',
                              timeout=300, check=False)
        if done.returncode != 0:
            raise Broken(f'git {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()[:2000]} '
                         f'{done.stdout.strip()[:500]}')
        return done.stdout.strip()

    def check(self):
        if not self.history.made.promised_at(self.cut):
            self.run('init')
        if not self.history.imported.promised_at(self.cut):
            self.begin_again()
        else:
            self.check_branch()
            self.check_sessions()
        self.check_end()

    # The first import was under way, or had not begun.
    def begin_again(self):
        self.run('sessions')
        self.run('import', self.base, '--message', 'again')
        self.check_files('main', self.history.imported.expected)

    def check_files(self, commit, expected):
        listing = subprocess.run(['git', '-C', self.repo, 'ls-tree', '-r', '-z', commit], check=True,
                                 capture_output=True).stdout
        found = dict((os.fsdecode(line.split(b'\t', 1)[1]), line.split()[2].decode())
                     for line in filter(None, listing.split(b'\0')))
        for name, blob in expected.items():
            if found.get(name) != blob:
                raise Broken(f'{name} in {commit} is {found.get(name)}, not {blob}')

    # Before Escrow has mended anything: git alone.
    def check_branch(self):
        self.git('fsck', '--full', '--strict', '--no-dangling')
        head, branch = self.git('rev-parse', 'HEAD'), self.history.branch
        if head not in branch:
            raise Broken(f'the branch is at {head}, a commit that was not made')
        place = branch.index(head)
        for deed in self.history.commits:
            if deed.promised_at(self.cut) and branch.index(deed.commit) > place:
                raise Broken(f'commit {deed.commit} was reported, and the branch is at {head}')
            if deed.commit == head and not deed.began_before(self.cut):
                raise Broken(f'the branch is at {head}, which had not begun')
        self.head = head

    def check_sessions(self):
        # It recovers; what it says is how it found them.
        self.run('sessions')
        self.run('verify')
        listed = {session['session']: session for session in json.loads(self.run('sessions', '--json').stdout)}
        if subprocess.run(['git', '-C', self.repo, 'merge-base', '--is-ancestor', self.head, 'main'],
                          check=False).returncode != 0:
            raise Broken(f'recovery took the branch back from {self.head}')
        for session in self.history.sessions:
            possible = session.possible(self.cut)
            if possible is None:
                continue
            row = listed.pop(session.identity, None)
            if row is None or row['state'] not in possible:
                raise Broken(f'session {session.identity} is not {" or ".join(possible)}: {row}')
            if row['state'] == 'open':
                self.check_open(session, row)
            elif row['state'] == 'awaiting_approval':
                self.check_waiting(session, row)
        for identity, row in listed.items():  # those that nobody was told of yet
            if row['state'] == 'open':
                self.run('rollback', identity)
            elif row['state'] == 'awaiting_approval':
                self.run('reject', identity)

    def check_open(self, session, row):
        bases = [n for n, (deed, _) in enumerate(session.bases) if deed.promised_at(self.cut)]
        if bases and row['base'] != session.bases[bases[-1]][1]:
            raise Broken(f'session {session.identity} was brought onto {session.bases[bases[-1]][1]}, and its base is '
                         f'{row["base"]}')
        found = self.check_mounted(session)
        verb = self.rng.choice(('rollback', 'commit'))
        self.run(verb, session.identity)
        if verb == 'commit' and found:
            self.check_files('main', found)

    # The promised contents of its files are there; returns the contents found.
    def check_mounted(self, session):
        host = subprocess.Popen([self.escrow, '--repo', self.repo, 'mount', self.mount, '--session', session.identity,
                                 '--foreground'], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not host.stdout.readline():
            raise Broken(f'session {session.identity} cannot be mounted: {host.stderr.read().strip()}')
        try:
            for name, file in session.files.items():
                found = self.read(name)
                if found is None:
                    raise Broken(f'{name} of session {session.identity} is gone')
                file.check(name, self.cut, found)
            for name, history in session.names.items():
                history.check(name, self.cut, self.read(name))
            for kind, database in session.databases.items():
                database.check(f'the database in {kind}', self.cut, f'{self.mount}/{kind}/data.db')
            return files_below(self.mount, *{name.split('/')[0] for name in [*session.files, *session.names]})
        finally:
            subprocess.run(['umount', self.mount], check=True, capture_output=True, timeout=300)
            host.communicate(timeout=300)

    def read(self, name):
        try:
            with open(f'{self.mount}/{name}', 'rb') as file:
                return file.read()
        except FileNotFoundError:
            return None

    def check_waiting(self, session, row):
        if row['result'] != session.result:
            raise Broken(f'session {session.identity} waits with {row["result"]}, not {session.result}')
        verb = self.rng.choice(('approve', 'reject'))
        # Another session that was open has perhaps been committed meanwhile: it is to be looked at again.
        done = self.run(verb, session.identity, statuses=(0,) if verb == 'reject' else (0, 1, 123))
        expected = getattr(session.states[0], 'expected', {})
        if verb == 'approve' and done.returncode == 0:
            self.check_files('main', expected)

    # After any cut: no leftovers, and everything works.
    def check_end(self):
        left = {session['session']: session['state']
                for session in json.loads(self.run('sessions', '--json').stdout)}
        for identity, state in left.items():
            if state == 'awaiting_approval':
                self.run('reject', identity)
        if strange := [identity for identity, state in left.items() if state in ('open', 'committing')]:
            raise Broken(f'sessions {strange} are open')
        self.run('run', '--', 'sh', '-c', 'echo works > works')
        self.git('config', 'gc.pruneExpire', 'now')
        self.run('gc')
        if found := [path for path in leftovers(self) if not re.search(r'(^|/)tmp_', path)]:
            raise Broken(f'nobody needs {found}')
        self.check_files('main', {'works': blob_id(b'works\n')})
        if lost := self.git('fsck', '--full', '--strict', '--unreachable').splitlines():
            raise Broken(f'something keeps what was rolled back or rejected from gc: {lost[:5]}')
        self.run('verify')
