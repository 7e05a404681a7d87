#!/usr/bin/env python3
"""Checks with strace that what escrow promises to survive a power cut is synced before it is promised.

SIGKILL cannot show a missing fsync: the kernel still holds every page. The order of the system calls can. Five
promises are traced on the real binary: `escrow commit` of a detached session, `escrow run`, an fsync of a new and of an
existing file in a mount, an fsync of a directory after a rename, and the growth of a file that was synced when it was
small.

  durability_order_test.py --escrow PATH [--keep]

Exit status 1 names each broken promise. The mount is traced for root only: a traced fusermount3 has no rights.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

CALLS = 'fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat,write,pwrite64,writev,pwritev,copy_file_range'
WRITES = ('write', 'pwrite64', 'writev', 'pwritev', 'copy_file_range')
SYNCS = ('fsync', 'fdatasync')
LINE = re.compile(r'^(\d+) +([\d.]+) (?:<\.\.\. (\w+) resumed>(.*)|(\w+)\((.*))$')
UNFINISHED = ' <unfinished ...>'


class Broken(Exception):
    pass


class Call:
    """One system call: `began` and `ended` are its places in the trace, and the instants beside them."""

    def __init__(self, name, text, began, at):
        self.name, self.text, self.began, self.started_at = name, text, began, at
        self.ended, self.ended_at = None, None

    def end(self, place, at):
        self.ended, self.ended_at = place, at

    @property
    def worked(self):
        return self.ended is not None and not re.search(r'= -1 E\w+ \(', self.text)

    @property
    def file(self):  # of the first descriptor; copy_file_range writes to its second
        found = re.findall(r'\d+<([^>]*)>', self.text)
        return found[-1 if self.name == 'copy_file_range' else 0] if found else ''

    @property
    def paths(self):
        return re.findall(r'"([^"]*)"', self.text)


def read_trace(path):
    calls, open_calls = [], {}
    with open(path, encoding='utf-8', errors='replace') as lines:
        for place, line in enumerate(lines):
            found = LINE.match(line.rstrip('\n'))
            if not found:
                continue
            thread, at, resumed, rest, name, text = found.groups()
            if resumed:
                call = open_calls.pop(thread)
                call.text += rest
                call.end(place, float(at))
                continue
            call = Call(name, text.removesuffix(UNFINISHED), place, float(at))
            calls.append(call)
            if text.endswith(UNFINISHED):
                open_calls[thread] = call
            else:
                call.end(place, float(at))
    return calls


class Trace:
    def __init__(self, path):
        self.calls = [call for call in read_trace(path) if call.worked]
        if not self.calls:
            raise Broken('strace saw no call at all: is tracing allowed here?')

    def syncs(self, file):
        return [call for call in self.calls if call.name in SYNCS and call.file == file]

    def writes(self, file):
        return [call for call in self.calls if call.name in WRITES and call.file == file]

    def moves(self, matches):
        return [call for call in self.calls if call.name.startswith(('rename', 'link')) and matches(call.paths[-1])]

    # The last write to `file` that began before `place` is followed by a sync that ended before `place`.
    def synced_before(self, file, place):
        written = [call.ended for call in self.writes(file) if call.began < place]
        last = max(written, default=-1)
        return any(last < call.began and call.ended < place for call in self.syncs(file))


def expect(holds, promise):
    if not holds:
        raise Broken(promise)


class Scene:
    def __init__(self, escrow, top):
        self.escrow, self.top = escrow, top
        self.repo, self.mount = os.path.join(top, 'data.git'), os.path.join(top, 'mount')
        os.makedirs(self.mount)
        base = os.path.join(top, 'base')
        os.makedirs(f'{base}/d')
        for name in ('old', 'd/a', 'd/b'):
            with open(f'{base}/{name}', 'w', encoding='utf-8') as out:
                out.write('base\n' * 5000)
        self.run('init')
        self.run('import', base, '--message', 'base')

    def command(self, *args):
        return [self.escrow, '--repo', self.repo, *args]

    def run(self, *args, before=()):
        done = subprocess.run([*before, *self.command(*args)], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Broken(f'escrow {" ".join(args)} ended with {done.returncode}: {done.stderr.strip()}')
        return done.stdout

    def tracer(self, name):
        return ['strace', '-f', '-ttt', '-y', '-s', '0' if name == 'host' else '64', '-e', f'trace={CALLS}', '-o',
                os.path.join(self.top, name)]

    def host(self, before=()):
        host = subprocess.Popen([*before, *self.command('mount', self.mount, '--foreground')], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = host.stdout.readline()
        if not line:
            raise Broken(f'escrow mount says: {host.stderr.read().strip()}')
        return host, line.split()[-1]

    def unmount(self, host):
        subprocess.run(['umount', self.mount], check=True, capture_output=True, timeout=30)
        host.communicate(timeout=60)


def write(path, data):
    with open(path, 'wb') as out:
        out.write(data)


# ---- commit ----

def check_objects(trace, repo, moved):
    packs = os.path.join(repo, 'objects', 'pack')
    published = trace.moves(lambda path: path.startswith(packs) and path.endswith(('.pack', '.idx')))
    expect({os.path.splitext(move.paths[-1])[1] for move in published} == {'.pack', '.idx'},
           f'the trace shows no pack and index going to {packs}')
    for move in published:
        expect(trace.synced_before(move.paths[0], move.began), f'{move.paths[-1]} appeared before it was synced')
    last = max(move.ended for move in published)
    expect(last < moved.began, 'the branch moved before the objects were published')
    return max([call.began for call in trace.syncs(packs) if last < call.began and call.ended < moved.began],
               default=None)


def check_commit(scene):
    host, session = scene.host()
    for n in range(3):
        write(f'{scene.mount}/d/new{n}', b'new %d\n' % n * 20000)
    write(f'{scene.mount}/old', b'changed\n')
    scene.unmount(host)
    said = scene.run('commit', session, before=scene.tracer('commit'))
    expect('committed' in said, f'escrow commit says: {said}')
    check_landing(scene, Trace(os.path.join(scene.top, 'commit')), '1<')


# The process that commits noted, without waiting for the disk, where it mounted the session before.
def check_run(scene):
    scene.run('run', '--', 'sh', '-c', 'echo changed > old', before=scene.tracer('run'))
    trace = Trace(os.path.join(scene.top, 'run'))
    check_landing(scene, trace, '2<')
    log = os.path.join(scene.repo, 'escrow/catalog.db-wal')
    bases = trace.moves(lambda path: '/refs/escrow/base/' in path)
    expect(len(bases) == 1, f'{len(bases)} pins were made')
    expect(bases[0].name.startswith('link'), 'a pin is not another name of the branch, whose file is on disk')
    opened = [call for call in trace.syncs(log) if bases[0].ended < call.began]
    expect(opened, 'the session was not synced after its pin')


# `report` is how the write begins that tells of the commit.
def check_landing(scene, trace, report):
    branch = os.path.join(scene.repo, 'refs/heads/main')
    moves = trace.moves(lambda path: path == branch)
    expect(len(moves) == 1, f'the branch was moved {len(moves)} times')
    moved = moves[0]
    directory_synced = check_objects(trace, scene.repo, moved)
    expect(directory_synced, 'objects/pack was not synced between the pack and the branch')
    log = os.path.join(scene.repo, 'escrow/catalog.db-wal')
    intents = [call for call in trace.syncs(log) if directory_synced < call.began and call.ended < moved.began]
    expect(any(write.ended < intent.began for intent in intents for write in trace.writes(log)
               if write.began > directory_synced),
           'the intent was not synced between the objects and the branch')
    links = trace.moves(lambda path: path == moved.paths[0])  # git's lock file is linked with its content in it
    expect(len(links) == 1, f'the lock file was made {len(links)} times')
    expect(trace.synced_before(links[0].paths[0], links[0].began),
           "the branch's new content was not synced before it moved")
    reports = [call for call in trace.calls
               if call.name in WRITES and call.text.startswith(report) and moved.ended < call.began]
    expect(reports, 'the trace shows no report')
    report = reports[0].began
    expect(any(moved.ended < call.began and call.ended < report for call in trace.syncs(os.path.dirname(branch))),
           'refs/heads was not synced before the report')
    outcome = [call for call in trace.writes(log) if moved.ended < call.began]
    expect(outcome, 'the outcome was not recorded after the branch moved')
    expect(trace.synced_before(log, report), 'the outcome was not synced before the report')


# ---- fsync ----

# Writes, syncs, and says what was between which instants.
def sync_file(path, data, flags=0):
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    began = time.time()
    os.write(descriptor, data)
    os.fsync(descriptor)
    ended = time.time()
    os.close(descriptor)
    return began, ended


def sync_rename(old, new):
    began = time.time()
    os.rename(old, new)
    descriptor = os.open(os.path.dirname(new), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    ended = time.time()
    os.close(descriptor)
    return began, ended


def within(calls, span):
    return [call for call in calls if span[0] <= call.started_at and call.ended_at <= span[1]]


def check_journal(trace, session_directory, span, what):
    log = os.path.join(session_directory, 'session.db-wal')
    written, synced = within(trace.writes(log), span), within(trace.syncs(log), span)
    expect(written and synced and written[-1].ended < synced[-1].began,
           f'{what}: its fsync returned before the journal was synced')
    return synced[-1]


def check_content(trace, session_directory, span, what):
    staging = os.path.join(session_directory, 'staging')
    written = [call for call in within(trace.calls, span) if call.name in WRITES and
               os.path.dirname(call.file) == staging]
    expect(written, f'{what}: the trace shows no write to the staging area')
    synced = within(trace.syncs(written[-1].file), span)
    expect(synced and written[-1].ended < synced[-1].began,
           f'{what}: its fsync returned before its staging file was synced')
    return staging


def check_fsync(scene):
    host, session = scene.host(scene.tracer('host'))
    spans = {'new file': sync_file(f'{scene.mount}/d/fresh', b'fresh\n' * 9000, os.O_CREAT)}
    spans['file written again'] = sync_file(f'{scene.mount}/d/fresh', b'again\n' * 9000)
    spans['file of the base'] = sync_file(f'{scene.mount}/d/a', b'changed\n' * 9000)
    spans['rename'] = sync_rename(f'{scene.mount}/d/fresh', f'{scene.mount}/d/b')
    scene.unmount(host)
    trace = Trace(os.path.join(scene.top, 'host'))
    directory = os.path.join(scene.repo, 'escrow/sessions', session)
    for what, span in spans.items():
        journal = check_journal(trace, directory, span, what)
        if what == 'rename':
            continue
        staging = check_content(trace, directory, span, what)
        if what != 'file written again':
            expect(any(call.ended < journal.began for call in within(trace.syncs(staging), span)),
                   f'{what}: staging/ was not synced before the journal that names a file in it')
    scene.run('rollback', session)


# What an fsync promised stays on disk when the file outgrows the log of small files, whatever was written in between.
def check_growth(scene):
    host, session = scene.host(scene.tracer('host'))
    path = f'{scene.mount}/d/grows'
    sync_file(path, b'promised\n', os.O_CREAT)
    with open(path, 'r+b', buffering=0) as file:
        file.write(b'not synced\n')
        time.sleep(0.5)  # a newer record takes the place of the synced one
        file.seek(100000)
        file.write(b'end\n')
    scene.unmount(host)
    trace = Trace(os.path.join(scene.top, 'host'))
    staging = os.path.join(scene.repo, 'escrow/sessions', session, 'staging')
    moves = [call for call in trace.calls if call.name.startswith('rename') and call.paths[0].endswith('.new')]
    expect(len(moves) == 1, f'the trace shows {len(moves)} moves to a file of its own')
    expect(trace.synced_before(os.path.join(staging, moves[0].paths[0]), moves[0].began),
           'a file that had been synced moved out of the log before its content was')
    scene.run('rollback', session)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--keep', action='store_true', help='keep the repository and the traces afterwards')
    options = parser.parse_args()
    if not os.path.exists('/dev/fuse') and not os.environ.get('REQUIRE_FUSE'):
        print('skipped: no /dev/fuse')
        return 77
    if not shutil.which('strace'):
        print('strace is not installed; deploy/setup.sh adds it')
        return 1
    root = os.geteuid() == 0
    failed = False
    for check in (check_commit, check_run, check_fsync, check_growth) if root else (check_commit,):
        top = tempfile.mkdtemp(prefix='escrow-durability-')
        try:
            scene = Scene(os.path.abspath(options.escrow), top)
            check(scene)
            print(f'{check.__name__}: every promise came after its syncs')
        except (Broken, OSError, subprocess.SubprocessError) as error:
            failed = True
            print(f'BROKEN: {check.__name__}: {error}')
        finally:
            subprocess.run(['umount', '-l', os.path.join(top, 'mount')], check=False, capture_output=True)
            if options.keep:
                print(f'kept: {top}')
            else:
                shutil.rmtree(top, ignore_errors=True)
    if not failed and not root:
        print('skipped: the mount; only root can trace one')
        return 77
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
