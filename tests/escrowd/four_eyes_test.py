#!/usr/bin/env python3
"""four_eyes: whoever had a part in a session is not the one who approves or rejects its result."""
import os
import pwd
import signal
import subprocess

from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, main, request

# Operators and reviewers, each of whom does one thing to a session of nobody's.
PEOPLE = [pwd.getpwuid(uid).pw_name for uid in (1, 2, 3, 5, 6, 7, 8, 9)]
UNINVOLVED = pwd.getpwuid(10).pw_name


def ask(service, name, method, target, body=None):
    """(status, document) that the user gets, in the group of the socket."""
    def answer():
        got = request(service.socket, method, target, body)
        return got.status, got.json
    return as_user(pwd.getpwnam(name).pw_uid, answer, [NOBODY])


def do(service, name, method, target, body=None, status=200):
    got, document = ask(service, name, method, target, body)
    expect_equal(f'{name}: {method} {target} ({document})', got, status)
    return document


NOBODYS = pwd.getpwuid(NOBODY).pw_name


def opened(service, **fields):
    """A session of nobody's that has one change and is to be approved."""
    session = do(service, NOBODYS, 'POST', '/v1/sessions', {'repository': 'data', 'require_approval': True, **fields},
                 201)['session']
    as_user(NOBODY, lambda: service.put(f'/v1/sessions/{session}/files/new', b'1').status, [NOBODY])
    return session


def sealed(service, session):
    if service.state(session) == 'open':
        do(service, NOBODYS, 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 0})
    view = service.get(f'/v1/sessions/{session}').expect(200)
    expect_equal('the state', view['state'], 'awaiting_approval')
    return view['result']


def is_refused(service, session, name, what):
    result = sealed(service, session)
    for verb, body in (('approve', {'result': result}), ('reject', {})):
        got, problem = ask(service, name, 'POST', f'/v1/sessions/{session}/{verb}', body)
        expect_equal(f'{verb} by {name}, who {what} ({problem})', (got, problem.get('code')), (403, 'forbidden'))
        expect('four_eyes' in problem['detail'], problem['detail'])


def start_with_people(start):
    everybody = [f'user:{name}' for name in (*PEOPLE, UNINVOLVED, NOBODYS)]
    return start(four_eyes=True, operators=[f'user:{name}' for name in PEOPLE], reviewers=[*everybody, 'user:root'])


def NobodyReviewsASessionThatTheyHaveChanged(start):
    with start_with_people(start) as service:
        def put(name, session):
            as_user(pwd.getpwnam(name).pw_uid,
                    lambda: service.put(f'/v1/sessions/{session}/files/theirs', b'x').status, [NOBODY])
        def remove(name, session, path='a.txt'):
            do(service, name, 'DELETE', f'/v1/sessions/{session}/files/{path}')
        def verb(route, body=None):
            return lambda name, session: do(service, name, 'POST', f'/v1/sessions/{session}/{route}', body or {})
        def mount(name, session):
            verb('mount', {'mountpoint': f'{service.mounts}/{name}'})(name, session)
        actions = (('wrote a file', put), ('removed a file', remove), ('updated', verb('update')),
                   ('discarded', verb('discard', {'paths': ['new']})), ('mounted it', mount),
                   ('finished it', verb('finish', {'exit_code': 0})), ('committed it', verb('commit')))
        for name, (what, act) in zip(PEOPLE, actions):
            session = opened(service)
            remove(PEOPLE[-1], session, 'dir/b.txt')  # that there is something to be reviewed, whatever is discarded
            act(name, session)
            is_refused(service, session, name, what)
            is_refused(service, session, PEOPLE[-1], 'removed a file')
            is_refused(service, session, NOBODYS, 'opened it')
            do(service, UNINVOLVED, 'POST', f'/v1/sessions/{session}/reject', {})
        # Over a restart, and after a kill.
        session = opened(service)
        put(PEOPLE[0], session)
        service.stop(signal.SIGKILL)
        service.start()
        is_refused(service, session, PEOPLE[0], 'wrote a file before the kill')


def WhoseTheFilesOfASessionAreDoesNotReviewIt(start):
    with start_with_people(start) as service:
        owner = pwd.getpwnam(PEOPLE[0])
        point = f'{service.mounts}/work'
        session = service.open(mountpoint=point, require_approval=True, uid=owner.pw_uid)['session']
        def write_file():
            with open(f'{point}/through-the-mount', 'w', encoding='utf-8') as file:
                file.write('x')
            return True
        as_user(owner.pw_uid, write_file)
        service.finish(session, {'exit_code': 0}).expect(200)
        is_refused(service, session, PEOPLE[0], 'could write in the mount')
        is_refused(service, session, 'root', 'opened it')


def WhatIsDoneWithoutTheServiceCountsToo(start):
    with start_with_people(start) as service:
        # By root, with the command line.
        point = f'{service.directory}/point'
        os.mkdir(point)
        for words in (('discard', '{session}', 'new'), ('update', '{session}')):
            session = opened(service)
            do(service, PEOPLE[0], 'DELETE', f'/v1/sessions/{session}/files/a.txt')
            service.escrow(*(word.format(session=session) for word in words))
            is_refused(service, session, 'root', f'ran escrow {words[0]}')
            do(service, UNINVOLVED, 'POST', f'/v1/sessions/{session}/reject', {})
        # A host that is no service's: it knows its own user only, not who asks the service.
        session = opened(service)
        host = subprocess.Popen([service.escrow_binary, '--repo', service.repository, 'mount', '--foreground',
                                 '--session', session, point], stdout=subprocess.PIPE, text=True)
        try:
            expect(host.stdout.readline().strip() == session, 'it is not mounted')
            do(service, PEOPLE[1], 'POST', f'/v1/sessions/{session}/discard', {'paths': ['new']})
            do(service, PEOPLE[2], 'POST', f'/v1/sessions/{session}/update', {})
            with open(f'{point}/by-hand', 'w', encoding='utf-8') as file:
                file.write('x')
            do(service, PEOPLE[3], 'POST', f'/v1/sessions/{session}/commit', {})
            host.wait(100)
        finally:
            host.kill()
            host.communicate()
        for name, what in ((PEOPLE[1], 'discarded'), (PEOPLE[2], 'updated'), (PEOPLE[3], 'committed it'),
                           ('root', 'mounted it')):
            is_refused(service, session, name, what)
        result = sealed(service, session)
        view = do(service, UNINVOLVED, 'POST', f'/v1/sessions/{session}/approve', {'result': result})
        expect_equal('the reviewer', view['reviewer'], f'user:{UNINVOLVED}')


def LookingIsNoPartInIt(start):
    with start_with_people(start) as service:
        session = opened(service)
        reviewer = PEOPLE[0]
        for target in ('', '/changes', '/diff?format=stat', '/files/new', '?with_changes=true'):
            as_user(pwd.getpwnam(reviewer).pw_uid, lambda: service.get(f'/v1/sessions/{session}{target}').status,
                    [NOBODY])
        result = sealed(service, session)
        # Others move the branch: the reviewer is shown the result on its new head, and may approve that.
        other = service.open()['session']
        service.put(f'/v1/sessions/{other}/files/other', b'x').expect(201)
        service.finish(other, {'exit_code': 0}).expect(200)
        got, problem = ask(service, reviewer, 'POST', f'/v1/sessions/{session}/approve', {'result': result})
        expect_equal(f'approving what was shown first ({problem})', (got, problem.get('code')), (409, 'result_moved'))
        view = do(service, reviewer, 'POST', f'/v1/sessions/{session}/approve', {'result': problem['result']})
        expect_equal('the state', view['state'], 'committed')
        eventually('it is in the branch', lambda: 'new' in service.git('ls-tree', '--name-only', 'main').split())


if __name__ == '__main__':
    main(globals())
