#!/usr/bin/env python3
"""Breaks one promise (durability, atomicity, policies) at a time in a copy of the source; a test should notice.

  mutants.py [--source DIR] [--work DIR] [--only NAME...] [--list] [--check]

Each mutant names the tests that should catch it; every one of them is run and what it said is printed. Exit status 1
names the mutants that no test caught. An edit whose old text is not found exactly once is an error: the source has
moved on, and the mutant has to follow. Takes a build of the tests and some seconds for each mutant.
"""
import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile

from mutant_table import MUTANTS, TESTS


class Stale(Exception):
    pass


class Laboratory:
    def __init__(self, source, work, tests=TESTS):
        self.tests = tests
        self.work, self.copy, self.build = work, os.path.join(work, 'source'), os.path.join(work, 'build')
        if source is not None:  # else what is there is used again
            skipped = shutil.ignore_patterns('build', '.git')
            shutil.copytree(source, self.copy, ignore=skipped, dirs_exist_ok=True, copy_function=copy_changed)
        # The compiler's cache then knows the copy again, wherever it lies.
        self.environment = dict(os.environ, CCACHE_BASEDIR=work, CCACHE_NOHASHDIR='1')

    def run(self, command, timeout, **variables):
        return subprocess.run(command, capture_output=True, text=True, errors='replace', timeout=timeout, check=False,
                              env=self.environment | variables)

    def configure(self):
        done = self.run(['cmake', '-G', 'Ninja', '-S', self.copy, '-B', self.build, '-DCMAKE_BUILD_TYPE=Debug',
                         '-DCMAKE_CXX_FLAGS_DEBUG=-O0'], 600)
        if done.returncode != 0:
            raise Stale(f'the copy cannot be configured: {done.stderr}')

    def make(self, tests):
        targets = {target for test in tests for target in self.tests[test][0].split()}
        done = self.run(['ninja', '-C', self.build, *sorted(targets)], 3600)
        if done.returncode != 0:
            raise Stale(f'it does not compile: {done.stdout[-2000:]}')

    def test(self, test, **variables):
        command = [word.format(build=self.build, source=self.copy) for word in self.tests[test][1]]
        try:
            done = self.run(command, 600, **variables)
        except subprocess.TimeoutExpired:
            return 'ran out of time'
        if done.returncode == 0:
            return None
        if done.returncode == 77:
            raise Stale(f'{test} was skipped, and so can catch nothing: {done.stdout.strip()}')
        said = [line.strip() for line in done.stdout.splitlines() if line.startswith(('BROKEN', '[  FAILED  ]'))]
        return said[0] if said else f'ended with {done.returncode}'

    def mutate(self, edits):
        originals = {}
        try:
            for name, old, new in edits:
                path = os.path.join(self.copy, name)
                with open(path, encoding='utf-8') as file:
                    text = file.read()
                originals.setdefault(path, text)
                if text.count(old) != 1:
                    raise Stale(f'in {name} its text stands {text.count(old)} times, not once: {old.strip()}')
                write(path, text.replace(old, new))
        except Stale:
            self.restore(originals)
            raise
        return originals

    @staticmethod
    def restore(originals):
        for path, text in originals.items():
            write(path, text)


# A file that is as it was keeps its time, and a changed one gets a new one: what an earlier run built from a mutant is
# never taken for what the source says.
def copy_changed(source, target):
    if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
        shutil.copy(source, target)


def write(path, text):
    with open(path, 'w', encoding='utf-8') as out:
        out.write(text)


# The tests that noticed, and what each said.
def caught_by(laboratory, edits, tests):
    originals = laboratory.mutate(edits)
    try:
        laboratory.make(tests)
        said = {test: laboratory.test(test) for test in tests}
    finally:
        laboratory.restore(originals)
    return {test: words for test, words in said.items() if words}


def check_unchanged(laboratory, tests):
    laboratory.configure()
    laboratory.make(tests)
    for test in tests:
        said = laboratory.test(test)
        if said:
            raise Stale(f'{test} fails without any mutant: {said}')


def check_places(source):
    stale = []
    for name, (_, edits, _) in MUTANTS.items():
        texts = {}
        for path, old, new in edits:
            if path not in texts:
                with open(os.path.join(source, path), encoding='utf-8') as file:
                    texts[path] = file.read()
            if texts[path].count(old) != 1:
                stale.append(f'{name}: in {path} its text stands {texts[path].count(old)} times: {old.strip()}')
            texts[path] = texts[path].replace(old, new)
    print('\n'.join(stale) or f'{len(MUTANTS)} mutants find their places')
    return 1 if stale else 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--source', default=os.path.dirname(os.path.dirname(here)), help='the source tree to copy')
    parser.add_argument('--work', help='where to copy and build (default: a temporary directory, removed afterwards)')
    parser.add_argument('--only', nargs='+', choices=sorted(MUTANTS), default=list(MUTANTS), metavar='NAME')
    parser.add_argument('--list', action='store_true', help='name the mutants and leave')
    parser.add_argument('--check', action='store_true', help='only see whether each edit finds its place')
    options = parser.parse_args()
    if options.list:
        for name, (breaks, _, tests) in MUTANTS.items():
            print(f'{name}: {breaks} ({", ".join(tests)})')
        return 0
    if options.check:
        return check_places(options.source)
    work = os.path.abspath(options.work or tempfile.mkdtemp(prefix='escrow-mutants-'))
    failed = []
    try:
        laboratory = Laboratory(os.path.abspath(options.source), work)
        check_unchanged(laboratory, sorted({test for name in options.only for test in MUTANTS[name][2]}))
        for name in options.only:
            breaks, edits, tests = MUTANTS[name]
            try:
                caught = caught_by(laboratory, edits, tests)
            except Stale as error:
                caught = {}
                print(f'{name}: {error}')
            if not caught:
                failed.append(name)
            print(f'{name}: {breaks}: {"caught" if caught else "NOT CAUGHT"}', flush=True)
            for test in tests:
                print(f'    {test}: {caught.get(test, "noticed nothing")}', flush=True)
    except Stale as error:
        print(error)
        return 1
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print(f'{len(options.only) - len(failed)} of {len(options.only)} mutants were caught' +
          (f'; not {", ".join(failed)}' if failed else ''))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
