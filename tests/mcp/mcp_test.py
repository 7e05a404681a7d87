#!/usr/bin/env python3
"""`escrow mcp`: its tools as a model uses them, what they keep from it, and what clients that are wrong are told."""
import base64
import json
import os
import signal
import subprocess
import time

from mcp_client import Client, NEWEST, eventually, expect, expect_equal, main

HEX = '0123456789abcdef'


def AllVersionsOfTheProtocolAreSpoken(repository):
    for version in ('2024-11-05', '2025-03-26', NEWEST):
        with Client(repository, version=version) as client:
            expect_equal('the version', client.said['protocolVersion'], version)
            expect('open_session' in client.said['instructions'], client.said['instructions'])
            expect_equal('a ping', client.result('ping'), {})
            expect_equal('the root', [one['name'] for one in client.call(
                'list_files', session=client.call('open_session')['session'])['entries']], ['a.txt', 'dir'])
            batch = [{'jsonrpc': '2.0', 'id': 'one', 'method': 'tools/call', 'params': {
                'name': 'list_sessions', 'arguments': {'limit': 1}}},
                     {'jsonrpc': '2.0', 'method': 'notifications/other'},
                     {'jsonrpc': '2.0', 'id': 2, 'method': 'ping'}, 5]
            client.send(batch)
            answers = client.receive()
            if version == NEWEST:
                expect_equal('a batch', answers['error']['code'], -32600)
            else:
                expect_equal('the answers to a batch', sorted(map(str, (one['id'] for one in answers))),
                             ['2', 'None', 'one'])
                client.send([{'jsonrpc': '2.0', 'method': 'notifications/other'}])
            expect_equal('afterwards', client.result('ping'), {})
    with Client(repository, version='1999-01-01') as client:
        expect_equal('of an unknown version', client.said['protocolVersion'], NEWEST)


def ASessionIsWorkedInAndSealedForAReview(repository):
    head = repository.head()
    with Client(repository, '--committer', 'agent:builder') as client:
        opened = client.call('open_session')
        expect_equal('the session', (opened['state'], opened['branch'], opened['needs_approval']),
                     ('open', 'main', True))
        session = opened['session']
        made = client.call('write_file', session=session, path='src/new.txt', content='line one\nline two\n')
        expect_equal('a new file', (made['is_new'], made['size_bytes'], made['kind']), (True, 18, 'file'))
        client.call('write_file', session=session, path='run.sh', content='#!/bin/sh\ncat src/new.txt a.txt\n',
                    executable=True)
        client.call('delete_file', session=session, path='dir/b.txt')
        listed = client.call('list_files', session=session)
        expect_equal('the names', [(one['name'], one['kind']) for one in listed['entries']],
                     [('a.txt', 'file'), ('dir', 'directory'), ('run.sh', 'executable'), ('src', 'directory')])
        part = client.call('list_files', session=session, limit=2)
        expect_equal('the rest', [one['name'] for one in client.call('list_files', session=session,
                                                                     after=part['next_after'])['entries']],
                     ['run.sh', 'src'])
        ran = client.call('run_command', session=session,
                          command='./run.sh; echo oops >&2; echo made > made.txt; exit 3')
        expect_equal('the command', (ran['exit_code'], ran['state'], ran['command']),
                     (3, 'open', 'exited with status 3'))
        expect_equal('its output', ran.texts, ['stdout:\nline one\nline two\na.txt\n', 'stderr:\noops\n'])
        ran = client.call('run_command', session=session, argv=['sh', '-c', 'cat "$A" made.txt; seq 1 3000'],
                          env={'A': 'a.txt'}, output_bytes=10)
        expect_equal('what it wrote before is there', (ran['exit_code'], ran.texts), (0, [
            'stdout (its last bytes):\n2999\n3000\n']))
        changes = client.call('diff', session=session)
        expect_equal('the changes', changes.texts, ['D\tdir/b.txt\nA\tmade.txt\nA\trun.sh\nA\tsrc/new.txt\n'])
        patch = client.call('diff', session=session, format='patch', path='src')
        expect('+line two' in patch.texts[0] and 'made' not in patch.texts[0], patch.texts[0])
        first = client.call('diff', session=session, format='patch', limit=50)
        second = client.call('diff', session=session, format='patch', offset=first['next_offset'], limit=200_000)
        whole = client.call('diff', session=session, format='patch', limit=200_000)
        expect_equal('in parts', first.texts[0] + second.texts[0], whole.texts[0])
        kept = client.call('savepoint', session=session, name='before')
        expect_equal('the savepoints', kept['savepoints'], ['before'])
        client.call('write_file', session=session, path='risky.txt', content='x')
        expect_equal('since', client.call('diff', session=session, since='before').texts, ['A\trisky.txt\n'])
        back = client.call('restore', session=session, name='before')
        expect_equal('all', back['savepoints'], ['before', back['undo']])
        expect_equal('gone back', client.call('diff', session=session).texts, changes.texts)
        expect_equal('before', client.call('read_file', session=session, path='dir/b.txt', side='base').texts,
                     ['dir/b.txt\n'])
        sealed = client.call('commit', session=session, message='what the model did')
        expect_equal('the end', (sealed['state'], sealed['counts'] == {'added': 3, 'modified': 0, 'deleted': 1}),
                     ('awaiting_approval', True))
        expect(f'escrow approve {session}' in sealed['next'], sealed['next'])
        expect_equal('the branch', repository.head(), head)
        waiting = client.call('list_sessions', state='awaiting_approval')['sessions']
        expect_equal('what waits', [one['session'] for one in waiting], [session])
        expect_equal('the sealed changes', client.call('diff', session=session).texts, changes.texts)
        for name, arguments in (('write_file', {'path': 'late', 'content': ''}), ('delete_file', {'path': 'a.txt'}),
                                ('run_command', {'command': 'true'}), ('update', {})):
            client.refused(name, 'wrong_state', session=session, **arguments)
        repository.escrow('approve', session, '--result', sealed['result'], '--comment', 'checked')
        now, = client.call('list_sessions', session=session)['sessions']
        expect_equal('approved', (now['state'], now['commit'], now['review_comment']),
                     ('committed', repository.head(), 'checked'))
    expect_equal('the file', repository.git('show', 'main:src/new.txt'), 'line one\nline two')
    log = repository.git('log', '-1', '--format=%B', 'main')
    for text in ('what the model did', 'agent:builder', 'Escrow-Trigger: mcp', 'test 1'):
        expect(text in log, f'{text!r} is not in {log}')


def ContentsAreReadInPartsWhateverTheyAre(repository):
    with Client(repository) as client:
        session = client.call('open_session')['session']
        text = 'größer ' * 5000
        client.call('write_file', session=session, path='text', content=text)
        found, offset = '', 0
        while offset is not None:
            part = client.call('read_file', session=session, path='text', offset=offset, limit=1000)
            expect(part['encoding'] == 'utf-8' and part['size_bytes'] == len(text.encode()), f'{part.document}')
            found, offset = found + part.texts[0], part.document.get('next_offset')
        expect_equal('the text', found, text)
        content = bytes(range(256)) * 40
        client.call('write_file', session=session, path='binary', content_base64=base64.b64encode(content).decode())
        part = client.call('read_file', session=session, path='binary', offset=256, limit=512)
        expect_equal('bytes', (part['encoding'], base64.b64decode(part.texts[0]), part['next_offset']),
                     ('base64', content[256:768], 768))
        expect_equal('behind the end', client.call('read_file', session=session, path='text', offset=10**9).texts, [''])
        ran = client.call('run_command', session=session, command="printf 'a\\377b'; ln -s text link")
        expect_equal('output that is no text', ran.texts, ['stdout:\na\ufffdb'])
        expect_equal('a link', client.call('read_file', session=session, path='link').texts, ['text'])
        client.call('rollback', session=session)


def ACommandOfItsOwnIsDecidedByItsExitStatus(repository):
    head = repository.head()
    with Client(repository) as client:
        ran = client.call('run_command', command='echo 1 > one; echo done', message='its own')
        expect_equal('sealed', (ran['exit_code'], ran['state'], ran['counts'], ran.texts),
                     (0, 'awaiting_approval', {'added': 1, 'modified': 0, 'deleted': 0}, ['stdout:\ndone\n']))
        expect_equal('the branch', repository.head(), head)
        client.call('rollback', session=ran['session'])
        ran = client.call('run_command', command='echo 1 > one; kill -9 $$')
        expect_equal('failed', (ran['state'], ran['exit_code']), ('rolled_back', 137))
        ran = client.call('run_command', argv=['no-such-program'])
        expect_equal('of no program', (ran['state'], ran['exit_code']), ('rolled_back', 127))
        ran = client.call('run_command', command='sleep 1000', timeout_s=1)
        expect_equal('too slow', (ran['state'], ran['reason']), ('rolled_back', 'timed_out'))
    with Client(repository, '--without-approval') as client:
        ran = client.call('run_command', command='echo 1 > one', message='its own', path_prefix='dir')
        expect_equal('committed', (ran['state'], ran['commit']), ('committed', repository.head()))
    expect_equal('the file', repository.git('show', 'main:dir/one'), '1')


def ACommandSeesItsSessionAndWritesNowhereElse(repository):
    outside = f'{repository.directory}/outside'
    with Client(repository) as client:
        session = client.call('open_session')['session']
        ran = client.call('run_command', session=session, command=f'pwd; ls -A; echo x > {outside}; '
                          f'ls {repository.path}; echo x > /usr/x; cat')
        expect_equal('what it sees', ran.texts[0].splitlines()[:4], ['stdout:', '/sandbox', 'a.txt', 'dir'])
        expect(not os.path.exists(outside) and not os.path.exists('/usr/x'), 'it wrote outside')
        expect_equal('its errors', ran.texts[1].count('\n') >= 3, True)
        client.call('rollback', session=session)


def AConflictNamesThePathsAndHasAWayOut(repository):
    with Client(repository, '--without-approval') as client:
        session, other = (client.call('open_session')['session'] for _ in range(2))
        for one, text in ((session, 'mine'), (other, 'theirs')):
            client.call('write_file', session=one, path='a.txt', content=text)
        client.call('write_file', session=session, path='new.txt', content='mine')
        client.call('commit', session=other, message='first')
        result = client.check_result(client.raw_call('commit', {'session': session}))
        expect_equal('the conflict', (result.is_error, [one['path'] for one in result['conflicts']], result['state']),
                     (True, ['a.txt'], 'open'))
        result = client.check_result(client.raw_call('update', {'session': session}))
        expect_equal('an update', (result.is_error, [one['path'] for one in result['conflicts']]), (True, ['a.txt']))
        expect_equal('taken in', client.call('update', session=session, discard=['a.txt'])['conflicts'], [])
        expect_equal('theirs', client.call('read_file', session=session, path='a.txt').texts, ['theirs'])
        client.call('commit', session=session)
    expect_equal('both', (repository.git('show', 'main:a.txt'), repository.git('show', 'main:new.txt')),
                 ('theirs', 'mine'))


def SessionsOfOthersAreLeftAlone(repository):
    point = f'{repository.directory}/point'
    os.mkdir(point)
    theirs = repository.escrow('mount', point).strip()
    try:
        with open(f'{point}/theirs', 'w', encoding='utf-8') as file:
            file.write('x')
        with Client(repository, '--without-approval') as client:
            unreviewed = client.call('open_session')['session']
            client.call('write_file', session=unreviewed, path='new', content='x')
        with Client(repository) as client:
            for name, arguments in (('commit', {}), ('rollback', {}), ('diff', {}), ('list_files', {}), ('update', {}),
                                    ('savepoint', {'name': 'x'}), ('restore', {'name': 'x'}),
                                    ('read_file', {'path': 'theirs'}), ('write_file', {'path': 'x', 'content': ''}),
                                    ('delete_file', {'path': 'theirs'}), ('run_command', {'command': 'true'})):
                sentence = client.refused(name, 'no_session', session=theirs, **arguments)
                expect('not opened by these tools' in sentence, sentence)
            expect_equal('the list', [one['session'] for one in client.call('list_sessions')['sessions']], [unreviewed])
            # Another server, which asks for no review, has opened it.
            client.refused('commit', 'not_permitted', session=unreviewed)
            client.call('rollback', session=unreviewed)
        expect_equal('theirs', repository.states()[theirs], 'open')
    finally:
        repository.escrow('rollback', theirs)


def TheOptionsHoldForEverySession(repository):
    policy = f'{repository.directory}/policy.json'
    with open(policy, 'w', encoding='utf-8') as file:
        json.dump({'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['read', 'list', 'write', 'create'],
                                                  'paths': ['dir/deep']}]}, file)
    with Client(repository, '--path-prefix', 'dir', '--policy', policy, '--branch', 'main') as client:
        session = client.call('open_session')['session']
        expect_equal('the root', [one['name'] for one in client.call('list_files', session=session)['entries']],
                     ['b.txt'])
        for name, arguments in (('read_file', {'path': 'deep/c.txt'}), ('list_files', {'path': 'deep'}),
                                ('write_file', {'path': 'deep/c.txt', 'content': ''}),
                                ('read_file', {'path': 'deep/c.txt', 'side': 'base'})):
            client.refused(name, 'access_denied', session=session, **arguments)
        ran = client.call('run_command', session=session, command='cat deep/c.txt; echo x > deep/c.txt')
        expect(ran['exit_code'] != 0 and ran.texts[0].count('ermission denied') == 2, f'{ran.texts}')
        expect_equal('another part', client.call('open_session', path_prefix='dir/deep')['path_prefix'], 'dir/deep')
        for arguments in ({'path_prefix': ''}, {'path_prefix': 'elsewhere'}, {'branch': 'other'}):
            client.refused('open_session', 'invalid_value', **arguments)
        client.refused('open_session', 'bad_request', path_prefix='../x')
        client.refused('run_command', 'invalid_value', command='true', path_prefix='elsewhere')
        for path in ('../a.txt', '/etc/passwd', '.git/config'):
            answer = client.check_result(client.raw_call('read_file', {'session': session, 'path': path}))
            expect(answer.is_error, f'{path}: {answer.document}')


def NoVariableThatTiesGitToARepositoryReachesACommand(repository):
    variables = {'GIT_DIR': '/nowhere', 'GIT_INDEX_FILE': '/nowhere/index', 'GIT_CONFIG_COUNT': 'no-number'}
    with Client(repository, '--without-approval', variables=variables) as client:
        session = client.call('open_session')['session']
        ran = client.call('run_command', session=session,
                          command='env | grep -E "^GIT_(DIR|INDEX|CONFIG)"; echo made > made.txt')
        expect_equal('the command', (ran['exit_code'], ran.texts), (0, []))
        expect_equal('the end', client.call('commit', session=session)['state'], 'committed')
    expect_equal('the file', repository.git('show', 'main:made.txt'), 'made')


def git_by_hand(directory, marker, *files):
    """The command that makes a repository there whose configuration lets `git status` make the marker's file."""
    others = ''.join(f'; echo x > {directory}/{name}' for name in files)
    return (f'mkdir -p {directory}/objects {directory}/refs; echo "ref: refs/heads/main" > {directory}/HEAD; '
            f'printf "[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"id > {marker} #\\"\\n" '
            f'> {directory}/config{others}')


def AGitDirectoryOfACommandIsNotShownToWhoMounts(repository):
    marker, point = f'{repository.directory}/marker', f'{repository.directory}/point'
    os.mkdir(point)
    for name, command, path, where in (
            ('made by hand', git_by_hand('.git', marker), '.git', '.'),
            ('in a directory', git_by_hand('dir/.git', marker), 'dir/.git', 'dir'),
            ('a file', git_by_hand('dir/hidden', marker) + '; echo "gitdir: dir/hidden" > .git', '.git', '.'),
            ('with a file that Escrow makes', git_by_hand('.git', marker, 'escrow-session'), '.git', '.')):
        with Client(repository) as client:
            session = client.call('open_session')['session']
            ran = client.call('run_command', session=session, command=command)
            expect_equal(f'{name}: {ran.document} {ran.texts}', ran['exit_code'], 0)
            # Others may have changed where a file leads to.
            is_file = name == 'a file'
            again = client.call('run_command', session=session, command=f'test -e {path}')
            expect_equal(f'{name}: the next command', (again['exit_code'], 'warnings' in again.document),
                         (int(is_file), is_file))
        expect(path in json.dumps(json.loads(repository.escrow('status', session, '--json'))['omitted']),
               f'{name}: `escrow status` does not name it')
        for options, is_shown in ((), False), (('--show-git', path), True), ((), False):
            mounted = subprocess.run([repository.binary, '--repo', repository.path, 'mount', '--session', session,
                                      point, *options], check=False, capture_output=True, text=True, timeout=300)
            try:
                expect_equal(f'{name}: {mounted.stderr}', mounted.returncode, 0)
                expect_equal(f'{name}: {mounted.stderr}', f'hidden: {path} of session' in mounted.stderr, not is_shown)
                expect_equal(f'{name}: it is there', os.path.exists(f'{point}/{path}'), is_shown)
                expect_equal(f'{name}: it is listed', '.git' in os.listdir(f'{point}/{where}'), is_shown)
                subprocess.run(['git', 'status'], cwd=f'{point}/{where}', check=False, capture_output=True, timeout=300,
                               env={**os.environ, 'GIT_CEILING_DIRECTORIES': repository.directory})
                expect_equal(f'{name}: git has run what it names', os.path.exists(marker), is_shown)
            finally:
                repository.escrow('unmount', session)
            if is_shown:
                os.unlink(marker)
        repository.escrow('discard', session, path)
        expect(path not in repository.escrow('status', session), f'{name}: it was not discarded')
        repository.escrow('rollback', session)


def OneInACopyIsNotShownToWhoMountsEvenOfASessionOfAnEarlierVersion(repository):
    marker, point, source = (f'{repository.directory}/{name}' for name in ('marker', 'point', 'source'))
    os.mkdir(point)
    os.mkdir(source)
    with Client(repository) as client:
        session = client.call('open_session')['session']
        repository.escrow('mounts', 'add', session, '--inject', f'work={source},mode=overlay')
        ran = client.call('run_command', session=session, command=git_by_hand('work/.git', marker))
        expect_equal(f'{ran.document} {ran.texts}', ran['exit_code'], 0)
        again = client.call('run_command', session=session, command='test -e work/.git/config')
        expect_equal('the next command', again['exit_code'], 0)
    hands = f'{repository.path}/escrow/sessions/{session}/hands'  # of versions in between
    if os.path.exists(hands):
        os.unlink(hands)
    mounted = subprocess.run([repository.binary, '--repo', repository.path, 'mount', '--session', session, point],
                             check=False, capture_output=True, text=True, timeout=300)
    try:
        expect(not os.path.lexists(f'{point}/work/.git'), 'it is there')
        expect(f'hidden: work/.git of session {session}' in mounted.stderr, mounted.stderr)
        subprocess.run(['git', 'status'], cwd=f'{point}/work', check=False, capture_output=True, timeout=300,
                       env={**os.environ, 'GIT_CEILING_DIRECTORIES': repository.directory})
        expect(not os.path.exists(marker), 'git has run what it names')
    finally:
        repository.escrow('rollback', session)


def AForkOfASessionHidesWhatTheSessionHides(repository):
    marker, point = f'{repository.directory}/marker', f'{repository.directory}/point'
    os.mkdir(point)
    with Client(repository) as client:
        session = client.call('open_session')['session']
        client.call('run_command', session=session, command=git_by_hand('.git', marker))
    fork = repository.escrow('fork', session).strip()
    repository.escrow('mount', '--session', fork, point)
    try:
        expect(not os.path.lexists(f'{point}/.git'), 'the fork shows it')
    finally:
        repository.escrow('rollback', session, '--discard-forks')


def ARestoreNamesTheCachesThatBeginAnew(repository):
    point = f'{repository.directory}/point'
    os.mkdir(point)
    with Client(repository) as client:
        session = client.call('open_session')['session']
        client.call('savepoint', session=session, name='before')
        repository.escrow('mount', '--session', session, '--cache', 'build', point)
        try:
            with open(f'{point}/build/wreck', 'w', encoding='utf-8'):
                pass
            back = client.call('restore', session=session, name='before')
            expect("the cache 'build' begins anew as last published" in back['warning'], str(back.document))
            expect_equal('the cache', os.listdir(f'{point}/build'), [])
            back = client.call('restore', session=session, name='before')
            expect('warning' not in back.document, f'it was not changed: {back.document}')
        finally:
            repository.escrow('rollback', session)


def NothingIsWrittenIntoAGitDirectory(repository):
    with Client(repository) as client:
        session = client.call('open_session')['session']
        for path in '.git/config', 'dir/.git', '.GIT/config', 'git~1/config':
            sentence = client.refused('write_file', 'access_denied', session=session, path=path, content='x')
            expect("git's own" in sentence and path in sentence, sentence)
        client.call('run_command', session=session, command='mkdir .git; echo x > .git/config')
        client.refused('delete_file', 'access_denied', session=session, path='.git/config')
        expect_equal('as it was', client.call('read_file', session=session, path='.git/config').texts, ['x\n'])
        client.call('rollback', session=session)


def SessionsOutliveTheConnection(repository):
    with Client(repository) as client:
        session = client.call('open_session')['session']
        client.call('write_file', session=session, path='new', content='x')
    killed = Client(repository)
    killed.call('write_file', session=session, path='other', content='x')
    killed.process.kill()
    killed.close()
    with Client(repository) as client:
        expect_equal('the changes', client.call('diff', session=session[:8]).texts, ['A\tnew\nA\tother\n'])
        client.call('rollback', session=session)


def running(client, command, **arguments):
    """Sends the call, and comes back when the command has made the file `begun` of its own session's output."""
    marker = f'{os.getpid()}-{time.monotonic_ns()}'
    client.count += 1
    client.send({'jsonrpc': '2.0', 'id': client.count, 'method': 'tools/call', 'params': {
        'name': 'run_command', 'arguments': {'command': f': {marker}; {command}', **arguments}}})

    def is_running():
        for name in os.listdir('/proc'):
            if name.isdigit():
                try:
                    with open(f'/proc/{name}/cmdline', 'rb') as file:
                        words = file.read().split(b'\0')
                    if words[0] == b'sh' and any(marker.encode() in word for word in words):
                        return True
                except OSError:
                    pass
        return False
    eventually('the command runs', is_running)
    return client.count, is_running


def ACancelledCommandIsEndedAndGetsNoAnswer(repository):
    with Client(repository) as client:
        identity, is_running = running(client, 'echo 1 > half; sleep 1000; true')
        expect_equal('meanwhile', client.result('ping'), {})
        waiting = client.count + 1000
        client.send({'jsonrpc': '2.0', 'id': waiting, 'method': 'tools/call', 'params': {'name': 'open_session'}})
        for cancelled in (waiting, 'unknown', identity):
            client.send({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': cancelled}})
        # The next answer is to the next request.
        sessions = client.call('list_sessions')['sessions']
        expect_equal('the sessions', [(one['state'], one['reason']) for one in sessions],
                     [('rolled_back', 'cancelled')])
        expect(not is_running(), 'it still runs')
        session = client.call('open_session')['session']
        identity, is_running = running(client, 'echo 1 > half; sleep 1000; true', session=session)
        client.send({'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': identity}})
        expect_equal('the session stays', client.call('list_files', session=session)['path'], '')
        expect(not is_running(), 'it still runs')


def AClientThatIsGoneLeavesNoCommandBehind(repository):
    for how in ('client', 'server'):
        client = Client(repository)
        _, is_running = running(client, 'echo 1 > half; sleep 1000; true')
        if how == 'server':
            client.process.send_signal(signal.SIGKILL)
        client.process.stdin.close()
        client.process.stdout.close()
        client.process.wait(300)
        eventually(f'the command has ended after the {how}', lambda: not is_running())
        eventually('it is rolled back', lambda: set(repository.states().values()) == {'rolled_back'})


def WhatIsAskedBeforeTheEndIsAnswered(repository):
    lines = [{'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {'protocolVersion': NEWEST}},
             {'jsonrpc': '2.0', 'id': 2, 'method': 'tools/call', 'params': {
                 'name': 'run_command', 'arguments': {'command': 'echo from a pipe'}}}]
    ran = subprocess.run([repository.binary, '--repo', repository.path, 'mcp'], check=False, capture_output=True,
                         input='\n'.join(map(json.dumps, lines)).encode(), timeout=300)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    expect_equal(f'the answers, {ran.stderr}', ([one['id'] for one in answers], ran.returncode, ran.stderr),
                 ([1, 2], 0, b''))
    expect_equal('the output', answers[1]['result']['content'][1]['text'], 'stdout:\nfrom a pipe\n')


def request(**members):
    return {'jsonrpc': '2.0', 'id': 1, 'method': 'ping', **members}


def BadInputIsAnsweredAndTheServerGoesOn(repository):
    with Client(repository, initialize=False) as client:
        for sent, identity, code in (
                (b'{', None, -32700), (b'nonsense', None, -32700), (b'"\xff"', None, -32700),
                (b'[' * 100_000, None, -32700), (b'{"a":' * 1000 + b'1' + b'}' * 1000, None, -32700),
                (b'5', None, -32600), (b'[]', None, -32600), (b'{}', None, -32600),
                (request(id=[1]), None, -32600), (request(id=None), None, -32600), (request(jsonrpc='1.0'), 1, -32600),
                (request(method=5), 1, -32600), (request(params=[1]), 1, -32602), (request(method='x/y'), 1, -32601),
                (request(method='resources/list'), 1, -32601), (request(method='tools/list'), 1, -32600),
                (request(method='initialize', params={}), 1, -32602),
                (request(method='initialize', params={'protocolVersion': 5}), 1, -32602)):
            client.send(sent)
            answer = client.check(client.receive(), identity)
            expect_equal(f'{str(sent)[:80]}: {answer}', answer['error']['code'], code)
        for silent in (b'', b'  ', {'jsonrpc': '2.0', 'method': 'notifications/x', 'params': [1]},
                       {'jsonrpc': '2.0', 'id': 9, 'result': {}},
                       {'jsonrpc': '2.0', 'method': 'notifications/cancelled'}):
            client.send(silent)
        client.initialize()
        client.refusal('tools/call', {}, 'params')
        client.refusal('tools/call', {'name': 'list_files', 'arguments': [1]}, 'params')
        expect('no_such_tool' in client.refusal('tools/call', {'name': 'no_such_tool'}, 'params'), 'the name')
        session = client.call('open_session')['session']
        for name, code, arguments in (
                ('list_files', 'invalid_value', {}), ('list_files', 'unknown_field', {'session': session, 'colour': 1}),
                ('list_files', 'no_session', {'session': HEX}),
                ('list_files', 'not_found', {'session': session, 'path': 'x'}),
                ('list_files', 'not_a_directory', {'session': session, 'path': 'a.txt'}),
                ('list_files', 'invalid_value', {'session': session, 'limit': 0}),
                ('read_file', 'invalid_value', {'session': session}),
                ('read_file', 'invalid_value', {'session': session, 'path': 'a.txt', 'offset': -1}),
                ('read_file', 'is_a_directory', {'session': session, 'path': 'dir'}),
                ('read_file', 'invalid_value', {'session': session, 'path': 'a.txt', 'side': 'left'}),
                ('write_file', 'invalid_value', {'session': session, 'path': 'x'}),
                ('write_file', 'is_a_directory', {'session': session, 'path': 'dir', 'content': ''}),
                ('delete_file', 'not_empty', {'session': session, 'path': 'dir'}),
                ('run_command', 'invalid_value', {'session': session}),
                ('run_command', 'invalid_value', {'session': session, 'command': 'x', 'argv': ['x']}),
                ('run_command', 'invalid_value', {'session': session, 'argv': []}),
                ('run_command', 'invalid_value', {'session': session, 'command': 'true', 'env': {'a=b': 'c'}}),
                ('run_command', 'invalid_value', {'session': session, 'command': 'true', 'timeout_s': 10**9}),
                ('run_command', 'unknown_field', {'session': session, 'command': 'true', 'branch': 'main'}),
                ('diff', 'invalid_value', {'session': session, 'format': 'x'}),
                ('diff', 'not_found', {'session': session, 'since': 'none'}),
                ('savepoint', 'bad_request', {'session': session, 'name': '../x'}),
                ('restore', 'not_found', {'session': session, 'name': 'none'}),
                ('list_sessions', 'invalid_value', {'state': 'x'}), ('open_session', 'no_branch', {'branch': 'none'}),
                ('open_session', 'bad_request', {'branch': 'a..b'}), ('commit', 'invalid_value', {'session': 5})):
            client.refused(name, code, **arguments)
        expect_equal('nothing was changed', client.call('diff', session=session).texts, [''])
        client.call('rollback', session=session)
        expect_equal('twice', client.call('rollback', session=session)['state'], 'rolled_back')


def AWrongBeginningIsOneSentence(repository):
    for arguments, said in ((['--repo', '/none', 'mcp'], '/none'), (['--host', 'unix:///x', 'mcp'], 'leave --host'),
                            (['--repo', repository.path, 'mcp', '--network', 'x'], '--network'),
                            (['--repo', repository.path, 'mcp', '--policy', '/none'], '/none')):
        ran = subprocess.run([repository.binary, *arguments], check=False, capture_output=True, text=True, timeout=300,
                             stdin=subprocess.DEVNULL)
        expect(ran.returncode != 0 and ran.stdout == '', f'{arguments}: {ran}')
        expect(said in ran.stderr and ran.stderr.count('\n') == 1, f'{arguments}: {ran.stderr}')


if __name__ == '__main__':
    main(globals())
