"""A node of Kubernetes as escrow-csi sees it, for the tests beside it: a kubelet that asks on the driver's socket
(gRPC, by the messages of daemon/csi/csi.proto), an API server (HTTPS, with a token) that knows pods and takes events,
and a real escrowd (tests/escrowd/service.py).
"""
import contextlib
import datetime
import http.server
import json
import os
import re
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [f'{ROOT}/tests/escrowd', f'{ROOT}/tests/support']
import grpc  # noqa: E402
from expectations import eventually, expect, expect_equal, fail, run_cases  # noqa: E402
from remote_test import free_port  # noqa: E402
from service import Service, request  # noqa: E402

TOKEN = 'token-of-the-driver'


def time_text(seconds):
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')


class ApiServer:
    """Pods by (namespace, name); events as they were posted."""

    def __init__(self, directory):
        self.pods, self.events, self.answer_with = {}, [], None
        self.token_file, self.certificate, key = f'{directory}/token', f'{directory}/ca.crt', f'{directory}/ca.key'
        with open(self.token_file, 'w', encoding='ascii') as file:
            file.write(TOKEN)
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
                        '-nodes', '-keyout', key, '-out', self.certificate, '-days', '2', '-subj', '/CN=kubernetes',
                        '-addext', 'subjectAltName=IP:127.0.0.1'], check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.port, self.holder = free_port()  # nobody else takes it while the server is stopped
        self.server = None
        self.start()

    @property
    def url(self):
        return f'https://127.0.0.1:{self.port}'

    def start(self):
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self):
                match = re.fullmatch(r'/api/v1/namespaces/([^/]+)/pods/([^/]+)', self.path)
                pod = match and api.pods.get(match.groups())
                if api.answer_with:
                    self.send(api.answer_with, {'kind': 'Status', 'reason': 'InternalError'})
                elif self.headers['Authorization'] != f'Bearer {TOKEN}':
                    self.send(401, {'kind': 'Status', 'reason': 'Unauthorized'})
                else:
                    self.send(200, pod) if pod else self.send(404, {'kind': 'Status', 'reason': 'NotFound'})

            def do_POST(self):
                event = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                if any(one['metadata'] == event['metadata'] for one in api.events):
                    self.send(409, {'kind': 'Status', 'reason': 'AlreadyExists'})
                    return
                api.events.append(event)
                self.send(201, event)

            def send(self, status, document):
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', self.port), Handler)
        self.server.daemon_threads = True
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def reasons(self):
        return [event['reason'] for event in self.events]


class Pod:
    """One of the API server's, with one container that runs, or several."""

    def __init__(self, api, name='job', containers=('main',), security=None, space='default'):
        self.api, self.name, self.space, self.uid = api, name, space, str(uuid.uuid4())
        self.document = {
            'metadata': {'name': name, 'namespace': space, 'uid': self.uid},
            'spec': {'containers': [{'name': one, 'image': f'registry.example/{one}:1'} for one in containers],
                     'securityContext': security or {}},
            'status': {'phase': 'Running', 'containerStatuses': [
                {'name': one, 'state': {'running': {'startedAt': time_text(time.time())}}} for one in containers]}}
        api.pods[space, name] = self.document

    def end(self, *codes, phase=None, reason=None, seconds_ago=0, ended='Completed',
            image_id=None):
        """Its containers have ended so, some seconds ago."""
        for status, code in zip(self.document['status']['containerStatuses'], codes):
            status['imageID'] = image_id or f'registry.example/{status["name"]}@sha256:{"0" * 64}'
            status['state'] = {'terminated': {'exitCode': code, 'reason': ended,
                                              'finishedAt': time_text(time.time() - seconds_ago)}}
        self.document['status']['phase'] = phase or ('Failed' if any(codes) else 'Succeeded')
        if reason:
            self.document['status']['reason'] = reason

    def delete(self, grace=30, seconds_ago=0):
        asked = time.time() - seconds_ago
        self.document['metadata'].update(deletionTimestamp=time_text(asked + grace), deletionGracePeriodSeconds=grace)

    def vanish(self):
        self.api.pods.pop((self.space, self.name))


class OlderService(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The node's escrowd, but for some fields of a finish: to it they are unknown."""
    daemon_threads = True

    def __init__(self, node, unknown):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self):
                self.hand_on()

            def do_POST(self):
                fields = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                gone = unknown if self.path.endswith('/finish') else ()
                self.hand_on({f'later_{name}' if name in gone else name: value for name, value in fields.items()})

            def hand_on(self, fields=None):
                answer = request(node.service.socket, self.command, self.path, fields)
                body = answer.body.replace(b'later_', b'')
                self.send_response(answer.status)
                self.send_header('Content-Type', answer.headers['content-type'])
                self.send_header('Content-Length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        super().__init__(f'{node.directory}/older.sock', Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Kubelet:
    """Asks a driver; each method is one call of the protocol. Answers are messages, refusals grpc.RpcError."""

    def __init__(self, directory, socket):
        subprocess.run(['protoc', f'--proto_path={ROOT}/daemon/csi', f'--python_out={directory}', 'csi.proto'],
                       check=True)
        sys.path.insert(0, directory)
        import csi_pb2  # pylint: disable=import-error,import-outside-toplevel
        self.messages, self.socket = csi_pb2, socket

    def call(self, service, method, **fields):
        request = getattr(self.messages, f'{method}Request')(**fields)
        with grpc.insecure_channel(f'unix:{self.socket}') as channel:
            ask = channel.unary_unary(f'/csi.v1.{service}/{method}',
                                      request_serializer=type(request).SerializeToString,
                                      response_deserializer=getattr(self.messages, f'{method}Response').FromString)
            return ask(request, timeout=60)

    def code(self, service, method, **fields):
        """The status of a call, as its name, and the sentence."""
        try:
            self.call(service, method, **fields)
            return 'OK', ''
        except grpc.RpcError as error:
            return error.code().name, error.details()


class Node:
    """Everything of a node; a context manager. `driver` is the process, None while it is stopped."""

    def __init__(self, escrow, escrowd, escrow_csi):
        self.service = Service(escrow, escrowd)
        self.escrowd = self.service.socket  # where the driver asks
        self.program, self.options, self.driver = escrow_csi, [], None
        self.directory = self.service.directory
        os.mkdir(f'{self.directory}/pods')
        self.socket = f'{self.directory}/csi.sock'
        self.api = ApiServer(self.directory)
        self.kubelet = Kubelet(self.directory, self.socket)

    def __enter__(self):
        self.service.__enter__()
        try:
            self.start_driver()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        if self.driver and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        if kind is not None and os.path.exists(f'{self.directory}/csi.log'):
            with open(f'{self.directory}/csi.log', encoding='utf-8', errors='replace') as log:
                print('--- escrow-csi said:\n' + log.read(), file=sys.stderr)
        self.api.stop()
        self.api.holder.close()
        self.service.__exit__(kind, value, trace)

    def start_driver(self, *options):
        with open(f'{self.directory}/csi.log', 'ab') as log:
            self.driver = subprocess.Popen(  # pylint: disable=consider-using-with
                [self.program, '--socket', self.socket, '--escrowd', f'unix://{self.escrowd}', '--sessions',
                 self.service.mounts, '--node', 'node-1', '--api-server', self.api.url, '--token-file',
                 self.api.token_file, '--api-server-ca', self.api.certificate, *self.options, *options],
                stderr=log, stdin=subprocess.DEVNULL)
        def answers():
            if self.driver.poll() is not None:
                fail(f'escrow-csi ended with {self.driver.returncode}')
            with contextlib.suppress(grpc.RpcError):
                return self.kubelet.call('Identity', 'Probe') is not None
            return False
        eventually('the driver answers', answers)

    def stop_driver(self, how=signal.SIGTERM):
        self.driver.send_signal(how)
        return self.driver.wait(timeout=60)

    def volume(self, pod, name='work', read_only=False, **attributes):
        """The fields of NodePublishVolume for a volume of the pod."""
        target = f'{self.directory}/pods/{pod.uid}.{name}'
        return {'volume_id': f'csi-{pod.uid}-{name}', 'target_path': target, 'readonly': read_only,
                'volume_capability': {'mount': {}, 'access_mode': {'mode': 'SINGLE_NODE_WRITER'}},
                'volume_context': {'repository': 'data', **attributes, 'csi.storage.k8s.io/ephemeral': 'true',
                                   'csi.storage.k8s.io/pod.name': pod.name, 'csi.storage.k8s.io/pod.uid': pod.uid,
                                   'csi.storage.k8s.io/pod.namespace': pod.space,
                                   'csi.storage.k8s.io/serviceAccount.name': 'default'}}

    def publish(self, volume):
        self.kubelet.call('Node', 'NodePublishVolume', **volume)
        os.stat(volume['target_path'])  # by the container runtime, before it starts the containers
        return volume['target_path']

    def unpublish(self, volume):
        self.kubelet.call('Node', 'NodeUnpublishVolume', volume_id=volume['volume_id'],
                          target_path=volume['target_path'])

    def publish_code(self, volume, **changes):
        return self.kubelet.code('Node', 'NodePublishVolume', **{**volume, **changes})

    def unpublish_code(self, volume, **changes):
        fields = {name: volume[name] for name in ('volume_id', 'target_path')}
        return self.kubelet.code('Node', 'NodeUnpublishVolume', **{**fields, **changes})

    def session_of(self, volume):
        """As the API shows it; None: there is none."""
        found = self.service.get(f'/v1/sessions?external_id={volume["volume_id"]}').expect(200)['sessions']
        expect(len(found) < 2, f'{len(found)} sessions for one volume')
        return found[0] if found else None

    def expect_end(self, volume, state, reason):
        session = self.session_of(volume)
        expect_equal('the end', (session['state'], session['reason']), (state, reason))
        expect(not os.path.exists(volume['target_path']), 'the target is still there')
        expect(not self.service.is_mounted(volume['target_path']), 'the target is still mounted')
        return session


def main(tests):
    """FILE --escrow PATH --escrowd PATH --csi PATH NAME..."""
    escrow, escrowd, program = sys.argv[2], sys.argv[4], sys.argv[6]
    if os.geteuid() != 0 or not os.access('/dev/fuse', os.R_OK | os.W_OK):
        if os.environ.get('REQUIRE_FUSE'):
            fail('REQUIRE_FUSE is set, and this is not root or /dev/fuse cannot be opened')
        sys.exit(77)

    def run(name):
        with Node(escrow, escrowd, program) as node:
            tests[name](node)

    run_cases(sys.argv[7:], run)
