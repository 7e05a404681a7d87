#!/usr/bin/env python3
"""Lets each system call of escrowd's verbs fail once, and asks for the verb again in the same process.

  service_faults.py --escrow PATH --escrowd PATH --tool PATH [--verb NAME...] [--kind KIND...] [--sample N] [--share N]
                    [--seed N]

As faults.py, but nothing is started anew: one service goes on through all the faults of a verb (service_verbs.py) and
through those of the next, until it has done many. Each time a session is opened and written to, the verb is struck, and
asked for again:
  1. whatever fails is answered as the API says, and the service goes on;
  2. the verb, asked for again, does what it does when nothing fails;
  3. the branch holds exactly the bytes that were written; `git fsck` and `escrow verify` find nothing wrong;
  4. no session, reference, mount or open file is left of it.
KILL ends the service before a call that changes something; it is started again, and the same holds.
"""
import argparse
import collections
import contextlib
import fcntl
import glob
import http.client
import json
import os
import random
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(os.path.dirname(HERE), 'escrowd'), os.path.join(os.path.dirname(HERE), 'support')]

# pylint: disable=wrong-import-position
from expectations import eventually
from fault_scenes import Broken, blob_id
from faults import KINDS, chosen, files_of, leftovers
from injector import FAULTS, Injected, a_share, reason_to_skip
from seed import seed_of_this_run
from service import Service
from service_verbs import BIG, SESSIONS, VERBS, StillFails

MOST_ASKED = 3
# Then the next fault gets a new service. `git fsck` takes longer with every commit. The service folds its packs after
# some 48 commits; a `git fsck` that runs beside this reports packs that are gone.
MOST_TURNS = 10


class FaultyService(Service):
    """An escrowd below syscall_faults."""

    def __init__(self, options):
        self.tool, self.injected, self.earlier = options.tool, None, []
        super().__init__(options.escrow, options.escrowd)
        self.repo = self.repository  # as a Bench
        with open(f'{self.directory}/in/big', 'wb') as out:
            out.write(BIG)
        self.escrow('import', f'{self.directory}/in', '--message', 'big')
        self.big = BIG

    def start(self):
        with open(f'{self.directory}/log', 'ab') as log:
            self.injected = Injected(self.tool, [self.escrowd_binary, '--config', self.config_path], [self.directory],
                                     stderr=log, stdin=subprocess.DEVNULL)
        self.process = self.injected.process
        eventually('escrowd answers', self.answers, 180)

    def answers(self):
        try:
            return self.process.poll() is None and self.get('/v1/health').status == 200
        except OSError:
            return False

    def descriptors(self):
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='ascii') as children:
            daemon = children.read().split()[0]
        found = []
        for descriptor in os.listdir(f'/proc/{daemon}/fd'):
            try:
                found.append(os.readlink(f'/proc/{daemon}/fd/{descriptor}'))
            except OSError:
                pass
        # Packs are opened as they are read, and have a bound and a test of their own.
        return sorted(name for name in found if '/objects/pack/' not in name)

    def disarm(self):
        """The calls that were struck."""
        try:
            return self.injected.disarm()['struck']
        except (OSError, EOFError):
            return []  # it has ended with all that it ran

    def restart(self):
        """Hosts live on below the filter of the syscall_faults that began them, without which their calls fail."""
        self.disarm()
        for process in self.of_the_service():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # Until then its state is locked.
        eventually('the service has ended', lambda: not self.of_the_service())
        self.earlier.append(self.injected)
        self.start()

    def of_the_service(self):
        """escrowd and what it started, but for its hosts, which are sessions of their own."""
        found = []
        for name in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{name}/stat', encoding='utf-8', errors='surrogateescape') as stat:
                    state, _, group = stat.read().rpartition(')')[2].split()[:3]
            except OSError:
                continue
            if int(group) == self.process.pid != int(name) and state != 'Z':
                found.append(int(name))
        return found

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        for injected in self.earlier:
            injected.kill()


def is_held(lock):
    with contextlib.suppress(FileNotFoundError), open(lock, 'r+b') as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Laboratory:
    def __init__(self, options, service):
        self.options, self.service, self.number = options, service, 0

    def turn(self, verb):
        self.number += 1
        return VERBS[verb](self.service, self.number)

    # The calls of a verb that a kind applies to, in their order.
    def count(self, verb, kind):
        turn = self.turn(verb)
        turn.prepare()
        error, times, calls = FAULTS[kind]
        self.service.injected.arm('CHANGE' if error == 'KILL' else error, 0, times, calls)
        answer = turn.ask()
        listed = self.service.injected.disarm()['listed']
        if not turn.is_done(answer):
            raise Broken(f'without a fault {verb} is answered {answer.status} {answer.body[:500]}')
        turn.finish()
        self.expect_done(turn)  # the repository is looked at after the first fault
        return listed

    def strike(self, verb, kind, place):
        """The call that was struck, and what was answered; None: it was not reached."""
        turn = self.turn(verb)
        turn.prepare()
        error, times, calls = FAULTS[kind]
        self.service.injected.arm(error, place, times, calls)
        try:
            answer = turn.ask()
            said = answer.status
        except (OSError, http.client.HTTPException) as error:
            answer, said = None, error
        if kind == 'KILL':
            return self.after_kill(turn, answer)
        struck = self.service.injected.disarm()['struck']
        if isinstance(said, StillFails) and kind != 'FULL':
            raise Broken(str(said))
        if answer is None and not isinstance(said, (ConnectionResetError, http.client.RemoteDisconnected, StillFails)):
            raise Broken(f'it was not answered: {said!r}')
        self.conclude(turn, answer)
        return (struck[0] if struck else None), said

    def after_kill(self, turn, answer):
        struck = self.service.disarm()
        if answer is not None and self.service.answers():  # not it was killed, but a host or a helper
            self.conclude(turn, answer)
            return (struck[0] if struck else None), answer.status
        self.service.restart()
        self.conclude(turn, None)
        return 'killed', 'killed'

    def conclude(self, turn, answer):
        for _ in range(MOST_ASKED):
            if answer is not None and turn.is_done(answer):
                break
            answer = turn.ask()
        else:
            if not turn.is_done(answer):
                raise Broken(f'asked again and again it is answered {answer.status} {answer.body[:700]}')
        turn.finish()
        self.expect_done(turn)
        self.expect_sound()

    def expect_done(self, turn):
        service = self.service
        big = turn.big or service.big
        found = files_of(service)
        here = {name.partition('/')[2]: of for name, of in found.items() if name.startswith(turn.name + '/')}
        wanted = {name: blob_id(data) for name, data in turn.files.items()}
        if here != wanted:
            raise Broken(f'the branch has {here}, not {wanted}')
        if found['big'] != blob_id(big):
            raise Broken('the bytes of the large file are wrong')
        service.big = big
        # A host answers before it lets go of its session; what it could not remove is the next command's.
        eventually('each host has let go of its session', lambda: not any(
            is_held(lock) for lock in glob.glob(f'{service.repository}/escrow/sessions/*/lock')))
        service.escrow('sessions')
        left = [session['session'] for session in service.get(f'{SESSIONS}?state=open').json['sessions']]
        if left:
            raise Broken(f'sessions are left open: {left}')
        files = leftovers(service)
        if files:
            raise Broken(f'it is left over: {files}')
        if service.is_mounted(turn.point):
            raise Broken('it is still mounted')

    def expect_sound(self):
        service = self.service
        service.git('fsck', '--full', '--strict')
        verified = subprocess.run([service.escrow_binary, '--repo', service.repository, 'verify'], capture_output=True,
                                  text=True, check=False, timeout=180)
        if verified.returncode != 0:
            raise Broken(f'verify ended with {verified.returncode}: {verified.stdout} {verified.stderr}')


class Play:
    """The faults of one verb after the other. A service in which a promise was broken is replaced by another."""

    def __init__(self, options):
        self.options, self.verb = options, None
        self.total, self.broken = collections.Counter(), []
        self.service = self.laboratory = None

    def begin(self):
        self.service = FaultyService(self.options)
        self.service.__enter__()
        self.laboratory = Laboratory(self.options, self.service)

    def count(self, kind):
        """The calls of the verb that a kind applies to. `descriptors`: what its first use opens stays open."""
        if self.laboratory and self.laboratory.number > MOST_TURNS:
            self.end()
        if self.service is None:
            self.begin()
            self.descriptors = None
        calls = self.laboratory.count(self.verb, kind)
        if self.descriptors is None:
            self.descriptors = self.service.descriptors()
        return calls

    def end(self, failed=False):
        service, self.service, self.laboratory = self.service, None, None
        if service is None:
            return
        if failed and self.options.keep:
            print(f'    kept: {service.directory}')
            service.injected.kill()
            return
        service.__exit__(None, None, None)

    def blame(self, message):
        self.broken.append(message)
        print('BROKEN:', message[:2000], flush=True)

    def strike(self, kind, calls, place):
        if self.service is None or self.laboratory.number > MOST_TURNS:
            self.count(kind)
        try:
            struck, said = self.laboratory.strike(self.verb, kind, place)
            self.counts['not reached' if struck is None else f'answered {said}'] += 1
        except (Broken, SystemExit, subprocess.SubprocessError, OSError, EOFError, http.client.HTTPException,
                json.JSONDecodeError) as error:
            self.counts['broken'] += 1
            call = calls[place - 1].replace(self.service.directory, '') if place <= len(calls) else '?'
            self.blame(f'{self.verb} {kind} {place} ({call}): {error!r}')
            self.end(failed=True)

    def run(self, verb):
        self.verb, self.descriptors, self.counts = verb, None, collections.Counter()
        seed, kinds_met = self.options.seed, []
        share, others = a_share(self.options.kind, self.options.share, seed, list(VERBS).index(verb))
        for number, kind in enumerate(share + others):
            if number >= len(share) and self.counts.total() > self.counts['not reached']:
                break
            kinds_met.append(kind)
            calls = self.count(kind)
            rng = random.Random(f'{seed} {verb} {kind}')
            for place in self.options.place or chosen(calls, self.options.sample, rng):
                self.strike(kind, calls, place)
        if self.service is not None:
            self.expect_no_leak()
        print(f'{verb} by {" ".join(kinds_met)}: {dict(self.counts)}', flush=True)
        self.total += self.counts

    def expect_no_leak(self):
        try:
            eventually('every open file is closed',
                       lambda: len(self.service.descriptors()) <= len(self.descriptors) + 4)
        except SystemExit:
            more = collections.Counter(self.service.descriptors()) - collections.Counter(self.descriptors)
            self.blame(f'{self.verb}: it goes on having open: {dict(more)}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--escrowd', required=True, help='the built binary')
    parser.add_argument('--tool', required=True, help='the built syscall_faults')
    parser.add_argument('--verb', nargs='+', choices=sorted(VERBS), default=list(VERBS), metavar='NAME')
    parser.add_argument('--kind', nargs='+', choices=KINDS, default=list(KINDS), metavar='KIND')
    parser.add_argument('--sample', type=int, help='strike that many calls of each verb and kind (default: all)')
    parser.add_argument('--share', type=int, default=1, metavar='N',
                        help='strike each verb by one of N shares of the kinds (default: all kinds)')
    parser.add_argument('--place', type=int, nargs='+', help='strike these calls, and no others')
    parser.add_argument('--seed', type=int, help='default: that of tests/support/seed.py')
    parser.add_argument('--keep', action='store_true', help='keep what is broken')
    options = parser.parse_args()
    if options.seed is None:
        options.seed = seed_of_this_run()
    for name in ('tool', 'escrow', 'escrowd'):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    if (skipped := reason_to_skip()) is not None:
        return skipped
    play = Play(options)
    try:
        for verb in options.verb:
            play.run(verb)
    finally:
        play.end()
    print(f'{sum(play.total.values())} faults: {dict(play.total)}; {len(play.broken)} promises broken')
    return 1 if play.broken else 0


if __name__ == '__main__':
    sys.exit(main())
