#!/usr/bin/env python3
"""Raw requests, and what RFC 9112 and RFC 9110 answer to each of them.

Behind each request comes another one on the same connection. Of a request that is refused because its end is not
certain nothing more may be answered, and the connection is closed: else a proxy in front, which may have seen its end
elsewhere, could be made to give one client's answer to another.
"""
import socket

from description import DESCRIPTION
from remote_test import Remote
from service import Answer, expect, expect_equal, main

HEALTH = b'GET /v1/health HTTP/1.1\r\nHost: x\r\n'
PROBE = b'GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'


def health(*fields, body=b'', start=b'GET /v1/health HTTP/1.1', host=b'Host: x'):
    lines = [start, *([host] if host is not None else []), *fields]
    return b''.join(line + b'\r\n' for line in lines) + b'\r\n' + body


CHUNKED = b'Transfer-Encoding: chunked'
CHUNKS = b'5\r\nhello\r\n0\r\n\r\n'

# What is answered 200, and the request behind it, too. (what, request)
UNDERSTOOD = [
    ('a plain one', health()),
    ('names in any case', health(host=b'hOsT: x')),
    ('space around a value', health(host=b'Host:\t x \t')),
    ('an empty Host', health(host=b'Host:')),
    ('an address of IPv6 as the Host', health(host=b'Host: [::1]:80')),
    ('one empty line before it', b'\r\n' + health()),                                         # 9112, 2.2
    ('absolute form', health(start=b'GET http://x/v1/health HTTP/1.1')),                      # 9112, 3.2.2
    ('absolute form with a port', health(start=b'GET http://x:80/v1/health HTTP/1.1')),
    ('absolute form, https', health(start=b'GET HTTPS://x/v1/health HTTP/1.1')),
    ('absolute form of another Host', health(start=b'GET http://other/v1/health HTTP/1.1')),
    ('a length of 0', health(b'Content-Length: 0')),
    ('a body of a GET', health(b'Content-Length: 5', body=b'hello')),
    ('a body that looks like a request', health(b'Content-Length: %d' % len(PROBE), body=PROBE)),
    ('chunks', health(CHUNKED, body=CHUNKS)),
    ('chunks, in capitals', health(b'Transfer-Encoding: CHUNKED', body=CHUNKS)),
    ('chunks, space around it', health(b'Transfer-Encoding: \t chunked \t', body=CHUNKS)),
    ('a chunk whose length has zeros', health(CHUNKED, body=b'0005\r\nhello\r\n000\r\n\r\n')),
    ('a chunk whose length is hexadecimal', health(CHUNKED, body=b'A\r\n0123456789\r\n0\r\n\r\n')),
    ('a chunk with an extension', health(CHUNKED, body=b'5;a=b\r\nhello\r\n0;c\r\n\r\n')),    # 9112, 7.1.1
    ('a chunk with a quoted extension', health(CHUNKED, body=b'5;a="b;c"\r\nhello\r\n0\r\n\r\n')),
    ('a trailer', health(CHUNKED, body=b'5\r\nhello\r\n0\r\nX: y\r\n\r\n')),
    ('a trailer that is for a header', health(CHUNKED, body=b'0\r\nHost: y\r\nAuthorization: z\r\n\r\n')),
    ('an expectation without a body', health(b'Expect: 100-continue')),
    ('a body in chunks that comes with nothing', health(CHUNKED, body=b'0\r\n\r\n')),
]
# What is not an answer's end: the status, and the request behind it is answered 200. (what, request, status)
ANSWERED = [
    ('absolute form without a path', health(start=b'GET http://x HTTP/1.1'), 404),
    ('OPTIONS of the server', health(start=b'OPTIONS * HTTP/1.1'), 405),                      # 9110, 9.3.7
    ('OPTIONS of a resource', health(start=b'OPTIONS /v1/health HTTP/1.1'), 405),
    ('PATCH', health(b'Content-Length: 2', start=b'PATCH /v1/health HTTP/1.1', body=b'{}'), 405),
    ('TRACE', health(start=b'TRACE /v1/health HTTP/1.1'), 405),
    ('an escape that is none', health(start=b'GET /v1/sessions/%zz HTTP/1.1'), 400),
    ('an empty key', health(b'Content-Type: application/json', b'Idempotency-Key:', b'Content-Length: 2',
                            start=b'POST /v1/sessions HTTP/1.1', body=b'{}'), 400),
    ('a key of blanks', health(b'Content-Type: application/json', b'Idempotency-Key: \t ', b'Content-Length: 2',
                               start=b'POST /v1/sessions HTTP/1.1', body=b'{}'), 400),
]
# What is refused with one of the statuses, and nothing behind it is read. (what, request, statuses)
REFUSED = [
    ('no Host', health(host=None), {400}),                                                    # 9112, 3.2
    ('two Hosts', health(b'Host: y'), {400}),
    ('two Hosts that are the same', health(b'Host: x'), {400}),
    *((f'the Host {bad!r}', health(host=b'Host: ' + bad), {400}) for bad in
      (b'a b', b'a,b', b'a/b', b'u@x', b'x?', b'x#', b'\\x', b'"x"')),
    # How long a body is (9112, 6.1 and 6.3).
    ('identity', health(b'Transfer-Encoding: identity'), {400, 501}),
    ('identity and a length', health(b'Transfer-Encoding: identity', b'Content-Length: 5', body=b'hello'), {400}),
    ('an unknown coding', health(b'Transfer-Encoding: zebra'), {400, 501}),
    ('a coding under chunks', health(b'Transfer-Encoding: gzip, chunked', body=CHUNKS), {501}),
    ('a coding over chunks', health(b'Transfer-Encoding: chunked, gzip', body=CHUNKS), {400}),
    ('chunks twice', health(b'Transfer-Encoding: chunked, chunked', body=CHUNKS), {400}),
    ('chunks in two fields', health(CHUNKED, CHUNKED, body=CHUNKS), {400}),
    ('chunks and identity in two fields', health(CHUNKED, b'Transfer-Encoding: identity', body=CHUNKS), {400}),
    ('identity and chunks in two fields', health(b'Transfer-Encoding: identity', CHUNKED, body=CHUNKS), {400, 501}),
    ('chunks with a parameter', health(b'Transfer-Encoding: chunked;q=1', body=CHUNKS), {400, 501}),
    ('chunks in quotes', health(b'Transfer-Encoding: "chunked"', body=CHUNKS), {400, 501}),
    ('chunks and more letters', health(b'Transfer-Encoding: xchunked', body=CHUNKS), {400, 501}),
    ('chunks behind a vertical tab', health(b'Transfer-Encoding: \x0bchunked', body=CHUNKS), {400, 501}),
    ('no coding', health(b'Transfer-Encoding:'), {400, 501}),
    ('chunks and a length', health(CHUNKED, b'Content-Length: 5', body=CHUNKS), {400}),
    ('a length and chunks', health(b'Content-Length: 5', CHUNKED, body=CHUNKS), {400}),
    ('chunks in HTTP/1.0', health(CHUNKED, start=b'GET /v1/health HTTP/1.0', body=CHUNKS), {400}),
    *((f'the length {bad!r}', health(b'Content-Length: ' + bad, body=b'hello'), {400}) for bad in
      (b'', b'-1', b'+5', b'5 5', b'5,6', b'0x5', b'5.0', b'five', b'5;', b'\x0b5', b'18446744073709551616',
       b'99999999999999999999999')),
    ('two lengths', health(b'Content-Length: 5', b'Content-Length: 6', body=b'hello'), {400}),
    ('a length beyond the limit', health(b'Content-Length: 9223372036854775807'), {413}),
    *((f'the chunk {bad!r}', health(CHUNKED, body=bad + b'\r\nhello\r\n0\r\n\r\n'), {400}) for bad in
      (b'', b'-5', b'+5', b'0x5', b'g', b'5 x', b'FFFFFFFFFFFFFFFFF', b'10000000000000005', b'5;a=\x00')),
    ('a chunk longer than it says', health(CHUNKED, body=b'5\r\nhello!\r\n0\r\n\r\n'), {400}),
    ('a trailer that is no field', health(CHUNKED, body=b'0\r\nnothing\r\n\r\n'), {400}),
    # The field lines (9112, 5).
    ('space before a colon', health(b'X : y'), {400}),
    ('space before the colon of a length', health(b'Content-Length : 5', body=b'hello'), {400}),
    ('space before the colon of chunks', health(b'Transfer-Encoding : chunked', body=CHUNKS), {400}),
    ('a line without a colon', health(b'nothing'), {400}),
    ('a field without a name', health(b': x'), {400}),
    ('a name with a blank', health(b'a b: x'), {400}),
    ('a name with a sign', health(b'a(b): x'), {400}),
    ('NUL in a name', health(b'a\0b: x'), {400}),
    ('NUL in a value', health(b'X: a\0b'), {400}),
    ('a carriage return in a value', health(b'X: a\rb'), {400}),
    ('a carriage return that hides a field', health(b'X: a\rContent-Length: 5', body=b'hello'), {400}),
    ('DEL in a value', health(b'X: a\x7fb'), {400}),
    *((f'{name} twice', health(name.encode() + b': a', name.encode() + b': b'), {400}) for name in
      ('Content-Type', 'Authorization', 'Idempotency-Key', 'Last-Event-ID', 'Expect')),
    ('much in the header', health(b'X: ' + b'y' * 20_000), {431}),
    ('many fields', health(*(b'X-%d: y' % number for number in range(5_000))), {431}),
    # The first line (9112, 3).
    ('a long target', health(start=b'GET /' + b'x' * 40_000 + b' HTTP/1.1'), {414}),
    ('an unknown method', health(start=b'FETCH /v1/health HTTP/1.1'), {501}),                 # 9110, 9.1
    ('a method in small letters', health(start=b'get /v1/health HTTP/1.1'), {501}),
    ('a method that is none', health(start=b'GE(T /v1/health HTTP/1.1'), {400}),
    ('CONNECT', health(start=b'CONNECT x:443 HTTP/1.1'), {400, 501}),
    ('a target without a slash', health(start=b'GET v1/health HTTP/1.1'), {400}),
    ('* of a GET', health(start=b'GET * HTTP/1.1'), {400}),
    ('another scheme', health(start=b'GET ftp://x/v1/health HTTP/1.1'), {400}),
    ('absolute form without a name', health(start=b'GET http:///v1/health HTTP/1.1'), {400}),
    ('absolute form with a user', health(start=b'GET http://u@x/v1/health HTTP/1.1'), {400}),
    ('a fragment', health(start=b'GET /v1/health#x HTTP/1.1'), {400}),
    ('a blank in a target', health(start=b'GET /v1/ health HTTP/1.1'), {400}),
    ('NUL in a target', health(start=b'GET /v1/\0health HTTP/1.1'), {400}),
    ('two blanks', health(start=b'GET  /v1/health HTTP/1.1'), {400}),
    ('a blank behind the version', health(start=b'GET /v1/health HTTP/1.1 '), {400, 505}),
    ('a blank before the method', health(start=b' GET /v1/health HTTP/1.1'), {400}),
    ('a tab', health(start=b'GET\t/v1/health\tHTTP/1.1'), {400}),
    ('HTTP/0.9', b'GET /v1/health\r\n\r\n', {400, 505}),
    ('the preface of HTTP/2', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00', {400, 505}),
    ('HTTP/2.0', health(start=b'GET /v1/health HTTP/2.0'), {505}),                            # 9110, 15.6.6
    ('HTTP/11.1', health(start=b'GET /v1/health HTTP/11.1'), {400, 505}),
    ('another protocol', health(start=b'GET /v1/health ICY/1.1'), {400, 505}),
    ('the version in small letters', health(start=b'GET /v1/health http/1.1'), {400, 505}),
    ('another expectation', health(b'Expect: the-worst', b'Content-Length: 5', body=b'hello'), {417}),  # 9110, 10.1.1
    ('a client of TLS', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + b'x' * 600, {400, 505}),
]
# What the RFCs let a server refuse or understand, in one way. (what, request)
EITHER = [
    ('a length as a trailer', health(CHUNKED, body=b'0\r\nContent-Length: 99\r\n\r\n')),      # 9110, 6.5.1
    ('a folded value', health(b'X: a\r\n b')),                                                # 9112, 5.2
    ('folded chunks', health(b'Transfer-Encoding:\r\n chunked', body=CHUNKS)),
    ('a folded length', health(b'Content-Length:\r\n 5', body=b'hello')),
    ('a blank before the first field', b'GET /v1/health HTTP/1.1\r\n Host: x\r\nHost: x\r\n\r\n'),  # 9112, 2.2
    ('line feeds alone', health().replace(b'\r\n', b'\n')),                                   # 9112, 2.2
    ('a line feed behind a field', b'GET /v1/health HTTP/1.1\r\nHost: x\nX: y\r\n\r\n'),
    ('a length twice', health(b'Content-Length: 5', b'Content-Length: 5', body=b'hello')),    # 9110, 8.6
    ('a list of lengths', health(b'Content-Length: 5, 5', body=b'hello')),
    ('HTTP/1.2', health(start=b'GET /v1/health HTTP/1.2')),                                   # 9110, 2.5
    ('two empty lines before it', b'\r\n\r\n' + health()),
    ('a blank behind the length of a chunk', health(CHUNKED, body=b'5 \r\nhello\r\n0\r\n\r\n')),
    ('letters above ASCII in a value', health(b'X: \xe4\xff')),
]


class Connection:
    def __init__(self, address, data, shut=False):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(100)
        self.socket.connect(address)
        self.rest = b''
        try:
            self.socket.sendall(data)
            if shut:
                self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before it was sent

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self):
        try:
            piece = self.socket.recv(65536)
        except ConnectionResetError:
            piece = b''
        self.rest += piece
        return piece

    def take(self, size):
        while len(self.rest) < size:
            expect(self.read(), f'the connection ended in {self.rest!r}')
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def line(self):
        while b'\r\n' not in self.rest:
            expect(self.read(), f'the connection ended in {self.rest!r}')
        taken, self.rest = self.rest.split(b'\r\n', 1)
        return taken

    def answer(self, method='GET'):
        """(status, fields, body); None at the end."""
        while not self.rest:
            if not self.read():
                return None
        status = int(self.line().split()[1])
        fields = {}
        while line := self.line():
            name, value = line.split(b': ', 1)
            fields[name.decode().lower()] = value.decode()
        if method == 'HEAD' or status in (100, 204):
            return status, fields, b''
        if 'transfer-encoding' not in fields:
            return status, fields, self.take(int(fields['content-length']))
        body = b''
        while size := int(self.line(), 16):
            body += self.take(size)
            self.line()
        self.line()
        return status, fields, body


def answers(address, data, method='GET'):
    """The statuses of all answers, and whether the connection was said to end with the last one."""
    with Connection(address, data, shut=True) as connection:
        statuses, is_last = [], False
        while (answer := connection.answer(method)) is not None:
            expect(not is_last, f'{data!r}: something is answered after the end')
            statuses.append(answer[0])
            is_last = answer[1].get('connection') == 'close'
            if is_last and answer[0] >= 400:
                DESCRIPTION.check('RAW', '*', None, Answer(answer[0], list(answer[1].items()), answer[2]))
            method = 'GET'
        return statuses, is_last


def wrong_rows(address):
    """Every row that is not answered as it says."""
    for what, data, *statuses in [(*row, 200) for row in UNDERSTOOD] + ANSWERED:
        if (got := answers(address, data + PROBE)) != ([*statuses, 200], True):
            yield f'{what}: {got}, and it is to be {statuses} and the one behind it'
    for what, data, allowed in REFUSED:
        got, is_last = answers(address, data + PROBE)
        if len(got) != 1 or got[0] not in allowed or not is_last:
            yield f'{what}: {got}, the last one {is_last}, and it is to be one of {allowed}'
    for what, data in EITHER:
        got, is_last = answers(address, data + PROBE)
        if not is_last or (got != [200, 200] and (len(got) != 1 or got[0] not in {400, 505})):
            yield f'{what}: {got}, the last one {is_last}'


def EachRawRequestIsAnsweredAsTheRfcSays(start):
    with start() as service:
        expect_equal('what is answered otherwise', list(wrong_rows(service.socket)), [])
        # Nobody was hurt.
        service.get('/v1/health').expect(200)


def EachRawRequestOverTcpIsAnsweredAsTheRfcSays(start):
    with Remote(start, tls=False) as remote:
        address = ('127.0.0.1', remote.port)
        # Without a token nothing is told but that: the rules of the header come first.
        table = [row for row in REFUSED if 'Authorization' not in row[0]]
        for what, data, allowed in table:
            statuses, is_last = answers(address, data + PROBE)
            expect(len(statuses) == 1 and statuses[0] in allowed | {401} and is_last, f'{what}: {statuses}')
        for what, data in UNDERSTOOD:
            statuses, is_last = answers(address, data + PROBE)
            expect_equal(f'{what}, without a token', (statuses, is_last), ([401], True))


def AHeadIsAnsweredAsItsGetWithoutTheBody(start):
    with start() as service:
        session = service.open()['session']
        service.put(f'/v1/sessions/{session}/files/file', b'x' * 100_000).expect(201)
        for target, status in (('/v1/health', 200), ('/v1/repositories', 200), (f'/v1/sessions/{session}', 200),
                               ('/v1/nothing', 404), ('/v1/sessions/0123456789abcdef', 404), ('/metrics', 200),
                               (f'/v1/sessions/{session}/wait?timeout_ms=200', 200),
                               (f'/v1/sessions/{session}/diff', 200), (f'/v1/sessions/{session}/files/file', 200),
                               (f'/v1/sessions/{session}/commit', 405), ('/v1/events', 200),
                               ('/v1/health?x=1', 400)):
            asked = f' {target} HTTP/1.1\r\nHost: x\r\n'.encode()
            with Connection(service.socket, b'HEAD' + asked + b'\r\n' + PROBE) as connection:
                got, fields, _ = connection.answer('HEAD')
                expect_equal(f'HEAD {target}', got, status)
                expect_equal(f'what is behind {target}', (connection.answer()[0], connection.answer()), (200, None))
            if target in ('/metrics', '/v1/events'):
                continue
            with Connection(service.socket, b'GET' + asked + b'Connection: close\r\n\r\n') as connection:
                got, same, body = connection.answer()
            expect_equal(f'GET {target}', got, status)
            # Of a 405 the text names the method.
            same_names = ('content-type', 'allow', 'transfer-encoding', *(() if status == 405 else ('content-length',)))
            for name in same_names:
                expect_equal(f'{name} of HEAD {target}', fields.get(name), same.get(name))
            if 'content-length' in same:
                expect_equal(f'the length of {target}', int(same['content-length']), len(body))
        # A refusal, too, has no body that could be taken for the next answer.
        refused = b'HEAD /v1/health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n'
        with Connection(service.socket, refused + PROBE) as connection:
            status, fields, _ = connection.answer('HEAD')
            expect_equal('a HEAD that is refused', (status, fields['connection'], connection.answer()),
                         (400, 'close', None))


def OldClientsAreAnsweredAndLeftAlone(start):
    with start() as service:
        for what, data, statuses in (
                ('HTTP/1.0', b'GET /v1/health HTTP/1.0\r\n\r\n', [200]),
                ('HTTP/1.0 that stays', b'GET /v1/health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n' + PROBE,
                 [200, 200]),
                ('HTTP/1.0 that expects', b'GET /v1/health HTTP/1.0\r\nExpect: the-worst\r\n\r\n', [200]),
                ('a close', HEALTH + b'Connection: close\r\n\r\n' + PROBE, [200]),
                ('a pause is asked for', HEALTH + b'Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}' + PROBE,
                 [100, 200, 200])):
            expect_equal(what, answers(service.socket, data)[0], statuses)


if __name__ == '__main__':
    main(globals())
