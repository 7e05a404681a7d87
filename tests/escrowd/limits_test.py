#!/usr/bin/env python3
"""Limits beside every way in which a session's bytes can travel: what was written is committed, or it is refused."""
import itertools
import mmap
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from service import expect, expect_equal, main, read, write

LIMITS = ({}, {'staged_bytes': 8_000_000}, {'files': 40}, {'staged_bytes': 8_000_000, 'files': 40})
# Only the daemon can answer an open for writing of what may be seen.
POLICY = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['write'], 'paths': ['nothing*']}]}
QUIET_S = 0.7  # after which contents are stored ahead of the commit


def is_possible(limits, data, opens, xattr, policy):
    bounded = 'staged_bytes' in limits
    if data == 'writeback' and (bounded or policy):
        return False
    if opens == 'none' and (data == 'passthrough' or policy):
        return False
    return not (bounded and (data == 'passthrough' or xattr == 'user'))


def use(point):
    """Everything that can be done to bytes; returns what the files must hold."""
    expected = {}

    def remember(name):
        expected[name] = read(f'{point}/{name}')

    write(f'{point}/new', 'new ' * 20_000)
    write(f'{point}/beside', 'old ' * 20_000)
    write(f'{point}/a.txt', 'of the base, written over')
    with open(f'{point}/dir/b.txt', 'a') as appended:
        appended.write('more')
    write(f'{point}/mapped', 'x' * 100_000)
    time.sleep(QUIET_S)
    # A writer beside a reader that decided how the bytes travel.
    with open(f'{point}/beside', 'rb', buffering=0) as reader:
        expect_equal('what the reader sees', reader.read(4), b'old ')
        with open(f'{point}/beside', 'r+b') as writer:
            writer.write(b'new ')
            writer.flush()
            reader.seek(0)
            expect_equal('what the reader sees then', reader.read(4), b'new ')
    with open(f'{point}/mapped', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[50_000:50_005] = b'store'
    os.truncate(f'{point}/new', 70_001)
    for name in ('new', 'beside', 'a.txt', 'dir/b.txt', 'mapped'):
        remember(name)
    expect_equal('beside', expected['beside'], 'new ' + 'old ' * 19_999)
    expect_equal('mapped', expected['mapped'][49_999:50_006], 'xstorex')
    return expected


def EveryCombinationOfTermsCommitsWhatWasWrittenOrIsRefused(start):
    with start() as service:
        def go_through(numbered):
            number, (limits, data, opens, xattr, policy) = numbered
            name = f'{limits} {data} {opens} {xattr} {"policy" if policy else ""}'
            branch, point = f'b{number}', f'{service.mounts}/m{number}'
            answer = service.post('/v1/sessions', {
                'repository': 'data', 'branch': branch, 'mountpoint': point, 'io': {'data': data, 'opens': opens},
                'xattr': xattr, **({'limits': limits} if limits else {}), **({'policy': POLICY} if policy else {})})
            if not is_possible(limits, data, opens, xattr, policy):
                problem = answer.expect(400, 'invalid_value')
                expect(problem['detail'].count('. ') == 0, f'{name}: not one sentence: {problem["detail"]}')
                return 'refused'
            session = answer.expect(201)['session']
            expected = use(point)
            service.finish(session, {'exit_code': 0}).expect(200)
            for path, text in expected.items():
                committed = subprocess.run(['git', '-C', service.repository, 'show', f'{branch}:{path}'], check=True,
                                           capture_output=True).stdout.decode()
                expect(committed == text, f'{name}: {path} was committed with {committed[:20]!r}, not {text[:20]!r}')
            return 'committed'

        data, opens = ('auto', 'writeback', 'passthrough'), ('auto', 'none', 'daemon')
        combinations = list(enumerate(itertools.product(LIMITS, data, opens, ('off', 'user'), (False, True))))
        for number, _ in combinations:
            service.git('branch', f'b{number}', 'main')
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(go_through, combinations))
        expect_equal('how many were possible', outcomes.count('committed'),
                     sum(is_possible(*combination) for _, combination in combinations))


def WhatAMappingStoredBeyondALimitIsNeverMissingInACommit(start):
    with start() as service:
        session, point = service.open_mounted('first')
        write(f'{point}/base', 'b' * 300_000)
        service.finish(session, {'exit_code': 0}).expect(200)
        # Such a file is staged, and so counted, as a whole from its first change.
        session, point = service.open_mounted('second', limits={'staged_bytes': 100_000})
        write(f'{point}/small', 'kept')
        with open(f'{point}/base', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0:6] = b'stored'
        for _ in range(2):
            problem = service.post(f'/v1/sessions/{session}/commit').expect(409, 'data_lost')
            expect('stored in base could not be written back' in problem['detail'], problem['detail'])
            expect_equal('the state', service.state(session), 'open')
        service.stop()
        service.start()
        problem = service.finish(session, {'exit_code': 0}).expect(409, 'data_lost')
        expect('stored in base' in problem['detail'], problem['detail'])
        expect_equal('the state', service.state(session), 'open')
        service.escrow('run', '--', 'touch', 'others')
        service.post(f'/v1/sessions/{session}/update').expect(409, 'data_lost')
        service.post(f'/v1/sessions/{session}/discard', {'paths': ['base']}).expect(200)
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('what is committed', (service.git('show', 'main:small'), len(service.git('show', 'main:base'))),
                     ('kept', 300_000))


if __name__ == '__main__':
    main(globals())
