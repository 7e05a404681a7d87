#!/usr/bin/env python3
"""Each session that escrowd mounts has a host process of its own: it goes on while escrowd is stopped, killed and
started again, and when it dies it takes no other session with it.

ESCROW_KILLS=N: how often escrowd is killed under the programs (60 took a minute).
"""
import contextlib
import json
import mmap
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import tarfile
import time

from service import eventually, expect, expect_equal, host_of, main, read, write

KILLS = int(os.environ.get('ESCROW_KILLS', '6'))


class End:
    """Tells a program that it is to end. Each time that it asks, it has done a turn."""

    def __init__(self):
        self.event, self.turns = multiprocessing.Event(), multiprocessing.Value('Q', 0)

    def is_set(self):
        with self.turns.get_lock():
            self.turns.value += 1
        return self.event.is_set()


# ---- Programs. Each goes on until its end is set, and raises on the first thing that is not as it should be.

def archive(point, end, source):
    while True:
        is_last = end.is_set()
        subprocess.run(['tar', '-C', source, '-cf', f'{point}/all.tar', '.'], check=True)
        os.mkdir(f'{point}/out')
        subprocess.run(['tar', '-C', f'{point}/out', '-xf', f'{point}/all.tar'], check=True)
        subprocess.run(['diff', '-r', source, f'{point}/out'], check=True)
        with tarfile.open(f'{point}/all.tar') as tar:
            expect(len(tar.getnames()) > 100, 'the archive is short')
        if is_last:
            return  # the commit has what was extracted
        subprocess.run(['rm', '-r', f'{point}/out'], check=True)


def keep_history(point, end, _source):
    git = ['git', '-c', 'user.name=n', '-c', 'user.email=e', '-c', 'safe.directory=*', f'--git-dir={point}/history',
           f'--work-tree={point}']
    subprocess.run([*git, 'init', '-q'], check=True)
    turn = 0
    while not end.is_set() or turn == 0:
        write(f'{point}/number', str(turn))
        subprocess.run([*git, 'add', 'number'], check=True)
        subprocess.run([*git, 'commit', '-q', '-m', str(turn)], check=True)
        turn += 1
    subprocess.run([*git, 'fsck', '--strict', '--no-progress'], check=True, capture_output=True)
    count = subprocess.run([*git, 'rev-list', '--count', 'HEAD'], check=True, capture_output=True, text=True).stdout
    expect_equal('the commits', int(count), turn)


def keep_rows(point, end, _source):
    connection = sqlite3.connect(f'{point}/rows.db')
    connection.execute('CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)')
    turn = 0
    while not end.is_set() or turn == 0:
        with connection:
            connection.execute('INSERT INTO rows VALUES (?, ?)', (turn, 'x' * 500))
        turn += 1
    expect_equal('the check', connection.execute('PRAGMA integrity_check').fetchone(), ('ok',))
    expect_equal('the rows', connection.execute('SELECT COUNT(*) FROM rows').fetchone(), (turn,))
    connection.close()


def exercise_file(point, end, _source):
    """As fsx does: random writes, truncations and mappings of a file, compared with what it should hold."""
    dice, wanted, most = random.Random(14), bytearray(), 300_000
    file = os.open(f'{point}/exercised', os.O_RDWR | os.O_CREAT)
    turn = 0
    while not end.is_set() or turn < 100:
        at, length = dice.randrange(most), dice.randrange(1, 20_000)
        what = dice.randrange(5)
        if what == 0:
            os.ftruncate(file, at)
            wanted = wanted[:at] + bytes(max(0, at - len(wanted)))
        elif what == 1 and at + length <= len(wanted):
            with mmap.mmap(file, 0) as mapping:
                mapping[at:at + length] = bytes([turn % 256]) * length
            wanted[at:at + length] = bytes([turn % 256]) * length
        elif what == 2:
            os.fsync(file)
        else:
            os.pwrite(file, bytes([turn % 256]) * length, at)
            wanted += bytes(max(0, at + length - len(wanted)))
            wanted[at:at + length] = bytes([turn % 256]) * length
        if turn % 10 == 0:
            expect(os.pread(file, most * 2, 0) == wanted, f'the content after step {turn} is not what was written')
        turn += 1
    os.close(file)


def ProgramsDoNotNoticeThatTheServiceIsKilled(start):
    with start() as service:
        source = f'{service.directory}/source'
        for number in range(150):
            os.makedirs(f'{source}/d{number % 7}', exist_ok=True)
            write(f'{source}/d{number % 7}/file-{number}', f'{number}\n' * number)
        programs, ends = {}, []
        for name, work in (('tar', archive), ('git', keep_history), ('sqlite', keep_rows), ('fsx', exercise_file)):
            session, point = service.open_mounted(name)
            # In a directory of its own: four commits to one branch do not conflict.
            os.mkdir(f'{point}/{name}')
            ends.append(End())
            process = multiprocessing.Process(target=work, args=(f'{point}/{name}', ends[-1], source))
            process.start()
            programs[name] = (session, point, process, host_of(session))
        for _ in range(KILLS):
            before = [end.turns.value for end in ends]
            eventually('each program has done a turn since the service came back',
                       lambda before=before: all(end.turns.value > done for end, done in zip(ends, before)))
            service.stop(signal.SIGKILL)
            service.start()
        for end in ends:
            end.event.set()
        for name, (_, _, process, _) in programs.items():
            process.join(300)
            expect_equal(f'how {name} ended', process.exitcode, 0)
        for name, (session, point, _, host) in programs.items():
            expect_equal(f'the host of {name}', host_of(session), host)
            view = service.get(f'/v1/sessions/{session}').expect(200)
            expect_equal('the view', (view['attachment'], view['mountpoint']), ('mounted', point))
            expect('io' in view, view)
            ended = service.finish(session, {'exit_code': 0}).expect(200)
            expect_equal(f'the state of {name}', (ended['state'], ended['warning']), ('committed', None))
            expect(not service.is_mounted(point), 'the mount is still there')
        files = service.git('ls-tree', '-r', '--name-only', 'main').split('\n')
        for path in ('tar/all.tar', 'tar/out/d0/file-0', 'git/history/HEAD', 'git/number', 'sqlite/rows.db',
                     'fsx/exercised'):
            expect(path in files, f'{path} is not in the commit')
        service.escrow('verify')
        eventually('no host is left', lambda: not any(host_of(session) for session, *_ in programs.values()))


def AHostThatDiesTakesOneSession(start):
    with start() as service:
        (one, point), (other, other_point) = service.open_mounted('one'), service.open_mounted('other')
        write(f'{point}/kept', 'kept')
        with open(f'{point}/kept', 'ab') as file:
            os.fsync(file.fileno())
        with open(f'{other_point}/before', 'w', encoding='ascii') as file:
            first = host_of(one)
            expect(first not in (None, service.process.pid, host_of(other)), 'the sessions share a process')
            time.sleep(2.5)  # a host that dies sooner is not started again by itself
            os.kill(first, signal.SIGKILL)
            file.write('before')
        # A new host has it, at the same place; nothing that was synced is lost.
        eventually('it has a new host', lambda: host_of(one) not in (None, first) and service.is_mounted(point))
        eventually('the content is there', lambda: os.path.exists(f'{point}/kept') and read(f'{point}/kept') == 'kept')
        def is_lost_soon():
            # At once: this time it stays as it is. One that this machine let live for too long has another after it.
            if (host := host_of(one)) is not None:
                with contextlib.suppress(ProcessLookupError):  # it is in its end already
                    os.kill(host, signal.SIGKILL)
            return service.get(f'/v1/sessions/{one}').json['attachment'] == 'lost'
        eventually('its host is gone', is_lost_soon)
        eventually('its mount is gone', lambda: not service.is_mounted(point))
        expect_equal('the other one', (read(f'{other_point}/before'), service.state(other)), ('before', 'open'))
        service.finish(other, {'exit_code': 0}).expect(200)
        expect_equal('the other one', service.git('show', 'main:before'), 'before')
        view = service.post(f'/v1/sessions/{one}/mount', {'mountpoint': point}).expect(200)
        expect_equal('attachment', view['attachment'], 'mounted')
        expect_equal('the content', read(f'{point}/kept'), 'kept')
        service.post(f'/v1/sessions/{one}/commit').expect(200)
        expect_equal('the content', service.git('show', 'main:kept'), 'kept')


def WhatTheServiceAndItsHostsLeaveWhenAllAreKilledIsMountedAgain(start):
    with start() as service:
        session, point = service.open_mounted()
        with open(f'{point}/kept', 'w', encoding='ascii') as file:
            file.write('kept')
            file.flush()
            os.fsync(file.fileno())
        service.stop(signal.SIGKILL)
        os.kill(host_of(session), signal.SIGKILL)
        eventually('its host is gone', lambda: host_of(session) is None)
        service.start()  # one that is on its way out would be taken for one that serves
        expect_equal('the content', read(f'{point}/kept'), 'kept')
        expect_equal('attachment', service.get(f'/v1/sessions/{session}').json['attachment'], 'mounted')
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('the content', service.git('show', 'main:kept'), 'kept')


def TheFirstProcessOfAContainerTakesItsMountsDownInOrder(start):
    with start() as service:
        service.stop()
        service.before = ['unshare', '--pid', '--fork', '--mount-proc', '--propagation', 'shared']
        service.start()
        session, point = service.open_mounted()
        write(f'{point}/kept', 'kept')  # not synced: only who leaves in order keeps it for sure
        with open(f'/proc/{service.process.pid}/task/{service.process.pid}/children', encoding='ascii') as children:
            os.kill(int(children.read().split()[0]), signal.SIGTERM)
        service.process.wait(100)
        expect(not service.is_mounted(point), 'the mount is still there')
        expect_equal('attachment', json.loads(service.escrow('status', session, '--json'))['attachment'], 'none')
        service.before = []
        service.start()
        expect_equal('the content', read(f'{point}/kept'), 'kept')


def AHostServesOneSessionAfterAnother(start):
    with start() as service:
        hosts = []
        for number in range(5):
            session, point = service.open_mounted()
            write(f'{point}/file-{number}', str(number))
            hosts.append(host_of(session))
            service.finish(session, {'exit_code': 0}).expect(200)
            eventually('it lets go', lambda session=session: host_of(session) is None)
        expect(len(set(hosts)) < len(hosts), f'each session had a new process: {hosts}')
        # Without the service they have no purpose.
        service.stop(signal.SIGKILL)
        eventually('they end', lambda: not any(os.path.exists(f'/proc/{host}') for host in hosts))


COPY = """import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 4096)
memory[:6] = b'mapped'
print('up', flush=True)
sys.stdin.readline()
"""


def AHostLetsGoThoughAnotherMountNamespaceHasACopyOfItsMount(start):
    with start() as service:
        def in_a_copy(session, point, verb, body=None):
            write(f'{point}/file', 'x' * 4096)
            with subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'python3', '-c', COPY,
                                   f'{point}/file'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
                expect_equal('the copy', holder.stdout.readline(), b'up\n')
                answer = service.post(f'/v1/sessions/{session}/{verb}', body).expect(200)
                expect_equal(f'attachment after {verb}', (answer['attachment'], answer['mountpoint']), ('none', ''))
                expect(not service.is_mounted(point), f'it is mounted after {verb}')
                expect_equal('the host', host_of(session), None)
                holder.communicate(b'\n')

        session, point = service.open_mounted()
        in_a_copy(session, point, 'unmount')
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect_equal('what the copy wrote', read(f'{point}/file')[:7], 'mappedx')
        in_a_copy(session, point, 'commit')
        expect_equal('the commit', service.git('show', 'main:file')[:7], 'mappedx')
        in_a_copy(*service.open_mounted(), 'rollback')


if __name__ == '__main__':
    main(globals())
