#!/usr/bin/env python3
"""Runs over the API: a real escrowd, real commands in real mounts, asked by root and by an unprivileged user."""
import base64
import http.client
import os
import signal
import threading
import time

from authorization_test import asked
from service import NOBODY, NOBODY_NAME, UnixConnection, eventually, expect, expect_equal, main, request

# Of commands that are looked for among all processes of the machine: others run these tests, too.
UNIQUE = f'{os.getpid()}.5'
USES_MEMORY = 'python3 -c "x = bytearray(400 << 20)"'


def ordering(*command, **fields):
    return {'repository': 'data', 'command': list(command), **fields}


def shell(script, **fields):
    return ordering('sh', '-c', script, **fields)


def run(service, body, **keywords):
    return service.post('/v1/runs', body, **keywords).expect(201)['run']


def awaited(service, name):
    view = service.get(f'/v1/runs/{name}/wait?timeout_ms=250000', timeout=300).expect(200)
    expect_equal('the state of the run', view['state'], 'ended')
    return view


def outcome(view):
    session = view['session']
    return session['state'], session['reason'], session['exit_code']


def output(service, name, stream='stdout'):
    answer = service.get(f'/v1/runs/{name}/output?stream={stream}')
    expect_equal('the status', answer.status, 200)
    return answer.body.decode()


def eventually_says(service, name, text):
    eventually(f'the run says {text!r}', lambda: text in output(service, name))


def has_words(pid):
    """Whether it runs: what has ended and is not waited for yet has none."""
    try:
        with open(f'/proc/{pid}/cmdline', 'rb') as file:
            return file.read() != b''
    except OSError:
        return False


def processes(matches, parents=None):
    """Pids whose command line or name `matches` accepts; `parents` is filled with everybody's."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().split(b'\0')
            with open(f'/proc/{pid}/comm', encoding='utf-8') as file:
                name = file.read().strip()
            with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
                status = file.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if parents is not None:
            parents[int(pid)] = int(status[1])
        if status[0] != 'Z' and matches(name, words, int(status[1])):
            found.append(int(pid))
    return found


def below(top):
    """Pids of the process `top` and of all below it."""
    parents = {}
    processes(lambda name, words, parent: False, parents)
    found = {top}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def host_of(service):
    """The host process of the only run that this service has started."""
    def hosts():
        return processes(lambda name, words, parent: name == 'escrow-host' and parent == service.process.pid)
    # That of a run that has just ended may be there a moment longer.
    found = []
    def is_one():
        found[:] = hosts()
        return len(found) == 1
    eventually('there is one host process', is_one)
    return found[0]


def asleep(number):
    """The processes that sleep for so long."""
    return processes(lambda _, words, __: f'{number}{UNIQUE}'.encode() in words)


def until_woken(number):
    return f'sleep {number}{UNIQUE}'


def quietly(number):
    """Like until_woken(), but the shell does not say on stderr that a process was killed."""
    return f'{{ {until_woken(number)}; }} 2> /dev/null'


def wake(number):
    """What follows in a script of a run, which may see nothing of the machine, comes when the test says so."""
    eventually('it sleeps', lambda: asleep(number))
    for pid in asleep(number):
        os.kill(pid, signal.SIGKILL)


def ARunCommitsByItsExitStatusAsItsCaller(start):
    with start() as service:
        script = 'id -u; id -g; pwd; cat a.txt; echo hi > new.txt; echo complaint >&2'
        status, view = asked(service, 'POST', '/v1/runs', shell(script, message='by nobody', image='img:1'))
        expect_equal('the answer', (status, view['user'], view['uid'], view['confined'], view['network']),
                     (201, NOBODY_NAME, NOBODY, True, 'none'))
        name = view['run']
        status, view = asked(service, 'GET', f'/v1/runs/{name}/wait?timeout_ms=250000')
        expect_equal('the outcome', outcome(view), ('committed', 'success', 0))
        expect_equal('stdout', output(service, name), f'{NOBODY}\n{NOBODY}\n/sandbox\na.txt\n')
        expect_equal('stderr', output(service, name, 'stderr'), 'complaint\n')
        expect_equal('its length', view['stderr'], {'bytes': 10, 'truncated': False})
        expect_equal('the content', service.git('show', 'main:new.txt'), 'hi')
        message = service.git('log', '-1', '--format=%B', 'main').split('\n')
        for line in ('by nobody', f'Escrow-Committer: {NOBODY_NAME}', f'Escrow-Issuer: {NOBODY_NAME}',
                     'Escrow-Source: sandbox', 'Escrow-Image: img:1', f'Escrow-Session: {name}', 'Escrow-Exit-Code: 0'):
            expect(line in message, f'{line!r} is not in {message!r}')
        expect_equal('the session', service.state(name), 'committed')
        body = shell('cat; echo $FLAVOUR; pwd; ls', env={'FLAVOUR': 'sweet sour'}, mountpoint='/work',
                     path_prefix='dir')
        view = awaited(service, run(service, body))
        expect_equal('without a change', outcome(view), ('committed', 'no_changes', 0))
        expect_equal('stdout', output(service, view['run']), 'sweet sour\n/work\nb.txt\nsub\n')


def VariablesThatTieGitToARepositoryEndAtTheService(start):
    service = start()
    service.before = ['env', 'GIT_DIR=/nowhere', 'GIT_INDEX_FILE=/nowhere/index', 'GIT_CONFIG_COUNT=no-number']
    with service:
        for fields in ({}, {'confined': False, 'network': 'host'}):
            script = 'env | grep -E "^GIT_(DIR|INDEX|CONFIG)"; echo x >> new.txt'
            view = awaited(service, run(service, shell(script, **fields)))
            expect_equal(f'the outcome with {fields}', outcome(view), ('committed', 'success', 0))
            expect_equal(f'what it is given with {fields}', output(service, view['run']), '')
        service.post('/v1/repositories/data/gc').expect(200)


ENDLESS = 'echo x > new; echo ready; while :; do sleep 0.1; done'


def timed_out(service, script, **fields):
    """The outcome of a command that was ready, as it says itself, before its time was over."""
    for timeout_ms in (1_000, 10_000, 100_000):
        view = awaited(service, run(service, shell(script, timeout_ms=timeout_ms, **fields)))
        if output(service, view['run']) == 'ready\n':
            break
    return outcome(view)


def EveryOtherEndOfARunRollsBack(start):
    with start() as service:
        head = service.git('rev-parse', 'main')
        willing = f'trap "exit 0" TERM; {ENDLESS}'
        deaf = f'trap "" TERM; {ENDLESS}'
        for body, expected in (
                (shell('echo x > new; exit 3'), ('rolled_back', 'exit_status', 3)),
                (shell('echo x > new; kill -9 $$'), ('rolled_back', 'exit_status', 137)),
                (ordering('/no/such/program'), ('rolled_back', 'exit_status', 127)),
                (ordering('/no/such/program', confined=False, network='host'),
                 ('rolled_back', 'not_started', 127)),
                (shell('echo x > new; kill -9 $$', confined=False, network='host'),
                 ('rolled_back', 'signal', 137)),
                (shell('head -c 200000 /dev/zero > new', limits={'staged_bytes': 100_000}),
                 ('rolled_back', 'exit_status', 1)),
                (shell('echo x > new', read_only=True), ('rolled_back', 'exit_status', 2))):
            expect_equal(f'the outcome of {body}', outcome(awaited(service, run(service, body))), expected)
        expect_equal('of its time', timed_out(service, willing), ('rolled_back', 'timed_out', 0))
        expect_equal('when it is deaf', timed_out(service, deaf, grace_ms=100), ('rolled_back', 'timed_out', 137))
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        view = awaited(service, run(service, shell('echo x > new', require_approval=True)))
        expect_equal('what awaits approval', outcome(view), ('awaiting_approval', 'none', 0))
        expect_equal('the branch', service.git('rev-parse', 'main'), head)


def WhatACommandLeavesRunningIsEnded(start):
    with start() as service:
        script = f'setsid sh -c "while :; do date > late 2>/dev/null; {until_woken(54)}; done" & sleep 0.3; exit 0'
        view = awaited(service, run(service, shell(script)))
        expect_equal('the outcome', outcome(view), ('committed', 'success', 0))
        expect_equal('what is left', asleep(54), [])


def ARunThatUsesUpItsMemoryIsRolledBackAsOom(start):
    with start() as service:
        limit = 100 << 20
        view = awaited(service, run(service, shell(f'echo x > new; {USES_MEMORY}', memory_bytes=limit)))
        expect_equal('the outcome', outcome(view)[:2], ('rolled_back', 'oom'))
        expect_equal('the limit', view['memory_bytes'], limit)
        # What the kernel killed decides, and not what the command makes of it.
        view = awaited(service, run(service, shell(f'echo x > new; {USES_MEMORY}; exit 0', memory_bytes=limit)))
        expect_equal('the outcome', outcome(view)[:2], ('rolled_back', 'oom'))
        view = awaited(service, run(service, shell('python3 -c "x = bytearray(20 << 20)"; echo x > new',
                                                   memory_bytes=limit)))
        expect_equal('within the limit', outcome(view), ('committed', 'success', 0))
        view = awaited(service, run(service, shell(USES_MEMORY)))
        expect_equal('without a limit', outcome(view), ('committed', 'no_changes', 0))


def ARunHasNoMoreProcessesThanItMay(start):
    forks = ("import os, time\n"
             "for count in range(200):\n"
             "    try: os.fork() or time.sleep(1000)\n"
             "    except BlockingIOError: break\n"
             "print(count, flush=True)")
    with start(max_processes=100) as service:
        for fields, most in (({}, 100), ({'max_processes': 20}, 20)):
            _, view = asked(service, 'POST', '/v1/runs', ordering('python3', '-c', forks, **fields))
            expect_equal('the limit', view['max_processes'], most)
            view = awaited(service, view['run'])
            expect_equal('the outcome', outcome(view), ('committed', 'no_changes', 0))
            expect_equal('beside itself', output(service, view['run']), f'{most - 1}\n')
        status, problem = asked(service, 'POST', '/v1/runs', shell('true', max_processes=101))
        expect_equal('the refusal', (status, problem['code'], problem['field']), (403, 'forbidden', 'max_processes'))
        view = awaited(service, run(service, shell('true', max_processes=101)))
        expect_equal("an operator's", view['max_processes'], 101)


def WhatARunMayAskForIsTheOperatorsToSay(start):
    quota = ("cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/cpu.max "
             "/sys/fs/cgroup/cpu$(sed -n 's/^[0-9]*:cpu\\(,cpuacct\\)*://p' /proc/self/cgroup)/cpu.cfs_quota_us "
             "2> /dev/null; true")
    with start(max_memory_bytes=1 << 30, max_millicpus=1500) as service:
        for fields, memory, millicpus in (({}, 1 << 30, 1500),
                                          ({'memory_bytes': 1 << 28, 'millicpus': 250}, 1 << 28, 250)):
            _, view = asked(service, 'POST', '/v1/runs', shell('true', **fields))
            expect_equal('the limits', (view['memory_bytes'], view['millicpus']), (memory, millicpus))
            expect_equal('the outcome', outcome(awaited(service, view['run'])), ('committed', 'no_changes', 0))
        for fields in ({'memory_bytes': (1 << 30) + 1}, {'millicpus': 1501}):
            status, problem = asked(service, 'POST', '/v1/runs', shell('true', **fields))
            expect_equal('the refusal', (status, problem['code'], problem['field']),
                         (403, 'forbidden', list(fields)[0]))
        view = awaited(service, run(service, shell(quota, confined=False, memory_bytes=2 << 30, millicpus=1750)))
        expect_equal("an operator's", (view['memory_bytes'], view['millicpus']), (2 << 30, 1750))
        expect_equal('what the kernel keeps', output(service, view['run']).split()[0], '175000')


def AMemoryLimitThatCannotBeHadIsRefused(start):
    service = start()
    wrapper = f'{service.directory}/without-cgroups'
    with open(wrapper, 'w', encoding='utf-8') as file:
        file.write(f'#!/bin/sh\nexec unshare -m sh -c \'umount -R /sys/fs/cgroup; exec "$@"\' sh '
                   f'{service.escrowd_binary} "$@"\n')
    os.chmod(wrapper, 0o755)
    service.escrowd_binary = wrapper
    with service:
        body = shell('echo x > new', memory_bytes=100 << 20)
        problem = service.post('/v1/runs', body).expect(503, 'unavailable')
        expect('its memory cannot be limited' in problem['detail'], problem['detail'])
        expect_equal('the runs', service.get('/v1/runs').json['runs'], [])
        expect_equal('what is kept of it', os.listdir(f'{service.directory}/state/runs'), [])
        expect_equal('its session', service.get('/v1/sessions?state=open').json['sessions'], [])
        expect_equal('without one', outcome(awaited(service, run(service, shell('true')))),
                     ('committed', 'no_changes', 0))


def ACancelWinsOverALaterExitZero(start):
    with start() as service:
        name = run(service, shell('trap "echo x > new; exit 0" TERM; echo ready; while :; do sleep 0.05; done'))
        eventually_says(service, name, 'ready')
        view = service.post(f'/v1/runs/{name}/cancel').expect(202)
        expect_equal('the mark', view['cancel_requested'], True)
        expect_equal('the outcome', outcome(awaited(service, name)), ('rolled_back', 'cancelled', 0))
        expect_equal('again', outcome(service.post(f'/v1/runs/{name}/cancel').expect(200))[1], 'cancelled')
        # The command ends by itself, with 0, while its host cannot hear of the cancel that was answered before.
        script = f'echo x > new; echo ready; {until_woken(43)}; exit 0'
        name = run(service, shell(script))
        eventually_says(service, name, 'ready')
        host = host_of(service)
        os.kill(host, signal.SIGSTOP)
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        wake(43)
        eventually('the command has ended', lambda: not processes(
            lambda name, words, _: name == 'sh' and script.encode() in words))
        os.kill(host, signal.SIGCONT)
        expect_equal('the outcome', outcome(awaited(service, name)), ('rolled_back', 'cancelled', 0))
        name = run(service, shell('echo x > new'))
        awaited(service, name)
        problem = service.post(f'/v1/runs/{name}/cancel').expect(409, 'session_finished')
        expect_equal('the state', problem['state'], 'committed')
        # By the verbs of its session.
        name = run(service, shell('sleep 1000'))
        service.post(f'/v1/sessions/{name}/commit').expect(409, 'wrong_state')
        service.post(f'/v1/sessions/{name}/finish', {'exit_code': 0}).expect(409, 'attached_elsewhere')
        service.post(f'/v1/sessions/{name}/rollback').expect(200)
        expect_equal('the outcome', outcome(awaited(service, name))[:2], ('rolled_back', 'cancelled'))


def SeveralRunsAreAwaitedAndTheirOutputGathered(start):
    with start() as service:
        names = [run(service, shell(f'sleep 0.{n}; echo says {n}; echo {n} > file-{n}; exit {n // 2}'))
                 for n in range(3)]
        answer = service.get(f'/v1/runs/wait?ids={",".join(names)}&timeout_ms=250000&output_bytes=3').expect(200)
        expect_equal('all', (answer['done'], [one['run'] for one in answer['runs']]), (True, names))
        expect_equal('the ends of their output', [one['stdout']['content'] for one in answer['runs']],
                     [' 0\n', ' 1\n', ' 2\n'])
        expect_equal('the outcomes', [outcome(one)[1] for one in answer['runs']],
                     ['success', 'success', 'exit_status'])
        expect_equal('none that run', service.get('/v1/runs/wait').expect(200), {'runs': [], 'done': True})
        slow, quick = run(service, shell('sleep 1000')), run(service, shell(r'printf "\377\n"'))
        answer = service.get(f'/v1/runs/wait?ids={slow},{quick}&for=any&timeout_ms=250000&output_bytes=10').expect(200)
        expect_equal('one of them', (answer['done'], [one['state'] for one in answer['runs']]),
                     (True, ['running', 'ended']))
        expect_equal('its output', base64.b64decode(answer['runs'][1]['stdout']['content_base64']), b'\xff\n')
        begun = time.monotonic()
        answer = service.get('/v1/runs/wait?timeout_ms=300').expect(200)
        expect_equal('those that run', (answer['done'], [one['run'] for one in answer['runs']]), (False, [slow]))
        expect(time.monotonic() - begun >= 0.3, 'it was answered too early')
        expect_equal('is-alive', service.get(f'/v1/runs/{slow}').expect(200)['state'], 'running')
        expect_equal('by state', [one['run'] for one in service.get('/v1/runs?state=running').json['runs']], [slow])
        service.post(f'/v1/runs/{slow}/cancel').expect(202)
        expect_equal('all of mine', service.get('/v1/runs/wait').expect(200)['done'], True)
        first = service.get('/v1/runs?limit=3').expect(200)
        rest = service.get(f'/v1/runs?limit=3&cursor={first["next"]}').expect(200)
        expect_equal('the pages', [one['run'] for one in first['runs'] + rest['runs']], names + [slow, quick])
        expect_equal('the end', rest['next'], None)
        service.get(f'/v1/runs/wait?ids={quick},0123456789abcdef').expect(404, 'not_found')
        for query in ('ids=', 'for=some', 'output_bytes=65537', 'timeout_ms=x'):
            service.get(f'/v1/runs/wait?{query}').expect(400, 'invalid_value')


def OutputIsBoundedAndReadWhileTheCommandRuns(start):
    with start(max_output_bytes=1000) as service:
        script = (f'echo one; {quietly(51)}; echo two; {quietly(52)}; '
                  'head -c 50000000 /dev/zero | tr "\\0" x; echo err >&2')
        name = run(service, shell(script + '; echo > new'))
        eventually_says(service, name, 'one\n')
        expect_equal('the state', service.get(f'/v1/runs/{name}').json['state'], 'running')
        parts = []
        def follow():
            connection = UnixConnection(service.socket)
            connection.request('GET', f'/v1/runs/{name}/output?follow=true&offset=1')
            response = connection.getresponse()
            while piece := response.read1():
                parts.append(piece)
        def followed():
            return b''.join(parts).decode()
        follower = threading.Thread(target=follow)
        follower.start()
        # Each line is told while the command still runs.
        for number, told in ((51, 'ne\n'), (52, 'ne\ntwo\n')):
            eventually(f'{told!r} is told', lambda told=told: followed() == told)
            wake(number)
        view = awaited(service, name)
        follower.join()
        expect_equal('the outcome', outcome(view), ('committed', 'success', 0))
        expect_equal('what is kept', view['stdout'], {'bytes': 1000, 'truncated': True})
        expect_equal('of stderr', view['stderr'], {'bytes': 4, 'truncated': False})
        whole = 'one\ntwo\n' + 'x' * 992
        expect_equal('stdout', output(service, name), whole)
        expect_equal('what was followed', followed(), whole[1:])
        answer = service.get(f'/v1/runs/{name}/output?offset=4&limit=3')
        expect_equal('a piece', (answer.body, answer.headers['escrow-next-offset'], answer.headers['escrow-complete'],
                                 answer.headers['escrow-truncated']), (b'two', '7', 'false', 'true'))
        answer = service.get(f'/v1/runs/{name}/output?stream=stderr&offset=4')
        expect_equal('the end', (answer.body, answer.headers['escrow-complete']), (b'', 'true'))
        for query in ('offset=1001', 'stream=stdin', 'stream=../cancel', 'follow=maybe', 'offset=-1', 'limit=9999999'):
            service.get(f'/v1/runs/{name}/output?{query}').expect(400, 'invalid_value')
        # A symbolic link is not followed, so the open fails.
        kept = f'{service.directory}/state/runs/{name}/stdout'
        os.rename(kept, f'{kept}.aside')
        os.symlink(f'{kept}.aside', kept)
        service.get(f'/v1/runs/{name}/output').expect(500, 'internal')


def FreeingARunTakesItsOutputAndLeavesItsSession(start):
    with start(keep_runs=2) as service:
        kept = f'{service.directory}/state/runs'
        name = run(service, shell('echo hi; echo ready; sleep 1000'))
        eventually_says(service, name, 'ready')
        answer = request(service.socket, 'DELETE', f'/v1/runs/{name}')
        answer.expect(409, 'wrong_state')
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        awaited(service, name)
        expect_equal('its files', os.listdir(kept), [name])
        expect_equal('private', os.stat(f'{kept}/{name}').st_mode & 0o777, 0o700)
        expect_equal('the last view', request(service.socket, 'DELETE', f'/v1/runs/{name}').expect(200)['run'], name)
        expect_equal('its files', os.listdir(kept), [])
        request(service.socket, 'DELETE', f'/v1/runs/{name}').expect(404, 'not_found')
        service.get(f'/v1/runs/{name}/output').expect(404, 'not_found')
        expect_equal('the session', service.state(name), 'rolled_back')
        names = []
        for _ in range(4):
            names.append(run(service, shell('echo hi')))
            awaited(service, names[-1])
        expect_equal('the oldest are freed', sorted(os.listdir(kept)), sorted(names[1:]))


def ARunGoesOnWhileTheServiceIsStoppedAndKilled(start):
    with start() as service:
        name = run(service, shell(f'echo one > one; echo begin; {until_woken(15)}; echo two > two; echo end'))
        eventually_says(service, name, 'begin')
        expect_equal('the exit status', service.stop(), 0)
        service.start()
        expect_equal('after a restart', service.get(f'/v1/runs/{name}').expect(200)['state'], 'running')
        service.stop(signal.SIGKILL)
        service.start()
        expect_equal('after a kill', service.get(f'/v1/runs/{name}').expect(200)['state'], 'running')
        wake(15)
        expect_equal('the outcome', outcome(awaited(service, name)), ('committed', 'success', 0))
        expect_equal('the content', service.git('show', 'main:two'), 'two')
        expect_equal('the output', output(service, name), 'begin\nend\n')
        name = run(service, shell('echo x > new; echo ready; sleep 1000'))
        eventually_says(service, name, 'ready')
        service.stop(signal.SIGKILL)
        service.start()
        service.post(f'/v1/runs/{name}/cancel').expect(202)
        expect_equal('a cancel after a kill', outcome(awaited(service, name))[:2], ('rolled_back', 'cancelled'))
        # It ends while there is no service.
        name = run(service, shell(f'echo x > third; echo ready; {until_woken(77)}; exit 0'))
        host = host_of(service)
        service.stop(signal.SIGKILL)
        wake(77)
        eventually('its host has ended', lambda: not has_words(host))
        service.start()
        expect_equal('the outcome', outcome(service.get(f'/v1/runs/{name}').expect(200)), ('committed', 'success', 0))
        service.escrow('verify')


def ARunWhoseHostIsKilledIsRolledBack(start):
    with start() as service:
        for what, how, reason in (('escrow-host', signal.SIGKILL, 'host_lost'),
                                  ('escrow-run', signal.SIGKILL, 'host_lost'),
                                  ('escrow-host', signal.SIGTERM, 'cancelled')):
            name = run(service, shell(f'echo x > new; echo ready; exec {until_woken(65)}'))
            eventually_says(service, name, 'ready')
            host = host_of(service)
            victims = processes(lambda comm, _, parent: comm == 'escrow-run' and parent == host)
            os.kill(host if what == 'escrow-host' else victims[0], how)
            expect_equal(f'{what} is killed', outcome(awaited(service, name))[:2], ('rolled_back', reason))
            eventually('the command is ended', lambda: not asleep(65))
            with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
                expect(f'escrow:{name}' not in table.read(), 'the mount is still there')
        expect_equal('the branch', service.git('rev-list', '--count', 'main'), '1')


def ARunWithAKeyIsCarriedOutOnceWhateverIsKilled(start):
    with start() as service:
        body = shell('echo x > once', labels={'one': 'only'})
        key = {'Idempotency-Key': 'key'}
        first = run(service, body, headers=key)
        expect_equal('the second answer', run(service, body, headers=key), first)
        service.post('/v1/runs', shell('true'), headers=key).expect(422, 'idempotency_key_reused')
        # The same key on another route is another request.
        service.open(labels={'other': 'one'})
        service.post('/v1/sessions', {'repository': 'data'}, headers=key).expect(201)
        for turn in range(10):
            body = shell(f'echo {turn} > turn-{turn}', labels={'turn': str(turn)})
            key = {'Idempotency-Key': f'turn-{turn}'}
            def ask(body=body, key=key):
                try:
                    service.post('/v1/runs', body, headers=key)
                except (OSError, http.client.HTTPException):
                    pass
            asker = threading.Thread(target=ask)
            asker.start()
            time.sleep(0.008 * turn)
            service.stop(signal.SIGKILL)
            asker.join()
            service.start()
            name = run(service, body, headers=key)
            expect_equal(f'turn {turn}', outcome(awaited(service, name)), ('committed', 'success', 0))
            found = service.get(f'/v1/runs?label=turn:{turn}').expect(200)['runs']
            expect_equal('the runs of the key', [one['run'] for one in found], [name])
        expect_equal('the commits', service.git('rev-list', '--count', 'main'), '12')


if __name__ == '__main__':
    main(globals())
