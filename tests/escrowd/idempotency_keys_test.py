#!/usr/bin/env python3
"""What every POST route has in common, on each that api/openapi.yaml has: keys, and bodies that are refused."""
import json

from description import DESCRIPTION
from imports_test import TAR, archive, entry
from webhooks_test import Endpoint, dead_letter
from service import JSON, NOBODY, NOBODY_NAME, as_user, expect, expect_equal, main, request


class Request:
    """A POST with its body, and the body of another request that could be made there."""

    def __init__(self, target, body, other, headers=None):
        as_bytes = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in (body, other)]
        self.target, self.headers = target, headers or JSON
        self.body, self.other = as_bytes

    def send(self, service, body, key=None, headers=None):
        sent = {**self.headers, **(headers or {}), **({'Idempotency-Key': key} if key is not None else {})}
        return request(service.socket, 'POST', self.target, body, sent)


def requests(service, endpoint):
    """{route: Request} for every POST route, each carried out with success when it is sent first."""
    number = iter(range(100))

    def session(**fields):
        opened = service.open(**fields)['session']
        service.put(f'/v1/sessions/{opened}/files/new-{next(number)}', b'new').expect(201)
        return opened

    def sealed():
        one = session(require_approval=True)
        view = service.finish(one, {'exit_code': 0}).expect(200)
        return view['session'], view['result']

    def verb(name, one, body, other):
        return Request(f'/v1/sessions/{one}/{name}', body, other)

    nothing = b'{}', b'{ }'
    mounted, _ = service.open_mounted('mounted')
    ordering = {'repository': 'data', 'command': ['sleep', '600']}
    run = service.post('/v1/runs', ordering).expect(201)['run']
    kept = session()
    failed = session()
    service.post(f'/v1/sessions/{failed}/rollback', {'keep_result': True}).expect(200)
    mine, theirs = session(), session()
    for one in mine, theirs:
        service.put(f'/v1/sessions/{one}/files/a.txt', one.encode()).expect(200)
    service.post(f'/v1/sessions/{theirs}/commit').expect(200)
    to_approve, result = sealed()
    service.post(f'/v1/sessions/{kept}/savepoints', {'name': 'kept'}).expect(200)
    return {
        # Before the branch moves.
        '/v1/sessions/{session}/approve': verb('approve', to_approve, {'result': result}, {'result': '0' * 40}),
        '/v1/repositories': Request('/v1/repositories', {'name': 'more', 'create': True},
                                    {'name': 'other', 'create': True}),
        '/v1/reload': Request('/v1/reload', *nothing),
        '/v1/webhooks/{webhook}/dead/{letter}/send': Request(f'{dead_letter(service, endpoint)}/send', *nothing),
        '/v1/tokens': Request('/v1/tokens', {'hash': f'sha256:{1:064x}'}, {'hash': f'sha256:{2:064x}'}),
        '/v1/repositories/{repository}/gc': Request('/v1/repositories/data/gc', *nothing),
        '/v1/repositories/{repository}/verify': Request('/v1/repositories/data/verify', *nothing),
        '/v1/repositories/{repository}/imports':
            Request('/v1/repositories/data/imports?branch=imported', archive(entry('one', b'1')),
                    archive(entry('two', b'2')), TAR),
        '/v1/sessions': Request('/v1/sessions', {'repository': 'data'}, {'repository': 'data', 'labels': {'a': 'b'}}),
        '/v1/sessions/{session}/mount': verb('mount', session(), {'mountpoint': f'{service.mounts}/one'},
                                             {'mountpoint': f'{service.mounts}/two'}),
        '/v1/sessions/{session}/unmount': verb('unmount', mounted, *nothing),
        '/v1/sessions/{session}/lease': verb('lease', session(lease_ms=600_000), {}, {'lease_ms': 700_000}),
        '/v1/sessions/{session}/update': verb('update', session(), *nothing),
        '/v1/sessions/{session}/discard': verb('discard', session(), {'paths': ['a.txt']}, {'paths': ['dir']}),
        '/v1/sessions/{session}/resolve': verb('resolve', mine, {'paths': ['a.txt'], 'how': 'mine'},
                                               {'paths': ['a.txt'], 'how': 'theirs'}),
        '/v1/sessions/{session}/resume': verb('resume', failed, *nothing),
        '/v1/sessions/{session}/mounts': verb('mounts', session(), {'entry': {'path': 'one', 'source': 'scratch'}},
                                              {'entry': {'path': 'two', 'source': 'scratch'}}),
        '/v1/sessions/{session}/savepoints': verb('savepoints', session(), {'name': 'one'}, {'name': 'two'}),
        '/v1/sessions/{session}/savepoints/{savepoint}/restore': verb('savepoints/kept/restore', kept, *nothing),
        '/v1/sessions/{session}/finish': verb('finish', session(), {'exit_code': 0}, {'exit_code': 1}),
        '/v1/sessions/{session}/commit': verb('commit', session(), {}, {'message': 'other'}),
        '/v1/sessions/{session}/rollback': verb('rollback', session(), {}, {'keep_result': True}),
        '/v1/sessions/{session}/reject': verb('reject', sealed()[0], {}, {'comment': 'no'}),
        '/v1/runs': Request('/v1/runs', ordering, {**ordering, 'command': ['true']}),
        '/v1/runs/{run}/cancel': Request(f'/v1/runs/{run}/cancel', *nothing),
    }


def check_every_route_is_there(routes):
    expect_equal('the POST routes', set(routes),
                 {path for method, path, _ in DESCRIPTION.operations() if method == 'POST'})
    for method, path, operation in DESCRIPTION.operations():
        keys = any(one['name'] == 'Idempotency-Key' for one in operation.get('parameters', []))
        expect_equal(f'{method} {path} is described with a key', keys, method == 'POST')


def said(answer):
    return answer.status, answer.body, answer.headers.get('location')


def check_kept(service, routes, first, when):
    for path, asked in routes.items():
        again = asked.send(service, asked.body, 'one-key')
        expect_equal(f'{path} with its key once more, {when}', said(again), first[path])
        asked.send(service, asked.other, 'one-key').expect(422, 'idempotency_key_reused')


def EveryPostTakesAKey(start):
    with Endpoint() as endpoint, start(operators=[NOBODY_NAME]) as service:
        routes = requests(service, endpoint)
        check_every_route_is_there(routes)
        first = {}
        for path, asked in routes.items():
            answer = asked.send(service, asked.body, 'one-key')
            expect(answer.status < 300, f'{path}: {answer.status} {answer.body}')
            first[path] = said(answer)
        check_kept(service, routes, first, 'before the restart')

        def as_another():
            answers = {}
            for path, asked in routes.items():
                answer = asked.send(service, asked.other, 'one-key')
                answers[path] = answer.status, answer.json.get('code'), answer.json.get('session')
            return answers
        others = as_user(NOBODY, as_another)
        for path, (_, code, _) in others.items():
            expect(code not in ('idempotency_key_reused', 'idempotency_in_flight'), f'{path} of another: {code}')
        expect_equal('a session of their own', others['/v1/sessions'][0], 201)
        expect_equal('theirs once more', as_user(NOBODY, as_another), others)
        check_kept(service, routes, first, 'after another asked')
        service.stop()
        service.start()
        check_kept(service, routes, first, 'after a restart')
        expect_equal('theirs after a restart', as_user(NOBODY, as_another), others)
        opened = [one for one in service.get('/v1/sessions?state=open').json['sessions'] if one['labels'] == {'a': 'b'}]
        expect_equal('opened by the other', [one['issuer'] for one in opened], [NOBODY_NAME])


def EveryPostRefusesWhatItDoesNotKnow(start):
    with Endpoint() as endpoint, start() as service:
        routes = requests(service, endpoint)
        check_every_route_is_there(routes)
        for path, asked in routes.items():
            for key in ('', ' ', 'k' * 256, 'with space', 'é'.encode()):
                asked.send(service, asked.body, key).expect(400, 'malformed_request')
            asked.send(service, b'{', headers=JSON).expect(400, 'malformed_json')
            asked.send(service, b'[]', headers=JSON).expect(400, 'malformed_json')
            asked.send(service, b'x', headers={'Content-Type': 'text/plain'}).expect(415, 'unsupported_media_type')
            known = {'source': '/x'} if path.endswith('/imports') else json.loads(asked.body)
            strange = {**known, 'no_such_field': 1}
            asked.send(service, json.dumps(strange).encode(), headers=JSON).expect(400, 'unknown_field')
            with_query = Request(asked.target.split('?')[0] + '?no_such_parameter=1', asked.body, b'', asked.headers)
            with_query.send(service, asked.body).expect(400, 'unknown_field')
            # Nothing of all this was carried out.
            answer = asked.send(service, asked.body, 'one-key')
            expect(answer.status < 300, f'{path}: {answer.status} {answer.body}')


if __name__ == '__main__':
    main(globals())
