#!/usr/bin/env python3
"""Outputs of runs that runs.db does not know, as after an older copy of it was put back: none of them is removed."""
import os
import shutil

from runs_test import awaited, eventually_says, output, run, shell, until_woken, wake
from service import expect_equal, main


class State:
    """The state directory of a service."""
    def __init__(self, service):
        self.path = f'{service.directory}/state'

    def listed(self, name):
        try:
            return sorted(os.listdir(f'{self.path}/{name}'))
        except FileNotFoundError:
            return []

    def database(self):
        return [name for name in os.listdir(self.path) if name.startswith('runs.db')]

    def keep(self, name):
        """A copy of runs.db, of a service that is stopped."""
        os.mkdir(f'{self.path}/{name}')
        for file in self.database():
            shutil.copy2(f'{self.path}/{file}', f'{self.path}/{name}/{file}')

    def put_back(self, name):
        for file in self.database():
            os.unlink(f'{self.path}/{file}')
        for file in os.listdir(f'{self.path}/{name}'):
            shutil.copy2(f'{self.path}/{name}/{file}', f'{self.path}/{file}')


def ended(service, text):
    name = run(service, shell(f'echo {text}'))
    awaited(service, name)
    return name


def OutputsOfRunsThatAreUnknownAreSetAsideAndComeBack(start):
    with start() as service:
        state = State(service)
        first = ended(service, 'first')
        service.stop()
        state.keep('older')
        service.start()
        second = ended(service, 'second')
        service.stop()
        state.keep('newer')
        state.put_back('older')
        os.mkdir(f'{state.path}/runs/lost+found')
        for _ in range(2):
            service.start()
            service.get(f'/v1/runs/{second}').expect(404, 'not_found')
            expect_equal('the known run', output(service, first), 'first\n')
            service.stop()
            expect_equal('in place', state.listed('runs'), sorted([first, 'lost+found']))
            expect_equal('set aside', state.listed('orphans'), [second])
        state.put_back('newer')
        service.start()
        expect_equal('the output that was set aside', output(service, second), 'second\n')
        expect_equal('set aside', state.listed('orphans'), [])
        # A database that is new knows none.
        service.stop()
        for file in state.database():
            os.unlink(f'{state.path}/{file}')
        service.start()
        expect_equal('set aside', state.listed('orphans'), sorted([first, second]))


def OfOutputsThatAreSetAsideTheNewestAreKept(start):
    with start(keep_runs=2) as service:
        state = State(service)
        service.stop()
        state.keep('empty')
        service.start()
        names = [ended(service, 'one'), ended(service, 'two')]
        for age, name in enumerate(reversed(names)):
            os.utime(f'{state.path}/runs/{name}', (1_700_000_000 - age, 1_700_000_000 - age))
        service.stop()
        state.put_back('empty')
        service.start()
        expect_equal('set aside', state.listed('orphans'), sorted(names))
        names.append(ended(service, 'three'))
        service.stop()
        state.put_back('empty')
        service.start()
        expect_equal('set aside', state.listed('orphans'), sorted(names[1:]))


def AnUnknownRunThatGoesOnKeepsItsDirectory(start):
    with start() as service:
        state = State(service)
        service.stop()
        state.keep('empty')
        service.start()
        name = run(service, shell(f'echo begin; {until_woken(21)}; echo end'))
        eventually_says(service, name, 'begin')
        service.stop()
        state.keep('newer')
        state.put_back('empty')
        service.start()
        expect_equal('in place', state.listed('runs'), [name])
        service.stop()
        state.put_back('newer')
        service.start()
        wake(21)
        expect_equal('the state', awaited(service, name)['state'], 'ended')
        expect_equal('the output', output(service, name), 'begin\nend\n')


def ARunWhoseDirectoryIsLostIsKnownAllTheSame(start):
    with start() as service:
        state = State(service)
        name = run(service, shell('echo lost', labels={'one': 'only'}))
        awaited(service, name)
        service.stop()
        shutil.rmtree(f'{state.path}/runs')
        service.start()
        expect_equal('the run', service.get(f'/v1/runs/{name}').expect(200)['state'], 'ended')
        expect_equal('the labels', service.get(f'/v1/sessions/{name}').expect(200)['labels'], {'one': 'only'})


if __name__ == '__main__':
    main(globals())
