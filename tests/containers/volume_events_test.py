#!/usr/bin/env python3
"""What docker and podman tell of containers with volumes, and what they have forgotten by the time they are asked."""
import contextlib
import fcntl
import json
import os
import signal
import sqlite3

from runtimes import WAITS, eventually, expect, expect_equal, forget_events, go_on, main, nightly, only
from volumes import VolumeMachine, refusal


def newest_stored_event(machine):
    with contextlib.closing(sqlite3.connect(f'{machine.directory}/state/volumes.db')) as store:
        return store.execute('SELECT time_ns FROM anchor').fetchone()


def has_waiters(locked):
    """Of a lock of fcntl(2): proc_locks(5)."""
    inode = os.fstat(locked.fileno()).st_ino
    with open('/proc/locks', encoding='ascii') as locks:
        return any('->' in line and f':{inode} ' in line for line in locks)


def TheAuditNamesTheImageThatRan(machine):
    """Not the one that has its name by then."""
    machine.volume()
    for name, change in (('job-image', 'ENV RUNS=yes'), ('later-image', 'ENV RUNS=no')):
        machine.make_image(name, change)
    ids = [machine.run(machine.runtime.name, 'image', 'inspect', '--format', '{{.Id}}', name).removeprefix('sha256:')
           for name in ('job-image', 'later-image')]
    expect(ids[0] != ids[1], 'both images are one')
    command = machine.command('echo $RUNS > /data/new', '--name', 'job', image='job-image')
    machine.run(machine.runtime.name, 'create', *command[1:])
    machine.run(machine.runtime.name, 'tag', 'later-image', 'job-image')
    machine.run(machine.runtime.name, 'start', '--attach', 'job')
    machine.expect_end('committed', 'success')
    expect_equal('what ran', machine.git('show', 'main:new'), 'yes')
    named = machine.git('log', '-1', '--format=%(trailers:key=Escrow-Image,valueonly)', 'main')
    expect_equal(f'the image in {named}', named.strip().split('@sha256:')[-1], ids[0])
    machine.expect_clean()


def AGapInTheEventsIsNoSuccess(machine):
    machine.volume()
    name = machine.start_container(f'trap "echo heard > /data/heard" TERM; echo x > /data/new; echo up; {WAITS}')
    eventually('the service knows the container', lambda: f'in use by the container {name[:12]}' in refusal(machine))
    machine.service.send_signal(signal.SIGSTOP)
    machine.run(machine.runtime.name, 'kill', '--signal', 'TERM', name)
    forget_events(machine)
    machine.service.send_signal(signal.SIGCONT)
    go_on(machine, name)
    expect_equal('exit status', machine.wait(name), '0')
    ended = machine.expect_end('rolled_back', 'cancelled')
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    expect('has forgotten events' in machine.log(), machine.log())
    machine.expect_unchanged()
    machine.expect_clean()


@only('DockerVolumes')
def WhatWasHeardBeforeItWasForgottenIsNoGapAlsoAfterARestart(machine):
    """The start of the container is forgotten, but not the newest event that the service before had heard."""
    def plugin(verb):
        return machine.run('curl', '--silent', '--unix-socket', machine.config['volume_plugin']['socket'],
                           '-d', '{"Name": "other", "ID": "nobody"}', f'http://escrow/VolumeDriver.{verb}')
    machine.volume()
    machine.volume('other')
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    eventually('the service knows the container', lambda: f'in use by the container {name[:12]}' in refusal(machine))
    for _ in range(4):
        forget_events(machine, 50)
        # Before it gives a volume it asks the runtime what has happened.
        expect('Mountpoint' in plugin('Mount') and plugin('Unmount') == '{"Err":""}', 'the volume is not to be had')
    machine.stop_service(signal.SIGKILL)
    machine.start_service()
    go_on(machine, name)
    expect_equal('exit status', machine.wait(name), '0')
    machine.expect_end('committed', 'success')
    expect_equal('content', machine.git('show', 'main:new'), 'x')
    machine.expect_clean()


@only('DockerVolumes')
def TheNewestEventThatWasHeardIsStoredHoweverSlowlyTheyCome(machine):
    """Each answer has the events of the newest two seconds: the stored one leaves them while few are in them."""
    machine.volume()
    # A check is three events.
    checks = '--health-cmd=true', '--health-interval=500ms'
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}', *checks)
    eventually('the service knows the container', lambda: f'in use by the container {name[:12]}' in refusal(machine))
    eventually('an event is stored', lambda: newest_stored_event(machine))
    first = newest_stored_event(machine)
    eventually('a newer one is stored', lambda: newest_stored_event(machine) != first)
    go_on(machine, name)
    machine.wait(name)
    machine.expect_end('committed', 'success')
    machine.expect_clean()


@only('DockerVolumes')
def EventsAreHeardWhileACommitWaits(machine):
    machine.volume()
    machine.volume('other')
    first = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    second = machine.start_container(f'echo y > /data/later; echo up; {WAITS}', volume='other:/data')
    eventually('the service knows the container', lambda: f'in use by the container {first[:12]}' in refusal(machine))
    earlier, later = (one['session'] for one in machine.sessions())
    with open(f'{machine.repository}/escrow/gc.lock', 'r+b') as collector:
        fcntl.lockf(collector, fcntl.LOCK_EX)  # a collection of garbage, for which a commit waits
        go_on(machine, first)
        eventually('the commit waits', lambda: has_waiters(collector))
        for _ in range(3):
            before = newest_stored_event(machine)
            forget_events(machine, 60)
            eventually('they are heard', lambda: newest_stored_event(machine) != before)
    go_on(machine, second)
    expect_equal('exit status', machine.wait(second), '0')
    for session in (earlier, later):
        eventually('it is committed', lambda: machine.ask('GET', f'sessions/{session}')['state'] == 'committed')
    machine.expect_clean()


@nightly('PodmanVolumes')
def AVerdictWaitsForTheCatalogThatKnowsItsSession(machine):
    catalog, older, newer = (f'{machine.directory}/{name}' for name in ('data.git/escrow/catalog.db', 'older', 'newer'))
    def copy(source, target):
        with contextlib.closing(sqlite3.connect(source)) as one, contextlib.closing(sqlite3.connect(target)) as other:
            one.backup(other)
    machine.volume()
    copy(catalog, older)
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    eventually('the service knows the container', lambda: f'in use by the container {name[:12]}' in refusal(machine))
    copy(catalog, newer)
    copy(older, catalog)
    go_on(machine, name)
    expect_equal('exit status', machine.wait(name), '0')
    eventually('it is said', lambda: "the repository's catalog does not know it" in machine.log())
    copy(newer, catalog)
    machine.expect_end('committed', 'success')
    expect_equal('content', machine.git('show', 'main:new'), 'x')
    machine.expect_clean()


@nightly('PodmanVolumes')
def AContainerThatWasForgottenBeforeItWasKnownMayHaveHadTheVolume(machine):
    machine.give_up_soon()
    machine.volume()
    def plugin(verb):
        return json.loads(machine.run('curl', '--silent', '--unix-socket', machine.config['volume_plugin']['socket'],
                                      '-d', '{"Name": "work", "ID": "nobody"}', f'http://escrow/VolumeDriver.{verb}'))
    for stop, go in ((lambda: machine.service.send_signal(signal.SIGSTOP),
                      lambda: machine.service.send_signal(signal.SIGCONT)),
                     (lambda: machine.stop_service(signal.SIGKILL), machine.start_service)):
        path = plugin('Mount')['Mountpoint']
        stop()
        with open(f'{path}/new', 'w', encoding='ascii') as file:
            file.write('x')
        forget_events(machine)
        go()
        expect_equal('the answer', plugin('Unmount'), {'Err': ''})
        ended = machine.expect_end('rolled_back', 'host_lost')
        expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    machine.expect_unchanged()
    machine.expect_clean()


@only('PodmanVolumes')
def WithoutEventsPodmanGetsNoVolume(machine):
    machine.volume()
    with open(machine.runtime.conf, encoding='utf-8') as file:
        text = file.read()
    with open(machine.runtime.conf, 'w', encoding='utf-8') as file:
        file.write(text.replace('events_logger = "file"', 'events_logger = "none"'))
    machine.stop_service()
    machine.runtime.stop()
    machine.runtime.start()
    machine.start_service()
    eventually('the service knows it', lambda: 'keeps no events' in machine.log())
    status, _, err = machine.container('echo x > /data/new')
    expect(status != 0 and 'keeps no events' in err, f'status {status} ({err})')
    expect_equal('sessions', machine.sessions(), [])
    machine.expect_clean()


@nightly('PodmanVolumes')
def AGapWhileNoServiceIsThereIsNoSuccessAndNoGapIsOne(machine):
    machine.volume()
    for forgets, end in ((True, ('rolled_back', 'cancelled')), (False, ('committed', 'success'))):
        name = machine.start_container(f'echo {forgets} > /data/new; echo up; {WAITS}')
        eventually('the service knows the container',
                   lambda name=name: f'in use by the container {name[:12]}' in refusal(machine))
        machine.stop_service(signal.SIGKILL)
        if forgets:
            forget_events(machine)
        machine.start_service()
        go_on(machine, name)
        expect_equal('exit status', machine.wait(name), '0')
        machine.expect_end(*end)
    expect_equal('what was committed', machine.git('show', 'main:new'), 'False')
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def ExitZeroWhileARuntimeThatKeepsItsContainersIsAwayIsRolledBackAndKept(machine):
    machine.runtime.stop()
    machine.runtime.command.append('--live-restore')
    machine.runtime.start()
    machine.give_up_soon()
    machine.volume()
    ends = {0: ('rolled_back', 'cancelled'), 3: ('rolled_back', 'exit_status')}
    remembered = 0
    for code in ends:
        for how in (signal.SIGTERM, signal.SIGKILL):
            go = f'{machine.directory}/go'
            name = machine.start_container(f'echo {how}-{code} > /data/new; echo up; '
                                           f'until [ -e /go/go ]; do sleep 0.1; done; exit {code}',
                                           '-v', f'{machine.directory}:/go')
            process = machine.run('docker', 'container', 'inspect', '--format', '{{.State.Pid}}', name)
            machine.runtime.server.send_signal(how)
            machine.runtime.server.wait(timeout=200)
            with open(go, 'w', encoding='ascii'):
                pass
            eventually('it has ended', lambda process=process: not os.path.exists(f'/proc/{process}'))
            os.unlink(go)
            if os.path.exists(f'{machine.directory}/runtime/pid'):
                os.unlink(f'{machine.directory}/runtime/pid')
            machine.runtime.start()
            state = {}
            def has_ended(name=name, state=state):
                # In one look: it says 0 of one that it still takes to be running.
                state.update(machine.state(name))
                return not state['Running']
            eventually('the runtime knows that it has ended', has_ended)
            # On a busy machine the runtime itself may have missed how it ended: it says 255 then.
            known = state['ExitCode']
            expect(known in (code, 255), f'the runtime says {known} of a container that ended with {code}')
            remembered += known == code
            ended = machine.expect_end(*ends.get(known, ends[3]))
            expect_equal('exit code', ended['exit_code'], known)
            if known == 0:
                kept = machine.git('show', f'refs/sessions/{ended["session"]}:new')
                expect_equal('the kept result', kept, f'{how}-{code}')
    expect(remembered > 0, 'the runtime has forgotten how every container ended')
    machine.expect_unchanged()
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals(), VolumeMachine,
         own_runtime=(ExitZeroWhileARuntimeThatKeepsItsContainersIsAwayIsRolledBackAndKept,))
