#!/usr/bin/env python3
"""`git` of sessions over the API: a .git whose objects the mount itself shows, read-only."""
import os
import signal
import subprocess

from authorization_test import asked
from service import eventually, expect, expect_equal, host_of, main, write


def git(point, *arguments):
    done = subprocess.run(['git', '-c', f'safe.directory={point}', '-C', point, *arguments], capture_output=True,
                          text=True, timeout=300, check=False)
    expect_equal(f'git {arguments}: {done.stderr}', done.returncode, 0)
    return done.stdout.strip()


def ASessionHasGitInsideWhereItIsAskedFor(start):
    with start() as service:
        _, bare = service.open_mounted('bare')
        expect(not os.path.exists(f'{bare}/.git'), 'a session has a .git that nobody asked for')
        session, point = service.open_mounted('one', git='squash')
        expect_equal('a change', git(point, 'status', '--porcelain'), '')
        write(f'{point}/new', 'x')
        git(point, 'add', '-A')
        git(point, 'commit', '-qm', 'By an agent')
        expect_equal('the objects', subprocess.run(['touch', f'{point}/.git/objects/borrowed/x'], check=False,
                                                   capture_output=True, timeout=99).returncode, 1)
        # Mounted again, by another host.
        service.post(f'/v1/sessions/{session}/unmount', {}).expect(200)
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect_equal('a change', git(point, 'status', '--porcelain'), '')
        expect_equal('the fsck', git(point, 'fsck', '--strict', '--full'), '')
        service.post(f'/v1/sessions/{session}/commit', {}).expect(200)
        log = service.get('/v1/repositories/data/log?limit=1').expect(200)
        expect('By an agent' in str(log), f'the commit says {log}')


def AMountShowsTheGitOfItsOwnCallerAndOfNobodyElse(start):
    with start() as service:
        point = f'{service.mounts}/one'
        status, opened = asked(service, 'POST', '/v1/sessions', {'repository': 'data', 'mountpoint': point})
        expect_equal(f'{opened}', status, 201)
        session = opened['session']
        target = f'/v1/sessions/{session}'
        os.mkdir(f'{point}/.git')
        with open(f'{point}/.git/made', 'w', encoding='ascii') as file:
            os.fsync(file.fileno())
        service.stop(signal.SIGKILL)
        os.kill(host_of(session), signal.SIGKILL)
        eventually('its host is gone', lambda: host_of(session) is None)
        service.start()  # it mounts the session anew
        eventually('its own is shown after its host has died', lambda: os.path.exists(f'{point}/.git/made'))
        for ask, is_shown in ((lambda *call: asked(service, *call)[0], True),
                              (lambda *call: service.post(*call[1:]).status, False)):
            expect_equal('unmounted', ask('POST', f'{target}/unmount', {}), 200)
            expect_equal('mounted', ask('POST', f'{target}/mount', {'mountpoint': point}), 200)
            expect_equal('it is there', os.path.exists(f'{point}/.git/made'), is_shown)
        write(f'{point}/plain', 'x')
        service.put(f'{target}/files/.git/config', b'x').expect(403, 'forbidden')
        service.put(f'{target}/files/dir/.GIT/config', b'x').expect(403, 'forbidden')
        service.delete(f'{target}/files/plain').expect(200)
        service.post(f'{target}/unmount', {}).expect(200)
        here = f'{service.directory}/here'
        os.mkdir(here)
        service.escrow('mount', '--session', session, here)
        expect(not os.path.lexists(f'{here}/.git'), 'a command of this machine shows it')
        service.post(f'{target}/rollback', {}).expect(200)


def ACallerSeesItsOwnGitWhoeverHadTheSessionSince(start):
    with start() as service:
        point = f'{service.mounts}/one'
        status, opened = asked(service, 'POST', '/v1/sessions', {'repository': 'data', 'mountpoint': point})
        expect_equal(f'{opened}', status, 201)
        target = f'/v1/sessions/{opened["session"]}'
        os.mkdir(f'{point}/.git')
        service.post(f'{target}/unmount', {}).expect(200)
        # The next one is hidden from the first.
        service.post(f'{target}/mount', {'mountpoint': point}).expect(200)
        expect(not os.path.lexists(f'{point}/.git'), 'another caller sees it')
        os.mkdir(f'{point}/dir/.git')
        service.post(f'{target}/unmount', {}).expect(200)

        def mounted(**wanted):
            expect_equal('mounted', asked(service, 'POST', f'{target}/mount', {'mountpoint': point, **wanted})[0], 200)
            seen = [name for name in ('.git', 'dir/.git') if os.path.exists(f'{point}/{name}')]
            service.post(f'{target}/unmount', {}).expect(200)
            return seen
        expect_equal('its own', mounted(), ['.git'])
        service.post(f'{target}/mount', {'mountpoint': point, 'show_git': ['a.txt']}).expect(400, 'bad_request')
        service.post(f'{target}/mount', {'mountpoint': point, 'show_git': ['x/.git']}).expect(404, 'not_found')
        expect_equal('what it asks for', mounted(show_git=['dir/.git']), ['.git', 'dir/.git'])
        expect_equal('later', mounted(), ['.git'])
        service.post(f'{target}/mount', {'mountpoint': point}).expect(200)
        service.post(f'{target}/mount', {'mountpoint': point, 'show_git': ['.git']}).expect(409, 'wrong_state')
        service.post(f'{target}/rollback', {}).expect(200)


def EscrowsOwnIsOfTheCallerThatItWasMadeFor(start):
    with start() as service:
        point = f'{service.mounts}/one'
        opening = {'repository': 'data', 'mountpoint': point, 'git': 'squash'}
        status, opened = asked(service, 'POST', '/v1/sessions', opening)
        expect_equal(f'{opened}', status, 201)
        target = f'/v1/sessions/{opened["session"]}'
        expect(os.path.exists(f'{point}/.git/HEAD'), 'there is none')
        with open(f'{point}/.git/config', 'a', encoding='ascii') as file:
            file.write('[user]\n\tname = x\n')
        for mount, is_shown in ((lambda: service.post(f'{target}/mount', {'mountpoint': point}).status, False),
                                (lambda: asked(service, 'POST', f'{target}/mount', {'mountpoint': point})[0], True)):
            service.post(f'{target}/unmount', {}).expect(200)
            expect_equal('mounted', mount(), 200)
            expect_equal('it is there', os.path.lexists(f'{point}/.git'), is_shown)
        with open(f'{point}/.git/config', encoding='ascii') as file:
            expect('name = x' in file.read(), 'it is another one')
        service.post(f'{target}/rollback', {}).expect(200)


def GitShowsAllOfARepositorySoItIsForWhoMayReadAllOfIt(start):
    grants = {'*': [{'repository': 'data', 'path_prefix': 'dir', 'may': ['read', 'open', 'commit']}]}
    with start(grants=grants) as service:
        opening = {'repository': 'data', 'git': 'squash'}
        status, problem = asked(service, 'POST', '/v1/sessions', {**opening, 'path_prefix': 'dir'})
        expect_equal('the refusal', (status, problem['code'], problem['field']), (403, 'forbidden', 'git'))
        service.post('/v1/sessions', {**opening, 'path_prefix': 'dir'}).expect(400, 'bad_request')
        service.post('/v1/sessions', {**opening, 'git': 'rebase'}).expect(400, 'invalid_value')


if __name__ == '__main__':
    main(globals())
