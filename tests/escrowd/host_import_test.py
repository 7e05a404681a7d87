#!/usr/bin/env python3
"""escrow --host import: a directory here becomes a commit there, as it would here."""
import json
import os
import re
import signal
import subprocess

from host_test import ENVIRONMENT, here, run, there
from imports_test import commit_of_others, held, is_unchanged, make_odd_directory, omitted
from remote_test import AGENT, Remote
from service import eventually, expect, expect_equal, main, write


def said(result):
    """What was printed, without what no two imports have in common; the order is that of the directory."""
    return result.returncode, re.sub(r'\b([0-9a-f]{40}|[0-9a-f]{16})\b', 'ID', result.stdout + result.stderr)


def same(service, *arguments, branches=('there', 'here')):
    """The import says and makes the same both ways, each on a branch of its own."""
    both = [run(service, *where, 'import', *arguments, '--branch', branch)
            for where, branch in ((('--host', f'unix://{service.socket}'), branches[0]),
                                  (('--repo', service.repository), branches[1]))]
    remote, local = (said(result) for result in both)
    expect_equal(f'escrow import {arguments}', (remote[0], remote[1].replace(branches[0], branches[1])), local)
    return both[0]


def AnImportThereIsAnImportHere(start):
    with start() as service:
        source = f'{service.directory}/odd'
        make_odd_directory(source)
        options = ('--image', 'img:1', '--trigger', 'ci', '--trigger-id', '7')
        expect('fifo' in same(service, source, *options).stdout, 'what is left out is not named')
        trees = [service.git('rev-parse', f'{branch}^{{tree}}') for branch in ('there', 'here')]
        expect_equal('the tree', *trees)
        bodies = [re.sub('(Session: ).*', r'\1', service.git('log', '-1', '--format=%B', branch))
                  for branch in ('there', 'here')]
        expect_equal('the message and its audit record', *bodies)
        expect('Import odd' in bodies[0] and 'Escrow-Trigger-Id: 7' in bodies[0], bodies[0])
        expect('Imported nothing' in same(service, source).stdout, 'it is imported again')
        write(f'{source}/plain.txt', 'changed\n')
        os.remove(f'{source}/run.sh')
        both = [json.loads(ask(service, 'import', source, '--branch', branch, '--json', '-m', 'second').stdout)
                for ask, branch in ((there, 'there'), (here, 'here'))]
        expect_equal('what is left out', omitted(both[0]), omitted(both[1]))
        for name in ('state', 'counts', 'files', 'bytes', 'conflicts', 'result'):
            expect_equal(name, both[0][name], both[1][name])
        expect_equal('the commit', both[0]['commit'], service.git('rev-parse', 'there'))
        same(service, source, '--path-prefix', os.fsdecode(b'below/\xff/it'))
        expect_equal('the tree', *(service.git('rev-parse', f'{branch}^{{tree}}') for branch in ('there', 'here')))
        # Without a branch it is the repository's own, and of one repository its name need not be given.
        empty = f'{service.directory}/empty'
        os.mkdir(empty)
        expect('on main' in there(service, 'import', empty).stdout, 'where is not said')
        expect_equal('the files', service.git('ls-tree', '--name-only', 'main'), '')


def AnImportThereIsRefusedAsHere(start):
    with start(max_content_bytes=5_000_000) as service:
        source, head = f'{service.directory}/in', service.git('rev-parse', 'main')
        for arguments, status in (((f'{service.directory}/none',), 2), ((f'{source}/a.txt',), 2),
                                  ((source, '--path-prefix', 'a.txt'), 1), ((source, '--path-prefix', '..'), 2),
                                  ((source, '--committer', 'somebody'), 2), ((source, '--approval-expires', 'x'), 2),
                                  ((source, '--branch', 'a..b'), 2), ((), 2)):
            for ask in (there, here):
                ask(service, 'import', *arguments, expect_status=status)
            is_unchanged(service, head, arguments)
        refused = there(service, 'import', source, '--issuer', 'user:x', expect_status=2).stderr
        expect('with --host there is no --issuer' in refused, refused)
        # An answer that comes before everything was sent is the answer.
        with open(f'{source}/large', 'wb') as file:
            file.truncate(1 << 40)  # sending it would take hours
        refused = there(service, 'import', source, expect_status=2).stderr
        expect('larger than 5000000 bytes' in refused, refused)
        os.remove(f'{source}/large')
        is_unchanged(service, head, 'too large')
        service.git('config', 'escrow.guarded.requireApproval', 'true')
        waits = same(service, source, '--require-approval', branches=('wait-there', 'wait-here'))
        expect_equal('an approval', waits.returncode, 123)
        expect_equal('a guarded branch', there(service, 'import', source, '--branch', 'guarded', '--json',
                                               expect_status=123).stdout.count('awaiting_approval'), 1)
        elsewhere = run(service, '--host', f'unix://{service.socket}', '--repo', 'none', 'import', source)
        expect_equal(f'another repository: {elsewhere.stderr}', elsewhere.returncode, 125)


def AConflictThereIsAConflictHere(start):
    with start() as service:
        source = f'{service.directory}/in'
        with open(f'{source}/a.txt', 'wb') as file:
            file.truncate(1 << 20)
        ended = []
        for where in (('--host', f'unix://{service.socket}'), ('--repo', service.repository)):
            def of_imports(**wanted):
                return [one['session'] for one in service.get('/v1/sessions').json['sessions']
                        if one['source'] == 'import' and all(one[name] == value for name, value in wanted.items())]
            theirs = commit_of_others(service, 'a.txt', f'theirs {where}'.encode())
            with held(service):
                importing = subprocess.Popen(  # pylint: disable=consider-using-with
                    [service.escrow_binary, *where, 'import', source, '--json'], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd='/')
                eventually('it has begun', lambda: of_imports(state='open'))
                service.git('update-ref', 'refs/heads/main', theirs)
            out, errors = importing.communicate(timeout=300)
            expect_equal(f'exit status: {errors}', importing.returncode, 122)
            document = json.loads(out)
            expect_equal('its session', [document.pop('session')], of_imports(state='commit_failed')[-1:])
            ended.append(document)
        expect_equal('a conflict', *ended)
        expect_equal('the paths', [one['path'] for one in ended[0]['conflicts']], ['a.txt'])


def AnImportOverTlsIsItsTokens(start):
    with Remote(start) as remote:
        service = remote.service
        source = f'{service.directory}/odd'
        make_odd_directory(source)
        where = ('--host', f'https://127.0.0.1:{remote.port}', 'import', source)
        trusted = {'SSL_CERT_FILE': f'{service.directory}/cert.pem'}
        made = run(service, *where, '--branch', 'there', '--json', ESCROW_TOKEN=remote.token, **trusted)
        expect_equal(f'an import: {made.stderr}', made.returncode, 0)
        service.escrow('import', source, '--branch', 'here')
        expect_equal('the tree', *(service.git('rev-parse', f'{branch}^{{tree}}') for branch in ('there', 'here')))
        expect(f'Escrow-Issuer: {AGENT}' in service.git('log', '-1', '--format=%b', 'there'), 'who it is by')
        # A stranger is told so, however much there is to send.
        with open(f'{source}/large', 'wb') as file:
            file.truncate(300_000_000)
        wrong = run(service, *where, ESCROW_TOKEN='wrong', **trusted)
        expect_equal('a wrong token', (wrong.returncode, 'token' in wrong.stderr), (1, True))


def AClientThatIsKilledLeavesNothing(start):
    with start(max_content_bytes=1 << 40) as service:
        head, source = service.git('rev-parse', 'main'), f'{service.directory}/in'
        # So large that it is still being sent when the client is killed, however late that is.
        with open(f'{source}/large', 'wb') as file:
            file.truncate(1 << 34)
        def open_files():
            return [link for link in service.open_files() if '.content' in link]
        for number in (signal.SIGKILL, signal.SIGINT):
            with subprocess.Popen([service.escrow_binary, '--host', f'unix://{service.socket}', 'import', source],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
                                  cwd='/') as importing:
                eventually('it has begun', open_files)
                importing.send_signal(number)
                importing.communicate(timeout=300)
            expect_equal('the status', importing.returncode, -number)
        eventually('nothing of it is held', lambda: not open_files())
        is_unchanged(service, head, 'a client that was killed')
        # A file that cannot be read ends it as it does here.
        os.remove(f'{source}/large')
        os.makedirs(f'{source}/secret')
        os.chmod(f'{source}/secret', 0)
        for where in (('--host', f'unix://{service.socket}'), ('--repo', service.repository)):
            closed = subprocess.run(['setpriv', '--bounding-set=-all', '--inh-caps=-all', service.escrow_binary, *where,
                                     'import', source], capture_output=True, text=True, check=False, timeout=300,
                                    env=ENVIRONMENT, cwd='/')
            expect_equal(f'the status: {closed.stderr}', closed.returncode, 1)
            expect('cannot import secret: Permission denied; nothing was changed' in closed.stderr, closed.stderr)
        is_unchanged(service, head, 'a file that cannot be read')


if __name__ == '__main__':
    main(globals())
