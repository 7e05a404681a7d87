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
# A session writes its journal by itself after 100 ms. Contents that take the place of others are synced before that: a
# command that takes longer makes these syncs more often.
SESSION = 'REPOSITORY/escrow/sessions/#'
BY_TIME = (f'fdatasync {SESSION}/staging/#', f'fsync {SESSION}/staging', f'fsync {SESSION}')


def syncs_of(options, name, top, made):
    play = Play(options, name, top, made)
    lines = [line.replace(play.bench.repo, 'REPOSITORY').replace(play.bench.out, 'OUT')
             for line in play.list_calls('SYNC')]
    shutil.rmtree(play.bench.top)
    return {(name, kind): count for kind, count in collections.Counter(map(kind_of_call, lines)).items()}


def written_down(scenes):
    with open(LIST, encoding='utf-8') as lines:
        parts = [line.rstrip('\n').replace(': ', ' ', 1).split(' ', 2) for line in lines]
    return {(name, kind): int(count) for name, count, kind in parts if name in scenes}


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
        found = {key: count for name in options.scene for key, count in syncs_of(options, name, top, made).items()}
    except Broken as error:
        print(f'BROKEN: {error}')
        return 1
    finally:
        shutil.rmtree(top, ignore_errors=True)
    if options.write:
        with open(LIST, 'w', encoding='utf-8') as out:
            for name in options.scene:
                out.writelines(f'{name}: {count} {kind}\n' for (scene, kind), count in sorted(found.items())
                               if scene == name)
    wanted, broken = written_down(options.scene), 0
    for name, kind in sorted({**wanted, **found}):
        was, now = wanted.get((name, kind), 0), found.get((name, kind), 0)
        if now < was or (now > was and kind not in BY_TIME):
            broken += 1
            print(f'BROKEN: {name}: {kind}: {now} in place of the {was} that are written down')
    print(f'{len(found)} kinds of syncs in {len(options.scene)} commands')
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
