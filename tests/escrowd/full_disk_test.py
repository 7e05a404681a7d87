#!/usr/bin/env python3
"""escrowd on a disk that is full: what cannot be done is said, nothing is lost, and with room all goes on."""
import contextlib
import errno
import math
import os
import socket
import subprocess
import tempfile
import time

from authorization_test import descriptors
from clock import HOUR_S, Clock
from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, fail, main, read, request, write


@contextlib.contextmanager
def small_disk(mebibytes):
    """What is made below tempfile's directory is made on a small tmpfs, for the time."""
    disk = tempfile.mkdtemp(prefix='escrowd-disk-')
    subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={mebibytes}m', 'tmpfs', disk], check=True)
    before, tempfile.tempdir = tempfile.tempdir, disk
    try:
        yield disk
    finally:
        tempfile.tempdir = before
        subprocess.run(['umount', '-l', disk], check=True)
        os.rmdir(disk)


def fill(disk):
    with open(f'{disk}/filler', 'ab', buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    filler.write(b'f' * size)
            except OSError as error:
                expect_equal('why it is full', error.errno, errno.ENOSPC)


def make_room(disk):
    os.unlink(f'{disk}/filler')


def AFullDiskIsSaidAndNothingIsLost(start):
    with small_disk(24) as disk, start() as service:
        before = None
        for turn in range(4):
            session, point = service.open_mounted()
            write(f'{point}/kept-{turn}', f'kept {turn}\n' * 1000)
            with open(f'{point}/kept-{turn}', encoding='ascii') as file:
                os.fsync(file.fileno())
            fill(disk)
            # No session comes to be that nobody was told of, and the service goes on answering.
            for _ in range(3):
                answer = service.post('/v1/sessions', {'repository': 'data'})
                if answer.status == 201:
                    service.post(f'/v1/sessions/{answer.json["session"]}/rollback')
                else:
                    expect_equal('retryable', answer.expect(507, 'no_space')['retryable'], True)
            service.get('/v1/health').expect(200)
            service.get(f'/v1/sessions/{session}').expect(200)
            refused = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0})
            if refused.status != 507:
                fail(f'a commit on a full disk: {refused.status} {refused.body}')
            refused.expect(507, 'no_space')
            make_room(disk)
            view = service.get(f'/v1/sessions/{session}').expect(200)
            expect(view['state'] in ('open', 'committing'), f'the session is {view}')
            ended = service.finish(session, {'exit_code': 0}).expect(200)
            expect_equal('after there is room', ended['state'], 'committed')
            expect_equal('the content', service.git('show', f'main:kept-{turn}'), (f'kept {turn}\n' * 1000).strip())
            eventually('the mount is gone', lambda point=point: not service.is_mounted(point))
            before = before or descriptors(service)
        eventually('every descriptor is given back', lambda: descriptors(service) <= before + 5)
        expect_equal('open sessions', service.get('/v1/sessions?state=open').json['sessions'], [])
        service.escrow('verify')


def WhatIsOnlyInMemoryStaysThereUntilThereIsRoom(start):
    with small_disk(24) as disk, start() as service:
        session, point = service.open_mounted()
        write(f'{point}/early', 'early\n')
        fill(disk)
        os.rename(f'{point}/early', f'{point}/late')  # no file would be made any more
        for verb, body in (('finish', {'exit_code': 0}), ('unmount', {}), ('finish', {'exit_code': 0})):
            service.post(f'/v1/sessions/{session}/{verb}', body).expect(507, 'no_space')
            expect_equal('what the mount shows', read(f'{point}/late'), 'early\n')
        make_room(disk)
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('what is committed', service.git('ls-tree', '--name-only', 'main'), 'a.txt\ndir\nlate')


def AWriteToAMountOnAFullDiskFailsInTheCall(start):
    with small_disk(24) as disk, start() as service:
        session, point = service.open_mounted()
        write(f'{point}/before', 'before')
        fill(disk)
        try:
            with open(f'{point}/large', 'wb', buffering=0) as file:
                for _ in range(64):
                    file.write(b'x' * (1 << 16))
                os.fsync(file.fileno())
            fail('4 MiB were written to a full disk')
        except OSError as error:
            expect_equal('the error', error.errno, errno.ENOSPC)
        expect_equal('what was there', read(f'{point}/a.txt'), 'a.txt\n')
        make_room(disk)
        os.unlink(f'{point}/large')
        expect_equal('with room', service.finish(session, {'exit_code': 0}).expect(200)['state'], 'committed')
        expect_equal('the content', service.git('show', 'main:before'), 'before')


def WhatIsOverdueOnAFullDiskIsTriedNowAndThenAndNotGivenUp(start):
    with tempfile.NamedTemporaryFile() as log, small_disk(24) as disk, start() as service:
        service.stop()
        os.unlink(f'{service.directory}/log')
        os.symlink(log.name, f'{service.directory}/log')
        clock = Clock(service)
        session, point = service.open_mounted(keep_on_failure=True, timeout_ms=HOUR_S * 1000)
        with open(f'{point}/new', 'w', encoding='ascii') as file:
            file.write('new')
            file.flush()
            os.fsync(file.fileno())
        fill(disk)
        def tried():
            return read(log.name).count('is overdue and could not be rolled back')
        filled = time.monotonic()
        clock.advance(HOUR_S)
        eventually('it is tried again and again', lambda: tried() > 3)
        count, seconds = tried(), time.monotonic() - filled
        print(f'tried {count} times')
        # After one second, two more, four more.
        expect(count <= 2 + math.log2(seconds + 1), f'tried {count} times in {seconds:.1f} s')
        expect_equal('the state meanwhile', service.state(session), 'open')
        make_room(disk)
        eventually('it is rolled back', lambda: service.state(session) == 'rolled_back')
        expect_equal('what is kept', service.git('show', f'refs/sessions/{session}:new'), 'new')


def ContentsOnTheirWayLeaveRoomOnTheDisk(start):
    """Together they take half of what is free without them, and those of one caller a quarter."""
    with small_disk(48) as disk, start(reviewers=[NOBODY_NAME]) as service:
        def free():
            about = os.statvfs(disk)
            return about.f_bavail * about.f_frsize
        session = service.open()['session']
        quarter = free() // 4
        part = quarter // 8 * 5
        path = f'/v1/sessions/{session}/files/large'
        before = free()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
            slow.connect(service.socket)
            slow.sendall(f'PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {quarter}\r\n\r\n'.encode() + bytes(part))
            eventually('its beginning is kept', lambda: before - free() > part // 8 * 7)
            problem = service.put(path, bytes(part)).expect(507, 'no_space')
            expect_equal('retryable', problem['retryable'], True)
            expect('half of what is free' in problem['detail'], problem['detail'])
            # Somebody else has room.
            def written():
                own = request(service.socket, 'POST', '/v1/sessions', {'repository': 'data'}).json['session']
                return request(service.socket, 'PUT', f'/v1/sessions/{own}/files/large', bytes(part)).status
            expect_equal("another caller's", as_user(NOBODY, written), 201)
        eventually('it is given back', lambda: service.put(path, bytes(part)).status == 201)


def AServiceThatCannotStartOnAFullDiskSaysSo(start):
    with small_disk(16) as disk, start() as service:
        session = service.open()['session']
        service.stop()
        fill(disk)
        log = open(f'{disk}/../{os.path.basename(disk)}.log', 'w+', encoding='utf-8')
        with contextlib.closing(log):
            process = subprocess.Popen([service.escrowd_binary, '--config', service.config_path], stderr=log)
            def serves():
                try:
                    return service.get('/v1/health').status == 200
                except OSError:
                    return False
            eventually('it has left, or serves', lambda: process.poll() is not None or serves())
            status = process.poll()
            if status is not None:
                log.seek(0)
                said = log.read()
                expect(status == 125 and 'the disk is full' in said, f'it left with {status}: {said}')
            else:
                # It needs no space where there is nothing to be recovered: then it serves.
                expect_equal('the state on a full disk', service.state(session), 'open')
                process.terminate()
                process.wait(100)
        os.unlink(f'{disk}/../{os.path.basename(disk)}.log')
        make_room(disk)
        service.start()
        expect_equal('the state', service.state(session), 'open')


if __name__ == '__main__':
    main(globals())
