#!/usr/bin/env python3
"""Checks with strace that what escrow promises to survive a power cut is synced before it is promised.

SIGKILL cannot show a missing fsync: the kernel still holds every page. The order of the system calls can. These are
traced on the real binary: `escrow commit` of a detached session, `escrow run`, an fsync of a new and of an existing
file in a mount, also of one that is passed through, an fsync of a directory after a rename, the growth of a file that
was synced when it was small, `escrow update`, `escrow commit` of a session whose result waits, and `escrow reject`.

  durability_order_test.py --escrow PATH [--keep] [CHECK...]

Exit status 1 names each broken promise. The mount is traced for root only: a traced fusermount3 has no rights.
"""
import argparse
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

CALLS = 'fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat,write,pwrite64,writev,pwritev,copy_file_range,' \
        'unlink,unlinkat'
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

    def host(self, before=(), *arguments):
        host = subprocess.Popen([*before, *self.command('mount', self.mount, '--foreground', *arguments)], text=True,
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
    kept = trace.moves(lambda path: path.startswith(packs) and path.endswith('.keep'))
    expect(kept, 'no pack has a .keep file')
    for move in kept:
        expect(trace.synced_before(move.paths[0], min(one.began for one in published)),
               f'{move.paths[0]}, which lists the packs and marks them as kept, was not synced before they appeared')
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
    locks = trace.moves(lambda path: path == branch + '.lock')
    expect(len(locks) == 1 and locks[0].ended < moved.began, "the branch moved without git's lock file")
    expect(trace.synced_before(moved.paths[0], moved.began),
           "the branch's new content was not synced before it moved")
    reports = [call for call in trace.calls
               if call.name in WRITES and call.text.startswith(report) and moved.ended < call.began]
    expect(reports, 'the trace shows no report')
    report = reports[0].began
    synced = [call for call in trace.syncs(os.path.dirname(branch)) if moved.ended < call.began and call.ended < report]
    expect(synced, 'refs/heads was not synced before the report')
    reflog = os.path.join(scene.repo, 'logs/refs/heads/main')
    entries = trace.writes(reflog)
    expect(entries and synced[0].ended < entries[0].began,
           'the reflog said that the branch had moved before that was on disk')
    expect(trace.synced_before(reflog, report), 'the reflog was not synced before the report')
    outcome = [call for call in trace.writes(log) if moved.ended < call.began]
    expect(outcome, 'the outcome was not recorded after the branch moved')
    expect(trace.synced_before(log, report), 'the outcome was not synced before the report')


# ---- fsync ----

# Writes, syncs, and says what was between which instants.
def sync_file(path, data, flags=0, write=os.write, sync=os.fsync):
    descriptor = os.open(path, os.O_RDWR | flags, 0o644)
    began = time.time()
    write(descriptor, data)
    sync(descriptor)
    ended = time.time()
    os.close(descriptor)
    return began, ended


def sync_by_reader(descriptor):
    reader = os.open(f'/proc/self/fd/{descriptor}', os.O_RDONLY)
    os.fsync(reader)
    os.close(reader)


def store_and_msync(descriptor, data):
    with mmap.mmap(descriptor, len(data)) as memory:
        memory[:] = data
        memory.flush()


# Every call that promises what fsync does, of a file that is there: flags of open(2), the write, the sync.
SYNC_CALLS = {
    'fdatasync': (0, os.write, os.fdatasync),
    'fsync of a reader': (0, os.write, sync_by_reader),
    'O_SYNC': (os.O_SYNC, os.write, lambda descriptor: None),
    'O_DSYNC': (os.O_DSYNC, os.write, lambda descriptor: None),
    'RWF_DSYNC': (0, lambda descriptor, data: os.pwritev(descriptor, [data], 0, os.RWF_DSYNC), lambda descriptor: None),
    'msync': (0, store_and_msync, lambda descriptor: None),
}


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
           f'{what}: it returned before the journal was synced')
    return synced[-1]


def check_content(trace, session_directory, span, what):
    staging = os.path.join(session_directory, 'staging')
    written = [call for call in within(trace.calls, span) if call.name in WRITES and
               os.path.dirname(call.file) == staging]
    expect(written, f'{what}: the trace shows no write to the staging area')
    synced = within(trace.syncs(written[-1].file), span)
    expect(synced and written[-1].ended < synced[-1].began,
           f'{what}: it returned before its staging file was synced')
    return staging


def check_fsync(scene):
    host, session = scene.host(scene.tracer('host'))
    spans = {'new file': sync_file(f'{scene.mount}/d/fresh', b'fresh\n' * 9000, os.O_CREAT)}
    spans['file written again'] = sync_file(f'{scene.mount}/d/fresh', b'again\n' * 9000)
    spans['file of the base'] = sync_file(f'{scene.mount}/d/a', b'changed\n' * 9000)
    for number, (call, (flags, write, sync)) in enumerate(SYNC_CALLS.items()):
        spans[call] = sync_file(f'{scene.mount}/d/a', b'%07d\n' % number * 9000, flags, write, sync)
    spans['rename'] = sync_rename(f'{scene.mount}/d/fresh', f'{scene.mount}/d/b')
    scene.unmount(host)
    trace = Trace(os.path.join(scene.top, 'host'))
    directory = os.path.join(scene.repo, 'escrow/sessions', session)
    for what, span in spans.items():
        journal = check_journal(trace, directory, span, what)
        if what == 'rename':
            continue
        staging = check_content(trace, directory, span, what)
        if what in ('new file', 'file of the base'):
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
    moves = [call for call in trace.calls if call.name.startswith('rename') and call.paths[0].endswith('.new') and
             not call.paths[0].endswith('/git.new')]
    expect(len(moves) == 1, f'the trace shows {len(moves)} moves to a file of its own')
    expect(trace.synced_before(os.path.join(staging, moves[0].paths[0]), moves[0].began),
           'a file that had been synced moved out of the log before its content was')
    scene.run('rollback', session)


# The bytes of a file that is passed through the kernel writes itself, and strace does not see them.
def check_passthrough(scene):
    host, session = scene.host(scene.tracer('host'), '--io', 'passthrough')
    directory = os.path.join(scene.repo, 'escrow/sessions', session)
    spans = [sync_file(f'{scene.mount}/d/fresh', b'fresh\n' * 90_000, os.O_CREAT),
             sync_file(f'{scene.mount}/d/fresh', b'again\n' * 90_000)]
    scene.unmount(host)
    trace = Trace(os.path.join(scene.top, 'host'))
    for span in spans:
        synced = [call for call in within(trace.calls, span) if call.name in SYNCS and
                  os.path.dirname(call.file) == os.path.join(directory, 'staging')]
        expect(synced, 'an fsync of a file that is passed through returned before its staging file was synced')
    check_journal(trace, directory, spans[0], 'a new file that is passed through')
    scene.run('rollback', session)


# What others committed and an update took in is on disk before the base is: else the session would change it back.
def check_update(scene):
    host, session = scene.host()
    write(f'{scene.mount}/d/mine', b'mine\n')
    scene.unmount(host)
    theirs = os.path.join(scene.top, 'theirs')
    shutil.copytree(os.path.join(scene.top, 'base'), theirs)
    write(f'{theirs}/d/a', b'theirs\n')
    scene.run('import', theirs, '--message', 'theirs')
    head = subprocess.run(['git', '-C', scene.repo, 'rev-parse', 'main'], check=True, capture_output=True, text=True)
    scene.run('update', session, before=scene.tracer('update'))
    trace = Trace(os.path.join(scene.top, 'update'))
    directory = os.path.join(scene.repo, 'escrow/sessions', session)
    rows = trace.writes(os.path.join(scene.repo, 'escrow/catalog.db-wal'))
    expect(rows, 'the trace shows no row of the new base')
    journal = os.path.join(directory, 'session.db-wal')
    moved = rows[-1].began
    taken_in = [call for call in trace.writes(journal) if call.ended < moved]
    expect(taken_in, 'the trace shows nothing that was taken in before the base moved')
    expect(trace.synced_before(journal, moved), 'the base moved before what was taken in was synced')
    pin = os.path.join(scene.repo, 'refs/escrow/base', session)
    made = trace.moves(lambda path: path == os.path.join(pin, head.stdout.strip()))
    expect(made and any(made[0].ended < call.began and call.ended < moved for call in trace.syncs(pin)),
           'the base moved before its pin was on disk')
    scene.run('rollback', session)


# A result waits in the repository: a reference to it that comes back after a power cut must not name what is missing.
def check_review(scene):
    host, session = scene.host((), '--require-approval')
    write(f'{scene.mount}/d/new', b'new\n' * 20000)
    scene.unmount(host)
    sealing = [*scene.tracer('seal'), *scene.command('commit', session)]
    expect(subprocess.run(sealing, capture_output=True, timeout=60, check=False).returncode == 123, 'it does not wait')
    trace = Trace(os.path.join(scene.top, 'seal'))
    result = os.path.join(scene.repo, 'refs/sessions', session)
    made = trace.moves(lambda path: path == result)
    expect(len(made) == 1, f'the reference to the result was made {len(made)} times')
    expect(trace.synced_before(made[0].paths[0], made[0].began), 'the reference to the result was made before its sync')
    expect(check_objects(trace, scene.repo, made[0]), 'objects/pack was not synced before the reference to the result')
    named = [call for call in trace.syncs(os.path.dirname(result)) if made[0].ended < call.began]
    log = os.path.join(scene.repo, 'escrow/catalog.db-wal')
    rows = [call for call in trace.writes(log) if made[0].ended < call.began]
    expect(named and rows and named[0].ended < rows[0].began,
           'the row said that the result waits before it was on disk')
    expect(any(made[0].ended < call.began and call.ended < rows[0].began
               for call in trace.syncs(os.path.join(scene.repo, 'refs'))), 'the name of refs/sessions was not on disk')


CHECKS = {'commit': check_commit, 'run': check_run, 'review': check_review, 'fsync': check_fsync,
          'growth': check_growth, 'passthrough': check_passthrough, 'update': check_update}
WITHOUT_A_MOUNT = ('commit',)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True, help='the built binary')
    parser.add_argument('--keep', action='store_true', help='keep the repository and the traces afterwards')
    parser.add_argument('checks', nargs='*', choices=[[], *CHECKS], default=[], metavar='CHECK')
    options = parser.parse_args()
    checks = options.checks or list(CHECKS)
    if not os.path.exists('/dev/fuse') and not os.environ.get('REQUIRE_FUSE'):
        print('skipped: no /dev/fuse')
        return 77
    if not shutil.which('strace'):
        print('strace is not installed; deploy/setup.sh adds it')
        return 1
    root = os.geteuid() == 0
    failed, skipped = False, [name for name in checks if not root and name not in WITHOUT_A_MOUNT]
    for name in checks:
        if name in skipped:
            continue
        check = CHECKS[name]
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
    if not failed and skipped:
        print(f'skipped: {", ".join(skipped)}; only root can trace a mount')
        return 77
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
