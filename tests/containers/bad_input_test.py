#!/usr/bin/env python3
"""`escrow run --image` where it cannot work: each time one sentence, no commit, and nothing left running or mounted."""
import json
import os
import signal
import stat
import subprocess
import tempfile

from run_test import TRAPS, started
from runtimes import IMAGE, command_of, eventually, expect, expect_equal, main, nightly, only, processes

NOBODY = 65534
WHAT_TO_DO = 'install and start docker or podman, or get the right to use it'


def refused(machine, words, *options, image=IMAGE, prefix=(), **keywords):
    """Before anything is opened: one sentence that has all of `words`, and no trace."""
    command = [machine.escrow_program, '--repo', machine.repository, 'run', '--image', image, *options, '--', 'true']
    result = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False, timeout=200,
                            **{'env': machine.environment, **keywords})
    expect(result.returncode == 125 or result.returncode == 2, f'{options}: status {result.returncode}')
    expect(result.stderr.startswith('escrow: ') and result.stderr.count('\n') == 1, f'no sentence: {result.stderr}')
    for word in words:
        expect(word in result.stderr, f'{word!r} is not said: {result.stderr}')
    expect_equal('sessions', json.loads(machine.escrow('audit', '--json')), machine.imported)
    still_open = [one for one in json.loads(machine.escrow('sessions', '--json')) if one['state'] == 'open']
    expect_equal('open sessions', still_open, [])


@nightly()
def WithoutARuntimeItSaysWhatToInstall(machine):
    name = machine.runtime.name
    nowhere = {**machine.environment, 'PATH': '/nowhere'}
    refused(machine, [f'{name} is not installed', WHAT_TO_DO], '--runtime', name, env=nowhere)
    refused(machine, ['docker is not installed', 'podman is not installed', WHAT_TO_DO], env=nowhere)


@only('Docker')
@nightly()
def AServerThatDoesNotRunIsNamed(machine):
    socket = f'{machine.directory}/nobody-listens.sock'
    refused(machine, [socket, WHAT_TO_DO], '--runtime', 'docker',
            env={**machine.environment, 'DOCKER_HOST': f'unix://{socket}'})


@only('Docker')
def WithoutARightToTheSocketItIsNamed(machine):
    socket = machine.runtime.environment['DOCKER_HOST'].removeprefix('unix://')
    for directory in (machine.directory, os.path.dirname(socket), os.path.dirname(os.path.dirname(socket))):
        os.chmod(directory, 0o711)
    # Nothing else is in its way: the repository is its own, and it may mount.
    subprocess.run(['chown', '-R', f'{NOBODY}:{NOBODY}', machine.repository], check=True)
    device = f'{machine.directory}/fuse'
    os.mknod(device, 0o666 | stat.S_IFCHR, os.stat('/dev/fuse').st_rdev)
    os.chmod(device, 0o666)
    script = (f'mount --bind {device} /dev/fuse && setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$@"; '
              f'status=$?; chown -R 0:0 {machine.repository}; exit $status')
    as_nobody = ['unshare', '--mount', 'sh', '-c', script, 'sh']
    refused(machine, [socket, 'permission denied', WHAT_TO_DO], '--runtime', 'docker', prefix=as_nobody)


@nightly()
def AnImageThatCannotBeHadIsNamed(machine):
    name = machine.runtime.name
    refused(machine, [f'{name} has no image no-such-image', 'pull it'], '--runtime', name, '--pull', 'never',
            image='no-such-image')
    # Nobody listens there.
    nowhere = '127.0.0.1:1/nowhere'
    refused(machine, [f'{name} could not pull the image {nowhere}', 'refused'], '--runtime', name, image=nowhere)
    refused(machine, ['a b'], '--runtime', name, '--pull', 'never', image='a b')


@nightly()
def AnOptionThatTheRuntimeRefusesRollsBack(machine):
    before = machine.git('rev-parse', 'main')
    status, _, err = machine.container(['--runtime-arg=--no-such-option'], 'echo x > new')
    expect(status not in (0, 127), f'status {status}')
    expect('no-such-option' in err and 'could not start the container' in err, err)
    expect_equal('state', machine.last_session()['state'], 'rolled_back')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    machine.expect_clean()


def watchers_of(container, program):
    """The processes of this program that name the container."""
    commands = ((pid, command_of(pid)) for pid in processes())
    return [pid for pid, command in commands if command and os.path.basename(command[0]).startswith(program)
            and any(container in word for word in command)]


def WhenWhatWatchesTheContainerDiesItIsRolledBack(machine):
    """Between the runtime and the container there is one more process: docker's shim, podman's conmon."""
    before = machine.git('rev-parse', 'main')
    run, name = started(machine, ['--grace', '1s'], TRAPS)
    number = machine.run(machine.runtime.name, 'container', 'inspect', '--format', '{{.Id}}', name)
    container = machine.run(machine.runtime.name, 'container', 'inspect', '--format', '{{.State.Pid}}', name)
    watchers = watchers_of(number, {'docker': 'containerd-shim', 'podman': 'conmon'}[machine.runtime.name])
    expect_equal('its watchers', len(watchers), 1)
    os.kill(watchers[0], signal.SIGKILL)
    status = run.wait(timeout=200)
    _, err = run.communicate()
    expect(status != 0, f'status {status} ({err})')
    expect_equal(f'state ({err})', machine.last_session()['state'], 'rolled_back')
    expect_equal('the branch', machine.git('rev-parse', 'main'), before)
    eventually('the container is gone', lambda: not os.path.exists(f'/proc/{container}'))
    machine.expect_clean()


@nightly()
def ARepositoryThatIsNotThereIsSaidFirst(machine):
    with tempfile.TemporaryDirectory(prefix='esc.', dir='/var/tmp') as directory:
        result = subprocess.run([machine.escrow_program, '--repo', f'{directory}/no.git', 'run', '--image', IMAGE,
                                 '--runtime', machine.runtime.name, '--', 'true'], env=machine.environment,
                                capture_output=True, text=True, check=False, timeout=200)
        expect(result.returncode not in (0, 127), f'status {result.returncode}')
        expect('no.git' in result.stderr and result.stderr.count('\n') == 1, result.stderr)
    expect_equal('containers', machine.containers(), [])


if __name__ == '__main__':
    os.umask(0o022)
    main(globals())
