"""A proxy between Escrow and an S3 service that counts requests and does to them what networks and services do.

`rule(request)` is asked about each request and returns what becomes of it, None for nothing:
  'error'      500, not carried out            'slow down'   503, not carried out
  'cut'        the answer ends half-way        'wrong'       the answer's body has other bytes
  'lose'       carried out, and not answered   'refuse'      the connection is closed, nothing is carried out
A request has `method`, `path`, `number` (how many came before), and `backend` to ask the service behind directly.
"""
import collections
import http.client
import http.server
import threading

ERROR = '<?xml version="1.0"?><Error><Code>{}</Code></Error>'
Request = collections.namedtuple('Request', 'method path number backend')


class FaultProxy:
    def __init__(self, backend):
        self.backend, self.rule, self.seen, self.lock = backend, lambda request: None, [], threading.Lock()
        self.bytes_read = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
                pass

            def forward(self, body):
                connection = http.client.HTTPConnection(*proxy.backend, timeout=300)
                try:
                    # The host that was signed for.
                    connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in ('connection', 'expect'):
                            connection.putheader(name, value)
                    connection.endheaders(body)
                    response = connection.getresponse()
                    return response.status, response.getheaders(), response.read()
                finally:
                    connection.close()

            def hang_up(self):
                self.close_connection = True
                self.connection.shutdown(2)

            def serve(self):
                body = self.rfile.read(int(self.headers.get('content-length') or 0))
                with proxy.lock:
                    request = Request(self.command, self.path, len(proxy.seen), proxy.backend)
                    proxy.seen.append((self.command, self.path))
                fault = proxy.rule(request)
                if fault == 'refuse':
                    return self.hang_up()
                if fault in ('error', 'slow down'):
                    status, code = (500, 'InternalError') if fault == 'error' else (503, 'SlowDown')
                    return self.reply(status, [], ERROR.format(code).encode())
                status, headers, answer = self.forward(body)
                with proxy.lock:
                    proxy.bytes_read += len(answer)
                if callable(fault):
                    fault = fault()
                if fault == 'lose':
                    return self.hang_up()
                if fault == 'wrong' and answer:
                    answer = bytes([answer[0] ^ 1]) + answer[1:]
                return self.reply(status, headers, answer, is_cut=fault == 'cut')

            def reply(self, status, headers, body, is_cut=False):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ('content-length', 'connection', 'transfer-encoding', 'keep-alive'):
                        self.send_header(name, value)
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body[:len(body) // 2] if is_cut else body)
                if is_cut:
                    self.wfile.flush()
                    self.hang_up()

            do_GET = do_PUT = do_DELETE = do_HEAD = serve

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass  # a client that was killed

        self.server = Server(('127.0.0.1', 0), Handler)
        self.endpoint = f'http://127.0.0.1:{self.server.server_port}'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def count(self, method, part=''):
        with self.lock:
            return sum(1 for seen, path in self.seen if seen == method and part in path)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
