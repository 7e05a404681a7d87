#!/usr/bin/env python3
"""`escrow run --image`: a container of real docker and podman over a session, and its exit status decides."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

from runtimes import (
    IMAGE, WAITS, command_of, eventually, expect, expect_equal, forget_events, go_on, main, nightly, only, processes)


def ExitZeroCommitsWhatTheContainerWrote(machine):
    before = machine.git('rev-parse', 'main')
    # The one network device is the loopback.
    status, out, err = machine.container(['--env', 'GREETING=hello', '--network', 'none'],
                                         'cat a.txt; echo "$GREETING" > new; rm sub/b.txt; echo "$ESCROW_MOUNT"; '
                                         'busybox grep -c : /proc/net/dev')
    expect_equal('status', (status, out), (0, 'a\n/sandbox\n1\n'))
    expect_equal('parent', machine.git('rev-parse', 'main^'), before)
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tnew\nD\tsub/b.txt')
    expect_equal('content', machine.git('show', 'main:new'), 'hello')
    image = machine.run(machine.runtime.name, 'image', 'inspect', '--format', '{{.Id}} {{.RepoDigests}}', IMAGE)
    trailer = machine.git('log', '-1', '--format=%(trailers:key=Escrow-Image,valueonly)', 'main')
    expect('@sha256:' in trailer and trailer.split('@sha256:')[1].strip() in image, f'{trailer} is not of {image}')
    expect('was committed' in err, err)
    machine.expect_clean()


def AnyOtherEndRollsBackWithItsStatus(machine):
    before = machine.git('rev-parse', 'main')
    for script, expected in (('echo x > new; exit 3', 3), ('echo x > new; kill -9 -1; exit 137', 137),
                             ('echo x > new; exec /nowhere', 127)):
        status, _, err = machine.container([], script)
        expect_equal(f'status of {script} ({err})', status, expected)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@nightly('Podman')
def ACommandThatCannotBeRunIs126Or127(machine):
    for command, expected in ((['/no/such/program'], 127), (['/tmp'], 126)):
        result = subprocess.run(machine.container_command([], None) + ['--'] + command, env=machine.environment,
                                capture_output=True, text=True, check=False, timeout=200)
        expect_equal(f'status of {command} ({result.stderr})', result.returncode, expected)
    machine.expect_clean()


@nightly('Podman')
def OnlyThePrefixIsSeenAtTheMountpoint(machine):
    status, out, err = machine.container(['--path-prefix', 'sub', '--mountpoint', '/data/in'], 'ls; echo c > c; ls /')
    expect_equal(f'status ({err})', status, 0)
    expect(out.startswith('b.txt\n') and 'data' in out.split(), out)
    expect_equal('content', machine.git('show', 'main:sub/c'), 'c')


@nightly('Podman')
def TheImageSaysWhoAndWhat(machine):
    machine.make_image('as-user', 'USER 1000:1000', 'CMD ["sh", "-c", "id -u > who; echo x >> a.txt"]')
    status, _, err = machine.container([], None, image='as-user')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('who', machine.git('show', 'main:who'), '1000')
    expect_equal('its file', machine.git('show', 'main:a.txt'), 'a\nx')
    status, _, err = machine.container(['--uid', '1234', '--gid', '1234'], 'id -u > who; echo y >> a.txt')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('who', machine.git('show', 'main:who'), '1234')
    # A name is what the image's own passwd and group say.
    machine.write_in_image('etc/passwd', 'root:x:0:0::/:/bin/sh\nbuilder:x:1234:4321::/:/bin/sh\n')
    machine.write_in_image('etc/group', 'root:x:0:\nbuilder:x:4321:\nstaff:x:50:\n')
    for user, who in (('builder', '1234:4321'), ('builder:staff', '1234:50'), ('1000:staff', '1000:50')):
        machine.make_image('as-name', f'USER {user}')
        status, _, err = machine.container([], 'echo "$(id -u):$(id -g)" > who; busybox stat -c %u:%g a.txt >> who',
                                           image='as-name')
        expect_equal(f'status ({err})', status, 0)
        expect_equal(f'who {user} is, and whose the files are', machine.git('show', 'main:who'), f'{who}\n{who}')
    machine.make_image('as-nobody', 'USER no-such-user')
    status, _, err = machine.container([], 'id', image='as-nobody')
    expect_equal('status', status, 125)
    expect('no-such-user' in err and '--uid' in err, err)
    machine.expect_clean()


@nightly('Podman')
def ALinkThatLeadsOutOfTheMountCannotBeFollowed(machine):
    status, _, err = machine.container([], 'ln() { busybox ln "$@"; }; ln -s /etc/shadow out; ln -s /sandbox/a.txt in')
    expect_equal(f'status ({err})', status, 0)
    status, out, _ = machine.container([], 'cat in; busybox readlink out')
    expect_equal('what is read through links', (status, out), (1, 'a\n'))


@nightly('Podman')
def ReadOnlyRootsAndDroppedRightsAreNoObstacle(machine):
    status, _, err = machine.container(['--runtime-arg=--read-only', '--runtime-arg=--cap-drop=ALL',
                                        '--runtime-arg=--security-opt=no-new-privileges'],
                                       'touch /x 2>/dev/null && exit 9; echo new > new')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('content', machine.git('show', 'main:new'), 'new')
    status, _, _ = machine.container(['--read-only'], 'touch new2 2>/dev/null && exit 9; exit 0')
    expect_equal('status of a read-only session', status, 0)


# Podman is a child of escrow and has the mounts that it has.
@only('Docker')
def AContainerThatDoesNotSeeTheSessionIsRolledBack(machine):
    before = machine.git('rev-parse', 'main')
    for command in (machine.container_command([], 'echo written > new'), machine.container_command([], 'true')):
        done = subprocess.run(['unshare', '--mount', '--propagation', 'private', *command], env=machine.environment,
                              capture_output=True, text=True, check=False, timeout=200)
        expect_equal(f'status ({done.stderr})', done.returncode, 125)
        expect('the container did not see the session' in done.stderr, done.stderr)
        lost = re.search("the runtime's directory (/.*/escrow-[^/]*/mnt);", done.stderr)[1]
        if command[-1] != 'true':
            with open(f'{lost}/new', encoding='ascii') as file:
                expect_equal('what it wrote', file.read(), 'written\n')
        shutil.rmtree(os.path.dirname(lost), ignore_errors=True)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@nightly('Podman')
def GitInsideBorrowsTheObjectsReadOnly(machine):
    base = machine.git('rev-parse', 'main')
    status, out, err = machine.container(['--git'], 'cat .git/objects/info/alternates .git/packed-refs; '
                                         'ls "$(cat .git/objects/info/alternates)" > seen; '
                                         'touch /run/escrow/objects/x 2>/dev/null && exit 9; exit 0')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('where', out.splitlines()[0], '/run/escrow/objects')
    expect(f'{base} refs/heads/main' in out, out)
    expect('pack' in machine.git('show', 'main:seen').split(), 'the objects of the repository are seen')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tseen')
    machine.expect_clean()


@nightly('Podman')
def ATimeoutIs124WhateverItExitsWithThen(machine):
    before = machine.git('rev-parse', 'main')
    status, _, err = machine.container(['--timeout', '1s', '--grace', '1s'],
                                       'trap "exit 0" TERM; echo x > new; while true; do sleep 0.1; done')
    expect_equal(f'status ({err})', status, 124)
    status, _, err = machine.container(['--timeout', '1s', '--grace', '1s'],
                                       'trap "" TERM; echo x > new; while true; do sleep 0.1; done')
    expect_equal(f'status of one that ignores it ({err})', status, 124)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def started(machine, options, script):
    """A run whose container has begun to write; its name."""
    run = machine.start_container(options, script)
    line = run.stdout.readline()
    expect_equal('its first line', line, 'up\n')
    name, = machine.containers()
    return run, name


TRAPS = 'trap "exit 0" TERM INT; echo x > new; echo up; while true; do sleep 0.1; done'


def CancelWinsOverAContainerThatExitsWithZero(machine):
    before = machine.git('rev-parse', 'main')
    for number in (signal.SIGTERM, signal.SIGINT):
        run, _ = started(machine, [], TRAPS)
        run.send_signal(number)
        expect_equal('status', run.wait(timeout=200), 128 + number)
    run, name = started(machine, [], TRAPS)
    machine.run(machine.runtime.name, 'stop', name)
    # Podman's stop cannot be trapped, and is rarely recorded: it ends as if it had failed, or as a cancellation.
    stopped = [(128 + signal.SIGTERM, 'cancelled')]
    if machine.runtime.name == 'podman':
        stopped.append((128 + signal.SIGKILL, 'exit_status'))
    end = (run.wait(timeout=200), machine.last_session()['reason'])
    expect(end in stopped, f'after a stop: {end}')
    run, name = started(machine, [], TRAPS)
    machine.run(machine.runtime.name, 'kill', '--signal', 'TERM', name)
    expect_equal('status after a kill', run.wait(timeout=200), 128 + signal.SIGTERM)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@only('Docker')
def AStopThatTheRuntimeHasForgottenIsACancellation(machine):
    """Docker keeps the newest 256 events of everything that it does."""
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, [], f'trap "echo heard > heard" TERM; echo up; {WAITS}; exit 0')
    machine.run('docker', 'kill', '--signal', 'TERM', name)
    forget_events(machine)
    go_on(machine, name)
    _, err = run.communicate(timeout=200)
    expect_equal(f'status ({err})', run.returncode, 128 + signal.SIGTERM)
    expect_equal('reason', machine.last_session()['reason'], 'cancelled')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def ExitZeroOfAContainerWhoseEventsWereMissedIsRolledBackAndKept(machine):
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, [], f'echo x > new; echo up; {WAITS}; exit 0')
    session = name.removeprefix('escrow-')
    listeners = [pid for pid in processes_with([machine.runtime.name, 'events', '--since'])
                 if parent_of(pid) == run.pid]
    expect_equal('programs that hear the events', len(listeners), 1)
    os.kill(listeners[0], signal.SIGKILL)
    go_on(machine, name)
    _, err = run.communicate(timeout=200)
    expect_equal(f'status ({err})', run.returncode, 125)
    expect('may have been stopped' in err and f'kept as refs/sessions/{session}' in err, err)
    expect_equal('reason', machine.last_session()['reason'], 'host_lost')
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{session}:new'), 'x')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@only('Podman')
def WithoutEventsPodmanIsRefusedBeforeTheStart(machine):
    with open(machine.runtime.conf, encoding='utf-8') as file:
        text = file.read()
    with open(machine.runtime.conf, 'w', encoding='utf-8') as file:
        file.write(text.replace('events_logger = "file"', 'events_logger = "none"'))
    status, _, err = machine.container([], 'echo x > new')
    expect_equal(f'status ({err})', status, 125)
    expect('its events cannot be read' in err and 'set events_logger = "file"' in err, err)
    expect_equal('sessions', json.loads(machine.escrow('audit', '--json')), machine.imported)
    machine.expect_clean()


@only('Docker')
def OnlyASignalThatAsksForAnEndCancels(machine):
    hears = 'trap "echo heard > new" HUP USR1; echo up; until [ -e new ]; do sleep 0.1; done; exit 0'
    for number in ('HUP', 'USR1'):
        run, name = started(machine, [], hears.replace('new', f'new-{number}'))
        machine.run('docker', 'kill', '--signal', number, name)
        expect_equal(f'status after SIG{number}', run.wait(timeout=200), 0)
        expect_equal('content', machine.git('show', f'main:new-{number}'), 'heard')
    # But where it is what the container is to be stopped with.
    run, name = started(machine, ['--runtime-arg=--stop-signal=SIGHUP'], hears)
    machine.run('docker', 'stop', name)
    expect_equal('status after a stop', run.wait(timeout=200), 128 + signal.SIGHUP)
    machine.expect_clean()


@nightly()
def TheTimeOfGraceIsCountedOnce(machine):
    """By what a deaf container wrote last, and kept: its clock knows nothing of how long the runtime takes to end."""
    script = 'trap "" TERM; date +%s > first; while true; do date +%s > new; mv new last; sleep 0.1; done'
    began = time.monotonic()
    # The time counts from the start of the runtime's program, which may need seconds until the container runs.
    status, _, err = machine.container(['--timeout', '8s', '--grace', '12s', '--keep-on-failure'], script)
    expect(time.monotonic() - began >= 20, '8 s and 12 s of grace were not waited for')
    expect_equal(f'status ({err})', status, 124)
    kept = f'refs/sessions/{machine.last_session()["session"]}'
    lived = int(machine.git('show', f'{kept}:last')) - int(machine.git('show', f'{kept}:first'))
    # Counted twice it would be 32 s, less what the start took.
    expect(lived <= 26, f'it lived for {lived} s: more than 8 s, 12 s of grace, and what the runtime took to end it')
    machine.expect_clean()


def OptionsThatBreakARunAreRefusedByName(machine):
    before = machine.git('rev-parse', 'main')
    arguments = ['--name=x', '--rm', '--detach', '-d', '-itd', '-d=true', '--restart=always', '--sig-proxy=false',
                 '--user=1', '-u1', '--user', '--rmi', '--label=escrow.session=x']
    if machine.runtime.name == 'podman':
        arguments += ['--stop-signal=TERM', '--pidfile=x', '--rootfs']
    else:
        arguments += ['--cidfile=x']
    for argument in arguments:
        status, _, err = machine.container([f'--runtime-arg={argument}'], 'echo x > new')
        expect_equal(f'status of {argument} ({err})', status, 125)
        expect(f'--runtime-arg={argument} cannot be used' in err and err.count('\n') == 1, f'{argument}: {err}')
    expect_equal('sessions', json.loads(machine.escrow('audit', '--json')), machine.imported)
    # Their letters and words may be values.
    status, _, err = machine.container(['--runtime-arg=-eD=-d', '--runtime-arg=--env=A=--rm', '--runtime-arg=-lname=d'],
                                       'echo "$D $A" > new')
    expect_equal(f'status ({err})', (status, machine.git('show', 'main:new')), (0, '-d --rm'))
    # An image that another argument names is not the one that would be recorded.
    machine.make_image('another')
    status, _, err = machine.container(['--runtime-arg=another', '--runtime-arg=sh', '--runtime-arg=-c',
                                        '--runtime-arg=echo y > new'], 'exit 0')
    expect_equal(f'status ({err})', status, 125)
    expect('another image' in err, err)
    expect_equal('commits', machine.git('rev-list', '--count', f'{before}..main'), '1')
    machine.expect_clean()


def parent_of(process):
    """Its number; None: the process has ended."""
    with contextlib.suppress(OSError), open(f'/proc/{process}/status', encoding='utf-8') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('PPid:'))
    return None


def processes_with(words):
    """The processes whose command begins with these words."""
    commands = ((pid, command_of(pid)) for pid in processes())
    return [pid for pid, command in commands
            if command and [os.path.basename(command[0]), *command[1:len(words)]] == words]


def WhenTheRuntimesProgramIsKilledItIsRolledBack(machine):
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, ['--grace', '1s'], TRAPS)
    programs = processes_with([machine.runtime.name, 'run', '--name', name])
    expect(programs, 'the program of its container is not found')
    for program in programs:
        os.kill(program, signal.SIGKILL)
    expect_equal('status', run.wait(timeout=200), 125)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def ARenamedContainerIsJudgedAndRemoved(machine):
    run, name = started(machine, [], f'echo x > new; echo up; {WAITS}')
    machine.run(machine.runtime.name, 'rename', name, 'other')
    go_on(machine, 'other')
    _, err = run.communicate(timeout=200)
    expect_equal(f'status ({err})', run.returncode, 0)
    expect_equal('content', machine.git('show', 'main:new'), 'x')
    machine.expect_clean()
    run, name = started(machine, [], TRAPS)
    machine.run(machine.runtime.name, 'rename', name, 'other')
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=200)
    expect_equal(f'status ({err})', run.returncode, 128 + signal.SIGTERM)
    machine.expect_clean()


# Podman's processes are the run's own: frozen, they cannot be ended for the 30 s for which that is tried.
@nightly('Podman')
def APausedContainerIsRemoved(machine):
    run, name = started(machine, ['--grace', '1s'], TRAPS)
    machine.run(machine.runtime.name, 'pause', name)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=200)
    expect_equal(f'status ({err})', run.returncode, 128 + signal.SIGTERM)
    machine.expect_clean()


def replace_program(machine, name, text):
    """The environment in which a shell script stands for the runtime's program, whose path is $PROGRAM."""
    os.mkdir(f'{machine.directory}/replaced')
    with open(f'{machine.directory}/replaced/{name}', 'w', encoding='ascii') as file:
        file.write(text)
    os.chmod(file.name, 0o755)
    return {'PROGRAM': shutil.which(name), 'PATH': f'{machine.directory}/replaced:{os.environ["PATH"]}'}


@nightly('Podman')
def ARunWhoseEndCannotBeJudgedLeavesNoContainer(machine):
    before = machine.git('rev-parse', 'main')
    environment = replace_program(machine, machine.runtime.name, '#!/bin/sh\n[ "$1" != events ] || exit 1\n'
                                                                 'exec "$PROGRAM" "$@"\n')
    status, _, err = machine.container([], 'echo x > new', environment=environment)
    expect_equal(f'status ({err})', status, 125)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def started_for_docker(machine, grace):
    """A run whose container docker will know to be running after a restart; its name."""
    run, name = started(machine, ['--grace', grace], TRAPS)
    eventually('docker has noted the start', lambda: machine.state(name)['Running'])
    return run, name


def restore_containers(machine):
    """From now on the containers of a docker that is away go on."""
    machine.runtime.stop()
    machine.runtime.command.append('--live-restore')
    machine.runtime.start()


def kill_docker(machine):
    machine.runtime.server.kill()
    machine.runtime.server.wait()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f'{machine.directory}/runtime/pid')


@only('Docker')
def ARestartOfTheRuntimeLeavesNoContainer(machine):
    before = machine.git('rev-parse', 'main')
    restore_containers(machine)
    run, _ = started_for_docker(machine, '100s')
    kill_docker(machine)
    machine.runtime.start()
    _, err = run.communicate(timeout=300)
    expect_equal(f'status ({err})', run.returncode, 125)
    machine.expect_clean()
    # Of one that is away for longer the next run removes what is left.
    run, name = started_for_docker(machine, '1ms')
    kill_docker(machine)
    _, err = run.communicate(timeout=300)
    expect_equal(f'status ({err})', run.returncode, 125)
    expect('the next `escrow run --image` of this repository removes it' in err, err)
    machine.runtime.start()
    expect_equal('containers', machine.containers(), [name])
    status, _, err = machine.container([], 'exit 0')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@only('Docker')
def ACommandWhoseStartDockerHasForgottenIsEnded(machine):
    """A dockerd that is killed before it has noted the start takes the container for one that was only created."""
    restore_containers(machine)
    run, name = started_for_docker(machine, '100s')
    form = '{{.State.Pid}} {{.Id}}'
    process, container = machine.run('docker', 'container', 'inspect', '--format', form, name).split()
    kill_docker(machine)
    notes = f'{machine.directory}/runtime/data/containers/{container}/config.v2.json'
    with open(notes, encoding='utf-8') as file:
        config = json.load(file)
    config['State'].update(Running=False, Pid=0, StartedAt='0001-01-01T00:00:00Z')
    with open(notes, 'w', encoding='utf-8') as file:
        json.dump(config, file)
    machine.runtime.start()
    _, err = run.communicate(timeout=300)
    # Asked before docker is there again, Escrow does not know what became of it; afterwards docker says: never started.
    expect(run.returncode in (125, 126), f'status {run.returncode}: {err}')
    eventually('the command has ended', lambda: not os.path.exists(f'/proc/{process}'))
    machine.expect_clean()


@only('Docker')
def WhenTheRuntimeDiesInTheMiddleItIsRolledBack(machine):
    before = machine.git('rev-parse', 'main')
    run, _ = started(machine, ['--grace', '1s'], TRAPS)
    machine.runtime.server.kill()
    status = run.wait(timeout=200)
    _, err = run.communicate()
    expect_equal(f'status ({err})', status, 125)
    expect('docker' in err, err)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)


def OutOfMemoryRollsBack(machine):
    before = machine.git('rev-parse', 'main')
    status, _, err = machine.container(['--runtime-arg=--memory=32m', '--runtime-arg=--memory-swap=32m'],
                                       'echo x > new; exec tail /dev/zero')
    expect_equal(f'status ({err})', status, 137)
    expect_equal('the reason', machine.last_session()['reason'], 'oom')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@nightly()
def OutOfMemoryOfAChildRollsBackWhateverItsParentMakesOfIt(machine):
    before = machine.git('rev-parse', 'main')
    for script in ('echo x > new; tail /dev/zero; exit 0', 'tail /dev/zero; echo x > new; sleep 1; exit 0') * 2:
        status, _, err = machine.container(['--runtime-arg=--memory=32m', '--runtime-arg=--memory-swap=32m'], script)
        expect_equal(f'status ({err})', status, 125)
        expect_equal('the reason', machine.last_session()['reason'], 'oom')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


# containerd tells of the container's end and of the kill in it one beside the other: docker says false where it hears
# of the end first.
UNAWARE = r"""#!/bin/sh
[ "$1 $2" = 'container inspect' ] || exec "$PROGRAM" "$@"
exec sh -c '"$PROGRAM" "$@" | sed -E "s/^([a-z]+ [a-z]+) true /\1 false /"' sh "$@"
"""


@only('Docker')
def OutOfMemoryOfAChildIsSeenThoughDockerDoesNotKnow(machine):
    before = machine.git('rev-parse', 'main')
    environment = replace_program(machine, 'docker', UNAWARE)
    status, _, err = machine.container(['--runtime-arg=--memory=32m', '--runtime-arg=--memory-swap=32m'],
                                       'echo x > new; tail /dev/zero; exit 0', environment=environment)
    expect_equal(f'status ({err})', status, 125)
    expect_equal('the reason', machine.last_session()['reason'], 'oom')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


@nightly('Podman')
def ResultsWaitForApprovalAndPoliciesHold(machine):
    policy = f'{machine.directory}/policy.json'
    with open(policy, 'w', encoding='ascii') as file:
        json.dump({'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['write'], 'paths': ['/a.txt']}]}, file)
    status, _, err = machine.container(['--require-approval', '--policy', policy],
                                       'echo x > new; echo x > a.txt 2>/dev/null && exit 9; exit 0')
    expect_equal(f'status ({err})', status, 123)
    machine.escrow('approve', machine.last_session()['session'])
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tnew')


@nightly('Podman')
def BadInputIsRefusedBeforeAnythingIsOpened(machine):
    nowhere = {'DOCKER_HOST': 'unix:///nowhere/docker.sock', 'PATH': '/nowhere'}
    for options, environment, image, words in (
            ([], {}, 'no-such-image', 'no-such-image'),
            ([], nowhere, IMAGE, 'install and start docker or podman'),
            (['--mountpoint', 'relative'], {}, IMAGE, '--mountpoint'),
            (['--confine'], {}, IMAGE, '--confine')):
        status, _, err = machine.container(options, 'exit 0', image=image, environment=environment)
        expect(status not in (0, 127), f'{options}: status {status}')
        expect(words in err, f'{options}: {err}')
    # What is meant for a container never runs here instead.
    marker = f'{machine.directory}/marker'
    for options, words in ((['--image', ''], '--image: it is empty'), (['--runtime', 'docker'], 'requires --image'),
                           (['--pull', 'never'], 'requires --image'), (['--runtime-arg=--rm'], 'requires --image')):
        result = subprocess.run([machine.escrow_program, '--repo', machine.repository, 'run', *options, '--', 'touch',
                                 marker], env=machine.environment, capture_output=True, text=True, check=False,
                                timeout=200)
        expect(result.returncode == 125 and words in result.stderr, f'{options}: {result}')
        expect(not os.path.exists(marker), f'{options}: the command ran on the machine')
    expect_equal('sessions', json.loads(machine.escrow('audit', '--json')), machine.imported)
    machine.expect_clean()


@nightly()
def TwentyContainersAtOnceEachHaveTheirOwnSession(machine):
    start = time.monotonic()
    runs = [machine.start_container([], f'echo {number} > file-{number}; ls | head -n 30 > /dev/null')
            for number in range(20)]
    for run in runs:
        _, err = run.communicate(timeout=300)
        expect_equal(f'status ({err})', run.returncode, 0)
    print(f'20 containers at once: {time.monotonic() - start:.1f} s')
    names = machine.git('ls-tree', '--name-only', 'main').split()
    expect_equal('files', sorted(n for n in names if n.startswith('file-')), sorted(f'file-{n}' for n in range(20)))
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals(), own_runtime=(WhenTheRuntimeDiesInTheMiddleItIsRolledBack,
                                ARestartOfTheRuntimeLeavesNoContainer,
                                ACommandWhoseStartDockerHasForgottenIsEnded))
