#!/usr/bin/env python3
"""Grants: who may open, commit, review and read what. The peer here is hostile: it asks for everything else, too."""
import json
import os
import socket
import subprocess

from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, main, request

EVERYTHING = [{'repository': '*', 'may': ['read', 'open', 'commit', 'review']}]


def ask(service, method, target, body=None):
    """(status, document) as the one who has grants, and is no operator."""
    def asked():
        answer = request(service.socket, method, target, body)
        return answer.status, answer.json
    return as_user(NOBODY, asked)


def refused(service, status, code, method, target, body=None):
    found, document = ask(service, method, target, body)
    expect_equal(f'{method} {target} {body}: {document}', (found, document.get('code')), (status, code))
    return document


def opening(**fields):
    return 'POST', '/v1/sessions', {'repository': 'data', **fields}


def opened(service, **fields):
    status, session = ask(service, *opening(**fields))
    expect_equal(f'{fields}: {session}', status, 201)
    return session['session']


def put(service, session, path):
    return as_user(NOBODY, lambda: request(service.socket, 'PUT', f'/v1/sessions/{session}/files/{path}', b'new',
                                           {'Content-Type': 'application/octet-stream'}).status)


def WithoutAGrantNothingIsThere(start):
    with start(grants={'user:somebody': EVERYTHING}, reviewers=[NOBODY_NAME]) as service:
        session = service.open(require_approval=True)['session']
        sealed = service.finish(session, {'exit_code': 0}).expect(200)
        for method, target, body, code in (
                ('GET', '/v1/repositories/data/branches', None, 'no_repository'),
                ('GET', '/v1/repositories/data/log', None, 'no_repository'),
                ('GET', '/v1/repositories/data/audit', None, 'no_repository'),
                ('POST', '/v1/sessions', {'repository': 'data'}, 'no_repository'),
                ('POST', '/v1/sessions', {'repository': 'nothing'}, 'no_repository'),
                ('POST', '/v1/runs', {'repository': 'data', 'command': ['true']}, 'no_repository'),
                ('GET', f'/v1/sessions/{session}', None, 'no_session'),
                ('GET', f'/v1/sessions/{session}/diff', None, 'no_session'),
                ('GET', f'/v1/sessions/{session}/files/a.txt', None, 'no_session'),
                ('POST', f'/v1/sessions/{session}/approve', {'result': sealed['result'] or '0' * 40}, 'no_session'),
                ('POST', f'/v1/sessions/{session}/reject', {}, 'no_session')):
            refused(service, 404, code, method, target, body)
        # What is not there and what may not be seen are told in the same words.
        details = [refused(service, 404, 'no_repository', 'GET', f'/v1/repositories/{name}/log')['detail']
                   for name in ('data', 'none')]
        expect_equal('the words', details[0].replace('data', 'none'), details[1])
        expect_equal('repositories', ask(service, 'GET', '/v1/repositories')[1]['repositories'], [])
        for query in ('', '?ended=false', f'?id_prefix={session[:8]}', '?order=newest', '?principal=user:root'):
            expect_equal(f'sessions {query}', ask(service, 'GET', f'/v1/sessions{query}')[1]['sessions'], [])
        expect_equal('runs', ask(service, 'GET', '/v1/runs')[1]['runs'], [])
        service.open()  # an operator is not held to grants


def ABranchAndADirectoryAreAllThatAGrantGives(start):
    grant = {'repository': 'data', 'branches': ['team/*'], 'path_prefix': 'dir', 'may': ['commit']}
    with start(grants={NOBODY_NAME: [grant]}) as service:
        for branch in ('team/one', 'teamtwo', 'team/deeper/two'):
            service.git('branch', branch, 'main')
        branches = [one['name'] for one in ask(service, 'GET', '/v1/repositories/data/branches')[1]['branches']]
        expect_equal('branches', branches, ['team/one'])
        for fields in ({}, {'branch': 'main'}, {'branch': 'main', 'path_prefix': 'dir'}, {'branch': 'teamtwo'},
                       {'branch': 'team/one'}, {'branch': 'team/deeper/two', 'path_prefix': 'dir'},
                       {'branch': 'team/one', 'path_prefix': 'directory'}, {'branch': 'team/one', 'path_prefix': 'di'},
                       {'branch': 'team/one', 'path_prefix': '/'}, {'branch': 'refs/heads/team/one'},
                       {'branch': 'main', 'require_approval': True}, {'branch': 'main', 'read_only': True}):
            refused(service, 403, 'forbidden', *opening(**fields))
            run = {'repository': 'data', 'command': ['cat', 'a.txt'], **fields}
            refused(service, 403, 'forbidden', 'POST', '/v1/runs', run)
        refused(service, 400, 'invalid_value', *opening(branch='team/one', path_prefix='dir/../..'))
        refused(service, 404, 'no_branch', 'GET', '/v1/repositories/data/log?branch=main')
        refused(service, 403, 'forbidden', 'GET', '/v1/repositories/data/log?branch=team/one')
        refused(service, 403, 'forbidden', 'GET', '/v1/repositories/data/log?branch=team/one&path=a.txt')
        log = ask(service, 'GET', '/v1/repositories/data/log?branch=team/one&path=dir/b.txt')
        expect_equal('the log of what it may read', log[0], 200)
        # What is granted works.
        for prefix in ('dir', 'dir/sub'):
            session = opened(service, branch='team/one', path_prefix=prefix)
            expect_equal('writing', put(service, session, f'{prefix}/new-{len(prefix)}'), 201)
            outside = ask(service, 'GET', f'/v1/sessions/{session}/files/a.txt')
            expect(outside[0] in (400, 403, 404), f'{outside}')
            status, view = ask(service, 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 0})
            expect_equal(f'the commit {view}', (status, view['state']), (200, 'committed'))
        # A grant that is taken away takes what was opened by it along.
        session = opened(service, branch='team/one', path_prefix='dir')
        service.config['grants'] = {NOBODY_NAME: [{**grant, 'path_prefix': 'dir/sub'}]}
        service.write_config()
        service.post('/v1/reload').expect(200)
        refused(service, 404, 'no_session', 'GET', f'/v1/sessions/{session}')
        refused(service, 404, 'no_session', 'POST', f'/v1/sessions/{session}/commit', {})
        refused(service, 404, 'no_session', 'GET', f'/v1/sessions/{session}/files/dir/b.txt')


def EachVerbIsGrantedByItself(start):
    def with_verbs(*verbs):
        return {'*': [{'repository': 'data', 'may': list(verbs)}]}
    with start(grants=with_verbs('open'), reviewers=[NOBODY_NAME]) as service:
        def regrant(*verbs):
            service.config['grants'] = with_verbs(*verbs)
            service.write_config()
            service.post('/v1/reload').expect(200)
        session = opened(service)
        expect_equal('writing', put(service, session, 'new'), 201)
        refused(service, 403, 'forbidden', 'POST', f'/v1/sessions/{session}/commit', {})
        refused(service, 403, 'forbidden', 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 0})
        refused(service, 403, 'forbidden', 'POST', '/v1/runs', {'repository': 'data', 'command': ['true']})
        head = service.git('rev-parse', 'main')
        expect_equal('rolling back', ask(service, 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 1})[0], 200)
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        # What a reviewer is asked about needs no grant to commit; the reviewer needs one to review.
        session = opened(service, require_approval=True)
        put(service, session, 'new')
        status, sealed = ask(service, 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 0})
        expect_equal('sealed', (status, sealed['state']), (200, 'awaiting_approval'))
        review = ('POST', f'/v1/sessions/{session}/approve', {'result': sealed['result']})
        refused(service, 403, 'forbidden', *review)
        refused(service, 403, 'forbidden', 'POST', f'/v1/sessions/{session}/reject', {})
        regrant('read')
        refused(service, 403, 'forbidden', *opening())
        refused(service, 403, 'forbidden', *review)
        expect_equal('reading', as_user(NOBODY, lambda: request(
            service.socket, 'GET', f'/v1/sessions/{session}/files/a.txt').status), 200)
        regrant('review')
        refused(service, 403, 'forbidden', *opening())
        expect_equal('approving', ask(service, *review)[1].get('state'), 'committed')
        regrant('commit')
        session = opened(service)
        put(service, session, 'newer')
        expect_equal('committing', ask(service, 'POST', f'/v1/sessions/{session}/commit', {})[1]['state'], 'committed')


def EventsTellWhatMayBeRead(start):
    grant = {'repository': 'data', 'branches': ['team'], 'path_prefix': 'dir', 'may': ['read']}
    with start(grants={NOBODY_NAME: [grant]}, reviewers=[NOBODY_NAME]) as service:
        service.git('branch', 'team', 'main')
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.setgroups([NOBODY])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(service.socket)
            client.sendall(b'GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n')
            while piece := client.recv(65536):
                os.write(writer, piece)
            os._exit(0)
        os.close(writer)
        os.set_blocking(reader, False)
        told = b''
        def tells(text):
            nonlocal told
            try:
                told += os.read(reader, 1 << 20)
            except BlockingIOError:
                pass
            return text in told
        eventually('it follows', lambda: tells(b'retry: '))
        def commit(branch, *paths):
            session = service.open(branch=branch)['session']
            for path in paths:
                service.put(f'/v1/sessions/{session}/files/{path}', b'new').expect(201)
            service.finish(session, {'exit_code': 0}).expect(200)
        commit('main', 'dir/secret-of-main', 'secret-1')
        commit('team', 'secret-2', 'dir/told', 'directory/secret-3')
        eventually('what it may read', lambda: tells(b'dir/told'))
        commit('team', 'dir/last')
        eventually('the last', lambda: tells(b'dir/last'))
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reader)
        for secret in (b'secret', b'"branch":"main"', b'"branch": "main"'):
            expect(secret not in told, f'{secret} was told: {told!r}')
        expect(b'"more_paths":true' in told or b'"more_paths": true' in told, 'that there is more is not said')


def EmptyAndNullLimitsAreRefusedByName(start):
    """They stood for absent members, which limit nothing."""
    reading = {'repository': 'data', 'may': ['read']}
    def granted(**members):
        return {'grants': {NOBODY_NAME: [{**reading, **members}]}}
    with start() as service:
        def check(members):
            path = f'{service.directory}/empty.json'
            with open(path, 'w', encoding='utf-8') as file:
                json.dump({**service.config, **members}, file)
            return subprocess.run([service.escrowd_binary, '--config', path, '--check-config'], check=False, text=True,
                                  capture_output=True, timeout=300)
        for members, name in ((granted(branches=[]), 'branches'), (granted(branches=['main', '']), 'branches'),
                              (granted(branches=None), f'grants.{NOBODY_NAME}.0.branches'),
                              (granted(path_prefix=''), 'path_prefix'), (granted(path_prefix='/'), 'path_prefix'),
                              (granted(path_prefix=None), f'grants.{NOBODY_NAME}.0.path_prefix'),
                              (granted(may=[]), 'may'), ({'grants': None}, 'grants'),
                              ({'grants': {NOBODY_NAME: None}}, f'grants.{NOBODY_NAME}'),
                              ({'quotas': None}, 'quotas'), ({'quotas': {NOBODY_NAME: {}}}, f'quotas.{NOBODY_NAME}'),
                              ({'quotas': {NOBODY_NAME: None}}, f'quotas.{NOBODY_NAME}'),
                              ({'quotas': {NOBODY_NAME: {'sessions': None}}}, f'quotas.{NOBODY_NAME}.sessions'),
                              ({'socket_group': ''}, 'socket_group'),
                              ({'tls_certificate': '', 'tls_key': ''}, 'tls_certificate'),
                              ({'grants': {NOBODY_NAME: []}}, f'grants.{NOBODY_NAME}'),
                              ({'operators': []}, 'operators'), ({'reviewers': []}, 'reviewers'),
                              ({'host_network': []}, 'host_network'), ({'jwt_issuers': []}, 'jwt_issuers'),
                              ({'run_as': {NOBODY_NAME: []}}, f'run_as.{NOBODY_NAME}'),
                              ({'max_memory_bytes': None}, 'max_memory_bytes')):
            said = check(members)
            expect(said.returncode == 2 and f'"{name}" is ' in said.stderr and said.stderr.count('\n') == 1,
                   f'{members}: {said.returncode} {said.stderr}')
        path = f'{service.directory}/nothing.json'
        with open(path, 'w', encoding='utf-8') as file:
            file.write('\n')
        said = subprocess.run([service.escrowd_binary, '--config', path, '--check-config'], check=False, text=True,
                              capture_output=True, timeout=300)
        expect(said.returncode == 2 and f'{path} is empty' in said.stderr, f'{said.returncode} {said.stderr}')
        for members in (granted(), granted(branches=['main'], path_prefix='dir'), {'grants': {}},
                        {'quotas': {}, 'tokens': {NOBODY_NAME: []}, 'run_as': {}},
                        {'mount_roots': [], 'source_roots': []}):
            said = check(members)
            expect(said.returncode == 0, f'{members}: {said.returncode} {said.stderr}')


def AGrantThatCannotBeOneIsRefusedByName(start):
    with start() as service:
        reading = {'repository': 'data', 'may': ['read']}
        for principal, grant, why in (('nobody in particular', reading, 'grants'),
                                      (NOBODY_NAME, {'may': ['read']}, 'repository'),
                                      (NOBODY_NAME, {'repository': 'data'}, 'may'),
                                      (NOBODY_NAME, {**reading, 'may': ['write']}, 'write'),
                                      (NOBODY_NAME, {**reading, 'repository': 'a/b'}, 'a/b'),
                                      (NOBODY_NAME, {**reading, 'path_prefix': '..'}, 'path_prefix'),
                                      (NOBODY_NAME, {**reading, 'branch': 'x'}, 'branch')):
            grants = {principal: [grant]}
            path = f'{service.directory}/wrong.json'
            with open(path, 'w', encoding='utf-8') as file:
                json.dump({**service.config, 'grants': grants}, file)
            said = subprocess.run([service.escrowd_binary, '--config', path, '--check-config'], check=False, text=True,
                                  capture_output=True, timeout=300)
            expect(said.returncode == 2 and why in said.stderr, f'{grants}: {said.returncode} {said.stderr}')


if __name__ == '__main__':
    main(globals())
