#!/usr/bin/env python3
"""How long a container takes to start and end (`true`) over a session, against a plain bind mount.

usage: container_start.py [--build DIR] [--runtime docker|podman] [--rounds N] [--at-once N]

Each round starts every kind once, another one first each time; the figures are medians. Then so many at once. Needs
root, the runtime and busybox; starts a runtime of its own (../containers/runtimes.py), and for docker an escrowd that
serves volumes (podman gives several containers at once the same one). A kind is a line in KINDS.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f'{HERE}/../containers')
from runtimes import IMAGE, Docker, Machine, Podman, obstacle  # pylint: disable=wrong-import-position
from volumes import VolumeMachine  # pylint: disable=wrong-import-position


def bind_mount(machine):
    return [machine.runtime.name, 'run', '--rm', '--network', 'none', '--mount',
            f'type=bind,source={machine.directory}/tree,target=/sandbox', '--workdir', '/sandbox', IMAGE]


def bind_mount_asked(machine):
    """The same with what `escrow run` asks of the runtime before and after: what is left is Escrow's own."""
    if machine.runtime.name == 'docker':
        events = 'docker events --since "$begun" --until "$(date +%s.%N)" --filter "container=bench-$$"'
    else:
        events = 'podman events --since "$begun" --stream=false --filter "container=bench-$$"'
    runtime = machine.runtime.name
    script = f"""
begun=$(date +%s.%N)
{{ {runtime} version && {runtime} image inspect {IMAGE}; }} >/dev/null
{runtime} run --name "bench-$$" --network none --mount "type=bind,source=$0,target=/sandbox" --workdir /sandbox \\
  {IMAGE} "$@"
status=$?
{{ {runtime} container inspect "bench-$$" && {events} && {runtime} rm "bench-$$"; }} >/dev/null || exit 125
exit "$status"
"""
    return ['sh', '-c', script, f'{machine.directory}/tree']


def escrow_run(machine):
    return [machine.escrow_program, '--repo', machine.repository, 'run', '--runtime', machine.runtime.name, '--image',
            IMAGE, '--pull', 'never', '--network', 'none', '--']


def escrow_volume(_):
    return ['docker', 'run', '--rm', '--network', 'none', '-v', 'work:/sandbox', '--workdir', '/sandbox', IMAGE]


KINDS = {'bind mount': bind_mount, 'bind mount, and what `escrow run` asks': bind_mount_asked,
         'escrow run --image': escrow_run, 'volume of driver escrow': escrow_volume}


def finish(process):
    _, said = process.communicate(timeout=120)
    if process.returncode != 0:
        sys.exit(f'{process.args}: status {process.returncode}: {said}')


def start(machine, kind, command):
    return subprocess.Popen([*KINDS[kind](machine), *command], env=machine.environment, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def seconds_of(machine, kind, count, command=('busybox', 'true')):
    begun = time.monotonic()
    for process in [start(machine, kind, command) for _ in range(count)]:
        finish(process)
    return time.monotonic() - begun


def rows(machine, rounds, at_once):
    """(kind, median alone, slowest alone, that many at once)"""
    kinds = [kind for kind in KINDS if machine.runtime.name == 'docker' or KINDS[kind] != escrow_volume]
    alone = {kind: [] for kind in kinds}
    for kind in kinds:
        seconds_of(machine, kind, 1)
    for turn in range(rounds):
        for kind in kinds[turn % len(kinds):] + kinds[:turn % len(kinds)]:
            alone[kind].append(seconds_of(machine, kind, 1))
    for kind in kinds:
        crowd = statistics.median(seconds_of(machine, kind, at_once) for _ in range(3))
        yield kind, statistics.median(alone[kind]), max(alone[kind]), crowd


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--build', default=f'{HERE}/../../build/release')
    parser.add_argument('--runtime', choices=['docker', 'podman'], default='docker')
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--at-once', type=int, default=20)
    arguments = parser.parse_args()
    arguments.escrow = os.path.abspath(f'{arguments.build}/daemon/escrow')
    if why := obstacle():
        sys.exit(why)
    if arguments.runtime == 'docker':
        arguments.escrowd = os.path.abspath(f'{arguments.build}/daemon/escrowd')
        machine = VolumeMachine(arguments, Docker)
    else:
        machine = Machine(arguments, Podman)
    try:
        if arguments.runtime == 'docker':
            machine.volume()
        print(f'| {arguments.runtime} | median, ms | slowest, ms | ratio | {arguments.at_once} at once, s | ratio |\n'
              '|---|---|---|---|---|---|')
        first = None
        for kind, median, slowest, crowd in rows(machine, arguments.rounds, arguments.at_once):
            first = first or (median, crowd)
            print(f'| {kind} | {median * 1000:.0f} | {slowest * 1000:.0f} | {median / first[0]:.2f} | {crowd:.1f} | '
                  f'{crowd / first[1]:.2f} |')
        if arguments.runtime == 'docker' and {one['state'] for one in machine.sessions()} != {'committed'}:
            sys.exit(f'not every container over the volume was a success: {machine.log()[-2000:]}')
    finally:
        machine.close()


if __name__ == '__main__':
    main()
