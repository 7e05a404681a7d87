#!/usr/bin/env python3
"""Lets each system call of Escrow's commands fail once, or kills the process before it, and checks what was promised.

  faults.py --escrow PATH --tool PATH [--scene NAME...] [--kind KIND...] [--sample N] [--share N] [--seed N] [--keep]

For each scene (fault_scenes.py) and each kind of fault (README.md has them) the calls that it applies to are counted;
then each is struck once, in a fresh copy of the scene:
  1. the command says that it failed, or has done all that it says;
  2. `escrow verify` and `git fsck` find nothing wrong;
  3. the same command, in a new process, ends as it does when nothing had happened;
  4. the branch holds exactly the bytes that were written, nothing is left over, and it is one commit.
With --sample N not every call of a kind is struck but N chosen at random, each kind of call at each kind of file
first. With --share N the kinds are dealt into N shares and each scene meets one of these; the seed says which. A scene
meets other kinds when its share applies to none of its calls. The seed is printed; the same seed strikes the same
calls. Exit status 1 names each promise that was not kept.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
# pylint: disable=wrong-import-position
from fault_scenes import SCENES, Bench, Broken, blob_id
from injector import FAULTS, a_share, detach, reason_to_skip, run_injected
from seed import seed_of_this_run

KINDS = tuple(FAULTS)
# What an error of the machine is not.
BLAME = re.compile(r'damaged|is missing|corrupt|is not an? (git|Escrow)')


def state_of(bench):
    """What the repository says, read by git alone."""
    if not os.path.exists(os.path.join(bench.repo, 'refs')):
        return None
    done = subprocess.run(['git', '-C', bench.repo, 'for-each-ref', '--format=%(refname) %(tree)', 'refs/heads',
                           'refs/sessions'], capture_output=True, text=True, check=False)
    branches, results = [], 0
    for line in done.stdout.splitlines():
        if line.startswith('refs/heads'):
            branches.append(line)
        else:
            results += 1
    commits = bench.git('rev-list', '--count', 'main') if branches else '0'
    return tuple(branches), commits, results


def files_of(bench):
    listing = subprocess.run(['git', '-C', bench.repo, 'ls-tree', '-r', '-z', 'main'], capture_output=True, check=True)
    files = {}
    for line in filter(None, listing.stdout.split(b'\0')):
        about, name = line.split(b'\t', 1)
        files[os.fsdecode(name)] = about.split()[2].decode()
    return files


def leftovers(bench):
    """What nobody needs any more, once no session is open."""
    found = []
    for directory, _, names in os.walk(bench.repo):
        below = os.path.relpath(directory, bench.repo)
        for name in names:
            path = os.path.normpath(os.path.join(below, name))
            if below == 'objects/pack' and name.startswith(('tmp_', '.tmp-')):
                continue  # git's own, which gc takes when they are a day old
            if below.startswith(('escrow/sessions', 'refs/escrow')) or \
                    (below.startswith('objects') and (name.endswith('.keep') or name.startswith(('tmp_', '.tmp')))) or \
                    name.endswith('.lock') and below.startswith('refs') or name == 'reference.new':
                found.append(path)
    return found


class Play:
    """A scene, again and again. Those that are played one after the other in the same directory may share `made`."""

    def __init__(self, options, name, top, made=None):
        self.options, self.name, self.scene, self.top = options, name, SCENES[name], top
        self.bench = Bench(os.path.abspath(options.escrow), os.path.join(top, 'stage'), made)
        self.kept = os.path.join(top, f'kept-{name}')
        self.session, self.files = self.scene.prepare(self.bench)
        self.is_learnt = False

    def words(self, words):
        return [word.replace('{top}', self.bench.top).replace('{mount}', self.bench.mount)
                    .replace('{out}', self.bench.out).replace('{session}', self.session)
                    .replace('{parent}', self.bench.parent) for word in words]

    def set_up(self):
        detach(self.bench.mount)
        self.bench.become(self.kept)

    # How everything went when nothing failed, and what the command says when it has been done already.
    def learn(self):
        self.is_learnt = True
        self.after = state_of(self.bench)
        self.again = self.bench.run(*self.words(self.scene.words), statuses=None).returncode
        self.finish()
        self.final = state_of(self.bench)

    def finish(self):
        for words, status in self.scene.then:
            self.bench.run(*self.words(words), statuses=(status,))

    def strike(self, kind, place):
        error, times, calls = FAULTS[kind]
        error = 'CHANGE' if error == 'KILL' and place == 0 else error
        return run_injected(self.options.tool, self.bench.command(*self.words(self.scene.words)),
                            [self.bench.repo, self.bench.out], (error, place, times, calls),
                            timeout=self.options.patience)

    # The calls that a kind applies to, in their order.
    def count(self, kind):
        if self.is_learnt:
            self.set_up()
            return self.list_calls(kind)
        self.bench.copy_to(self.kept)
        self.before = state_of(self.bench)
        calls = self.list_calls(kind)
        self.learn()
        return calls

    def list_calls(self, kind):
        """In the scene as it was prepared."""
        ended = self.strike(kind, 0)
        if ended.status != self.scene.status:
            raise Broken(f'without a fault it ends with {ended.status}: {ended.err}')
        if kind == 'SYNC':
            self.syncs = ended.report['listed']
        return ended.report['listed']

    def check(self, kind, place):
        self.set_up()
        try:
            ended = self.strike(kind, place)
        except subprocess.TimeoutExpired as hung:
            raise Broken('it hangs') from hung
        if ended.struck is None:
            return None, ended
        self.judge(kind, place, ended)
        return ended.struck, ended

    def outcome(self, struck, ended):
        if struck is None:
            return 'not reached'
        if ended.status == self.scene.status:
            return 'done all the same'
        return 'killed' if ended.status == 137 else 'reported, but done' if self.landed else 'reported'

    def judge(self, kind, place, ended):
        state = state_of(self.bench)
        self.landed = bool(state and self.before) and state[:2] == self.after[:2] != self.before[:2]
        if kind == 'KILL':
            is_said = ended.status == 125 and ended.err.strip()  # it was a git of the command's that was killed
            if ended.status not in (137, self.scene.status) and not is_said:
                raise Broken(f'killed, it ended with {ended.status}')
        elif ended.status >= 128:
            raise Broken(f'it died by signal {ended.status - 128}: {ended.err.strip()}')
        if ended.status == self.scene.status:
            if kind == 'SYNC' and self.needs(ended, place):
                raise Broken(f'it ended with {ended.status} though {ended.struck} failed')
            # A reference that is to go may stay until the next command: what ended cleans up as far as it can.
            if state[:2] != self.after[:2] or state[2] < self.after[2]:
                raise Broken(f'it ended with {ended.status}, but did {state}, not {self.after}')
        elif self.before is not None and state[:2] not in (self.before[:2], self.after[:2]):
            raise Broken(f'it ended with {ended.status} and left {state}')
        elif kind != 'KILL' and (not ended.err.strip() or BLAME.search(ended.err) or
                                 kind in ('ENOSPC', 'EDQUOT', 'FULL') and 'No such file' in ended.err):
            raise Broken(f'it ended with {ended.status} and said: {ended.err.strip()[-200:]}')
        if self.before is not None:
            self.expect_sound('right afterwards')
        again = self.bench.run(*self.words(self.scene.words), statuses=None)
        if again.returncode not in (self.scene.status, self.again):
            raise Broken(f'tried again it ended with {again.returncode}: {again.stderr.strip()}')
        if not self.session or self.scene.opens:
            self.roll_back_what_is_open()
        self.finish()
        self.expect_final()

    # Whether the command may not say that it is done, as this sync failed.
    def needs(self, ended, place):
        if self.scene.row and not any(line.endswith(self.scene.row) for line in self.syncs[place - 1:]):
            return False
        return self.scene.promises(ended.struck) and \
            not is_tidying(ended.struck, self.syncs[place:]) and \
            not is_done_anew(ended, self.syncs)

    # A run whose commit failed leaves its session open, with what it wrote; the next run is another one.
    def roll_back_what_is_open(self):
        for session in json.loads(self.bench.run('sessions', '--open', '--json').stdout):
            self.bench.run('rollback', session['session'])

    def expect_sound(self, when):
        said = self.bench.run('verify', statuses=None)
        if said.returncode != 0:
            findings = said.stdout.strip().splitlines()
            raise Broken(f'verify {when} ended with {said.returncode}: {findings[:2]} {said.stderr.strip()}')

    def expect_final(self):
        state = state_of(self.bench)
        if state != self.final:
            raise Broken(f'in the end there is {state}, not {self.final}')
        found, wanted = files_of(self.bench), {name: blob_id(data) for name, data in self.files.items()}
        if found != wanted:
            wrong = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            raise Broken(f'the bytes are wrong: {wrong[:5]}')
        self.expect_sound('in the end')
        self.bench.git('fsck', '--full', '--strict')
        left = leftovers(self.bench)
        if left:
            raise Broken(f'it is left over: {left}')


def is_tidying(here, following):
    """Whether a sync that fails breaks no promise: after the removal of what has ended, of a checkpoint, or of the
    directory of a database, which SQLite syncs once more in each process."""
    here, following = kind_of_call(here), [kind_of_call(line) for line in following]
    if here.endswith('.db-wal'):
        return following[:1] == [here.replace('.db-wal', '.db')]
    return here.endswith(('/escrow/sessions', '.db')) or re.search(r'^fdatasync .*/escrow(/sessions/#)?$', here)


def is_done_anew(ended, usual):
    """A branch that has moved is written and synced once more, and so are its reflog (GitReferences::make_durable) and
    the row that says so. A staging area of which one sync failed brings its bytes to the disk by further ones
    (FileStagingArea::sync_all(), Overlay::flush()). `usual`: the syncs when nothing fails."""
    listed = ended.report['listed']
    common = ids_in(listed) & ids_in(usual)  # others are of what each command makes anew

    def kind(line):
        line = ID.sub(lambda found: found[0] if found[0] in common else '#', line)
        return re.sub(r'^\w+ (.*/staging)(/.*)?$', r'\1', line)

    def times(lines):
        return [kind(line) for line in lines].count(kind(ended.struck))
    return re.search(r'/(logs/)?refs(/|$)|/catalog\.db-wal$|/staging$', kind(ended.struck)) and \
        times(listed) > times(usual)


ID = re.compile('[0-9a-f]{16,}')


def ids_in(lines):
    return {found for line in lines for found in ID.findall(line)}


def kind_of_call(line):
    """What is alike but for numbers and ids."""
    return re.sub(r'(?<=/staging/)[0-9a-f]+$|[0-9a-f]{8,}|\d+', '#', line)


def chosen(calls, sample, rng):
    """Places, from 1: all of them, or a sample that has each kind of call first."""
    places = list(range(1, len(calls) + 1))
    if sample is None or sample >= len(places):
        return places
    groups = collections.defaultdict(list)
    for place in places:
        groups[kind_of_call(calls[place - 1])].append(place)
    first = [rng.choice(group) for group in groups.values()]
    rng.shuffle(first)
    rest = [place for place in places if place not in first]
    rng.shuffle(rest)
    return sorted((first + rest)[:sample])


class Stages:
    """A directory for each thread, in which it plays scenes, and what once() has made there."""

    def __init__(self):
        self.top, self.of_thread = tempfile.mkdtemp(prefix='escrow-faults-'), threading.local()
        self.number = itertools.count()

    def mine(self):
        mine = self.of_thread
        if not hasattr(mine, 'top'):
            mine.top, mine.made = os.path.join(self.top, str(next(self.number))), {}
            os.mkdir(mine.top)
        return mine.top, mine.made


def play_scene(options, name, kinds, seed, stages):
    """(faults, messages) of one scene."""
    top, made = stages.mine()
    broken, counts, kinds_met = [], collections.Counter(), []
    share, others = a_share(kinds, options.share, seed, list(SCENES).index(name))
    try:
        play = Play(options, name, top, made)
        for number, kind in enumerate(share + others):
            if number >= len(share) and counts.total() > counts['not reached']:
                break
            kinds_met.append(kind)
            rng = random.Random(f'{seed} {name} {kind}')
            calls = play.count(kind)
            places = chosen(calls, options.sample, rng)
            if options.place:
                places = options.place
            for place in places:
                try:
                    struck, ended = play.check(kind, place)
                    counts[play.outcome(struck, ended)] += 1
                except Broken as error:
                    counts['broken'] += 1
                    call = calls[place - 1] if place <= len(calls) else '?'
                    broken.append(f'{name} {kind} {place} ({call.replace(play.bench.top, "")}): {error}')
                    print('BROKEN:', broken[-1], flush=True)
                    if options.keep:
                        kept = os.path.join(stages.top, f'{name}-{kind}-{place}')
                        play.bench.copy_to(kept)
                        print(f'    kept: {kept}')
    except Broken as error:
        broken.append(f'{name}: {error}')
        print('BROKEN:', broken[-1], flush=True)
    finally:
        detach(os.path.join(top, 'stage', 'mount'))
        for directory in ('stage', f'kept-{name}'):
            shutil.rmtree(os.path.join(top, directory), ignore_errors=True)
    print(f'{name} by {" ".join(kinds_met)}: {dict(counts)}', flush=True)
    return counts, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--tool', required=True, help='the built syscall_faults')
    parser.add_argument('--scene', nargs='+', choices=sorted(SCENES), default=list(SCENES), metavar='NAME')
    parser.add_argument('--kind', nargs='+', choices=KINDS, default=list(KINDS), metavar='KIND')
    parser.add_argument('--sample', type=int, help='strike that many calls of each scene and kind (default: all)')
    parser.add_argument('--share', type=int, default=1, metavar='N',
                        help='strike each scene by one of N shares of the kinds (default: all kinds)')
    parser.add_argument('--place', type=int, nargs='+', help='strike these calls, and no others')
    parser.add_argument('--seed', type=int, help='default: that of tests/support/seed.py')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--patience', type=float, default=180, help='seconds after which a command hangs')
    parser.add_argument('--keep', action='store_true', help='keep what is broken')
    options = parser.parse_args()
    if options.share > len(KINDS) or len(SCENES) // options.share < 3:
        parser.error(f'--share {options.share}: each kind of fault is to be met by three commands at least')
    if options.seed is None:
        options.seed = seed_of_this_run()
    options.tool = os.path.abspath(options.tool)
    if (skipped := reason_to_skip()) is not None:
        return skipped
    total, broken = collections.Counter(), []
    stages = Stages()
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            work = [pool.submit(play_scene, options, name, options.kind, options.seed, stages)
                    for name in options.scene]
            for one in work:
                counts, messages = one.result()
                total += counts
                broken += messages
    finally:
        if not (options.keep and broken):
            shutil.rmtree(stages.top, ignore_errors=True)
    print(f'{sum(total.values())} faults: {dict(total)}; {len(broken)} promises broken')
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
