#!/usr/bin/env python3
"""What sessions, runs and mounts are asked for beyond what every one has, straight over the API."""
import base64
import json
import os
import sqlite3

from authorization_test import asked, refused
from host_options_test import options_of_mount
from imports_test import archive, entry, send
from runs_test import awaited, output, run, shell
from service import NOBODY, NOBODY_NAME, expect, expect_equal, main, write

ODD = b'odd \xff\n'


def deny(*paths):
    return {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['create', 'write'], 'paths': list(paths)}]}


def kept(service, session):
    return service.git('for-each-ref', '--format=%(refname)', f'refs/sessions/{session}')


def TermsOfASessionHoldUntilItsEnd(start):
    with start() as service:
        session, point = service.open_mounted(
            exclude=['*.log', '/build/'], policy=[deny('x*'), deny('y*')], symlinks='any', keep_on_failure=True,
            xattr='user', io={'io_uring': 'off', 'opens': 'daemon'}, mount_options=['noexec', 'noatime', 'allow_other'])
        view = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('the view', (view['excludes'], view['keep_on_failure'], view['contained_symlinks'],
                                  len(view['policies'])),
                     ([{'pattern': '*.log'}, {'pattern': '/build/'}], True, False, 2))
        for turn in ('', 'after a restart'):
            for name in ('x', 'y'):
                try:
                    write(f'{point}/{name}', '')
                    expect(False, f'{name} was made {turn}')
                except PermissionError:
                    pass
            write(f'{point}/new', 'new')
            os.setxattr(f'{point}/new', 'user.a', b'1')
            expect({'noexec', 'noatime', 'nosuid', 'nodev'} <= options_of_mount(point)[0], f'{options_of_mount(point)}')
            service.stop()
            service.start()
        write(f'{point}/a.log', '')
        expect_equal('the end', service.finish(session, {'exit_code': 3}).expect(200)['state'], 'rolled_back')
        expect_equal('what was kept', service.git('ls-tree', '--name-only', kept(service, session)), 'a.txt\ndir\nnew')
        # A session without a mount, a timeout and a lease keep it, too; a rollback by hand as it says itself.
        for ending in ({'signal': 9}, {'cancelled': True}, {'timed_out': True}):
            session = service.open(keep_on_failure=True)['session']
            service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
            service.finish(session, ending).expect(200)
            expect(kept(service, session), f'{ending} has kept nothing')
        session = service.open(keep_on_failure=True)['session']
        service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        expect_equal('a rollback by hand', kept(service, session), '')
        session = service.open(keep_on_failure=True, lease_ms=600_000)['session']
        service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
        service.post(f'/v1/sessions/{session}/lease', {'lease_ms': 1}).expect(200)
        service.get(f'/v1/sessions/{session}/wait?timeout_ms=250000').expect(200)
        expect(kept(service, session), 'a lease that ran out has kept nothing')
        session = service.open(exclude_base64=[base64.b64encode(b'odd*\xff\n').decode()])['session']
        service.put(f'/v1/sessions/{session}/files/odd%20%FF%0A', b'odd').expect(201)
        service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
        committed = service.post(f'/v1/sessions/{session}/commit').expect(200)
        expect_equal('what was left out', [base64.b64decode(one['path_base64']) for one in committed['omitted']], [ODD])


def ASessionIsMountedAnotherWayLater(start):
    with start() as service:
        session, point = service.open_mounted(mount_options=['noexec'], io={'opens': 'daemon'})
        def mount(**fields):
            service.post(f'/v1/sessions/{session}/unmount').expect(200)
            return service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point, **fields})
        expect_equal('as before', (mount().expect(200)['io']['opens'], 'noexec' in options_of_mount(point)[0]),
                     ('daemon', True))
        view = mount(io={'opens': 'none', 'data': 'cached', 'io_uring': 'auto'}, mount_options=['nodiratime'],
                     xattr='user').expect(200)
        for turn in ('now', 'after a restart'):
            flags = options_of_mount(point)[0]
            expect_equal(turn, (view['io']['opens'], 'noexec' in flags, 'nodiratime' in flags), ('none', False, True))
            os.setxattr(f'{point}/a.txt', 'user.a', b'1')
            service.stop()
            service.start()
            view = service.get(f'/v1/sessions/{session}').expect(200)
        # As it is mounted already it is the same request; in another way it is to be unmounted first.
        def again(**fields):
            return service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point, **fields})
        wanted = {'io': {'opens': 'none', 'data': 'cached', 'io_uring': 'auto'}, 'mount_options': ['nodiratime'],
                  'xattr': 'user'}
        flags = options_of_mount(point)
        again(**wanted).expect(200)
        for other in ({'mount_options': ['noexec']}, {**wanted, 'io': {'opens': 'daemon', 'data': 'cached'}},
                      {**wanted, 'xattr': 'off'}, {**wanted, 'mount_options': ['nodiratime', 'noexec']}):
            problem = again(**other).expect(409, 'wrong_state')
            expect('unmount it there first' in problem['detail'], problem)
        again().expect(200)
        expect_equal('how it is mounted', (options_of_mount(point), again().json['io']['opens']), (flags, 'none'))
        problem = mount(io={'opens': 'none', 'data': 'passthrough'}).expect(400, 'invalid_value')
        expect_equal('the field', problem['field'], 'io')
        # What was refused has changed nothing.
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect('nodiratime' in options_of_mount(point)[0], 'it is mounted in another way')
        mount(mount_options=[]).expect(200)
        expect('nodiratime' not in options_of_mount(point)[0], 'an empty list is not taken')
        for wrong, code in (({'mount_options': ['suid']}, 'invalid_value'),
                            ({'mount_options': 'noexec'}, 'invalid_value'), ({'xattr': 'x'}, 'invalid_value'),
                            ({'symlinks': 'any'}, 'unknown_field'),
                            ({'mountpoint': None}, 'invalid_value')):
            service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point, **wrong}).expect(400, code)
        # One that another process has opened is mounted as it is told to be, and again after a restart.
        os.mkdir(f'{service.directory}/elsewhere')
        other = service.escrow('mount', f'{service.directory}/elsewhere')
        service.escrow('unmount', other)
        point = f'{service.mounts}/other'
        service.post(f'/v1/sessions/{other}/mount', {'mountpoint': point, 'mount_options': ['noexec']}).expect(200)
        expect('noexec' in options_of_mount(point)[0], f'{options_of_mount(point)}')


def TermsOfAnOlderServiceAreKept(start):
    with start() as service:
        leased, point = service.open_mounted(io={'opens': 'daemon', 'data': 'cached'}, lease_ms=600_000)
        plain, plain_point = service.open_mounted('plain')
        key = {'Idempotency-Key': 'k'}
        opened = service.post('/v1/sessions', {'repository': 'data'}, headers=key).expect(201)['session']
        started = run(service, shell('true'), headers=key)
        service.stop()
        with sqlite3.connect(f'{service.directory}/state/escrowd.db') as database:
            options = dict(database.execute('SELECT session, mount_options FROM terms').fetchall())
            expect_equal('what is stored', {name: options[name] for name in (leased, plain)},
                         {leased: 'opens=daemon,io=cached', plain: ''})
            # As if it had been killed before it kept the answers.
            database.execute('UPDATE request SET status = NULL')
            for name, old_key in ((opened, 'k'), (started, 'run k')):
                database.execute('UPDATE session SET request_key = ? WHERE id = ?', (old_key, name))
            database.executescript('''
              ALTER TABLE terms ADD COLUMN opens TEXT NOT NULL DEFAULT '';
              ALTER TABLE terms ADD COLUMN data TEXT NOT NULL DEFAULT '';
              UPDATE terms SET opens = 'daemon', data = 'cached' WHERE mount_options <> '';
              ALTER TABLE terms DROP COLUMN mount_options;
              DROP TABLE upkeep;
              DROP TABLE time_mark;
              DROP INDEX request_by_age;
              DROP INDEX session_by_repository;
              DROP INDEX session_by_mountpoint;
              DROP INDEX session_unsettled;
              DROP INDEX session_by_external_id;
              ALTER TABLE session DROP COLUMN settled;
              ALTER TABLE session DROP COLUMN hand;
              ALTER TABLE session DROP COLUMN ended_s;
              PRAGMA user_version = 1;''')
        database.close()
        service.start()
        view = service.get(f'/v1/sessions/{leased}').expect(200)
        expect_equal('the leased one', (view['io']['opens'], view['lease_ms'], view['mountpoint']),
                     ('daemon', 600_000, point))
        view = service.get(f'/v1/sessions/{plain}').expect(200)
        expect_equal('the plain one', (view['io']['opens'], view['mountpoint']), ('none', plain_point))
        again = service.post('/v1/sessions', {'repository': 'data'}, headers=key).expect(201)['session']
        expect_equal('what the keys had opened', (again, run(service, shell('true'), headers=key)), (opened, started))


def TermsOfARunHoldUntilItsEnd(start):
    with start() as service:
        script = ('id -u; id -g; ln -s /etc/hostname l; readlink l; echo > x; echo > y; echo 1 > a.log; echo 1 > new; '
                  'mkdir empty; python3 -c "import os; os.setxattr(\'new\', \'user.a\', b\'1\')" && echo xattr')
        name = run(service, shell(f'{script}; exit 0', exclude=['*.log'], policy=[deny('x'), deny('y')], symlinks='any',
                                  xattr='user', io={'io_uring': 'off'}, uid=1, gid=2, umask='022'))
        view = awaited(service, name)
        expect_equal('the output', output(service, name), '1\n2\n/etc/hostname\nxattr\n')
        expect_equal('whose it is', (view['uid'], view['gid'], view['user']), (1, 2, 'user:daemon'))
        expect_equal('the session', (view['session']['state'], view['session']['contained_symlinks']),
                     ('committed', False))
        lines = [json.loads(line) for line in output(service, name, 'omitted').splitlines()]
        expect_equal('what was left out', sorted((line['kind'], line['path']) for line in lines),
                     [('empty_directory', 'empty'), ('excluded', 'a.log'), ('xattrs', 'new')])
        lines = [json.loads(line) for line in output(service, name, 'trace').splitlines()]
        expect_equal('the trace', sorted((line['session'], line['path'], line['action']) for line in lines),
                     [(name, 'x', 'create'), (name, 'y', 'create')])
        for ending in ('exit 3', 'kill -9 $$'):
            name = run(service, shell(f'echo 1 > new; {ending}', keep_on_failure=True))
            awaited(service, name)
            expect_equal('what was kept', service.git('ls-tree', '--name-only', kept(service, name)).count('new'), 1)
        name = run(service, shell('echo 1 > new; exit 3'))
        awaited(service, name)
        expect_equal('nothing is left out', output(service, name, 'omitted'), '')
        expect_equal('nothing is kept', kept(service, name), '')
        expect_equal('nothing was denied', output(service, name, 'trace'), '')
        for wrong, code in (({'mount_options': ['noexec']}, 'unknown_field'), ({'exclude': ['']}, 'invalid_value'),
                            ({'symlinks': 'x'}, 'invalid_value'), ({'io': {'io_uring': 'on'}}, 'invalid_value'),
                            ({'keep_on_failure': 'yes'}, 'invalid_value'), ({'policy': [[]]}, 'invalid_value'),
                            ({'policy': 'allow'}, 'invalid_value'), ({'policy': [deny('x')] * 9}, 'invalid_value')):
            service.post('/v1/runs', shell('true', **wrong)).expect(400, code)
        service.get(f'/v1/runs/{name}/output?stream=conclusion').expect(400, 'invalid_value')


def NobodyGainsByATerm(start):
    with start() as service:
        opening = {'repository': 'data', 'mountpoint': f'{service.mounts}/m'}
        for wrong, field in (({'symlinks': 'any'}, 'symlinks'), ({'xattr': 'user'}, 'xattr'), ({'uid': 0}, 'uid')):
            problem = refused(service, 'POST', '/v1/sessions', 403, 'forbidden', {**opening, **wrong})
            expect_equal('the field', problem['field'], field)
            problem = refused(service, 'POST', '/v1/runs', 403, 'forbidden', shell('true', **wrong))
            expect_equal('the field', problem['field'], field)
        for option in ('suid', 'dev', 'uid=0', 'fsname=/etc', 'noexec,suid', ''):
            problem = refused(service, 'POST', '/v1/sessions', 400, 'invalid_value',
                              {**opening, 'mount_options': [option]})
            expect_equal('the field', problem['field'], 'mount_options')
        for wrong in ({'exclude': ['x'] * 257}, {'exclude': ['x' * 4097]}, {'exclude': ['a\0b']}, {'exclude': 'x'},
                      {'exclude': [1]}, {'exclude_base64': ['!']}, {'symlinks': ''}, {'xattr': True},
                      {'limits': {'staged_bytes': 5}, 'io': {'data': 'passthrough'}}):
            refused(service, 'POST', '/v1/sessions', 400, 'invalid_value', {**opening, **wrong})
        service.post('/v1/sessions', {**opening, 'xattr': 'user', 'limits': {'staged_bytes': 5}}).expect(
            400, 'invalid_value')
        status, view = asked(service, 'POST', '/v1/sessions',
                             {**opening, 'exclude': ['*.log'], 'symlinks': 'contained', 'xattr': 'off',
                              'keep_on_failure': True, 'uid': NOBODY, 'gid': NOBODY, 'policy': [deny('x')],
                              'mount_options': ['allow_other', 'exec', 'nosuid', 'nodev', 'sync', 'dirsync',
                                                'nodiratime']})
        expect_equal('what anybody may', (status, view.get('issuer')), (201, NOBODY_NAME))
        session = view['session']
        expect({'nosuid', 'nodev'} <= options_of_mount(opening['mountpoint'])[0], 'the mount gives rights')
        refused(service, 'POST', f'/v1/sessions/{session}/unmount', 200, None, {})
        refused(service, 'POST', f'/v1/sessions/{session}/mount', 403, 'forbidden',
                {'mountpoint': opening['mountpoint'], 'xattr': 'user'})
        name = run(service, shell('echo > x', policy=deny('x')))
        awaited(service, name)
        refused(service, 'GET', f'/v1/runs/{name}/output?stream=trace', 404, 'not_found')


def WhatGitIgnoresIsLeftOutUnlessAskedFor(start):
    with start() as service:
        def commit(opened, asked=None, *names):
            session = service.open(**opened)['session']
            tracked = tree()
            for name in names:
                service.put(f'/v1/sessions/{session}/files/{name}', b'new').expect(200 if name in tracked else 201)
            return service.post(f'/v1/sessions/{session}/commit', asked or {}).expect(200)

        def tree():
            return set(service.git('ls-tree', '-r', '--name-only', 'main').split('\n'))

        session = service.open()['session']
        service.put(f'/v1/sessions/{session}/files/.gitignore', b'*.o\nbuild/\n').expect(201)
        service.post(f'/v1/sessions/{session}/commit').expect(200)
        view = commit({}, None, 'a.o', 'a.c', 'build/x')
        expect_equal('what was left out', (view['omitted'], view['include_ignored']),
                     ([{'path': 'a.o', 'kind': 'ignored'}, {'path': 'build', 'kind': 'ignored'}], False))
        expect(not {'a.o', 'build/x'} & tree() and 'a.c' in tree(), f'{tree()}')
        view = commit({'include_ignored': True}, None, 'b.o')
        expect_equal('of the session', (view['omitted'], view['include_ignored'], 'b.o' in tree()), ([], True, True))
        view = commit({}, {'include_ignored': True, 'message': 'all'}, 'c.o')
        expect_equal('of the commit', (view['omitted'], 'c.o' in tree()), ([], True))
        view = commit({}, None, 'b.o', 'd.c')
        expect_equal('what is tracked', (view['omitted'], service.git('show', 'main:b.o')), ([], 'new'))
        service.post('/v1/sessions', {'repository': 'data', 'include_ignored': 'yes'}).expect(400, 'invalid_value')
        name = run(service, shell('touch r.o r.c'))
        expect_equal('of a run', awaited(service, name)['session']['state'], 'committed')
        expect_equal('it names', json.loads(output(service, name, 'omitted')), {'path': 'r.o', 'kind': 'ignored'})
        name = run(service, shell('touch r.o', include_ignored=True))
        awaited(service, name)
        expect({'r.o', 'r.c'} <= tree(), f'{tree()}')

        whole = archive(entry('.gitignore', b'*.log\n/out/\n'), entry('x.log'), entry('out/x'), entry('in/out/x'),
                        entry('in/b.o'), entry('c.o', b'imported'), entry('x.tmp'), entry('a.o'))
        made = send(service, whole, '?exclude=*.tmp&exclude=/a.*').expect(201)
        expect_equal('an import leaves out', made['omitted'],
                     [{'path': 'a.o', 'kind': 'excluded'}, {'path': 'out', 'kind': 'ignored'},
                      {'path': 'x.log', 'kind': 'ignored'}, {'path': 'x.tmp', 'kind': 'excluded'}])
        expect_equal('the branch', tree(), {'.gitignore', 'in/out/x', 'in/b.o', 'c.o', 'a.c', 'a.txt'})
        made = send(service, whole, '?include_ignored=true').expect(201)
        expect_equal('all of it', (made['omitted'], 'out/x' in tree(), 'x.log' in tree()), ([], True, True))
        send(service, whole, '?include_ignored=maybe').expect(400, 'invalid_value')
        send(service, whole, '?exclude=/').expect(400, 'invalid_value')


def OperatorsMakeRepositories(start):
    with start() as service:
        made = service.post('/v1/repositories', {'name': 'new', 'create': True}).expect(201)
        expect_equal('where it is', (made['path'], made['created'], made['default_branch']),
                     (f'{service.repositories}/new.git', True, 'main'))
        again = service.post('/v1/repositories', {'name': 'new', 'create': True, 'branch': 'other'}).expect(200)
        expect_equal('again', (again['created'], again['default_branch']), (False, 'main'))
        path = f'{service.repositories}/here'
        there = {'name': 'x', 'path': path, 'create': True, 'branch': 'trunk'}
        made = service.post('/v1/repositories', there).expect(201)
        expect_equal('where it was said to be', (made['path'], made['default_branch']), (path, 'trunk'))
        session = service.post('/v1/sessions', {'repository': 'x'}).expect(201)
        expect_equal('its branch', session['branch'], 'trunk')
        os.mkdir(f'{service.repositories}/full')
        write(f'{service.repositories}/full/file', 'mine')
        for body, status, code in (
                ({'name': 'y', 'path': path, 'create': True}, 409, 'exists'),
                ({'name': 'x', 'path': f'{path}2', 'create': True}, 409, 'exists'),
                ({'name': 'y', 'path': '/tmp/elsewhere', 'create': True}, 403, 'forbidden'),
                ({'name': 'y', 'path': f'{service.repositories}/../y', 'create': True}, 403, 'forbidden'),
                ({'name': 'y', 'path': f'{service.repositories}/none/y', 'create': True}, 400, 'invalid_value'),
                ({'name': '../y', 'create': True}, 400, 'invalid_value'),
                ({'name': 'y', 'branch': 'a..b', 'create': True}, 400, 'bad_request'),
                ({'name': 'y'}, 400, 'invalid_value'), ({'name': 'y', 'create': False}, 400, 'invalid_value'),
                ({'name': 'y', 'path': path, 'branch': 'main'}, 400, 'invalid_value'),
                ({'create': True}, 400, 'invalid_value')):
            answer = service.post('/v1/repositories', body)
            expect_equal(f'{body}: {answer.body}', (answer.status, answer.json['code']), (status, code))
        expect(not os.path.exists('/tmp/elsewhere'), 'it is made')
        expect(not os.path.exists(f'{service.repositories}/y.git'), 'it is made')
        refused(service, 'POST', '/v1/repositories', 403, 'forbidden', {'name': 'z', 'create': True})
        expect(not os.path.exists(f'{service.repositories}/z.git'), 'nobody has made a repository')
        service.stop()
        service.start()
        names = [one['name'] for one in service.get('/v1/repositories').json['repositories']]
        expect_equal('after a restart', names, ['data', 'new', 'x'])


if __name__ == '__main__':
    main(globals())
