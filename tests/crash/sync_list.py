#!/usr/bin/env python3
"""Compares the syncs of each command with those that are written down in sync_list.txt, so that none is lost unseen.

  sync_list.py --escrow PATH --tool PATH [--scene NAME...] [--write]

A sync that fails is seen by faults.py; one that is no longer made fails nowhere but here. The order is left to
durability_order_test.py. With --write the file says afterwards what the commands do: each line that changes is a
promise to look at. Exit status 1 names what is missing and what is new.
"""
import argparse
import collections
import os
import shutil
import sys
import tempfile

from fault_scenes import SCENES, Broken
from faults import Play, kind_of_call
from injector import reason_to_skip

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'sync_list.txt')
# git syncs its own files in gc as its version and configuration have it; a run's journal is synced by time, too.
LEFT_OUT = ('gc', 'run', 'run-fails', 'run-serializable')


def syncs_of(options, name, top, made):
    play = Play(options, name, top, made)
    lines = [line.replace(play.bench.repo, 'REPOSITORY').replace(play.bench.out, 'OUT')
             for line in play.list_calls('SYNC')]
    shutil.rmtree(play.bench.top)
    found = collections.Counter(map(kind_of_call, lines))
    return [f'{name}: {count} {line}' for line, count in sorted(found.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scenes = [name for name in SCENES if name not in LEFT_OUT]
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--tool', required=True, help='the built syscall_faults')
    parser.add_argument('--scene', nargs='+', choices=scenes, default=scenes, metavar='NAME')
    parser.add_argument('--write', action='store_true', help='write the file')
    options = parser.parse_args()
    options.tool, options.patience = os.path.abspath(options.tool), 180
    if (skipped := reason_to_skip()) is not None:
        return skipped
    top, made = tempfile.mkdtemp(prefix='escrow-syncs-'), {}
    try:
        found = [line for name in options.scene for line in syncs_of(options, name, top, made)]
    except Broken as error:
        print(f'BROKEN: {error}')
        return 1
    finally:
        shutil.rmtree(top, ignore_errors=True)
    if options.write:
        with open(LIST, 'w', encoding='utf-8') as out:
            out.write('\n'.join(found) + '\n')
    with open(LIST, encoding='utf-8') as lines:
        wanted = [line for line in lines.read().splitlines() if line.split(':')[0] in options.scene]
    for line in sorted(set(wanted) ^ set(found)):
        print(f'BROKEN: {line}: {"no longer so" if line in wanted else "not written down"}')
    print(f'{len(found)} kinds of syncs in {len(options.scene)} commands')
    return 1 if wanted != found else 0


if __name__ == '__main__':
    sys.exit(main())
