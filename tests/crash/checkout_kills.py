#!/usr/bin/env python3
"""Kills a commit that a checkout follows, before each call that moves a name: nobody's next commit takes it back.

  checkout_kills.py --escrow PATH --tool PATH

The killed process is the one that makes the call, Escrow or a git that it started. After each kill, for the session's
commit that changes, adds and removes files:
  1. where a plain `git commit` of a person comes through, it changes the person's file alone;
  2. the next command leaves branch, index and files the same, and no lock, and git can commit.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from injector import run_injected

NAMES = 'rename,renameat,renameat2,unlink,unlinkat,link,linkat'
BEFORE = {'a': '1\n', 'b': '1\n', 'd/e': '1\n', 'gone': '1\n'}
AFTER = {'a': '2\n', 'b': '1\n', 'd': 'file\n', 'new': '2\n', 'deep/er': '2\n'}


def write_files(root, files):
    for name, content in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(content)


class Broken(Exception):
    pass


class Scene:
    def __init__(self, options, template, directory):
        self.options, self.directory = options, directory
        self.project = os.path.join(directory, 'project')
        shutil.copytree(os.path.join(template, 'project'), self.project, symlinks=True)
        self.source = os.path.join(template, 'source')

    def run(self, *words):
        return subprocess.run(words, cwd=self.project, capture_output=True, text=True, check=False, timeout=120)

    def git(self, *words):
        done = self.run('git', *words)
        if done.returncode != 0:
            raise Broken(f'git {" ".join(words)} ends with {done.returncode}: {done.stderr}')
        return done.stdout

    def escrow(self, *words):
        return self.run(self.options.escrow, *words)

    def own_commit(self):
        """Whether git lets a person commit one file; it is a file of the person's alone."""
        write_files(self.project, {'own': 'own\n'})
        if self.run('git', 'add', 'own').returncode != 0 or self.run('git', 'commit', '-qm', 'own').returncode != 0:
            return False
        changed = self.git('show', '--format=', '--name-status', 'HEAD')
        if changed != 'A\town\n':
            raise Broken(f'the commit of a person has {changed!r}')
        return True

    def import_with(self, first):
        """Imports, and kills whoever makes the call of that number; 0: nobody."""
        command = [self.options.escrow, '--repo', self.project, 'import', self.source]
        return run_injected(self.options.tool, command, [self.project], ('KILL', first, 1, NAMES), cwd=self.project)

    def check(self):
        committed = self.own_commit()
        said = self.escrow('sessions')
        if said.returncode != 0:
            raise Broken(f'the next command ends with {said.returncode}: {said.stderr}')
        if not committed and not self.own_commit():
            raise Broken('git cannot commit after the next command')
        status = self.git('status', '--porcelain')
        if status:
            raise Broken(f'the checkout is not as committed: {status!r} ({said.stderr})')
        left = [name for name in os.listdir(os.path.join(self.project, '.git')) if name.endswith('.lock')]
        left += [name for name in os.listdir(os.path.join(self.project, '.git/escrow')) if name == 'checkouts.behind']
        if left:
            raise Broken(f'left over: {left}')


def make_template(options, directory):
    project, source = os.path.join(directory, 'project'), os.path.join(directory, 'source')
    write_files(project, BEFORE)
    write_files(source, AFTER)
    for words in (['git', 'init', '-q', '-b', 'main', '.'], ['git', 'config', 'user.name', 'u'],
                  ['git', 'config', 'user.email', 'u@example.invalid'], ['git', 'add', '.'],
                  ['git', 'commit', '-qm', 'first'], [options.escrow, 'init']):
        subprocess.run(words, cwd=project, check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--escrow', required=True, type=os.path.abspath)
    parser.add_argument('--tool', required=True, type=os.path.abspath)
    options = parser.parse_args()
    failures = kills = 0
    with tempfile.TemporaryDirectory(prefix='escrow-kills-') as top:
        template = os.path.join(top, 'template')
        os.mkdir(template)
        make_template(options, template)

        def struck_at(number):
            with tempfile.TemporaryDirectory(dir=top) as directory:
                scene = Scene(options, template, directory)
                ended = scene.import_with(number)
                try:
                    scene.check()
                except Broken as broken:
                    print(f'killed before {ended.struck}: {broken}\n{ended.err}', flush=True)
                    return ended, 1
                return ended, 0

        calls = struck_at(0)[0].report['listed']
        of_the_step = [at for at, call in enumerate(calls, 1) if '/escrow/checkouts.' in call]
        for number in range(of_the_step[0], of_the_step[-1] + 1):
            ended, failed = struck_at(number)
            kills += ended.struck is not None
            failures += failed
    print(f'{kills} kills, {failures} broken promises')
    if kills < 20:
        print('these are too few: the calls of a move are not found any more')
        return 1
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
