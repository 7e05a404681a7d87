#!/usr/bin/env python3
"""Webhooks: events that the service tells by itself, signed, again until they are taken, also over a restart; and those
that it gives up."""
import hashlib
import hmac
import http.server
import json
import signal
import subprocess
import threading

from events_test import Follower
from reload_test import change
from remote_test import free_port
from service import NOBODY, as_user, eventually, expect, expect_equal, main, request

SECRET = 's' * 40


class Endpoint:
    """A server of this machine that takes events, or answers as it is told; what it was sent."""

    def __init__(self, port=0):
        self.status, self.tries, self.taken, self.wrong = 200, [], [], []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers['Content-Length']))
                status = endpoint.receive(self.path, self.headers, body)
                self.send_response(status)
                self.send_header('Content-Length', '0')
                self.end_headers()

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def receive(self, path, headers, body):
        parts = dict(part.split('=', 1) for part in headers['Escrow-Signature'].split(','))
        signed = parts['t'].encode() + b'.' + body
        event = json.loads(body)
        if path != '/hook' or hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() != parts['v1'] or \
                headers['Escrow-Event'] != str(event['id']) or headers['Content-Type'] != 'application/json':
            self.wrong.append((path, dict(headers), body))
        self.tries.append(event)
        status = self.status(event) if callable(self.status) else self.status
        if status == 200:
            self.taken.append(event)
        return status

    def ids(self):
        return [event['id'] for event in list(self.taken)]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
        expect_equal('what was wrong with what it was sent', self.wrong[:2], [])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def follow(service, endpoint, **members):
    """Has the service tell the endpoint of what happens from here on."""
    with open(f'{service.directory}/secret', 'w', encoding='utf-8') as file:
        file.write(SECRET + '\n')
    change(service, webhooks={'ci': {'url': f'http://127.0.0.1:{endpoint.port}/hook',
                                     'secret_file': f'{service.directory}/secret', **members}})
    if service.process is not None:
        service.post('/v1/reload').expect(200)
        # It has begun when it has come as far as the log.
        eventually('it follows', lambda: hook(service)['pending'] == 0)


def hook(service):
    return service.get('/v1/webhooks').expect(200)['webhooks'][0]


def dead_letters(service):
    return service.get('/v1/webhooks/ci/dead').expect(200)['dead_letters']


def dead_letter(service, endpoint):
    """The path of an event that was given up, which the endpoint takes from here on."""
    follow(service, endpoint, events=['token.*'], give_up_after_s=1)
    endpoint.status = 500
    service.post('/v1/tokens', {'hash': f'sha256:{7:064x}'}).expect(201)
    eventually('it is given up', lambda: dead_letters(service))
    endpoint.status = 200
    return f'/v1/webhooks/ci/dead/{dead_letters(service)[0]["dead_letter"]}'


def EventsAreToldInOrderAndSigned(start):
    with Endpoint() as endpoint, start() as service, Follower(service) as follower:
        follow(service, endpoint, events=['session.*', 'branch.*'])
        session = service.open()['session']
        service.put(f'/v1/sessions/{session}/files/new', b'new').expect(201)
        service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)
        commit = service.finish(session, {'exit_code': 0}).expect(200)['commit']
        eventually('the end', lambda: any(one['data'].get('state') == 'committed' for one in list(endpoint.taken)))
        follower.wait_for('session.state', session=session, state='committed')
        follower.wait_for('token.created')
        told = [one for one in follower.events if not one['type'].startswith('token.')]
        expect_equal('the same as those who follow are told',
                     [{'id': one['id'], 'type': one['type'], **one['data']} for one in endpoint.taken], told)
        expect(any(one['data'].get('commit') == commit for one in endpoint.taken), 'the commit is not among them')
        status = hook(service)
        expect_equal('what is said of it', (status['webhook'], status['error'], status['dead']), ('ci', '', 0))
        expect_equal('for others', as_user(NOBODY, lambda: [request(service.socket, 'GET', path).status for path in (
            '/v1/webhooks', '/v1/webhooks/ci/dead')]), [403, 403])
        change(service, webhooks={})
        service.post('/v1/reload').expect(200)
        expect_equal('no webhook', service.get('/v1/webhooks').expect(200)['webhooks'], [])
        service.get('/v1/webhooks/ci/dead').expect(404, 'not_found')


def ARefusalIsTriedAgainAndGivenUpInTheEnd(start):
    with Endpoint() as endpoint, start() as service:
        refusals = []
        def twice(event):
            refusals.append(event['id'])
            return 503 if len(refusals) <= 2 else 200
        follow(service, endpoint, events=['token.*'], give_up_after_s=600)
        endpoint.status = twice
        for _ in range(3):
            service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)
        eventually('all are taken', lambda: len(endpoint.taken) == 3)
        first = endpoint.tries[0]['id']
        expect_equal('in order, the first one three times', [one['id'] for one in endpoint.tries],
                     [first, first, first, first + 1, first + 2])
        # One that is never taken is given up, and the next one told.
        at = dead_letter(service, endpoint)
        letter = dead_letters(service)[0]
        expect_equal('the dead letter', (letter['type'], letter['data']['principal']), ('token.created', 'user:root'))
        expect('answered 500' in letter['error'], letter)
        eventually('it is counted', lambda: hook(service)['dead'] == 1)
        service.post('/v1/tokens', {'principal': 'agent:next'}).expect(201)
        eventually('the next one', lambda: endpoint.taken[-1]['data']['principal'] == 'agent:next')
        endpoint.status = 500
        service.post(f'{at}/send').expect(503, 'unavailable')
        expect_equal('it stays', dead_letters(service), [letter])
        endpoint.status = 200
        service.post(f'{at}/send').expect(200)
        expect_equal('it was sent', endpoint.taken[-1]['id'], letter['id'])
        expect_equal('and is gone', dead_letters(service), [])
        service.post(f'{at}/send').expect(404, 'not_found')
        service.post('/v1/webhooks/ci/dead/x/send').expect(404, 'not_found')
        service.post('/v1/webhooks/other/dead/1/send').expect(404, 'not_found')
        expect_equal('for others', as_user(NOBODY, lambda: request(service.socket, 'POST', f'{at}/send', {}).status),
                     403)
        service.get('/v1/webhooks/ci/dead?cursor=eA').expect(400, 'invalid_value')


def NothingIsMissedWhileEitherSideIsAway(start):
    port, holder = free_port()  # nobody else takes it while no endpoint is there
    endpoint = Endpoint(port)
    with holder, start() as service:
        follow(service, endpoint, events=['token.*'])
        service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)
        eventually('the first one', lambda: endpoint.taken)
        before = endpoint.ids()
        endpoint.close()
        for _ in range(5):
            service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)
        eventually('it cannot be reached', lambda: hook(service)['error'])
        eventually('since when is kept', lambda: 'failing_since' in hook(service))
        service.stop(signal.SIGKILL)
        with Endpoint(port) as again:
            service.start()
            eventually('what was missed', lambda: len(again.taken) >= 5)
            expect_equal('each of them, in order', again.ids(), list(range(before[-1] + 1, before[-1] + 6)))
            eventually('all is well', lambda: 'failing_since' not in hook(service))
        # What the log has dropped meanwhile is said.
        change(service, retention={'events': 2})
        service.post('/v1/reload').expect(200)
        def is_dropped():
            service.post('/v1/tokens', {'principal': 'agent:x'}).expect(201)
            with Follower(service, last_id=before[-1] + 5) as late:
                eventually('something is told', lambda: late.events)
                # The webhook may have read the two that were kept, and tells them when its endpoint is back.
                return late.events[0]['type'] == 'gap' and late.events[0]['until'] > before[-1] + 7
        eventually('some are dropped', is_dropped)
        def gaps():
            return [one['data'] for one in dead_letters(service) if one['type'] == 'gap']
        # While the endpoint is away the webhook cannot tell what it has read before that was dropped.
        eventually('the gap is kept', gaps)
        with Endpoint(port) as again:
            def are_all_known():
                dropped = [number for gap in gaps() for number in range(gap['after'] + 1, gap['until'] + 1)]
                told = again.ids()
                known = sorted(told + dropped)
                return told and told[-1] > dropped[-1] and known == list(range(before[-1] + 6, known[-1] + 1))
            eventually('each was told or is in a gap, and none twice', are_all_known)


def WhatCannotBeAWebhookIsRefusedByName(start):
    with Endpoint() as endpoint, start() as service:
        follow(service, endpoint)
        good = service.config['webhooks']['ci']
        with open(f'{service.directory}/short', 'w', encoding='utf-8') as file:
            file.write('secret')
        for said, members in (('ci.url', {'url': None}), ('no-url', {'url': 'no-url'}),
                              ('read on its way', {'url': 'http://192.0.2.1:80/hook'}), ('https', {'url': 'https://x'}),
                              ('ci.secret_file', {'secret_file': None}), ('/nothing', {'secret_file': '/nothing'}),
                              ('32 bytes', {'secret_file': f'{service.directory}/short'}),
                              ('colour', {'colour': 'red'})):
            change(service, webhooks={'ci': {name: value for name, value in {**good, **members}.items()
                                             if value is not None}})
            ran = subprocess.run([service.escrowd_binary, '--config', service.config_path, '--check-config'],
                                 capture_output=True, text=True, check=False, timeout=300)
            expect_equal(f'{members}: {ran.stderr}', ran.returncode, 2)
            expect(said in ran.stderr, f'{members}: {ran.stderr!r} does not say {said!r}')


if __name__ == '__main__':
    main(globals())
