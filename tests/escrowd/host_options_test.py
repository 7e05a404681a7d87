#!/usr/bin/env python3
"""The options of escrow run, mount and init with --host mean the same as here, and give nobody what is not theirs."""
import collections
import json
import os
import re
import subprocess

from host_test import ENVIRONMENT, here, run, there
from service import NOBODY, NOBODY_NAME, as_user, expect, expect_equal, main, read, write

ALLOW_ALL_BUT = '{{"default": "allow", "rules": [{{"effect": "deny", "actions": {}, "paths": {}}}]}}'
NAMES_OF_IDS = r'\b[0-9a-f]{12,40}\b'


def policy(service, name, actions, paths):
    path = f'{service.directory}/{name}'
    write(path, ALLOW_ALL_BUT.format(json.dumps(actions), json.dumps(paths)))
    return path


def said(result):
    """What a run says, without what no two runs have in common."""
    lines = [line for line in result.stderr.split('\n') if not line.startswith('escrow: warning:')]
    text = re.sub(r'"time":"[^"]*"', '"time":"T"', '\n'.join(lines))
    return result.returncode, result.stdout, re.sub(NAMES_OF_IDS, 'ID', text)


def both(service, *arguments):
    """The run there and here, which say the same."""
    results = [run(service, *where, *arguments)
               for where in (('--host', f'unix://{service.socket}'), ('--repo', service.repository))]
    expect_equal(f'escrow {arguments}', said(results[0]), said(results[1]))
    return results[0]


def sessions(service):
    return [one['session'] for one in service.get('/v1/sessions').json['sessions'] if one['source'] != 'import']


def session_of(result):
    return re.search('session ([0-9a-f]{16})', result.stderr).group(1)


def WhatARunThereLeavesOutOrKeepsIsAsHere(start):
    odd = os.fsdecode(b'odd-\xff.tmp')
    with start() as service:
        ended = both(service, 'run', '--exclude', '*.log', '--exclude', odd, '--exclude', 'build/', '--', 'sh', '-c',
                     'echo 1 > "$1"; echo 1 > a.log; mkdir build empty; echo 1 > build/x; date > kept-$ESCROW_SESSION',
                     'sh', odd)
        for left_out in ('left out of the commit: 3 excluded', '1 empty directory'):
            expect(left_out in ended.stderr, ended.stderr)
        files = re.sub('kept-.*', 'kept', service.git('ls-tree', '--name-only', 'main'))
        expect_equal('the files', files, 'a.txt\ndir\nkept\nkept')
        for words in (('exit 3',), ('kill -KILL $$',)):
            ended = both(service, 'run', '--keep-on-failure', '--', 'sh', '-c', f'echo new > failed; {words[0]}')
            kept = service.git('show', f'refs/sessions/{session_of(ended)}:failed')
            expect_equal('what was kept', kept, 'new')
        ended = both(service, 'run', '--', 'sh', '-c', 'echo new > failed; exit 3')
        expect_equal('nothing is kept', service.git('for-each-ref', f'refs/sessions/{session_of(ended)}'), '')
        documents = []
        for ask in (there, here):
            result = f'{service.directory}/result.json'
            ask(service, 'run', '--exclude', '*.log', '--result', result, '--', 'sh', '-c', 'mkfifo p; echo x > y.log')
            with open(result, encoding='utf-8') as file:
                documents.append({name: value for name, value in json.load(file).items()
                                  if name in ('state', 'reason', 'counts', 'omitted', 'excluded', 'exit_code')})
        expect_equal('the result', *documents)
        expect('y.log' in json.dumps(documents[0]), documents[0])


def OfVeryMuchThatIsLeftOutThereSomeIsNamed(start):
    with start(max_output_bytes=1000) as service:
        ended = there(service, 'run', '--', 'sh', '-c', 'for i in $(seq 100); do mkdir empty-$i; done')
        named, more = (int(re.search(text, ended.stderr).group(1)) for text in
                       (r'left out of the commit: (\d+) empty', r'(\d+) more things were left out'))
        expect_equal('all of them', named + more, 100)
        expect(10 < named < 30, f'{named} are named')


def denied(trace):
    """What a trace tells: into how many lines, and in which order, depends on when they were written."""
    calls = collections.Counter()
    for line in trace.splitlines():
        if line.startswith('{'):
            told = json.loads(line)
            call = (told['operation'], told['action'], told['path'], told.get('path_base64'), told['rule'])
            calls[call] += told['count']
    return calls


def WhatARunThereIsDeniedIsTracedHere(start):
    with start(max_output_bytes=5000) as service:
        policies = ('--policy', policy(service, 'one.json', ['create', 'write'], ['x*']),
                    '--policy', policy(service, 'two.json', ['read', 'write'], ['a.txt', os.fsdecode(b'caf\xc3\xa9')]))
        script = ('for i in x1 x2 x1; do echo > $i; done 2>&-; cat a.txt 2>&-; '
                  '(echo > "$(printf "x\\377\\n")") 2>&-; exit 3')
        traces = [denied(ask(service, 'run', *policies, '--trace', '-', '--', 'bash', '-c', script,
                             expect_status=3).stderr) for ask in (there, here)]
        expect_equal('the trace on stderr', *traces)
        expect(any('policy 2, rule 1' in call[4] for call in traces[0]), traces[0])
        expect(any(call[3] for call in traces[0]), traces[0])
        traces = []
        for ask in (there, here):
            trace = f'{service.directory}/trace-{len(traces)}'
            session = session_of(ask(service, 'run', *policies, '--trace', trace, '--', 'bash', '-c', script,
                                     expect_status=3))
            text = read(trace).replace(session, 'ID')
            expect_equal('the mode of the trace', os.stat(trace).st_mode & 0o777, 0o600)
            expect('"session":"ID"' in text and '"time":"' in text, text)
            traces.append(denied(text))
        expect_equal('the trace', *traces)
        expect(len(traces[0]) >= 4, traces[0])
        both(service, 'run', '--trace', '/nowhere/trace', '--', 'true')
        both(service, 'run', '--policy', '/nowhere/policy', '--', 'true')
        # It is bounded as the output is: whole lines.
        trace = f'{service.directory}/long'
        there(service, 'run', *policies, '--trace', trace, '--', 'sh', '-c', 'for i in $(seq 200); do echo > x$i; done',
              expect_status=2 if os.path.realpath('/bin/sh').endswith('dash') else 1)
        size = os.stat(trace).st_size
        expect(0 < size <= 5000 and all(json.loads(line) for line in read(trace).splitlines()), f'{size} bytes')


def HowARunThereIsMountedAndWhoseItIsIsAsHere(start):
    with start() as service:
        both(service, 'run', '--uid', '1', '--gid', '2', '--', 'sh', '-c', 'id -u; id -g; stat -c %u:%g . a.txt')
        both(service, 'run', '--uid', '1', '--', 'sh', '-c', 'id -u; id -g')
        show = 'ln -s /etc/hostname l; readlink l; cat l > /dev/null; echo $?'
        for words in (('--symlinks', 'any'), ('--symlinks', 'contained'), ('--symlinks', 'contained', '--confine'),
                      ('--symlinks', 'any', '--confine')):
            both(service, 'run', *words, '--', 'sh', '-c', f'({show}) 2>&-; exit 4')
        for words in (('--xattr', 'user'), ('--xattr', 'off'), ('--io-uring', 'off'), ('--opens', 'daemon'),
                      ('--io', 'cached'), ('--read-only',)):
            both(service, 'run', *words, '--', 'python3', '-c',
                 'import os\nopen("y", "w").close()\nos.setxattr("y", "user.a", b"1")\n'
                 'print(os.getxattr("y", "user.a"))\nexit(5)')
        for words in (('--opens', 'none', '--io', 'passthrough'), ('--exclude', ''), ('--exclude', '/')):
            results = [run(service, *where, 'run', *words, '--', 'touch', 'new').returncode
                       for where in (('--host', f'unix://{service.socket}'), ('--repo', service.repository))]
            expect_equal(f'{words}', results, [125, 125])


def options_of_mount(point):
    with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as table:
        return [set(line.split()[3].split(',')) for line in table if line.split()[1] == point]


def TheOptionsOfAMountThereMeanTheSame(start):
    with start() as service:
        one, two = policy(service, 'one.json', ['create'], ['x*']), policy(service, 'two.json', ['read'], ['a.txt'])
        seen = []
        for ask, point in ((there, f'{service.mounts}/there'), (here, f'{service.directory}/here')):
            if ask is here:
                os.mkdir(point)
            words = ('--exclude', '*.log', '--symlinks', 'any', '--policy', one, '--xattr', 'user', '--allow-other',
                     '-o', f'noexec,noatime,atime,policy={two},uid=1,io_uring=off')
            session = ask(service, 'mount', point, *words).stdout.strip()
            os.symlink('/etc/hostname', f'{point}/l')
            write(f'{point}/new', '')
            write(f'{point}/new.log', '')
            os.setxattr(f'{point}/new', 'user.a', b'1')
            refusals = []
            for attempt in (lambda: write(f'{point}/x', ''), lambda: read(f'{point}/a.txt')):  # pylint: disable=W0640
                try:
                    attempt()
                except PermissionError as problem:
                    refusals.append(problem.errno)
            flags = options_of_mount(point)[0]
            expect({'noexec', 'noatime', 'allow_other'} <= flags, f'{flags}')
            shown = (os.readlink(f'{point}/l'), os.stat(f'{point}/dir').st_uid, os.getxattr(f'{point}/new', 'user.a'))
            if ask is there:
                service.stop()
                service.start()
                expect({'noexec', 'noatime', 'nosuid', 'nodev'} <= options_of_mount(point)[0], 'lost by a restart')
                expect_equal('after a restart', os.getxattr(f'{point}/new', 'user.a'), b'1')
            ask(service, 'unmount', session)
            ask(service, 'mount', point, '--session', session, '-o', 'nodiratime')
            again = options_of_mount(point)[0]
            expect('nodiratime' in again and 'noexec' not in again, f'{again}')
            committed = re.sub(NAMES_OF_IDS, 'ID', ask(service, 'commit', session).stdout)
            seen.append((refusals, shown, committed))
            service.git('update-ref', 'refs/heads/main', service.git('rev-list', '--max-parents=0', 'main'))
        expect_equal('what there is', seen[0], seen[1])
        expect_equal('the refusals', seen[0][0], [13, 13])


def as_nobody(service, *arguments):
    """Like there(), by the user nobody: exit status, standard output and error."""
    def ask():
        result = subprocess.run([service.escrow_binary, '--host', f'unix://{service.socket}', *arguments],
                                capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
                                env=ENVIRONMENT, cwd='/')
        return result.returncode, result.stdout, result.stderr
    return as_user(NOBODY, ask)


def APeerGainsNothingByAnOption(start):
    with start() as service:
        for words, field in ((('--symlinks', 'any'), 'operators'), (('--xattr', 'user'), 'operators'),
                             (('--uid', '0'), 'operator'), (('--gid', '0'), 'operator'), (('--uid', '1'), 'operator'),
                             (('--committer', 'user:root'), 'committer'), (('--committer', 'user:root'), 'grant')):
            for command in (('run', '--confine', *words, '--', 'true'), ('mount', f'{service.mounts}/m', *words)):
                status, out, errors = as_nobody(service, *command)
                expect_equal(f'{command}: {out}{errors}', status, 125 if command[0] == 'run' else 1)
                expect(field in errors or 'grant' in errors, errors)
        for option, status in (('suid', 2), ('dev', 2), ('symlinks=any', 1), ('xattr=user', 1), ('uid=0', 1)):
            _, out, errors = as_nobody(service, 'mount', f'{service.mounts}/m', '-o', option)
            result = as_nobody(service, 'mount', f'{service.mounts}/m', '-o', option)
            expect_equal(f'{option}: {out}{errors}', result[0], status)
        expect_equal('the sessions', sessions(service), [])
        # Also a session of their own is not mounted so afterwards.
        point = f'{service.mounts}/m'
        status, session, errors = as_nobody(service, 'mount', point, '-o', 'noexec,allow_other,noatime', '--exclude',
                                            '*.log', '--symlinks', 'contained', '--umask', '077')
        expect_equal(f'a mount: {errors}', status, 0)
        session = session.strip()
        expect({'nosuid', 'nodev', 'noexec'} <= options_of_mount(point)[0], f'{options_of_mount(point)}')
        expect_equal('whose it is', os.stat(f'{point}/dir').st_uid, NOBODY)
        expect_equal('unmount', as_nobody(service, 'unmount', session)[0], 0)
        for option in ('suid', 'xattr=user'):
            expect(as_nobody(service, 'mount', point, '--session', session, '-o', option)[0] in (1, 2), option)
        expect(not service.is_mounted(point), 'it is mounted')
        # And one whose links lead anywhere, which was opened elsewhere, is not mounted for them.
        os.mkdir(f'{service.directory}/elsewhere')
        links = here(service, 'mount', f'{service.directory}/elsewhere', '--issuer', NOBODY_NAME, '--symlinks', 'any')
        links = links.stdout.strip()
        here(service, 'unmount', links)
        status, _, errors = as_nobody(service, 'mount', point, '--session', links)
        expect('links' in errors and status == 1 and not service.is_mounted(point), errors)


def APeersOptionsWork(start):
    with start() as service:
        denied = policy(service, 'p.json', ['create'], ['x*'])
        other = policy(service, 'q.json', ['create'], ['y*'])
        home = f'{service.directory}/nobody'
        os.mkdir(home)
        os.chown(home, NOBODY, NOBODY)
        status, out, errors = as_nobody(
            service, 'run', '--confine', '--exclude', '*.log', '--policy', denied, '--policy', other, '--trace',
            f'{home}/trace', '--symlinks', 'contained', '--io-uring', 'off', '--uid', str(NOBODY), '--gid', str(NOBODY),
            '--keep-on-failure', '--', 'sh', '-c',
            'id -u; echo > a.log; (echo > x; echo > y) 2>&-; echo 1 > kept; exit 9')
        expect_equal(f'the run: {errors}', (status, out), (9, f'{NOBODY}\n'))
        session = session_of(subprocess.CompletedProcess((), 0, stderr=errors))
        expect_equal('what was kept', service.git('ls-tree', '--name-only', f'refs/sessions/{session}'),
                     'a.txt\ndir\nkept')
        paths = [json.loads(line)['path'] for line in read(f'{home}/trace').splitlines()]
        expect_equal('the trace', sorted(paths), ['x', 'y'])
        expect_equal('whose the trace is', os.stat(f'{home}/trace').st_uid, NOBODY)
        record = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('who', (record['issuer'], record['uid']), (NOBODY_NAME, NOBODY))


def WhatAServiceCannotHaveIsRefusedWithTheReason(start):
    with start() as service:
        point = f'{service.mounts}/m'
        for words, reason in (
                (('run', '--issuer', 'user:x', '--', 'true'), '--issuer: the issuer is who asks'),
                (('run', '--image', 'debian:12', '--', 'true'), '--image: a service starts no containers'),
                (('run', '--runtime', 'podman', '--', 'true'), '--runtime requires --image'),
                (('run', '--pull', 'never', '--', 'true'), '--pull requires --image'),
                (('run', '--runtime-arg=--rm', '--', 'true'), '--runtime-arg requires --image'),
                (('mount', point, '--issuer', 'user:x'), '--issuer: the issuer is who asks'),
                (('mount', point, '-o', 'issuer=user:x'), '--issuer: the issuer is who asks'),
                (('mount', point, '--foreground'), '--foreground: the service has the mount'),
                (('mount', point, '--trace', '/tmp/x'), '--trace: the service has the mount'),
                (('mount', point, '-o', 'trace=/tmp/x'), '--trace: the service has the mount'),
                (('mount', point, '-o', 'nonsense'), "unknown mount option 'nonsense'")):
            refused = there(service, *words, expect_status=125 if words[0] == 'run' else 2)
            expect(reason in refused.stderr, refused.stderr)
            expect_equal('one sentence', refused.stderr.count('\n'), 1)
        expect_equal('the sessions', sessions(service), [])


def InitThereIsInitHere(start):
    with start() as service:
        def init(ask, name, *words, status=0):
            where = (('--host', f'unix://{service.socket}', '--repo', name) if ask is there
                     else ('--repo', f'{service.repositories}/{name}.git'))
            result = run(service, *where, 'init', *words)
            expect_equal(f'{name} {words}: {result.stderr}', result.returncode, status)
            return result.stdout.replace(name, 'NAME')
        for words in (((), ()), (('--branch', 'trunk'), ('--json',)), (('--json',), ())):
            made = []
            number = f'{len(words[0])}{len(words[1])}'
            for ask, name in ((there, f'one{number}'), (here, f'two{number}')):
                made.append((init(ask, name, *words[0]), init(ask, name, *words[1])))
                head = read(f'{service.repositories}/{name}.git/HEAD').strip()
                expect_equal('the branch', head, f'ref: refs/heads/{"trunk" if "--branch" in words[0] else "main"}')
            expect_equal(f'init {words}', made[0], made[1])
        for ask in (there, here):
            init(ask, f'bad{ask.__name__}', '--branch', 'a..b', status=2)
            expect(not os.path.exists(f'{service.repositories}/bad{ask.__name__}.git'), 'a directory is left')
        # It is registered: a run works in it, and one that was made here is adopted there.
        there(service, '--repo', 'one00', 'run', '--', 'touch', 'new')
        expect('ready for sessions' in init(there, 'two00'), 'it is not adopted')
        there(service, '--repo', 'two00', 'run', '--', 'touch', 'new')
        expect('ready for sessions' in there(service, '--repo', 'data', 'init').stdout, 'the registered one')
        for words, status in ((('init',), 2), (('--repo', '/a/path', 'init'), 2), (('--repo', '.x', 'init'), 2),
                              (('--repo', 'a b', 'init'), 2)):
            there(service, *words, expect_status=status)
        os.symlink('/etc', f'{service.repositories}/link.git')
        there(service, '--repo', 'link', 'init', expect_status=1)
        status, _, errors = as_nobody(service, '--repo', 'mine', 'init')
        expect_equal(f'nobody: {errors}', status, 1)
        expect('only operators' in errors and not os.path.exists(f'{service.repositories}/mine.git'), errors)
    with start() as service:
        service.stop()
        del service.config['repository_roots']
        service.write_config()
        service.start()
        refused = there(service, '--repo', 'new', 'init', expect_status=1)
        expect('repository_roots' in refused.stderr, refused.stderr)


if __name__ == '__main__':
    main(globals())
