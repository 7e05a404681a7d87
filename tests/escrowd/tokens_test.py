#!/usr/bin/env python3
"""Tokens that are made while the service runs: made, shown once, expired, revoked at once; who may make them, and what
is told of it."""
import glob
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess

from clock import HOUR_S, Clock
from events_test import Follower
from remote_test import AGENT, Remote
from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, main, read, request


def hash_of(secret):
    return 'sha256:' + hashlib.sha256(secret.encode()).hexdigest()


def create(service, status=201, **fields):
    answer = service.post('/v1/tokens', fields)
    return answer.expect(status) if status == 201 else answer


def ask_as_nobody(service, method, target, body=None):
    def asked():
        answer = request(service.socket, method, target, body)
        return answer.status, answer.json
    return as_user(NOBODY, asked)


def everything_kept(service):
    """All bytes below the state directory, and the log."""
    names = glob.glob(f'{service.directory}/state/**', recursive=True) + [f'{service.directory}/log']
    content = b''
    for name in filter(os.path.isfile, names):
        with open(name, 'rb') as file:
            content += file.read()
    return content


class FollowerOverTcp(Follower):
    """The same, of the port and with a token."""

    def __init__(self, remote, token):  # pylint: disable=super-init-not-called
        self.events, self.last_id, self.closed, self.wrong = [], None, False, []
        self.socket = remote.connect()
        self.socket.sendall(f'GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n'.encode())
        self.stream = self.socket.makefile('rb')
        expect(b'200' in self.stream.readline(), 'it does not follow')
        while self.stream.readline().strip():
            pass
        self.begin()


def ATokenCountsUntilItIsRevokedAndOnlyItsHashIsKept(start):
    with Remote(start, tls=False, tokens={AGENT: []}) as remote:
        service = remote.service
        remote.ask('GET', '/v1/health').expect(401, 'unauthenticated')
        made = create(service, principal=AGENT, note='for the nightly build')
        secret = made.pop('secret')
        expect_equal('what it is', (made['principal'], made['note'], made['created_by'], made['state']),
                     (AGENT, 'for the nightly build', 'user:root', 'valid'))
        at = f'/v1/tokens/{made["token"]}'
        expect_equal('who comes with it', remote.ask('POST', '/v1/sessions', {'repository': 'data'}, token=secret)
                     .expect(201)['issuer'], AGENT)
        # Shown once, kept nowhere.
        expect_equal('it is shown without the token', service.get(at).expect(200), made)
        expect_equal('in the list, too', service.get('/v1/tokens').expect(200), {'tokens': [made]})
        kept = everything_kept(service)
        expect(secret.encode() not in kept, 'the token itself is kept')
        expect(hash_of(secret).encode() in kept, 'the hash is not where it is looked for')
        # It outlives the service.
        service.stop(signal.SIGKILL)
        service.start()
        remote.ask('GET', '/v1/health', token=secret).expect(200)
        # Revoked, it is refused on the connection that it had opened, and what follows by it ends.
        open_connection = http.client.HTTPConnection('127.0.0.1', remote.port, timeout=300)
        headers = {'Authorization': f'Bearer {secret}'}
        open_connection.request('GET', '/v1/version', headers=headers)
        expect_equal('before', open_connection.getresponse().read() and 200, 200)
        with FollowerOverTcp(remote, secret) as follower:
            ended = service.delete(at).expect(200)
            expect_equal('its end', (ended['state'], ended['ended_by']), ('revoked', 'user:root'))
            open_connection.request('GET', '/v1/version', headers=headers)
            expect_equal('at once', open_connection.getresponse().status, 401)
            eventually('the follower is sent away', lambda: follower.closed)
        remote.ask('GET', '/v1/health', token=secret).expect(401, 'unauthenticated')
        expect_equal('once more', service.delete(at).expect(200), ended)
        expect_equal('the valid ones', service.get('/v1/tokens').expect(200)['tokens'], [])
        expect_equal('all', service.get('/v1/tokens?with_ended=true').expect(200)['tokens'], [ended])
        service.stop(signal.SIGKILL)
        service.start()
        remote.ask('GET', '/v1/health', token=secret).expect(401, 'unauthenticated')
        for wrong in ('/v1/tokens/0123456789abcdef', '/v1/tokens/x'):
            service.get(wrong).expect(404, 'not_found')
            service.delete(wrong).expect(404, 'not_found')


def ATokenExpires(start):
    remote = Remote(start, tls=False)
    service = remote.service
    clock = Clock(service)
    with remote:
        with Follower(service) as follower:
            short = create(service, principal=AGENT, expires_in_s=HOUR_S)
            long = create(service, principal=AGENT, expires_in_s=4 * HOUR_S)
            remote.ask('GET', '/v1/health', token=short['secret']).expect(200)
            clock.advance(HOUR_S)
            follower.wait_for('token.expired', token=short['token'], principal=AGENT, who='escrowd')
            remote.ask('GET', '/v1/health', token=short['secret']).expect(401, 'unauthenticated')
            remote.ask('GET', '/v1/health', token=long['secret']).expect(200)
            view = service.get(f'/v1/tokens/{short["token"]}').expect(200)
            expect_equal('its end', (view['state'], view['ended_by']), ('expired', ''))
            expect_equal('another end', service.delete(f'/v1/tokens/{short["token"]}').expect(200), view)
            expect_equal('the events', [(one['type'], one['token']) for one in follower.events],
                         [('token.created', short['token']), ('token.created', long['token']),
                          ('token.expired', short['token'])])
        # One that expires while no service runs is told, too.
        short = create(service, principal=AGENT, expires_in_s=HOUR_S)
        service.stop()
        clock.advance(HOUR_S)
        last_id = follower.last_id
        service.start()
        follower = Follower(service, last_id=last_id)
        follower.wait_for('token.expired', token=short['token'])
        expect_equal('the creation before it', len(follower.of('token.created', token=short['token'])), 1)
        follower.close()


def NobodyMakesATokenThatGivesMoreThanTheyHave(start):
    with Remote(start, tls=False, operators=['agent:operator'], reviewers=[NOBODY_NAME],
                run_as={'agent:operator': ['user:daemon']}) as remote:
        service = remote.service
        mine = create(service)
        expect_equal('the caller is the default', mine['principal'], 'user:root')
        status, own = ask_as_nobody(service, 'POST', '/v1/tokens', {})
        expect_equal('a principal for itself', (status, own['principal']), (201, NOBODY_NAME))
        for principal in (AGENT, 'user:root', 'agent:operator'):
            status, problem = ask_as_nobody(service, 'POST', '/v1/tokens', {'principal': principal})
            expect_equal(f'for {principal}', (status, problem['code']), (403, 'forbidden'))
        # Others' tokens do not exist.
        agents = create(service, principal=AGENT)
        for method in ('GET', 'DELETE'):
            expect_equal(method, ask_as_nobody(service, method, f'/v1/tokens/{agents["token"]}')[0], 404)
        for query in ('', '?principal=agent:ci', f'?principal={NOBODY_NAME}'):
            listed = ask_as_nobody(service, 'GET', f'/v1/tokens{query}')[1]['tokens']
            expect_equal(f'the list {query}', [one['token'] for one in listed],
                         [] if 'agent' in query else [own['token']])
        expect_equal('all, for an operator', [one['token'] for one in service.get('/v1/tokens').json['tokens']],
                     [mine['token'], own['token'], agents['token']])
        pages, cursor = [], ''
        while cursor is not None:
            page = service.get(f'/v1/tokens?limit=1{cursor and "&cursor=" + cursor}').expect(200)
            pages += [one['token'] for one in page['tokens']]
            cursor = page.get('next')
        expect_equal('by pages', pages, [mine['token'], own['token'], agents['token']])
        # A token makes no token, so that none prolongs itself; its principal may revoke it.
        secret = own['secret']
        remote.ask('POST', '/v1/tokens', {}, token=secret).expect(403, 'forbidden')
        expect_equal('its own', [one['token'] for one in remote.ask('GET', '/v1/tokens', token=secret).json['tokens']],
                     [own['token']])
        remote.ask('DELETE', f'/v1/tokens/{own["token"]}', token=secret).expect(200)
        remote.ask('GET', '/v1/tokens', token=secret).expect(401, 'unauthenticated')
        # An operator that is not root becomes no other user of the machine by a token.
        operator = create(service, principal='agent:operator')['secret']
        for principal, status in (('agent:operator', 201), (AGENT, 201), ('user:nowhere-at-all', 201),
                                  ('user:daemon', 201), ('user:root', 403), ('user:bin', 403)):
            answer = remote.ask('POST', '/v1/tokens', {'principal': principal}, token=operator)
            expect_equal(f'for {principal} by an operator: {answer.body}', answer.status, status)
        service.post('/v1/tokens', {'principal': 'somebody'}).expect(400, 'invalid_value')
        service.post('/v1/tokens', {'hash': 'secret'}).expect(400, 'invalid_value')
        service.post('/v1/tokens', {'expires_in_s': 0}).expect(400, 'invalid_value')
        service.get('/v1/tokens?with_ended=perhaps').expect(400, 'invalid_value')
        service.get('/v1/tokens?cursor=eA').expect(400, 'invalid_value')


def ATokenThatTheCallerMadeIsSentAsItsHash(start):
    with Remote(start, tls=False) as remote:
        service = remote.service
        body = {'principal': AGENT, 'hash': hash_of('escrow_my-own')}
        # The answer to a request with a key is kept, so there is to be no token in it.
        problem = service.post('/v1/tokens', {'principal': AGENT}, headers={'Idempotency-Key': 'a'})
        expect_equal('the field', problem.expect(400, 'invalid_value')['field'], 'hash')
        made = [service.post('/v1/tokens', body, headers={'Idempotency-Key': 'b'}).expect(201) for _ in range(2)]
        expect_equal('once', made[0], made[1])
        expect('secret' not in made[0], made[0])
        remote.ask('GET', '/v1/health', token='escrow_my-own').expect(200)
        service.post('/v1/tokens', body).expect(409, 'exists')
        service.post('/v1/tokens', {**body, 'principal': 'user:root'}).expect(409, 'exists')
        service.delete(f'/v1/tokens/{made[0]["token"]}').expect(200)
        service.post('/v1/tokens', body).expect(409, 'exists')  # what was revoked does not come back


def BeginningsAndEndsAreToldToWhoseTheyAre(start):
    with Remote(start, tls=False, reviewers=['agent:reviewer'], grants={}, verbose=True) as remote:
        service = remote.service
        agent, reviewer = [create(service, principal=who)['secret'] for who in (AGENT, 'agent:reviewer')]
        with Follower(service) as operator, FollowerOverTcp(remote, agent) as own, \
                FollowerOverTcp(remote, reviewer) as other:
            made = create(service, principal=AGENT, note='told')
            service.delete(f'/v1/tokens/{made["token"]}').expect(200)
            for follower in (operator, own):
                created = follower.wait_for('token.created', token=made['token'])
                expect_equal('who', (created['who'], created['principal'], created['note']),
                             ('user:root', AGENT, 'told'))
                follower.wait_for('token.revoked', token=made['token'], who='user:root')
            create(service, principal='agent:reviewer')
            other.wait_for('token.created', principal='agent:reviewer')
            expect_equal('to others', other.of('token.revoked'), [])
        said = f'the token {made["token"]} of {AGENT} was revoked by user:root'
        expect(said in read(f'{service.directory}/log'), 'it is not in the log')


def APrincipalWithoutAUserWorksAsItsAccount(start):
    account = 'user:daemon'
    with Remote(start, tls=False, accounts={AGENT: account}) as remote:
        service = remote.service
        token = create(service, principal=AGENT)['secret']
        daemon = int(subprocess.run(['id', '-u', 'daemon'], check=True, capture_output=True, text=True).stdout)
        opened = remote.ask('POST', '/v1/sessions', {'repository': 'data'}, token=token).expect(201)
        expect_equal('whose the files are', (opened['issuer'], opened['uid']), (AGENT, daemon))
        run = remote.ask('POST', '/v1/runs', {'repository': 'data', 'command': ['id', '-u'], 'confined': True},
                         token=token).expect(201)['run']
        ended = remote.ask('GET', f'/v1/runs/{run}/wait?timeout_ms=200000', token=token)
        expect_equal(f'as whom it runs: {ended.body}', ended.json.get('uid'), daemon)
        # For such a principal an operator makes no token who could not work as that user.
        service.config['operators'] = [*service.config['operators'], 'agent:operator']
        service.write_config()
        service.post('/v1/reload').expect(200)
        operator = create(service, principal='agent:operator')['secret']
        remote.ask('POST', '/v1/tokens', {'principal': AGENT}, token=operator).expect(403, 'forbidden')


def TheCommandMakesListsAndRevokes(start):
    with Remote(start, tls=False) as remote:
        service = remote.service
        def token(*words, status=0, environment=None):
            ran = subprocess.run([service.escrow_binary, '--host', f'unix://{service.socket}', 'token', *words],
                                 check=False, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                                 env={**os.environ, **(environment or {})})
            expect_equal(f'token {words}: {ran.stdout}{ran.stderr}', ran.returncode, status)
            return ran.stdout + ran.stderr
        secret = token('create', AGENT, '--expires-in', '7d', '--note', 'for ci').splitlines()[0]
        expect(re.fullmatch(r'escrow_[\w-]{43}', secret), f'it prints the token alone: {secret}')
        remote.ask('GET', '/v1/health', token=secret).expect(200)
        expect(secret.encode() not in everything_kept(service), 'the service has seen the token')
        listed = token('list')
        expect('for ci' in listed and AGENT in listed, listed)
        document = json.loads(token('list', '--json'))
        identity = document['tokens'][0]['token']
        expect('revoked' in token('revoke', identity).lower(), 'it is not said')
        remote.ask('GET', '/v1/health', token=secret).expect(401, 'unauthenticated')
        expect('for ci' not in token('list') and 'for ci' in token('list', '--all'), 'what has ended is listed apart')
        expect('0123456789abcdef' in token('revoke', '0123456789abcdef', status=1), 'the id is not named')
        made = json.loads(token('create', '--json'))
        expect_equal('the caller is the default', made['principal'], 'user:root')
        remote.ask('GET', '/v1/health', token=made['secret']).expect(200)
        said = subprocess.run([service.escrow_binary, 'token', 'list'], check=False, capture_output=True, text=True,
                              timeout=300, env={**os.environ, 'ESCROW_HOST': ''})
        expect_equal('without a service', said.returncode, 2)
        expect('--host' in said.stderr, said.stderr)


if __name__ == '__main__':
    main(globals())
