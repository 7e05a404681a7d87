"""A client of `escrow mcp` that holds it to the protocol: JSON-RPC 2.0, and the schemas that the server itself gives.

Whatever is not as the specification says it ends the test.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import jsonschema

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f'{ROOT}/tests/support')
from expectations import (  # pylint: disable=wrong-import-position,unused-import
    eventually, expect, expect_equal, fail, run_cases)

NEWEST = '2025-06-18'
ERRORS = {'parse': -32700, 'request': -32600, 'method': -32601, 'params': -32602, 'internal': -32603}


class Repository:
    """One of the test's own, with the files a.txt, dir/b.txt and dir/deep/c.txt."""

    def __init__(self, escrow):
        self.binary = escrow
        self.directory = os.path.realpath(tempfile.mkdtemp(prefix='escrow-mcp-test-'))
        self.path = f'{self.directory}/data.git'

    def __enter__(self):
        os.makedirs(f'{self.directory}/in/dir/deep')
        for name in ('a.txt', 'dir/b.txt', 'dir/deep/c.txt'):
            with open(f'{self.directory}/in/{name}', 'w', encoding='utf-8') as file:
                file.write(name + '\n')
        self.escrow('init')
        self.escrow('import', f'{self.directory}/in', '--message', 'first import')
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    def escrow(self, *arguments, expect_status=0):
        ran = subprocess.run([self.binary, '--repo', self.path, *arguments], capture_output=True, text=True,
                             check=False, timeout=300, stdin=subprocess.DEVNULL)
        expect_equal(f'escrow {arguments}: {ran.stdout}{ran.stderr}', ran.returncode, expect_status)
        return ran.stdout

    def git(self, *arguments):
        return subprocess.run(['git', '-c', 'safe.directory=*', '--git-dir', self.path, *arguments], check=True,
                              capture_output=True, text=True, timeout=300).stdout.strip()

    def head(self):
        return self.git('rev-parse', 'main')

    def states(self):
        """The state of each session, but for the import."""
        return {one['session']: one['state'] for one in json.loads(self.escrow('sessions', '--all', '--json'))
                if one['source'] != 'import'}


class Answer:
    """What a tool answered: its document, and its texts."""

    def __init__(self, result):
        self.is_error = result['isError']
        self.document = json.loads(result['content'][0]['text'])
        self.texts = [one['text'] for one in result['content'][1:]]

    def __getitem__(self, name):
        return self.document[name]


class Client:
    """A server and its connection. `initialize`: whether that is done. `variables`: of the server's environment."""

    def __init__(self, repository, *options, version=NEWEST, initialize=True, variables=None):
        self.process = subprocess.Popen([repository.binary, '--repo', repository.path, 'mcp', *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **(variables or {})})
        self.version, self.count, self.schemas, self.said = version, 0, {}, None
        if initialize:
            self.said = self.initialize()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        self.close()

    def close(self):
        """As the client that has all its answers closes it: the server ends."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        status = self.process.wait(300)
        if rest or status not in (0, -9):
            fail(f'the server ended with {status}, and said {rest!r} that nobody asked for')

    def send(self, message):
        text = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(text + b'\n')
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        expect(line.endswith(b'\n'), f'the line {line!r} has no end')
        return json.loads(line.decode('utf-8'))

    @staticmethod
    def check(message, identity):
        expect_equal('the version of JSON-RPC', message.get('jsonrpc'), '2.0')
        expect_equal(f'the id of {message}', message.get('id', 'none'), identity)
        expect(('result' in message) != ('error' in message), f'{message} has both or neither of result and error')
        expect(message.keys() <= {'jsonrpc', 'id', 'result', 'error'}, f'{message} has more members')
        if 'error' in message:
            error = message['error']
            expect(isinstance(error['code'], int) and isinstance(error['message'], str) and error['message'], message)
            expect(error.keys() <= {'code', 'message', 'data'}, f'{error} has more members')
        return message

    def ask(self, method, params=None):
        """The whole answer."""
        self.count += 1
        identity = self.count if self.count % 2 else f'id-{self.count}'
        given = {} if params is None else {'params': params}
        self.send({'jsonrpc': '2.0', 'id': identity, 'method': method, **given})
        return self.check(self.receive(), identity)

    def result(self, method, params=None):
        answer = self.ask(method, params)
        expect('result' in answer, f'{method} {params}: {answer}')
        return answer['result']

    def refusal(self, method, params, kind):
        answer = self.ask(method, params)
        expect_equal(f'{method} {params}: {answer}', answer.get('error', {}).get('code'), ERRORS[kind])
        return answer['error']['message']

    def initialize(self):
        result = self.result('initialize', {'protocolVersion': self.version, 'capabilities': {},
                                            'clientInfo': {'name': 'test', 'version': '1'}})
        expect(isinstance(result['capabilities'], dict) and 'tools' in result['capabilities'], f'{result}')
        expect({'name', 'version'} <= result['serverInfo'].keys(), f'{result}')
        self.send({'jsonrpc': '2.0', 'method': 'notifications/initialized'})
        for tool in self.result('tools/list')['tools']:
            expect(re.fullmatch(r'[a-z][a-z_]{2,40}', tool['name']), tool['name'])
            expect(len(tool['description']) > 40 and len(tool['title']) > 3, f'{tool["name"]} says little of itself')
            jsonschema.Draft202012Validator.check_schema(tool['inputSchema'])
            expect_equal(f'the type of {tool["name"]}', tool['inputSchema']['type'], 'object')
            self.schemas[tool['name']] = jsonschema.Draft202012Validator(tool['inputSchema'])
        return result

    def raw_call(self, name, arguments):
        return self.result('tools/call', {'name': name, 'arguments': arguments})

    def check_result(self, result):
        expect(isinstance(result['isError'], bool) and result['content'], f'{result}')
        for block in result['content']:
            expect(block.keys() == {'type', 'text'} and block['type'] == 'text', f'{block}')
            expect(isinstance(block['text'], str), f'{block}')
        has_structure = self.version == NEWEST and not result['isError']
        expect_equal('whether there is a structured content', 'structuredContent' in result, has_structure)
        if has_structure:
            expect_equal('both', result['structuredContent'], json.loads(result['content'][0]['text']))
        return Answer(result)

    def call(self, name, /, **arguments):
        """What a tool answers that does what it was asked for."""
        errors = [error.message for error in self.schemas[name].iter_errors(arguments)]
        expect_equal(f'what the schema of {name} says of {arguments}', errors, [])
        answer = self.check_result(self.raw_call(name, arguments))
        expect(not answer.is_error, f'{name} {arguments}: {answer.document}')
        return answer

    def refused(self, name, code, /, **arguments):
        """The sentence of a tool that refuses."""
        answer = self.check_result(self.raw_call(name, arguments))
        expect(answer.is_error, f'{name} {arguments} was not refused: {answer.document}')
        expect_equal(f'the code of {answer.document}', answer.document.get('code'), code)
        sentence = answer['error']
        expect(sentence and '\n' not in sentence and len(sentence) < 500, f'{sentence!r} is no sentence')
        return sentence


def main(tests):
    """FILE --escrow PATH NAME..."""
    if os.geteuid() != 0 or not os.access('/dev/fuse', os.R_OK | os.W_OK):
        if os.environ.get('REQUIRE_FUSE'):
            fail('REQUIRE_FUSE is set, and this is not root or /dev/fuse cannot be opened')
        sys.exit(77)

    def run(name):
        with Repository(sys.argv[2]) as repository:
            tests[name](repository)

    run_cases(sys.argv[3:], run)
