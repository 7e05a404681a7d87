"""A small S3 service in memory, for tests: what Escrow asks of one, signatures (SigV4) and conditions included.

Everybody may read objects without a signature, as in a bucket that is public for reading; lists and changes need one.
`ignores_conditions` makes it one of those services that take If-Match for nothing.
"""
import hashlib
import hmac
import http.server
import threading
import urllib.parse
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY, REGION = 'AK', 'SK', 'us-east-1'
PAGE = 50  # of a list, so that it has several


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature_of(method, target, headers, date, scope, signed):
    """As "Signature Version 4 signing process" says."""
    path, _, query = target.partition('?')
    canonical = '\n'.join([method, path, '&'.join(sorted(query.split('&'))) if query else '',
                           ''.join(f'{name}:{" ".join(headers[name].split())}\n' for name in signed),
                           ';'.join(signed), headers['x-amz-content-sha256']])
    key = ('AWS4' + SECRET_KEY).encode()
    for part in scope.split('/'):
        key = sign(key, part)
    text = '\n'.join(['AWS4-HMAC-SHA256', date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return sign(key, text).hex()


class FakeS3:
    def __init__(self, ignores_conditions=False):
        self.objects, self.lock, self.ignores_conditions = {}, threading.Lock(), ignores_conditions
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
                pass

            def answer(self, status, body=b'', headers=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def refuse(self, status, code):
                self.answer(status, f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode())

            def is_signed(self, body):
                words = self.headers.get('authorization', '')
                if not words.startswith('AWS4-HMAC-SHA256 '):
                    return False
                parts = dict(part.strip().split('=', 1) for part in words.split(' ', 1)[1].split(','))
                key, scope = parts['Credential'].split('/', 1)
                headers = {name.lower(): value for name, value in self.headers.items()}
                signed = parts['SignedHeaders'].split(';')
                is_right = hmac.compare_digest(parts['Signature'], signature_of(
                    self.command, self.path, headers, headers['x-amz-date'], scope, signed))
                is_body = headers['x-amz-content-sha256'] == hashlib.sha256(body).hexdigest()
                covers = {'host', 'x-amz-date', 'x-amz-content-sha256'} <= set(signed)
                return key == ACCESS_KEY and is_right and is_body and covers

            def serve(self):
                body = self.rfile.read(int(self.headers.get('content-length') or 0))
                parsed = urllib.parse.urlsplit(self.path)
                key = urllib.parse.unquote(parsed.path).lstrip('/').partition('/')[2]
                if not (self.is_signed(body) or (self.command in ('GET', 'HEAD') and key)):
                    return self.refuse(403, 'SignatureDoesNotMatch')
                if not parsed.path.startswith('/bucket'):
                    return self.refuse(404, 'NoSuchBucket')
                with fake.lock:
                    if not key:
                        return self.list(dict(urllib.parse.parse_qsl(parsed.query)))
                    return getattr(self, 'on_' + self.command.lower())(key, body)

            do_GET = do_PUT = do_DELETE = do_HEAD = serve

            def on_get(self, key, _):
                if key not in fake.objects:
                    return self.refuse(404, 'NoSuchKey')
                content = fake.objects[key]
                headers = {'ETag': f'"{hashlib.md5(content).hexdigest()}"'}
                wanted = self.headers.get('range')
                if not wanted:
                    return self.answer(200, content, headers)
                first, last = (int(number) for number in wanted.removeprefix('bytes=').split('-'))
                if first >= len(content):
                    return self.refuse(416, 'InvalidRange')
                part = content[first:last + 1]
                headers['Content-Range'] = f'bytes {first}-{first + len(part) - 1}/{len(content)}'
                return self.answer(206, part, headers)

            on_head = on_get

            def on_put(self, key, body):
                before = fake.objects.get(key)
                if not fake.ignores_conditions:
                    if self.headers.get('if-none-match') == '*' and before is not None:
                        return self.refuse(412, 'PreconditionFailed')
                    etag = self.headers.get('if-match')
                    if etag and before is None:
                        return self.refuse(404, 'NoSuchKey')
                    if etag and etag.strip('"') != hashlib.md5(before).hexdigest():
                        return self.refuse(412, 'PreconditionFailed')
                fake.objects[key] = body
                return self.answer(200, b'', {'ETag': f'"{hashlib.md5(body).hexdigest()}"'})

            def on_delete(self, key, _):
                fake.objects.pop(key, None)
                return self.answer(204)

            def list(self, query):
                keys = sorted(key for key in fake.objects if key.startswith(query['prefix']))
                after = query.get('continuation-token', '')
                rest = [key for key in keys if key > after]
                page = rest[:PAGE]
                more = f'<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>' if len(rest) > PAGE else ''
                contents = ''.join(f'<Contents><Key>{escape(key)}</Key><Size>{len(fake.objects[key])}</Size></Contents>'
                                   for key in page)
                self.answer(200, (f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(bool(more)).lower()}'
                                  f'</IsTruncated>{more}{contents}</ListBucketResult>').encode())

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(('127.0.0.1', 0), Handler)
        self.address = ('127.0.0.1', self.server.server_port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
