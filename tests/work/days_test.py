#!/usr/bin/env python3
"""Days of work in sessions over a repository of real files, each beside the same work done without Escrow."""
import argparse
import contextlib
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from expectations import expect, expect_equal, fail, run_cases  # noqa: E402

# Where a machine that can build Escrow has that many files that people wrote.
SOURCES = ('/usr/include', '/usr/lib/python3', '/usr/lib/python3.11', '/usr/share')
WHO = '[user]\n\tname = Tester\n\temail = tester@example.org\n[init]\n\tdefaultBranch = main\n'


class Day:
    """A bare repository with the files, and the directories of who works with it."""

    def __init__(self, escrow, files):
        self.escrow_program, self.directory = os.path.abspath(escrow), tempfile.mkdtemp(prefix='escrow-day-')
        self.files = files
        self.repository, self.mounts = self.path('repository.git'), []
        with open(self.path('.gitconfig'), 'w', encoding='utf-8') as file:
            file.write(WHO)
        self.git('init', '--quiet', '--bare', self.repository)

    def close(self):
        for mount in self.mounts:
            if os.path.ismount(mount):
                subprocess.run(['fusermount3', '-uzq', mount], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def call(self, *words, status=0, cwd=None, **more):
        """What the command writes; another status than `status` ends the test."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(('GIT_', 'ESCROW_', 'XDG_', 'PYTHON'))}
        done = subprocess.run(words, env={**kept, 'HOME': self.directory, 'GIT_CONFIG_NOSYSTEM': '1', **more},
                              cwd=cwd or self.directory, capture_output=True, text=True, check=False, timeout=250,
                              stdin=subprocess.DEVNULL)
        if done.returncode != status:
            fail(f'{words} exited with {done.returncode}, not {status}: {done.stdout[-2000:]} {done.stderr[-2000:]}')
        return done.stdout.strip() if status == 0 else done.stdout + done.stderr

    def git(self, *words, **options):
        return self.call('git', *words, **options)

    def sh(self, where, script, **options):
        return self.call('sh', '-ec', script, cwd=where, **options)

    def escrow(self, *words, **options):
        return self.call(self.escrow_program, *words, ESCROW_REPO=self.repository, **options)

    def run(self, script, *options, **more):
        return self.escrow('run', *options, '--', 'sh', '-ec', script, **more)

    def begin(self, project):
        """The first commit: the files, and `project` (path: text) beside them."""
        with subprocess.Popen(['git', '-C', self.repository, 'fast-import', '--quiet'], stdin=subprocess.PIPE) as git:
            git.stdin.write(b'commit refs/heads/main\ncommitter Tester <tester@example.org> 1700000000 +0000\n')
            git.stdin.write(b'data 5\nfirst\n')
            own = ((path, text.encode()) for path, text in project.items())
            for path, content in itertools.chain(real_files(self.files), own):
                git.stdin.write(b'M 100644 inline %s\ndata %d\n%s\n' % (path.encode(), len(content), content))
        expect_equal('exit status of git fast-import', git.returncode, 0)
        expect_equal('files of the repository', len(self.tree()), self.files + len(project))
        self.escrow('init')

    def clone(self, name):
        self.git('clone', '--quiet', self.repository, self.path(name))
        return self.path(name)

    def mount(self, name, *options):
        where = self.path(name)
        os.makedirs(where, exist_ok=True)
        self.mounts.append(where)
        return self.escrow('mount', where, *options).split()[0], where

    def tree(self, revision='main'):
        return self.git('-C', self.repository, 'ls-tree', '-r', '--name-only', revision).splitlines()

    def expect_sound(self):
        self.git('-C', self.repository, 'fsck', '--full', '--strict')
        self.escrow('verify')


def real_files(left):
    """(path, bytes) of so many files of this machine, none of them large."""
    for top in SOURCES:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                source = os.path.join(folder, name)
                # Not what git would leave out, nor what has to be quoted for it.
                if name.startswith('.git') or not source.isascii() or not source.isprintable() or '"' in source \
                        or not os.path.isfile(source) or os.path.islink(source) or os.path.getsize(source) > 1 << 16:
                    continue
                if left == 0:
                    return
                with open(source, 'rb') as file:
                    yield 'files' + source, file.read()
                left -= 1


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def get(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def TwoAgentsInPython(day):
    day.begin({'app/__init__.py': '', 'app/base.py': 'def base():\n    return 1\n', '.gitignore': '__pycache__/\n',
               'tests/__init__.py': ''})
    work = ('mkdir -p app/{name} && printf "from app.base import base\\ndef {name}():\\n    return base() + {more}\\n" '
            '> app/{name}/__init__.py && printf "import unittest\\nfrom app.{name} import {name}\\n'
            'class Test(unittest.TestCase):\\n    def test(self):\\n        self.assertEqual({name}(), {sum})\\n" '
            '> tests/test_{name}.py && python3 -m unittest -q tests.test_{name} && test -d app/__pycache__ && '
            'git add app tests && test "$(git status --porcelain | wc -l)" = 2')
    # Each waits in its session until the other is in its own: neither sees the other's work.
    meeting = threading.Barrier(2)
    ended = {}

    def agent(name, more):
        marks = [day.path(f'{one}-began') for one in ('left', 'right')]
        script = (f"touch '{day.path(name)}-began'; until [ -e '{marks[0]}' ] && [ -e '{marks[1]}' ]; do sleep 0.02; "
                  f'done; {work.format(name=name, more=more, sum=1 + more)}')
        meeting.wait()
        ended[name] = day.run(script, '--committer', f'agent:{name}', '-m', f'{name} is added')

    agents = [threading.Thread(target=agent, args=one) for one in (('left', 1), ('right', 2))]
    for one in agents:
        one.start()
    for one in agents:
        one.join()
    expect_equal('the agents whose work was committed', sorted(ended), ['left', 'right'])
    expect_equal('commits', day.git('-C', day.repository, 'rev-list', '--count', 'main'), '3')
    paths = set(day.tree())
    expect({'app/left/__init__.py', 'tests/test_left.py', 'app/right/__init__.py', 'tests/test_right.py'} <= paths,
           'the work of one is missing')
    expect_equal('compiled files in the branch', [path for path in paths if path.endswith('.pyc')], [])
    head = day.git('-C', day.repository, 'rev-parse', 'main')
    day.run('python3 -m unittest -q tests.test_left tests.test_right')
    expect_equal('the head after a run that changed nothing', day.git('-C', day.repository, 'rev-parse', 'main'), head)
    clone = day.clone('clone')
    day.call('python3', '-m', 'unittest', '-q', 'tests.test_left', 'tests.test_right', cwd=clone)
    day.expect_sound()


def AnIncrementalBuildOverFiveCommits(day):
    units = [f'u{number:02}' for number in range(30)]
    makefile = ('objects := $(addprefix build/,$(patsubst %.c,%.o,$(wildcard *.c)))\nbuild/program: $(objects)\n'
                '\t@$(CC) -o $@ $(objects) && echo linked\nbuild/%.o: %.c\n\t@mkdir -p build && '
                '$(CC) -O0 -MMD -c -o $@ $< && echo compiled $<\n-include $(wildcard build/*.d)\n')
    project = {'c/Makefile': makefile, 'c/shared.h': 'int start(void);\n#define STEP 1\n', '.gitignore': 'build/\n',
               'c/main.c': '#include <stdio.h>\n#include "shared.h"\n' + ''.join(f'int {u}(void);\n' for u in units) +
                           'int main(void) { printf("%d\\n", ' + ' + '.join(f'{u}()' for u in units) + '); }\n'}
    for number, unit in enumerate(units):
        include = '#include "shared.h"\n' if number % 5 == 0 else ''
        project[f'c/{unit}.c'] = f'{include}int {unit}(void) {{ return {"STEP" if include else number}; }}\n'
    day.begin(project)
    native = day.clone('native')

    def build_in_session():
        """What a build in a session that begins now says, without the lines of make itself."""
        said = day.run('make -s -C c; c/build/program', '--cache', 'c/build').splitlines()
        return sorted(said[:-1]), said[-1]

    def build_natively():
        day.git('-C', native, 'pull', '-q')
        said = day.sh(native, 'make -s -C c; c/build/program').splitlines()
        return sorted(said[:-1]), said[-1]

    expect_equal('the first build', build_in_session(), build_natively())
    pusher = day.clone('pusher')
    counts = []
    for script, by_git in (("sed -i 's/return 1;/return 101;/' c/u01.c", False),
                           ('echo "a line" >> README', False),
                           ("sed -i 's/STEP 1/STEP 7/' c/shared.h", True),
                           ("sed -i 's/return 2;/return 202;/' c/u02.c; touch c/u03.c", False),
                           ("git mv c/u04.c c/v04.c; sed -i 's/return 6;/return 606;/' c/u06.c", True)):
        if by_git:
            day.sh(pusher, f'git pull -q; {script}; git commit -qam pushed; git push -q origin HEAD:main')
        else:
            day.run(script, '--no-git')
        in_session = build_in_session()
        expect_equal(f'the build after {script}', in_session, build_natively())
        expect_equal('the next build', build_in_session(), ([], in_session[1]))
        counts.append(len(in_session[0]))
    # The units of each commit, and the program: one, none, the six that include the header and main, one, two.
    expect_equal('what was compiled and linked', counts, [2, 0, 8, 2, 3])
    expect_equal('commits', day.git('-C', day.repository, 'rev-list', '--count', 'main'), '6')
    day.expect_sound()


def AnEditorSavesWhileOthersCommit(day):
    mine = [f'doc/{number}.txt' for number in range(10)]
    theirs = [f'other/{number}.txt' for number in range(10)]
    day.begin({path: f'{path}\n' * 200 for path in mine + theirs})
    session, work = day.mount('work')
    model = {path: get(os.path.join(work, path)) for path in mine}
    os.chmod(os.path.join(work, mine[3]), 0o755)

    def save(path, text, how):
        """As editors do: in place; a new file renamed over; the old one kept as a backup, as vim and emacs do."""
        name = os.path.join(work, path)
        if how == 'in place':
            with open(name, 'r+', encoding='utf-8') as file:
                file.truncate(0)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            return
        mode = stat.S_IMODE(os.stat(name).st_mode)
        if how == 'backup':
            os.rename(name, name + '~')
            put(name, text)
            os.chmod(name, mode)
            os.unlink(name + '~')
            return
        put(name + '.tmp', text)
        os.chmod(name + '.tmp', mode)
        os.replace(name + '.tmp', name)

    watched = open(os.path.join(work, mine[9]), encoding='utf-8')  # pylint: disable=consider-using-with
    for turn in range(30):
        path = mine[turn % 9]
        model[path] = f'save {turn}\n' * (1 + turn * 37 % 300)
        save(path, model[path], ('in place', 'rename', 'backup')[turn % 3])
        expect_equal(f'{path} after save {turn}', get(os.path.join(work, path)), model[path])
        if turn % 10 == 4:
            other = theirs[turn // 10]
            day.run(f'echo "by another {turn}" >> {other}; echo {turn} > other/new-{turn}')
            day.escrow('update', session)
            expect(get(os.path.join(work, other)).endswith(f'by another {turn}\n'), f'{other} after the update')
            expect_equal('a new file', get(os.path.join(work, f'other/new-{turn}')), f'{turn}\n')
            expect(f'new-{turn}' in os.listdir(os.path.join(work, 'other')), 'it is not listed')
    expect_equal('a file that was open all day', watched.read(), model[mine[9]])
    watched.close()
    expect_equal('what git sees', set(day.sh(work, 'git diff --name-only').splitlines()), set(mine[:9]))
    day.sh(work, f"'{day.escrow_program}' commit -m 'a day of edits'")
    changed = day.git('-C', day.repository, 'diff', '--name-only', 'main~1', 'main').splitlines()
    expect_equal('the paths of the commit', set(changed), set(mine[:9]))
    for path, text in model.items():
        expect_equal(path, day.git('-C', day.repository, 'cat-file', 'blob', f'main:{path}') + '\n', text)
    expect(day.git('-C', day.repository, 'ls-tree', 'main', mine[3]).startswith('100755'), 'the mode is lost')
    day.expect_sound()


def AConflictResolvedByHand(day):
    lines = [f'line {number}\n' for number in range(40)]
    day.begin({'notes/plan.txt': ''.join(lines), 'notes/other.txt': 'other\n', 'notes/gone.txt': 'gone\n'})
    theirs = day.path('theirs.sh')
    put(theirs, "sed -i '5s/.*/theirs/' notes/plan.txt; echo theirs > notes/other.txt; echo more >> notes/gone.txt\n")
    said = day.run(f"sed -i '30s/.*/mine/' notes/plan.txt; echo mine > notes/other.txt; rm notes/gone.txt; "
                   f"echo kept > notes/kept.txt; '{day.escrow_program}' --repo '{day.repository}' run "
                   f"-- env -C \"$ESCROW_MOUNT\" true; cd /; '{day.escrow_program}' --repo '{day.repository}' run "
                   f"-m theirs -- sh '{theirs}'", '-m', 'mine', status=122)
    words = '`escrow resume '
    expect(words in said, f'no way out is named: {said}')
    older = said[said.index(words) + len(words):][:16]

    work = day.path('work')
    day.mounts.append(work)
    os.mkdir(work)
    session = day.escrow('resume', older, work).split()[0]
    listed = {one['path']: one for one in json.loads(day.escrow('resolve', session, '--json'))['unresolved']}
    expect_equal('the conflicts', sorted(listed), ['notes/gone.txt', 'notes/other.txt', 'notes/plan.txt'])
    expect_equal('what does not conflict', get(os.path.join(work, 'notes/kept.txt')), 'kept\n')
    # By hand, from inside: git's own tools make the merge of the three versions.
    versions = {side: listed['notes/plan.txt'][side]['id'] for side in ('base', 'mine', 'theirs')}
    day.sh(work, ' && '.join(f"git cat-file blob {versions[side]} > '{day.path(side)}'"
                             for side in ('base', 'mine', 'theirs')) +
           f" && cd '{day.directory}' && git merge-file -p mine base theirs > '{work}/notes/plan.txt' && cd '{work}'"
           " && "
           f"'{day.escrow_program}' resolve notes/plan.txt --merged && "
           f"'{day.escrow_program}' resolve notes/other.txt --theirs && "
           f"'{day.escrow_program}' resolve notes/gone.txt --mine && '{day.escrow_program}' commit -m 'by hand'")
    lines[4], lines[29] = 'theirs\n', 'mine\n'
    blob = lambda path: day.git('-C', day.repository, 'cat-file', 'blob', f'main:{path}') + '\n'  # noqa: E731
    expect_equal('the merge', blob('notes/plan.txt'), ''.join(lines))
    expect_equal('the side of others', blob('notes/other.txt'), 'theirs\n')
    expect('notes/gone.txt' not in day.tree(), 'what was removed came back')
    expect_equal('history', day.git('-C', day.repository, 'log', '--format=%s', 'main').splitlines(),
                 ['by hand', 'theirs', 'first'])
    day.expect_sound()


def ACheckoutThatFollows(day):
    day.begin({'src/a.c': 'int a;\n', 'src/b.c': 'int b;\n', '.gitignore': '*.o\n'})
    project = day.clone('project')
    in_project = lambda script, **more: day.sh(project, script, **more)  # noqa: E731
    run = lambda script, **more: in_project(f"'{day.escrow_program}' run -- sh -ec '{script}'", **more)  # noqa: E731
    in_project(f"'{day.escrow_program}' init; echo mine > untracked; echo o > src/a.o; echo 'int b = 9;' > src/b.c")
    status = lambda: in_project('git status --porcelain | sort')  # noqa: E731
    mine = status()
    for turn in range(5):
        run(f'echo "int a = {turn};" > src/a.c; mkdir -p new; echo {turn} > new/{turn}; test ! -e untracked')
        expect_equal('the file of the checkout', get(os.path.join(project, 'src/a.c')), f'int a = {turn};\n')
        expect_equal('what is not committed stays', status(), mine)
    head = in_project('git rev-parse HEAD')
    expect('src/b.c' in run('echo x > src/b.c; echo y > src/a.c', status=125), 'what is in the way is not named')
    expect_equal('nothing moved', (in_project('git rev-parse HEAD'), status()), (head, mine))
    in_project('git stash -q')
    run('echo x > src/b.c')
    expect_equal('the checkout', get(os.path.join(project, 'src/b.c')), 'x\n')
    # git keeps what was stashed, and marks the conflict with what a session has committed meanwhile.
    in_project('git stash pop -q || git checkout -q --theirs src/b.c')
    expect_equal('what was stashed', get(os.path.join(project, 'src/b.c')), 'int b = 9;\n')
    in_project('git checkout -q HEAD -- src/b.c; git push -q origin HEAD:main')
    day.git('-C', project, 'fsck', '--full', '--strict')
    day.expect_sound()


DAYS = (TwoAgentsInPython, AnIncrementalBuildOverFiveCommits, AnEditorSavesWhileOthersCommit, AConflictResolvedByHand,
        ACheckoutThatFollows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--escrow', required=True)
    parser.add_argument('--files', type=int, default=20_000, help='of the repository (default: %(default)s)')
    parser.add_argument('cases', nargs='*', help='default: all of them')
    arguments = parser.parse_args()
    if not os.path.exists('/dev/fuse'):
        sys.exit('there is no /dev/fuse' if os.environ.get('REQUIRE_FUSE') == '1' else 77)

    def run(case):
        with contextlib.closing(Day(arguments.escrow, arguments.files)) as day:
            globals()[case](day)

    run_cases(arguments.cases or [day.__name__ for day in DAYS], run)


if __name__ == '__main__':
    main()
