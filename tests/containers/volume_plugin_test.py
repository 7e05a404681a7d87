#!/usr/bin/env python3
"""Volumes of escrowd in containers of real docker and podman: each container's exit status decides its session."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from runtimes import IMAGE, WAITS, eventually, expect, expect_equal, go_on, main, nightly, only
from volumes import TRAPS, VolumeMachine, refusal


def expect_decided(machine):
    eventually('all have ended', lambda: not {'open', 'committing'} & {one['state'] for one in machine.sessions()})


def ExitZeroCommitsWhatTheContainerWrote(machine):
    machine.volume(path_prefix='sub', committer='agent:trainer', issuer='user:alice', message='from a volume')
    status, out, err = machine.container('cat /data/b.txt; echo x > /data/new; rm /data/b.txt', '--name', 'job')
    expect_equal(f'status ({err})', (status, out), (0, 'b'))
    machine.expect_end('committed', 'success')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'D\tsub/b.txt\nA\tsub/new')
    expect_equal('subject', machine.git('log', '-1', '--format=%s', 'main'), 'from a volume')
    trailers = machine.git('log', '-1', '--format=%(trailers:only)', 'main')
    container = machine.run(machine.runtime.name, 'container', 'inspect', '--format', '{{.Id}}', 'job')
    image = machine.run(machine.runtime.name, 'image', 'inspect', '--format', '{{.Id}} {{.RepoDigests}}', IMAGE)
    for line in ('Escrow-Committer: agent:trainer', 'Escrow-Issuer: user:alice', 'Escrow-Trigger: volume work',
                 f'Escrow-Trigger-Id: {container}', 'Escrow-Exit-Code: 0', 'Escrow-Source: sandbox'):
        expect(line in trailers.splitlines(), f'no {line} in {trailers}')
    digest = [line.split('@sha256:')[1] for line in trailers.splitlines() if line.startswith('Escrow-Image: ')]
    expect(len(digest) == 1 and digest[0] in image, f'{trailers} is not of {image}')
    machine.expect_clean()


def run_and_remove(machine, script):
    """(status, standard error) of a container that the runtime removes at once."""
    if machine.is_docker:
        status, _, err = machine.container(script, '--rm')
        return status, err
    # Podman has removed a short one before Escrow could ask what it was.
    run = subprocess.Popen(['podman', *machine.command(f'echo up; {WAITS}; {script}', '--rm', '--name', 'job')],
                           env=machine.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect_equal('its first line', run.stdout.readline(), 'up\n')
    eventually('Escrow knows the container', lambda: 'in use by the container ' in refusal(machine))
    go_on(machine, 'job')
    _, err = run.communicate(timeout=200)
    return run.returncode, err


@nightly('PodmanVolumes')
def AContainerThatNeverUsesItsVolumeHasChangedNothing(machine):
    machine.volume()
    status, _, err = machine.container('true')
    expect_equal(f'status ({err})', status, 0)
    machine.expect_end('committed', 'no_changes')
    machine.expect_unchanged()
    machine.expect_clean()


@nightly('PodmanVolumes')
def AContainerThatDoesNotSeeTheSessionIsRolledBack(machine):
    machine.volume()
    machine.stop_service()
    machine.before = ['unshare', '--mount', '--propagation', 'private']
    machine.start_service()
    for script in ('true', 'echo written > /data/new'):
        status, _, err = machine.container(script)
        expect_equal(f'status ({err})', status, 0)
        session = machine.expect_end('rolled_back', 'not_started')['session']
        eventually('it is said', lambda name=session: f'session {name} of the volume work is rolled back, though'
                   in machine.log())
        lost = f'{machine.directory}/state/volumes/{session}'
    # Nothing removes the work that was done beside the session.
    with open(f'{lost}/new', encoding='ascii') as file:
        expect_equal('what it wrote', file.read(), 'written\n')
    shutil.rmtree(lost)
    machine.expect_unchanged()
    machine.expect_clean()


@nightly('PodmanVolumes')
def AnyOtherEndRollsBack(machine):
    machine.volume()
    for script, expected in (('echo x > /data/new; exit 3', 3), ('echo x > /data/new; exit 137', 137),
                             ('echo x > /data/new; exec /nowhere', 127)):
        status, err = run_and_remove(machine, script)
        expect_equal(f'status of {script} ({err})', status, expected)
        expect_equal('exit code', machine.expect_end('rolled_back', 'exit_status')['exit_code'], expected)
    machine.expect_unchanged()
    machine.expect_clean()


def AStopOrKillFromOutsideIsACancellation(machine):
    machine.volume()
    verbs = [['stop'], ['kill', '--signal', 'TERM'], ['rm', '-f']]
    for verb in verbs:
        name = machine.start_container(TRAPS)
        # Podman does not tell of mounts: whose they are can only be asked while the container is there.
        eventually('the service knows the container',
                   lambda name=name: f'in use by the container {name[:12]}' in refusal(machine))
        machine.run(machine.runtime.name, *verb, name)
        # Podman's stop cannot be trapped here, and is rarely recorded: it ends as if it had failed.
        unrecorded = [] if machine.is_docker or verb[0] == 'kill' else ['exit_status']
        machine.expect_end('rolled_back', 'cancelled', *unrecorded)
    machine.expect_unchanged()
    machine.expect_clean()


@only('DockerVolumes')
def ATerminalsNewSizeIsNoCancellation(machine):
    machine.volume()
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    machine.run('docker', 'kill', '--signal', 'WINCH', name)
    go_on(machine, name)
    machine.expect_end('committed', 'success')


@only('DockerVolumes')
@nightly()
def OnlyASignalThatAsksForAnEndCancels(machine):
    machine.volume()
    for number in ('HUP', 'USR1'):
        name = machine.start_container(f'trap "echo heard > /data/new-{number}" {number}; echo up; '
                                       f'until [ -e /data/new-{number} ]; do sleep 0.1; done')
        machine.run('docker', 'kill', '--signal', number, name)
        machine.expect_end('committed', 'success')
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def TheFirstMountAfterARestartOfTheRuntimeWorks(machine):
    machine.volume()
    for turn in range(2):
        status, _, err = machine.container(f'echo {turn} > /data/new')
        expect_equal(f'status of turn {turn} ({err})', status, 0)
        machine.expect_end('committed', 'success')
        machine.runtime.stop()
        machine.runtime.start()
    status, _, err = machine.container('echo x > /data/new')
    expect_equal(f'status ({err})', status, 0)
    machine.expect_end('committed', 'success')
    machine.expect_clean()


@only('DockerVolumes')
def WhatAContainerAsksToBeStoppedWithIsAStop(machine):
    machine.volume()
    name = machine.start_container(TRAPS.replace('TERM', 'WINCH'), '--stop-signal', 'SIGWINCH')
    machine.run('docker', 'stop', name)
    machine.expect_end('rolled_back', 'cancelled')
    machine.expect_unchanged()


def watches_memory(service, container):
    """Whether the service has the counters of the container's cgroup open."""
    for descriptor in os.listdir(f'/proc/{service}/fd'):
        with contextlib.suppress(OSError):
            path = os.readlink(f'/proc/{service}/fd/{descriptor}')
            if container in path and os.path.basename(path) in ('memory.oom_control', 'memory.events'):
                return True
    return False


def OutOfMemoryRollsBack(machine):
    machine.volume()
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}; tail /dev/zero; exit 0', '--memory=32m',
                                   '--memory-swap=32m')
    # Podman does not report it; escrowd watches from the container's first event on (deploy/README.md, limits).
    if not machine.is_docker:
        eventually('escrowd watches its memory', lambda: watches_memory(machine.service.pid, name))
    go_on(machine, name)
    status = machine.wait(name)
    expect(status in ('0', '137'), f'status {status}')
    machine.expect_end('rolled_back', *(['oom'] if status == '0' else ['oom', 'exit_status']))
    machine.expect_unchanged()
    machine.expect_clean()


@only('DockerVolumes')
def TwoContainersAtOnceHaveTwoSessions(machine):
    machine.volume()
    names = [machine.start_container(f'echo {n} > /data/file-{n}; echo up; ls /data; {WAITS}') for n in range(2)]
    for n, name in enumerate(names):
        go_on(machine, name)
        expect_equal('exit status', machine.wait(name), '0')
        seen = machine.run(machine.runtime.name, 'logs', name).split()
        expect(f'file-{n}' in seen and f'file-{1 - n}' not in seen, f'it sees {seen}')
    eventually('both are committed', lambda: [one['state'] for one in machine.sessions()] == ['committed'] * 2)
    files = machine.git('ls-tree', '--name-only', 'main').split()
    expect('file-0' in files and 'file-1' in files, files)
    # Docker says 0 of both: that one was not committed only the service can say.
    names = [machine.start_container(f'echo {n} > /data/same; echo up; {WAITS}') for n in range(2)]
    for name in names:
        go_on(machine, name)
        expect_equal('exit status', machine.wait(name), '0')
    eventually('both have ended', lambda: sorted(one['state'] for one in machine.sessions())[:1] == ['commit_failed'])
    failed, = [one['session'] for one in machine.sessions() if one['state'] == 'commit_failed']
    eventually('the log says it', lambda: f'session {failed} of the volume' in machine.log())
    expect('at same; its result is kept as refs/sessions/' + failed in machine.log(), machine.log())
    machine.git('show', f'refs/sessions/{failed}:same')
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def TwentyContainersAtOnceEachHaveTheirOwnSession(machine):
    machine.volume()
    start = time.monotonic()
    runs = [subprocess.Popen(['docker', *machine.command(f'echo {n} > /data/file-{n}; ls /data')],
                             env=machine.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for n in range(20)]
    for number, run in enumerate(runs):
        out, err = run.communicate(timeout=150)
        expect_equal(f'status ({err})', run.returncode, 0)
        expect(f'file-{number}' in out.split(), out)
    print(f'20 containers at once: {time.monotonic() - start:.1f} s')
    eventually('all are committed', lambda: {one['state'] for one in machine.sessions()} == {'committed'})
    expect_equal('sessions', len(machine.sessions()), 20)
    names = machine.git('ls-tree', '--name-only', 'main').split()
    expect_equal('files', sorted(n for n in names if n.startswith('file-')), sorted(f'file-{n}' for n in range(20)))
    machine.expect_clean()


@only('PodmanVolumes')
def ASecondContainerOverAPodmanVolumeTaintsTheSession(machine):
    machine.volume()
    first = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    second = machine.start_container('echo up; sleep 0.5')
    machine.wait(second)
    go_on(machine, first)
    machine.wait(first)
    ended = machine.expect_end('rolled_back', 'cancelled')
    expect(first[:12] in machine.log() and 'can only be rolled back' in machine.log(), machine.log())
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    machine.expect_unchanged()
    machine.expect_clean()


@only('PodmanVolumes')
def AStopThatCouldHaveBeenTrappedCommitsNothing(machine):
    machine.volume()
    status, _, err = machine.runtime_command('run', '--network=none', '-v', 'work:/data', IMAGE, 'sh', '-c',
                                             'echo x > /data/new')
    expect_equal(f'status ({err})', status, 0)
    ended = machine.expect_end('rolled_back', 'cancelled')
    expect('--stop-signal' in machine.log(), machine.log())
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    machine.expect_unchanged()


@only('DockerVolumes')
@nightly()
def TheMountSyntaxMakesAVolume(machine):
    mount = (f'type=volume,source=made,target=/data,volume-driver={machine.driver},volume-opt=repository=data,'
             'volume-opt=path_prefix=sub')
    status, out, err = machine.container('ls /data; echo x > /data/new', '--mount', mount, volume=None)
    expect_equal(f'status ({err})', (status, out), (0, 'b.txt'))
    machine.expect_end('committed', 'success')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tsub/new')


@nightly()
def ReadOnlyRootsOtherUsersAndDroppedRightsAreNoObstacle(machine):
    machine.volume(uid=1000, gid=1000)
    status, out, err = machine.container('id -u; echo x >> /data/a.txt; touch /data/new', '--read-only',
                                         '--cap-drop=ALL', '--user', '1000:1000')
    expect_equal(f'status ({err})', (status, out), (0, '1000'))
    machine.expect_end('committed', 'success')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'M\ta.txt\nA\tnew')
    machine.volume('frozen', read_only='true')
    status, _, err = machine.container('echo x > /data/y', volume='frozen:/data')
    expect(status != 0 and 'Read-only' in err, f'status {status} ({err})')
    machine.expect_clean()


@only('DockerVolumes')
def WhatDockerCopiesUpIsNotCommitted(machine):
    os.makedirs(f'{machine.directory}/image/data')
    with open(f'{machine.directory}/image/data/from-image', 'w', encoding='ascii') as file:
        file.write('x\n')
    machine.make_image('with-data')
    machine.volume(path_prefix='empty')
    machine.run('docker', 'create', '--name', 'job', '--network=none', '-v', 'work:/data', 'with-data', 'sh', '-c',
                'ls /data; echo x > /data/new')
    machine.expect_no_trace()
    status, out, err = machine.runtime_command('start', '--attach', 'job')
    expect_equal(f'status ({err})', (status, out), (0, ''))
    machine.expect_end('committed', 'success')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tempty/new')
    machine.expect_clean()


@nightly('PodmanVolumes')
def AMountThatNoContainerGetsLeavesNothingWhateverIsKilled(machine):
    machine.volume()
    def plugin(verb):
        return json.loads(machine.run('curl', '--silent', '--unix-socket', machine.config['volume_plugin']['socket'],
                                      '-d', '{"Name": "work", "ID": "nobody"}', f'http://escrow/VolumeDriver.{verb}'))
    for how in (signal.SIGTERM, signal.SIGKILL):
        path = plugin('Mount')['Mountpoint']
        expect(os.path.exists(f'{path}/a.txt'), 'it is not mounted')
        with open(f'{path}/new', 'w', encoding='ascii') as file:
            file.write('x')
        machine.stop_service(how)
        machine.start_service()
        expect_equal('sessions meanwhile', len(machine.sessions()), 1)
        expect_equal('the answer', plugin('Unmount'), {'Err': ''})
        machine.expect_no_trace()
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def ComposeFilesHaveVolumesToo(machine):
    names = {'driver: escrow': f'driver: {machine.driver}', 'debian:12-slim': IMAGE}
    def compose(*words):
        return machine.compose('compose-volume.yaml', names, *words)
    status, said = compose('run', '--rm', 'job')
    expect_equal(f'status ({said})', status, 0)
    machine.expect_end('committed', 'success')
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tmodels/built')
    expect_equal('committer', machine.git('log', '-1', '--format=%(trailers:key=Escrow-Committer,valueonly)', 'main'),
                 'agent:trainer')
    committed = machine.git('rev-parse', 'main')
    status, said = compose('run', '--rm', 'job', 'sh', '-c', 'rm built; exit 3')
    expect_equal(f'status ({said})', status, 3)
    expect_equal('exit code', machine.expect_end('rolled_back', 'exit_status')['exit_code'], 3)

    # Two at once, and awaited; then one that is stopped.
    status, said = compose('up', '--scale', 'job=2')
    expect_equal(f'status ({said})', status, 0)
    expect_decided(machine)
    expect_equal('sessions', len(machine.sessions()), 4)
    expect(machine.git('rev-parse', 'main') != committed, 'nothing was committed')
    committed = machine.git('rev-parse', 'main')
    status, said = compose('run', '--detach', 'job', 'sh', '-c', TRAPS)
    expect_equal(f'status ({said})', status, 0)
    name = machine.run('docker', 'ps', '--quiet')
    eventually('the container speaks', lambda: machine.output(name) != b'')
    status, said = compose('down', '--volumes')
    expect_equal(f'status ({said})', status, 0)
    machine.expect_end('rolled_back', 'cancelled')
    expect_equal('the branch', machine.git('rev-parse', 'main'), committed)
    expect_equal('volumes', machine.volumes(), [])
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def CopyingOutOfARunningContainerSeesItsSession(machine):
    machine.volume()
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}')
    machine.run('docker', 'cp', f'{name}:/data/new', f'{machine.directory}/copied')
    go_on(machine, name)
    with open(f'{machine.directory}/copied', encoding='ascii') as file:
        expect_equal('what was copied', file.read(), 'x\n')
    expect_equal('exit status', machine.wait(name), '0')
    machine.expect_end('committed', 'success')
    machine.run('docker', 'cp', f'{name}:/data/a.txt', f'{machine.directory}/later')
    expect_equal('sessions that changed the branch', machine.git('rev-list', '--count', f'{machine.first}..main'), '1')
    machine.expect_clean()


@nightly('PodmanVolumes')
def ResultsWaitForApproval(machine):
    machine.volume(require_approval='true')
    status, _, err = machine.container('echo x > /data/new')
    expect_equal(f'status ({err})', status, 0)
    machine.expect_end('awaiting_approval', 'none')
    machine.expect_unchanged()
    machine.escrow('approve', machine.session()['session'])
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tnew')
    machine.expect_clean()


@nightly('PodmanVolumes')
def ContainersDoNotNoticeARestartOfTheService(machine):
    machine.volume()
    # /tmp/written has a byte for each line that was written.
    script = ('echo up; i=0; until [ -e /tmp/go ]; do echo $i >> /data/new || exit 9; cat /data/a.txt > /dev/null || '
              'exit 9; i=$((i+1)); echo >> /tmp/written; sleep 0.1; done; echo $i')
    lines = 0
    for how in (signal.SIGTERM, signal.SIGKILL):
        name = machine.start_container(script)
        process = machine.run(machine.runtime.name, 'container', 'inspect', '--format', '{{.State.Pid}}', name)
        def written(process=process):
            with contextlib.suppress(FileNotFoundError):
                return os.path.getsize(f'/proc/{process}/root/tmp/written')
            return 0
        def goes_on(when, written=written):
            before = written()
            eventually(f'it goes on {when}', lambda: written() >= before + 5)
        machine.stop_service(how)
        goes_on('without a service')
        machine.start_service()
        goes_on('with the next')
        go_on(machine, name)
        expect_equal('exit status', machine.wait(name), '0')
        machine.expect_end('committed', 'success')
        lines += int(machine.run(machine.runtime.name, 'logs', name).split()[-1])
    expect_equal('lines', len(machine.git('show', 'main:new').split()), lines)
    machine.expect_clean()


def WhatEndsWhileNoServiceIsThereIsDecidedByTheNext(machine):
    machine.volume()
    names = [machine.start_container(f'echo {code} > /data/new-{code}; echo up; {WAITS}; exit {code}')
             for code in ((0, 3) if machine.is_docker else (0,))]
    trapped = machine.start_container(TRAPS.replace('new', 'trapped')) if machine.is_docker else None
    machine.stop_service(signal.SIGKILL)
    for name in names:
        go_on(machine, name)
    if trapped:
        machine.run('docker', 'kill', '--signal', 'TERM', trapped)
    # Docker asks the absent plugin again for 15 s, and says nothing about the container meanwhile.
    for name in names + ([trapped] if trapped else []):
        machine.wait(name)
    machine.start_service()
    expect_decided(machine)
    ends = [(one['state'], one['reason']) for one in machine.sessions()]
    expected = [('committed', 'success'), ('rolled_back', 'exit_status'), ('rolled_back', 'cancelled')]
    expect_equal('ends', ends, expected[:len(ends)])
    expect_equal('changes', machine.git('diff', '--name-status', 'main^', 'main'), 'A\tnew-0')
    machine.expect_clean()


def refuse_in_place_of(runtime, seconds):
    """Answers nobody at the socket of a runtime that has died, until the service has asked there for so long."""
    os.unlink(runtime.api)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(runtime.api)
        listener.listen()
        listener.settimeout(100)
        listener.accept()[0].close()
        first = time.monotonic()
        while time.monotonic() - first < seconds:
            listener.accept()[0].close()
    os.unlink(runtime.api)


@only('DockerVolumes')
def WhenTheRuntimeDiesNothingIsCommittedAndNothingLost(machine):
    machine.give_up_soon()
    machine.volume()
    name = machine.start_container('echo x > /data/new; echo up; until [ -e /go/go ]; do sleep 0.1; done; exit 0',
                                   '-v', f'{machine.directory}:/go')
    process = machine.run('docker', 'container', 'inspect', '--format', '{{.State.Pid}}', name)
    machine.runtime.server.kill()
    machine.runtime.server.wait()
    # It ends while nobody is there who could say how.
    with open(f'{machine.directory}/go', 'w', encoding='ascii'):
        pass
    eventually('it has ended', lambda: not os.path.exists(f'/proc/{process}'))
    refuse_in_place_of(machine.runtime, 2 * machine.config['volume_plugin']['lost_after_ms'] / 1000)
    expect_equal('its state meanwhile', machine.session()['state'], 'open')
    os.unlink(f'{machine.directory}/runtime/pid')
    machine.runtime.start()
    ended = machine.expect_end('rolled_back', 'host_lost')
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    machine.expect_unchanged()
    machine.expect_clean()


@only('DockerVolumes')
@nightly()
def AContainerThatVanishedIsRolledBackAndItsResultKept(machine):
    machine.give_up_soon()
    machine.volume()
    name = machine.start_container('echo x > /data/new; echo up; sleep 600')
    machine.stop_service(signal.SIGKILL)
    machine.run('docker', 'rm', '-f', name)
    machine.runtime.stop()  # and with it what it remembers
    machine.runtime.start()
    machine.start_service()
    ended = machine.expect_end('rolled_back', 'host_lost')
    expect_equal('the kept result', machine.git('show', f'refs/sessions/{ended["session"]}:new'), 'x')
    machine.expect_clean()


@nightly('PodmanVolumes')
def WhenTheHostOfASessionIsKilledNothingIsCommitted(machine):
    machine.give_up_soon()
    machine.volume()
    name = machine.start_container(f'echo x > /data/new; echo up; {WAITS}; exit 0')
    pids = [pid for pid in os.listdir('/proc') if pid.isdigit() and is_host(pid, machine.service.pid)]
    expect_equal('hosts', len(pids), 1)
    os.kill(int(pids[0]), signal.SIGKILL)
    go_on(machine, name)
    expect_equal('exit status', machine.wait(name), '0')
    machine.expect_end('rolled_back', 'host_lost')
    machine.expect_unchanged()
    machine.expect_clean()


def is_host(pid, service):
    """Whether the service has started it to hold a session."""
    try:
        with open(f'/proc/{pid}/status', encoding='ascii') as file:
            status = dict(line.split(None, 1) for line in file if len(line.split()) > 1)
    except OSError:
        return False
    return status['Name:'].strip() == 'escrow-host' and status['PPid:'].strip() == str(service)


def AContainerThatCannotStartLeavesNothing(machine):
    machine.volume()
    status, _, err = machine.runtime_command('run', '--network=none', '-v', 'work:/data', IMAGE, '/no/such/program')
    expect(status in (126, 127), f'status {status} ({err})')
    # Podman never says for whom the volume was.
    if machine.is_docker:
        machine.expect_end('rolled_back', 'exit_status', 'not_started')
    else:
        machine.expect_no_trace()
    machine.expect_unchanged()
    machine.expect_clean()


@nightly('PodmanVolumes')
def BadOptionsAreRefusedByASentence(machine):
    for options, words in (({'repository': 'nowhere'}, 'nowhere'),
                           ({'repository': 'data', 'branhc': 'x'}, 'branhc'),
                           ({'repository': 'data', 'branch': 'nowhere'}, 'nowhere'),
                           ({'repository': 'data', 'uid': 'alice'}, 'uid'),
                           ({'repository': 'data', 'umask': '999'}, 'umask'),
                           ({'repository': 'data', 'path_prefix': '../x'}, 'path_prefix'),
                           ({'repository': 'data', 'committer': 'nobody'}, 'committer'),
                           ({'repository': 'data', 'require_approval': 'yes'}, 'require_approval'),
                           ({'repository': 'data', 'timeout': 'soon'}, 'timeout'),
                           ({'repository': 'data', 'symlinks': 'some'}, 'symlinks'),
                           ({'repository': 'data', 'policy': '/nowhere.json'}, 'policy'),
                           ({}, 'repository')):
        words_of = [word for name, value in options.items() for word in ('-o', f'{name}={value}')]
        status, _, err = machine.runtime_command('volume', 'create', '--driver', machine.driver, *words_of, 'bad')
        expect(status != 0 and words in err and err.count('\n') == 0, f'{options}: {status} {err}')
    expect_equal('volumes', machine.volumes(), [])
    expect_equal('sessions', machine.sessions(), [])


@nightly('PodmanVolumes')
def AVolumeInUseIsNotRemoved(machine):
    machine.volume()
    name = machine.start_container(TRAPS)
    status, _, err = machine.runtime_command('volume', 'rm', 'work')
    expect(status != 0 and 'use' in err, f'status {status} ({err})')
    # Also where the runtime does not know: what Escrow says by itself.
    eventually('it is refused by name', lambda: f'in use by the container {name[:12]}' in refusal(machine))
    machine.run(machine.runtime.name, 'rm', '-f', name)
    machine.stop_service()
    machine.start_service()
    expect_equal('volumes', machine.volumes(), ['work'])
    machine.run(machine.runtime.name, 'volume', 'rm', 'work')
    expect_equal('volumes', machine.volumes(), [])


@nightly('PodmanVolumes')
def WithoutARuntimeThatTellsNobodyGetsAVolume(machine):
    machine.volume()
    machine.stop_service()
    machine.start_service(runtimes=['unix:///nowhere/docker.sock'])
    status, _, err = machine.container('echo x > /data/new')
    expect(status != 0 and 'nobody would say how it ends' in err, f'status {status} ({err})')
    expect_equal('sessions', machine.sessions(), [])
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals(), VolumeMachine, own_runtime=(
        TheFirstMountAfterARestartOfTheRuntimeWorks,
        WhenTheRuntimeDiesNothingIsCommittedAndNothingLost,
        AContainerThatVanishedIsRolledBackAndItsResultKept))
