#!/usr/bin/env python3
"""A name with 0xFF, newline and ESC through every command of escrow that takes or shows a path, here and with --host:
what is meant for people shows it quoted, on one line and without a control character; JSON has its exact bytes.
"""
import base64
import json
import os
import re
import subprocess

from names_test import STRANGE
from service import Service, expect, expect_equal, main

QUOTED = rb'odd\377\n\033'
NO_PATHS = {'approve', 'reject', 'doctor', 'version', 'gc', 'rollback', 'mcp', 'token'}
PREFIX = b'dir/' + STRANGE
CONTROL = re.compile(rb'[\x00-\x08\x0b-\x1f\x7f\xff]')


class Commands:
    """Runs them one way, and knows which were run."""

    def __init__(self, service, is_there):
        self.service, self.is_there, self.used = service, is_there, set()
        self.way = ['--host', f'unix://{service.socket}'] if is_there else ['--repo', service.repository]

    def __call__(self, *words, status=0, shows=False, is_raw=False):
        """Its output to both streams; `shows`: the odd name, quoted."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith('ESCROW_')}
        ran = subprocess.run([self.service.escrow_binary, *self.way, *words], capture_output=True, check=False,
                             timeout=300, cwd='/', env=environment, stdin=subprocess.DEVNULL)
        said = f'escrow {self.way} {words}: {ran.stdout!r} {ran.stderr!r}'
        expect_equal(said, ran.returncode, status)
        output = ran.stderr if is_raw else ran.stdout + ran.stderr
        expect(CONTROL.search(output) is None, f'a control character: {said}')
        expect(not shows or QUOTED in output, f'not the quoted name: {said}')
        self.used.add(words[0])
        return ran.stdout

    def exact(self, *words):
        """All the bytes that the JSON of a command has in base64."""
        document = self(*words, '--json')
        return {base64.b64decode(text) for text in re.findall(rb'_base64": ?"([^"]*)"', document)}


def in_a_session(service, commands):
    point = os.fsencode(service.mounts) + b'/' + STRANGE
    os.makedirs(point, exist_ok=True)
    session = commands('mount', point, '--path-prefix', PREFIX).split()[0].decode()
    for name in (STRANGE, b'gone-' + STRANGE):
        with open(point + b'/' + name, 'wb') as file:
            file.write(b'content\n')
    os.mkdir(point + b'/empty-' + STRANGE)
    commands('status', session, shows=True)
    expect({PREFIX, point} <= commands.exact('status', session), 'the JSON of status')
    commands('sessions')
    commands.exact('sessions')
    for form in ('--patch', '--stat', '--name-status'):
        commands('diff', session, form, shows=True)
    commands('savepoint', 'create', session, 'first')
    commands('discard', session, PREFIX + b'/gone-' + STRANGE)
    commands('savepoint', 'diff', session, 'first', shows=True)
    expect(not os.path.exists(point + b'/gone-' + STRANGE), 'the discarded file is there')
    commands('discard', session, PREFIX + b'/none-' + STRANGE, status=1, shows=True)
    commands('mounts', 'remove', session, PREFIX + b'/none-' + STRANGE, status=1, shows=True)
    commands('mounts', 'list', session)
    exported = os.fsencode(service.directory) + b'/exported-' + STRANGE
    commands('export', session, exported, status=2 if commands.is_there else 0, shows=not commands.is_there)
    if commands.is_there:
        commands('fork', session, status=2)
        commands('adopt', session, status=1)
    else:
        forked = commands('fork', session, '--json')
        commands('adopt', json.loads(forked)['session'])
    theirs = service.open()['session']
    path = ''.join(f'%{byte:02x}' for byte in PREFIX + b'/' + STRANGE)
    service.put(f'/v1/sessions/{theirs}/files/{path}', b'theirs ' + session.encode())
    service.finish(theirs, {'exit_code': 0}).expect(200)
    commands('commit', session, status=122, shows=True)
    commands('update', session, status=122, shows=True)
    expect(PREFIX + b'/' + STRANGE in commands.exact('resolve', session), 'the JSON of resolve')
    commands('resolve', session, PREFIX + b'/none-' + STRANGE, '--mine', status=1, shows=True)
    commands('resolve', session, shows=True)
    commands('unmount', point)
    commands('rollback', session, '--keep-result')
    session = commands('resume', session, point, shows=True).split()[0].decode()
    commands('resolve', session, PREFIX, '--theirs')
    with open(point + b'/' + STRANGE, 'rb') as file:
        expect(file.read().startswith(b'theirs '), 'the session shows its own side still')
    commands('unmount', point)
    commands('rollback', session)
    commands('audit', '--session', session)


def whole(service, commands):
    source = os.fsencode(service.directory) + b'/in/' + STRANGE
    os.makedirs(source + b'/empty-' + STRANGE, exist_ok=True)
    with open(source + b'/' + STRANGE, 'wb') as file:
        file.write(b'here' if commands.is_there else b'there')
    commands('import', source, '--path-prefix', b'imported/' + STRANGE, shows=True)
    script = b"echo $$ > '" + STRANGE + b"'; mkdir 'empty-" + STRANGE + b"'; touch '" + STRANGE + b".o'"
    result = f'{service.directory}/result-{commands.is_there}'
    cached = [] if commands.is_there else ['--cache', b'kept-' + STRANGE + b'=odd']
    commands('cache', 'list', status=2 if commands.is_there else 0)
    commands('run', *(['--confine'] if commands.is_there else cached), '--path-prefix', PREFIX, '--exclude', b'*.o',
             '--result', result, '--', 'sh', '-c', script, is_raw=True)
    with open(result, encoding='utf-8') as file:
        left_out = base64.b64encode(STRANGE + b'.o').decode()
        expect(left_out in file.read(), f'{result} does not name {left_out}')
    logged = commands('log', PREFIX + b'/' + STRANGE)
    expect(logged, 'the log of the file is empty')
    commands('log', PREFIX + b'/none')
    policy = f'{service.directory}/policy.json'
    with open(policy, 'w', encoding='utf-8') as file:
        rule = {'effect': 'deny', 'actions': ['read'], 'paths': ['odd?\n\x1b']}
        json.dump({'default': 'allow', 'rules': [rule]}, file)
    commands('policy', 'test', policy, '--action', 'read', '--path', STRANGE, status=1)
    commands('policy', 'explain', policy, '--path', STRANGE)
    commands('verify')
    made = os.fsencode(service.repositories) + b'/odd\xff.git'
    if not commands.is_there:
        subprocess.run([service.escrow_binary, '--repo', made, 'init'], check=True, capture_output=True, timeout=300)
        commands.used.add('init')


def AnOddNameGoesThroughEveryCommand(start):
    with start() as service:
        words = subprocess.run([service.escrow_binary, '--help'], check=True, capture_output=True, text=True).stdout
        names = set(re.findall(r'^  (\w+) {2,}[A-Z]', words.split('Subcommands:')[1].split('\n\n')[0], re.MULTILINE))
        for is_there in (False, True):
            commands = Commands(service, is_there)
            in_a_session(service, commands)
            whole(service, commands)
            expect_equal('the commands', names - NO_PATHS - commands.used, {'init'} if is_there else set())


if __name__ == '__main__':
    main(globals())
