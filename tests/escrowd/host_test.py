#!/usr/bin/env python3
"""escrow --host: the same commands against an escrowd as against a repository, with the same output and exit status."""
import glob
import http.server
import json
import os
import re
import signal
import socketserver
import subprocess
import threading

from authorization_test import asked, refused
from remote_test import AGENT, Remote
from runs_test import until_woken, wake
from service import eventually, expect, expect_equal, main, open_files, read, request, write

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith('ESCROW_')}

AGE = r'\b(now|\d+ (second|minute)s? ago)\b'


def run(service, *arguments, **environment):
    return subprocess.run([service.escrow_binary, *arguments], capture_output=True, text=True, check=False, timeout=300,
                          errors='surrogateescape', stdin=subprocess.DEVNULL, env={**ENVIRONMENT, **environment},
                          cwd='/')


def there(service, *arguments, expect_status=0):
    """What the command prints when the service is asked on its socket."""
    result = run(service, '--host', f'unix://{service.socket}', *arguments)
    expect_equal(f'escrow --host {arguments}: {result.stderr}', result.returncode, expect_status)
    return result


def here(service, *arguments, expect_status=0):
    result = run(service, '--repo', service.repository, *arguments)
    expect_equal(f'escrow {arguments}: {result.stderr}', result.returncode, expect_status)
    return result


def same(service, *arguments, expect_status=0):
    """The command says the same, in the same words, both ways; the two are not asked in one second, and a column of
    ages is as wide as its ages.
    """
    remote, local = (ask(service, *arguments, expect_status=expect_status) for ask in (there, here))
    expect_equal(f'escrow {arguments}', *((re.sub(' +', ' ', re.sub(AGE, 'AGE', result.stdout)), result.stderr)
                                          for result in (remote, local)))
    return remote.stdout


def TheSameIsSaidOfASessionHereAndThere(start):
    with start() as service:
        session, point = service.open_mounted(labels={'a': 'b'})
        name = b'odd \xff\n\x1b name'
        with open(os.fsencode(point) + b'/' + name, 'wb') as file:
            file.write(b'odd\n')
        write(f'{point}/a.txt', 'changed\n')
        os.mkfifo(f'{point}/pipe')
        expect('1 added, 1 modified' in same(service, 'status', session[:6]), 'the changes are not counted')
        for arguments in (('status', session, '--json'), ('sessions',), ('sessions', '--json'), ('sessions', '--open'),
                          ('diff', session), ('diff', session, '--stat'), ('diff', session, '--name-status'),
                          ('diff', session, '--json'), ('log',), ('log', '--json'), ('log', '-n', '1'),
                          ('log', 'dir/b.txt'), ('log', 'nowhere')):
            same(service, *arguments)
        expect('pipe' in there(service, 'diff', session).stderr, 'what is left out is not named')
        expect_equal('the name', json.loads(there(service, 'status', session, '--json').stdout)['session'], session)


def CommittingAndRollingBackSaysTheSame(start):
    with start() as service:
        def changed(number):
            session, point = service.open_mounted(f'work-{number}')
            write(f'{point}/new-{number}', 'new')
            os.mkdir(f'{point}/empty')
            return session
        said = []
        for ask, number in ((there, 1), (here, 2)):
            session = changed(number)
            out = ask(service, 'commit', session[:8], '-m', 'by hand').stdout
            commit = service.git('rev-parse', 'main')
            expect(commit in out and 'empty' in out, out)
            expect_equal('the message', service.git('log', '-1', '--format=%s', 'main'), 'by hand')
            said.append(out.replace(session, 'S').replace(commit, 'C').replace(f'new-{number}', 'new'))
            again = ask(service, 'commit', session).stdout
            expect(commit in again, again)
        expect_equal('a commit', said[0], said[1])
        said = []
        for ask, number in ((there, 3), (here, 4)):
            session = changed(number)
            said.append(ask(service, 'rollback', session).stdout.replace(session, 'S'))
            expect_equal('the state', service.state(session), 'rolled_back')
            ask(service, 'commit', session, expect_status=1)
        expect_equal('a roll-back', said[0], said[1])
        session = changed(5)
        there(service, 'unmount', f'{service.mounts}/work-5')
        expect_equal('attachment', service.get(f'/v1/sessions/{session}').json['attachment'], 'none')


def AConflictAndAReviewSayTheSame(start):
    with start() as service:
        said = []
        for ask, number in ((there, 1), (here, 2)):
            session, point = service.open_mounted(f'work-{number}')
            other, other_point = service.open_mounted(f'other-{number}')
            write(f'{point}/a.txt', f'mine {number}')
            write(f'{other_point}/a.txt', f'theirs {number}')
            service.post(f'/v1/sessions/{other}/commit').expect(200)
            said.append(ask(service, 'commit', session, expect_status=122).stderr.replace(session, 'S'))
            ask(service, 'rollback', session)
        expect('a.txt: the session modified it, the branch modified it' in said[0], said[0])
        expect_equal('a conflict', said[0], said[1])
        said = []
        for ask, number in ((there, 3), (here, 4)):
            session, point = service.open_mounted(f'work-{number}', require_approval=True)
            write(f'{point}/new-{number}', 'new')
            sealed = ask(service, 'commit', session, expect_status=123).stdout
            result = re.search('its result ([0-9a-f]{40})', sealed).group(1)
            same(service, 'diff', session)
            same(service, 'status', session)
            approved = ask(service, 'approve', session, '--result', result[:10], '--comment', 'fine').stdout
            commit = service.git('rev-parse', 'main')
            expect_equal('the comment', json.loads(here(service, 'status', session, '--json').stdout)['review_comment'],
                         'fine')
            said.append((sealed + approved).replace(session, 'S').replace(result, 'R').replace(result[:12], 'R')
                        .replace(commit, 'C')
                        .replace(f'new-{number}', 'new'))
        expect_equal('an approval', said[0], said[1])
        session, point = service.open_mounted('work-5', require_approval=True)
        write(f'{point}/new-5', 'new')
        there(service, 'commit', session, expect_status=123)
        expect('--result' in there(service, 'approve', session, expect_status=2).stderr, 'what to name is not said')
        there(service, 'approve', session, '--result', '0' * 40, expect_status=1)
        there(service, 'reject', session, '--comment', 'no')
        expect_equal('the state', service.state(session), 'rolled_back')


def UpdatingAndDiscardingSaysTheSame(start):
    odd = os.fsdecode(b'odd \xff\n\x1b name')
    with start() as service:
        said = []
        for ask, number in ((there, 1), (here, 2)):
            session, point = service.open_mounted(f'work-{number}')
            other, other_point = service.open_mounted(f'other-{number}')
            before, before_b = read(f'{point}/a.txt'), read(f'{point}/dir/b.txt')
            write(f'{point}/a.txt', f'mine {number}')
            write(f'{point}/{odd}', 'odd')
            write(f'{other_point}/a.txt', f'theirs {number}')
            write(f'{other_point}/dir/b.txt', f'theirs {number}')
            service.post(f'/v1/sessions/{other}/commit').expect(200)
            updated = ask(service, 'update', session[:8], expect_status=122).stderr
            expect_equal('nothing is taken in', read(f'{point}/dir/b.txt'), before_b)
            nothing = ask(service, 'discard', session, 'a.txt', 'no-such-file', expect_status=1).stderr
            expect_equal('nothing is discarded', read(f'{point}/a.txt'), f'mine {number}')
            discarded = ask(service, 'discard', session, 'a.txt', odd).stdout
            expect_equal('the base', (read(f'{point}/a.txt'), os.path.exists(f'{point}/{odd}')), (before, False))
            ask(service, 'discard', session, 'dir', '--json')
            again = ask(service, 'update', session).stdout + ask(service, 'update', session, '--json').stdout
            expect_equal('the other side', read(f'{point}/a.txt'), f'theirs {number}')
            ask(service, 'rollback', session)
            late = ask(service, 'update', session, expect_status=1).stderr
            base = service.git('rev-parse', 'main')
            said.append([text.replace(session, 'S').replace(base, 'B').replace(base[:12], 'B')
                         for text in (updated, nothing, discarded, again, late)])
        expect('a.txt: the session modified it, the branch modified it' in said[0][0], said[0])
        expect_equal('an update and a discard', said[0][:4], said[1][:4])
        expect(all('rolled_back' in one[4] for one in said), said)


def AuditGcAndVerifySayTheSame(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/new', 'new')
        there(service, 'commit', session, '-m', 'one')
        ended = service.open()['session']
        service.finish(ended, {'exit_code': 3}).expect(200)
        open_one = service.open()['session']
        there(service, 'run', '--', 'sh', '-c', os.fsdecode(b'echo "$1" >&2; exit 4'), 'sh', os.fsdecode(b'odd \xff'),
              expect_status=4)
        for arguments in ((), ('--json',), ('--state', 'rolled_back'), ('--state', 'committed', '--json'),
                          ('--session', session[:8]), ('--session', ended, '--json'), ('--since', '1h'),
                          ('--branch', 'nope')):
            same(service, 'audit', *arguments)
        rows = json.loads(same(service, 'audit', '--json'))
        who = [row['session'] for row in rows]
        expect_equal('who is there', [one for one in who if one in (session, ended, open_one)], [session, ended])
        expect_equal('the last run', rows[-1]['command'][-1]['argument_base64'], 'b2RkIP8=')
        first = service.get('/v1/repositories/data/audit?limit=1').expect(200)
        rest = service.get(f'/v1/repositories/data/audit?cursor={first["next"]}').expect(200)
        expect_equal('pages', [row['session'] for row in first['sessions'] + rest['sessions']], who)
        there(service, 'gc')
        service.git('config', 'gc.pruneExpire', 'now')
        held_back = json.loads(same(service, 'gc', '--json'))['held_back']
        expect_equal('what holds gc back', (held_back['session'], held_back['set_aside']), (open_one, False))
        same(service, 'gc')
        same(service, 'gc', '--json')
        service.post('/v1/repositories/data/gc').expect(200)
        for arguments in (('verify',), ('verify', '--json')):
            same(service, *arguments)
        expect_equal('the answer', service.post('/v1/repositories/data/verify').expect(200),
                     {'sound': True, 'problems': []})
        record = glob.glob(f'{service.repository}/objects/pack/*.pack')[0]
        os.chmod(record, 0o600)
        with open(record, 'r+b') as file:
            file.seek(40)
            file.write(b'\0' * 8)
        same(service, 'verify', expect_status=1)
        expect(not json.loads(same(service, 'verify', '--json', expect_status=1))['sound'], 'damage is not found')


def OnlyOperatorsCleanUpAndVerifyAndOthersSeeTheirOwn(start):
    with start() as service:
        session = service.open()['session']
        service.finish(session, {'exit_code': 1}).expect(200)
        for verb in ('gc', 'verify'):
            problem = refused(service, 'POST', f'/v1/repositories/data/{verb}', 403, 'forbidden', {})
            expect('only operators' in problem['detail'], problem)
            service.post(f'/v1/repositories/nope/{verb}').expect(404, 'no_repository')
        service.get('/v1/repositories/nope/audit').expect(404, 'no_repository')
        status, document = asked(service, 'GET', '/v1/repositories/data/audit')
        expect_equal('the audit of somebody else', (status, document['sessions']), (200, []))
        for query in ('session=xyz', 'states=nope', 'since_ms=x', 'cursor=!', 'nope=1'):
            answer = service.get(f'/v1/repositories/data/audit?{query}')
            expect_equal(query, answer.status, 400)
        refused(service, 'POST', f'/v1/sessions/{session}/update', 404, 'no_session', {})
        refused(service, 'POST', f'/v1/sessions/{session}/discard', 404, 'no_session', {'paths': ['a.txt']})
        for body in ({}, {'paths': []}, {'paths': 'a.txt'}, {'paths_base64': ['!']}, {'paths': ['a'], 'other': 1},
                     {'paths': ['b'], 'paths_base64': ['YQ==']}):
            answer = service.post(f'/v1/sessions/{service.open()["session"]}/discard', body)
            expect_equal(f'{body}', answer.status, 400)


def ARunThereEndsAsARunHere(start):
    def said(result):
        lines = [line for line in result.stderr.split('\n') if not line.startswith('escrow: warning:')]
        return result.returncode, result.stdout, re.sub(r'\b[0-9a-f]{12,40}\b', 'ID', '\n'.join(lines))

    with start() as service:
        policy = f'{service.directory}/policy.json'
        with open(policy, 'w', encoding='ascii') as file:
            json.dump({'default': 'allow',
                       'rules': [{'effect': 'deny', 'actions': ['write'], 'paths': ['a.txt']}]}, file)
        for number, words in enumerate((
                ('--', 'sh', '-c', 'echo out; echo err >&2; echo "$WORD" > new-$ESCROW_SESSION'),
                ('--', 'sh', '-c', 'seq 100000; exit 3'), ('--', 'sh', '-c', 'kill -KILL $$'),
                ('--', 'no-such-program'),
                ('--timeout', '300ms', '--', 'sleep', '30'), ('--', 'true'), ('--confine', '--', 'pwd'),
                ('--require-approval', '--', 'sh', '-c', 'echo new > sealed'),
                ('--policy', policy, '--', 'sh', '-c', 'echo mine > a.txt'), ('--path-prefix', 'dir', '--', 'ls'))):
            options = ('--message', f'run {number}', '--env', 'WORD=a b')
            both = [run(service, *where, 'run', *options, *words)
                    for where in (('--host', f'unix://{service.socket}'), ('--repo', service.repository))]
            expect_equal(f'escrow run {words}', said(both[0]), said(both[1]))
        expect_equal('the message', service.git('log', '-2', '--format=%s', 'main'), 'run 0\nrun 0')
        expect_equal('the variable', service.git('log', '-1', '--format=', '-p', 'main').split('\n')[-1], '+a b')
        result = f'{service.directory}/result.json'
        there(service, 'run', '--result', result, '--', 'sh', '-c', 'exit 7', expect_status=7)
        with open(result, encoding='ascii') as file:
            ended = json.load(file)
        expect_equal('the result', (ended['run_exit_code'], ended['state']), (7, 'rolled_back'))


class SlowAnswers(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the service. The answer to one that starts a run comes when the run has ended, and says so,
    as that of a machine with a load may."""

    def do_GET(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on()

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        own = ('host', 'content-length')
        headers = {name: value for name, value in self.headers.items() if name.lower() not in own}
        answer = request(self.server.service.socket, self.command, self.path, body or None, headers)
        if (self.command, self.path) == ('POST', '/v1/runs'):
            answer.body = self.server.service.get(f'/v1/runs/{answer.json["run"]}/wait?timeout_ms=100000').body
        self.send_response(answer.status)
        self.send_header('Content-Type', answer.headers['content-type'])
        self.send_header('Content-Length', str(len(answer.body)))
        self.end_headers()
        if answer.body:  # else the client has gone
            self.wfile.write(answer.body)

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        pass


def ARunThatHasEndedWhenItIsAnsweredHasItsOutput(start):
    with start() as service:
        relay = socketserver.ThreadingUnixStreamServer(f'{service.directory}/relay', SlowAnswers)
        relay.service = service
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        result = run(service, '--host', f'unix://{service.directory}/relay', 'run', '--', 'sh', '-c',
                     'seq 100000; echo err >&2; exit 3')
        relay.shutdown()
        relay.server_close()
        expect_equal(f'the exit status ({result.stderr})', result.returncode, 3)
        expect_equal('the output', result.stdout.split(), [str(number) for number in range(1, 100001)])
        expect('err\n' in result.stderr, result.stderr)


def CtrlCCancelsARunThere(start):
    command = 'trap "exit 0" TERM; echo new > new; echo ready; while :; do sleep 0.1; done'
    with start() as service:
        for number in (signal.SIGINT, signal.SIGHUP):
            process = subprocess.Popen(
                [service.escrow_binary, '--host', f'unix://{service.socket}', 'run', '--', 'sh', '-c', command],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd='/',
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
            expect_equal('the first line', process.stdout.readline(), 'ready\n')
            process.send_signal(number)
            _, errors = process.communicate(timeout=300)
            expect_equal(f'exit status: {errors}', process.returncode, 128 + number)
            expect(f'was cancelled by {number.name}' in errors, errors)
        expect_equal('commits', service.git('rev-list', '--count', 'main'), '1')


def ARunThereEndsWellThoughNobodyReadsItsOutput(start):
    with start() as service:
        command = f'echo one; {until_woken(31)}; seq 100000; echo new > new'
        with subprocess.Popen(
                [service.escrow_binary, '--host', f'unix://{service.socket}', 'run', '--', 'sh', '-c', command],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd='/') as process:
            expect_equal('the first line', process.stdout.readline(), 'one\n')
            process.stdout.close()
            wake(31)
            errors = process.stderr.read()
        expect_equal(f'exit status: {errors}', process.returncode, 0)
        expect('was committed to main' in errors, errors)


def started_there(service, command):
    """A run there, once its command has said that it is ready."""
    process = subprocess.Popen(
        [service.escrow_binary, '--host', f'unix://{service.socket}', 'run', '--', 'sh', '-c', command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd='/')
    expect_equal('the first line', process.stdout.readline(), 'ready\n')
    return process


def has_connection(pid):
    return any(file.startswith('socket:') for file in open_files(pid))


def ARunThereIsWaitedForWhileTheServiceIsRestarted(start):
    with start() as service:
        for how in (signal.SIGTERM, signal.SIGKILL):
            with started_there(service, f'echo ready; {until_woken(32)}; echo done; date +%N > new') as process:
                service.stop(how)
                eventually('the command has noticed', lambda process=process: not has_connection(process.pid))
                service.start()
                wake(32)
                out, errors = process.communicate(timeout=300)
            expect_equal(f'{how.name}: {errors}', (process.returncode, out), (0, 'done\n'))
            expect('was committed to main' in errors, errors)
        expect_equal('commits', service.git('rev-list', '--count', 'main'), '3')


def ARunThereGoesOnThoughTheServiceStaysAway(start):
    with start() as service:
        with started_there(service, f'echo ready; {until_woken(35)}; date > new') as process:
            service.stop(signal.SIGKILL)
            _, errors = process.communicate(timeout=300)
        expect_equal(f'exit status: {errors}', process.returncode, 125)
        session = re.search('`escrow status ([0-9a-f]{16})`', errors).group(1)
        wake(35)
        service.start()
        eventually('it is committed', lambda: service.state(session) == 'committed')
        expect('committed' in there(service, 'status', session).stdout, 'it is not committed')


def AMountThereIsASessionOfTheService(start):
    with start() as service:
        point = f'{service.mounts}/there'
        session = there(service, 'mount', point, '--read-only').stdout.strip()
        expect_equal('a file', read(f'{point}/a.txt'), service.git('show', 'main:a.txt') + '\n')
        expect_equal('where', service.get(f'/v1/sessions/{session}').json['mountpoint'], point)
        there(service, 'unmount', point)
        expect_equal('again', there(service, 'mount', point, '--session', session[:8]).stdout.strip(), session)
        there(service, 'rollback', session)
        refused = there(service, 'mount', '/nowhere/else', expect_status=1)
        expect('mount_roots' in refused.stderr or 'allowed' in refused.stderr, refused.stderr)


def WhatIsRefusedIsRefusedAlike(start):
    with start() as service:
        session = service.open()['session']
        for arguments, status in ((('status', 'ffff'), 1), (('status', 'xyz'), 1), (('commit', '0123456789abcdef'), 1),
                                  (('log', '--branch', 'nope'), 1), (('log', '../x'), 2)):
            for ask in (there, here):
                ask(service, *arguments, expect_status=status)
        there(service, 'run', expect_status=125)
        for host, status in (('unix:///nowhere/x.sock', 125), ('unix://relative', 2), ('ftp://x', 2), ('x', 2),
                             ('http://example.org:80', 2), ('https://', 2), ('https://127.0.0.1:1', 125)):
            result = run(service, '--host', host, 'sessions')
            expect_equal(f'{host}: {result.stderr}', result.returncode, status)
            expect(host in result.stderr, result.stderr)
        result = run(service, '--host', f'unix://{service.socket}', '--repo', '/a/path', 'sessions')
        expect_equal(f'a path: {result.stderr}', result.returncode, 2)
        result = run(service, 'sessions', ESCROW_HOST=f'unix://{service.socket}', ESCROW_REPO='data')
        expect_equal(f'from the environment: {result.stderr}', result.returncode, 0)
        expect(session in result.stdout, result.stdout)


def OverTlsTheTokenIsWhoAsks(start):
    with Remote(start) as remote:
        service = remote.service
        host, trusted = f'https://127.0.0.1:{remote.port}', f'{service.directory}/cert.pem'
        theirs = service.open()['session']
        mine = remote.ask('POST', '/v1/sessions', {'repository': 'data'}).expect(201)['session']
        listed = run(service, '--host', host, 'sessions', ESCROW_TOKEN=remote.token, SSL_CERT_FILE=trusted)
        expect_equal(f'sessions: {listed.stderr}', listed.returncode, 0)
        expect(mine in listed.stdout and theirs not in listed.stdout and AGENT in listed.stdout, listed.stdout)
        wrong = run(service, '--host', host, 'sessions', ESCROW_TOKEN='wrong', SSL_CERT_FILE=trusted)
        expect_equal(f'a wrong token: {wrong.stderr}', wrong.returncode, 1)
        stranger = run(service, '--host', host, 'sessions', ESCROW_TOKEN=remote.token)
        expect_equal(f'a certificate that nobody trusts: {stranger.stderr}', stranger.returncode, 125)
        name = run(service, '--host', f'https://localhost:{remote.port}', 'sessions', ESCROW_TOKEN=remote.token,
                   SSL_CERT_FILE=trusted)
        expect_equal(f'another name than the certificate has: {name.stderr}', name.returncode, 125)


if __name__ == '__main__':
    main(globals())
