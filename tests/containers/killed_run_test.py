#!/usr/bin/env python3
"""`escrow run --image` that is killed: its supervisor removes the container, or if that is killed too, the next run."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

from run_test import TRAPS, parent_of, replace_program, started
from runtimes import IMAGE, WAITS, eventually, expect, expect_equal, main, nightly, only, processes


def expect_rolled_back(machine, before):
    """Without a further run, which would remove a container that is left."""
    eventually('the container is gone', lambda: not machine.containers())
    machine.escrow('sessions')
    expect_equal('reason', machine.last_session()['reason'], 'host_lost')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def name_of(process):
    with contextlib.suppress(OSError), open(f'/proc/{process}/comm', encoding='utf-8') as file:
        return file.read().rstrip('\n')
    return None


def kill(run):
    """Returns when its supervisor, which has its outputs, has ended, too."""
    run.kill()
    run.communicate(timeout=200)


def WhenEscrowIsKilledTheContainerGoesToo(machine):
    before = machine.git('rev-parse', 'main')
    run, _ = started(machine, [], TRAPS)
    kill(run)
    expect_rolled_back(machine, before)


@nightly('Podman')
def WhenEscrowIsKilledARenamedContainerGoesToo(machine):
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, [], TRAPS)
    machine.run(machine.runtime.name, 'rename', name, 'other')
    # Another container has its name, and one more its label.
    session = name.removeprefix('escrow-')
    for another in (name, 'labelled'):
        machine.run(machine.runtime.name, 'create', '--name', another, '--label', f'escrow.session={session}', IMAGE,
                    'true')
    kill(run)
    eventually('the container is gone', lambda: 'other' not in machine.containers())
    expect_equal('containers of others', sorted(machine.containers()), sorted([name, 'labelled']))
    machine.run(machine.runtime.name, 'rm', name, 'labelled')
    expect_rolled_back(machine, before)


# Podman's processes are the run's own: frozen, they cannot be ended for the 20 s for which that is tried.
@nightly('Podman')
def WhenEscrowIsKilledAPausedContainerGoesToo(machine):
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, [], TRAPS)
    machine.run(machine.runtime.name, 'rename', name, 'other')
    machine.run(machine.runtime.name, 'pause', 'other')
    kill(run)
    expect_rolled_back(machine, before)


@nightly('Podman')
def WhenEscrowIsKilledBeforeItRemovesTheContainerItGoesToo(machine):
    before = machine.git('rev-parse', 'main')
    asked, killed = f'{machine.directory}/asked', f'{machine.directory}/killed'
    environment = replace_program(machine, machine.runtime.name, '#!/bin/sh\n'
                                  f'[ "$1 $2" != "container inspect" ] || {{ : > {asked}; '
                                  f'until [ -e {killed} ]; do sleep 0.1; done; }}\n'
                                  'exec "$PROGRAM" "$@"\n')
    run = machine.start_container([], 'echo x > new', environment)
    eventually('it asks how the container ended', lambda: os.path.exists(asked))
    expect_equal('containers', len(machine.containers()), 1)
    run.kill()
    with open(killed, 'w', encoding='ascii'):
        pass
    run.communicate(timeout=200)
    expect_rolled_back(machine, before)


@nightly()
def ARuntimeThatHangsIsGivenUpAndTheNextRunRemovesTheContainer(machine):
    before = machine.git('rev-parse', 'main')
    killed = f'{machine.directory}/killed'
    environment = replace_program(machine, machine.runtime.name,
                                  f'#!/bin/sh\n[ "$1" != ps ] || [ ! -e {killed} ] || sleep 1000\n'
                                  'exec "$PROGRAM" "$@"\n')
    run = machine.start_container([], TRAPS, environment)
    expect_equal('its first line', run.stdout.readline(), 'up\n')
    mountpoint = mountpoint_of(machine)
    with open(killed, 'w', encoding='ascii'):
        pass
    kill(run)
    expect(not os.path.lexists(mountpoint), f'{mountpoint} is left')
    status, _, err = machine.container([], 'exit 0')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


class HeldDocker:
    """A socket that hands all on to docker's, but a request whose line has `route`: that one, though its client may be
    gone by then, only once it is let go. A removal waits until that one was answered.
    """

    def __init__(self, machine, route, later):
        self.machine, self.route, self.later_route = machine, route.encode(), later.encode()
        self.held, self.freed, self.answered = threading.Event(), threading.Event(), threading.Event()
        self.answer = b''  # its first line
        self.later = threading.Event()  # a further request, whose line has `later`, came while it was held
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f'{machine.directory}/held.sock')
        self.listener.listen(100)
        self.environment = {'DOCKER_HOST': f'unix://{machine.directory}/held.sock'}
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.machine.runtime.api)
            is_held = threading.Event()
            threading.Thread(target=self.send_on, args=(client, server, is_held), daemon=True).start()
            threading.Thread(target=self.send_back, args=(server, client, is_held), daemon=True).start()

    def send_on(self, client, server, is_held):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                line = data.split(b'\r\n', 1)[0]
                if self.route in line and not self.held.is_set():
                    is_held.set()
                    self.held.set()
                    self.freed.wait()
                elif self.held.is_set() and self.later_route in line:
                    self.later.set()
                    if line.startswith(b'DELETE '):
                        self.answered.wait()
                server.sendall(data)
            if not is_held.is_set():
                server.shutdown(socket.SHUT_WR)

    def send_back(self, server, client, is_held):
        while data := server.recv(1 << 16):
            if self.freed.is_set() and is_held.is_set() and not self.answered.is_set():
                self.answer = data.split(b'\r\n', 1)[0]
                self.answered.set()
            with contextlib.suppress(OSError):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def mountpoint_of(machine):
    """Of the only open session."""
    [session] = [one['session'] for one in json.loads(machine.escrow('sessions', '--json')) if one['state'] == 'open']
    with open('/proc/mounts', encoding='utf-8', errors='surrogateescape') as mounts:
        [place] = [line.split()[1] for line in mounts if line.split()[0] == f'escrow:{session}']
    return place


def put_below(mountpoint, name):
    """A file in the directory that is below the mount: whatever comes now, it stays."""
    above, directory = os.path.split(mountpoint)
    other = f'{above}/other'
    os.mkdir(other)
    subprocess.run(['mount', '--bind', above, other], check=True)
    with open(f'{other}/{directory}/{name}', 'w', encoding='ascii'):
        pass
    subprocess.run(['umount', other], check=True)
    os.rmdir(other)


def killed_while_held(machine, route, until, is_mount_gone=False):
    """Until the supervisor's request of which the line has `until`. Returns the first line of docker's answer."""
    before = machine.git('rev-parse', 'main')
    docker = HeldDocker(machine, route, until)
    run = machine.start_container([], 'echo x > new; sleep 1000', docker.environment)
    expect(docker.held.wait(100), f'no request is about {route}')
    docker.later.clear()
    mountpoint = mountpoint_of(machine)
    put_below(mountpoint, 'old')
    run.kill()
    expect(docker.later.wait(100), f'the supervisor asks docker for no {until}')
    if is_mount_gone:
        machine.run('umount', '--lazy', mountpoint)
    docker.freed.set()
    expect(docker.answered.wait(100), f'docker does not answer to {route}')
    run.communicate(timeout=200)
    expect_rolled_back(machine, before)
    left = os.listdir(mountpoint)
    shutil.rmtree(os.path.dirname(mountpoint))
    expect(is_mount_gone or left == ['old'], f'the command ran in the directory below the mount: {left}')
    return docker.answer


@only('Docker')
def AContainerThatIsMadeAfterEscrowWasKilledIsRemoved(machine):
    # It would refuse a dead mount: it finds the directory, as if it had looked at the mount before the kill.
    answer = killed_while_held(machine, '/containers/create', '/containers/', is_mount_gone=True)
    expect(b' 201 ' in answer, f'docker made no container: {answer}')


@only('Docker')
def AContainerIsNotStartedAfterEscrowWasKilled(machine):
    # By then the supervisor has done all that comes before. Docker still finds a mount there, which is dead.
    killed_while_held(machine, '/start', 'DELETE /')


def AContainerThatAKilledRunLeftIsRemovedByTheNext(machine):
    run, name = started(machine, [], f'trap "" TERM; echo up; {WAITS}')
    machine.run(machine.runtime.name, 'rename', name, 'other')
    # Stopped, it does not hear of the end of its supervisor, and removes nothing either.
    supervisor, = [pid for pid in processes() if parent_of(pid) == run.pid and name_of(pid) == 'escrow-run']
    run.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    run.kill()
    run.wait(timeout=200)
    # Not one that merely has the label: an image made of the container hands it on.
    session = json.loads(machine.escrow('sessions', '--all', '--json'))[-1]['session']
    machine.run(machine.runtime.name, 'create', '--name', 'somebodys', '--label', f'escrow.session={session}', IMAGE,
                'true')
    expect_equal('containers', sorted(machine.containers()), ['other', 'somebodys'])
    status, _, err = machine.container([], 'exit 0')
    expect_equal(f'status ({err})', status, 0)
    expect_equal('containers', machine.containers(), ['somebodys'])
    machine.run(machine.runtime.name, 'rm', 'somebodys')
    run.communicate(timeout=200)
    machine.expect_clean()


if __name__ == '__main__':
    os.umask(0o022)
    main(globals())
