#!/usr/bin/env python3
"""POST /v1/repositories/{repository}/imports with a "source": a directory of the machine becomes one commit, as far as
the configuration lets callers name it and they could read it themselves. Asked by root and by an unprivileged user.
"""
import ctypes
import fcntl
import grp
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time

from authorization_test import asked
from imports_test import IMPORTS, is_unchanged, make_odd_directory, omitted, send, until_it_is_imported
from remote_test import Remote, make_token
from service import NOBODY, NOBODY_NAME, eventually, expect, expect_equal, fail, main, read, write


def at_source(service, name=''):
    return f'{service.directory}/sources{name}'


def started(start, **config):
    """A service with the source root `sources`, which belongs to root and which everybody can read."""
    service = start(**config)
    os.mkdir(at_source(service))
    service.config['source_roots'] = [at_source(service)]
    service.write_config()
    return service


def imported(service, name, status=201, code=None, **fields):
    return service.post(IMPORTS, {'source': at_source(service, name), **fields}, timeout=300).expect(status, code)


def refused(service, source, status, code, what, **fields):
    """The problem that nobody gets; nothing is changed."""
    head = service.git('rev-parse', 'main')
    got, problem = asked(service, 'POST', IMPORTS, {'source': source, **fields})
    expect_equal(what, (got, problem.get('code')), (status, code))
    is_unchanged(service, head, what)
    return problem


def make_tree(path, **files):
    os.makedirs(path)
    for name, text in files.items():
        write(f'{path}/{name}', text)


def files_of(service, revision='main'):
    return service.git('ls-tree', '-r', '--name-only', revision).split('\n')


def ADirectoryBelowASourceRootIsCommittedAsItsArchive(start):
    with started(start) as service:
        make_odd_directory(at_source(service, '/odd'))
        made = imported(service, '/odd', branch='host', message='from here', committer='agent:helper', image='i:1',
                        trigger={'name': 'nightly', 'id': '7'})
        expect_equal('how it ended', (made['state'], made['source'], made['committer'], made['issuer']),
                     ('committed', 'import', 'agent:helper', 'user:root'))
        packed = subprocess.run(['tar', '-c', '-C', at_source(service, '/odd'), '.'], check=True, capture_output=True,
                                timeout=300).stdout
        sent = send(service, packed, '?branch=sent').expect(201)
        expect_equal('the trees', service.git('rev-parse', 'host^{tree}'), service.git('rev-parse', 'sent^{tree}'))
        expect_equal('what is left out', omitted(made), omitted(sent))
        log = service.git('log', '-1', '--format=%B', 'host')
        for line in ('from here', 'Escrow-Source: import', 'Escrow-Image: i:1', 'Escrow-Trigger: nightly'):
            expect(line in log, f'{line} is not in {log}')
        imported(service, '', branch='root')  # the root itself
        expect('odd/plain.txt' in files_of(service, 'root'), 'the root was not imported')
        imported(service, '/odd', path_prefix='dir', require_approval=True, approval_expires_s=60)


def OnlyWhatLiesBelowASourceRootIsImported(start):
    with start() as service:
        make_tree(at_source(service), a='a')
        problem = refused(service, at_source(service), 403, 'forbidden', 'a service without source roots')
        expect('no source_roots' in problem['detail'], problem['detail'])
    with started(start) as service:
        make_tree(at_source(service, '/data'), a='a')
        make_tree(f'{service.directory}/sources-not', a='a')
        os.symlink('data', at_source(service, '/link'))
        os.symlink('/etc', at_source(service, '/etc'))
        for source in ('/etc', '/', f'{service.directory}', f'{service.directory}/sources-not',
                       at_source(service, '/../sources-not'), at_source(service, '/data/..'), at_source(service, '/'),
                       at_source(service, '//data'), at_source(service, '/./data'), at_source(service, '/data/'),
                       at_source(service, '/link'), at_source(service, '/etc/ssl'), at_source(service, '/link/../data'),
                       service.repository, f'{service.directory}/state', '/proc/self/root/etc', '/proc/self/cwd'):
            refused(service, source, 403, 'forbidden', source)
        for source in ('data', '', '../data', 'sources/data', at_source(service, '/none'),
                       at_source(service, '/data/a'), at_source(service, '/data\0'), 7, None, ['/etc']):
            refused(service, source, 400, 'invalid_value', f'{source!r}')
        for fields, code in (({'uid': 0}, 'unknown_field'), ({'mountpoint': '/x'}, 'unknown_field'),
                             ({'trigger': {'uid': 0}}, 'unknown_field'), ({'branch': 'a..b'}, 'bad_request'),
                             ({'path_prefix': '..'}, 'invalid_value'), ({'approval_expires_s': 0}, 'invalid_value')):
            refused(service, at_source(service, '/data'), 400, code, f'{fields}', **fields)
        refused(service, at_source(service, '/data'), 403, 'forbidden', 'as somebody else', committer='user:root')
        service.post(IMPORTS + '?branch=x', {'source': at_source(service, '/data')}).expect(400, 'unknown_field')
        got, made = asked(service, 'POST', IMPORTS, {'source': at_source(service, '/data')})
        expect_equal('what is allowed', (got, made['committer'], files_of(service)), (201, NOBODY_NAME, ['a']))


def NobodyImportsWhatTheyCouldNotRead(start):
    with started(start) as service:
        secret = f'{service.directory}/secret'
        write(secret, 'secret')
        os.chmod(secret, 0o600)
        cases = {'own': 0o600, 'groups': 0o640, 'closed': 0o700}
        for name in cases:
            make_tree(at_source(service, f'/{name}/inner'), a='a')
        os.chmod(at_source(service, '/own/inner/a'), 0o600)
        os.chmod(at_source(service, '/groups/inner/a'), 0o640)
        os.chmod(at_source(service, '/closed/inner'), 0o700)
        make_tree(at_source(service, '/linked'))
        os.link(secret, at_source(service, '/linked/innocent'))
        for name, path in (('own', 'inner/a'), ('groups', 'inner/a'), ('closed', 'inner'), ('linked', 'innocent')):
            problem = refused(service, at_source(service, f'/{name}'), 403, 'forbidden', name)
            expect(path in problem['detail'] and 'nothing was changed' in problem['detail'], problem['detail'])
        refused(service, at_source(service, '/closed/inner'), 403, 'forbidden', 'a directory that is closed')
        refused(service, at_source(service, '/closed/inner/none'), 403, 'forbidden', 'what is in one')
        # May be passed through, and not be listed.
        os.chmod(at_source(service, '/own'), 0o711)
        refused(service, at_source(service, '/own'), 403, 'forbidden', 'a directory that only its owner lists')
        # As a member of the group that it belongs to, and as the owner.
        os.chown(at_source(service, '/groups/inner/a'), 0, NOBODY)
        os.chmod(at_source(service, '/own/inner/a'), 0o400)
        os.chown(at_source(service, '/own/inner/a'), NOBODY, 0)
        for name in ('/groups', '/own/inner'):
            expect_equal(name, asked(service, 'POST', IMPORTS, {'source': at_source(service, name)})[0], 201)
        # Root may read everything itself; what the service writes is its own afterwards, too.
        imported(service, '/linked')
        imported(service, '/closed')
        owners = {os.stat(os.path.join(at, name)).st_uid for at, _, names in os.walk(service.repository)
                  for name in names}
        expect_equal('whose the files of the repository are', owners, {0})


# As the kernel judges that process: what the user database says of its user is no matter.
def APeerReadsWithTheGroupsOfItsProcess(start):
    group = grp.getgrnam('daemon').gr_gid
    expect(pwd.getpwuid(NOBODY).pw_name not in grp.getgrgid(group).gr_mem, 'nobody is a member of daemon')
    with started(start) as service:
        make_tree(at_source(service, '/data'), a='a')
        os.chown(at_source(service, '/data/a'), 0, group)
        os.chmod(at_source(service, '/data/a'), 0o640)
        many = list(range(100_000, 100_300))
        for groups, status in (([NOBODY], 403), ([NOBODY, group], 201), ([], 403), ([group], 201), (many, 403),
                               (many + [group], 201)):
            got, answer = asked(service, 'POST', IMPORTS, {'source': at_source(service, '/data')}, groups=groups)
            expect_equal(f'in {len(groups)} groups up to {groups[-1:]}', (got, answer.get('code')),
                         (status, 'forbidden' if status == 403 else None))
        # The group that its files have (egid).
        os.chown(at_source(service, '/data/a'), 0, NOBODY)
        expect_equal('its first group', asked(service, 'POST', IMPORTS, {'source': at_source(service, '/data')},
                                              groups=[])[0], 201)


def AServiceThatCannotReadAsOthersSaysSoAndServesItsOwn(start):
    with started(start) as service:
        make_tree(at_source(service, '/data'), a='a')
        check = [service.escrowd_binary, '--config', service.config_path, '--check-config']
        def checked(*before):
            result = subprocess.run([*before, *check], capture_output=True, text=True, check=True, timeout=300)
            return result.stderr
        expect_equal('what is said of one that can', checked(), '')
        for capabilities in ('-setuid', '-setgid', '-setuid,-setgid'):
            without = ['setpriv', '--bounding-set', capabilities]
            said = checked(*without)
            expect('source_roots' in said and 'CAP_SETUID and CAP_SETGID' in said, f'{capabilities}: {said!r}')
            service.stop()
            service.before = without
            service.start()
            expect('CAP_SETUID and CAP_SETGID' in read(f'{service.directory}/log'), 'nothing is said at the start')
            problem = refused(service, at_source(service, '/data'), 403, 'forbidden', capabilities)
            expect(not problem['retryable'] and 'run it as root with both; or send an archive' in problem['detail'],
                   problem)
            imported(service, '/data')
            os.truncate(f'{service.directory}/log', 0)
        service.stop()
        service.config['source_roots'] = []
        service.write_config()
        expect_equal('where nothing is to be read', checked(*without), '')


def ATokenReadsAsTheUserThatItNames(start):
    groups = os.getgroups()
    account = pwd.getpwnam('daemon')
    with Remote(lambda **config: started(start, **config), tls=False) as remote:
        service = remote.service
        token, hashed = make_token(service)
        service.stop()
        service.config['tokens']['user:daemon'] = [hashed]
        service.write_config()
        service.start()
        for name, owner in (('everybodys', 0), ('daemons', account.pw_uid)):
            make_tree(at_source(service, f'/{name}'), a=name)
            os.chown(at_source(service, f'/{name}/a'), owner, 0)
        os.chmod(at_source(service, '/daemons/a'), 0o400)
        for name, of_agent, of_daemon in (('everybodys', 201, 201), ('daemons', 403, 201)):
            body = {'source': at_source(service, f'/{name}')}
            expect_equal(f'{name}, for an agent', remote.ask('POST', IMPORTS, body).status, of_agent)
            expect_equal(f'{name}, for daemon', remote.ask('POST', IMPORTS, body, token=token).status, of_daemon)
        # Each thread of the service has its own rights again.
        for task in os.listdir(f'/proc/{service.process.pid}/task'):
            try:
                with open(f'/proc/{service.process.pid}/task/{task}/status', encoding='utf-8') as file:
                    lines = dict(line.rstrip('\n').split(':\t', 1) for line in file if ':\t' in line)
            except OSError:
                continue  # it has ended
            expect_equal('the ids of a thread', (lines['Uid'].split(), lines['Gid'].split()), (['0'] * 4, ['0'] * 4))
            expect_equal('its groups', sorted(map(int, lines['Groups'].split())), sorted(groups))


def LinksSpecialFilesAndMountsLeadNowhere(start):
    with started(start) as service:
        source = at_source(service, '/data')
        make_tree(source, a='a')
        os.symlink('/etc/shadow', f'{source}/shadow')
        os.symlink(service.directory, f'{source}/up')
        os.mkfifo(f'{source}/fifo')
        os.mknod(f'{source}/zero', 0o20666, os.makedev(1, 5))
        got, made = asked(service, 'POST', IMPORTS, {'source': source})
        expect_equal('the answer', got, 201)
        expect_equal('what is left out', omitted(made), [('fifo', 'fifo'), ('zero', 'device')])
        expect_equal('the links', [service.git('cat-file', 'blob', f'main:{name}') for name in ('shadow', 'up')],
                     ['/etc/shadow', service.directory])
        for name in ('a', 'shadow', 'up'):
            expect_equal(f'the kind of {name}', service.git('ls-tree', 'main', name).split()[0],
                         '100644' if name == 'a' else '120000')
        # Another file system, a directory and a file of the same one, and a session's own mount.
        make_tree(f'{service.directory}/other', b='b')
        os.mkdir(f'{source}/inside')
        for command in (['mount', '-t', 'tmpfs', 'none', f'{source}/inside'],
                        ['mount', '--bind', f'{service.directory}/other', f'{source}/inside'],
                        ['mount', '--bind', f'{service.directory}/other/b', f'{source}/a']):
            subprocess.run(command, check=True, timeout=300)
            try:
                problem = refused(service, source, 403, 'forbidden', f'{command}')
                expect('another file system is mounted there' in problem['detail'], problem['detail'])
                if command[-1].endswith('inside'):
                    refused(service, command[-1], 403, 'forbidden', 'the mount itself')
            finally:
                subprocess.run(['umount', command[-1]], check=True, timeout=300)
        service.open_mounted('work')
        service.stop()
        service.config['source_roots'].append(service.mounts)
        service.write_config()
        service.start()
        for name in ('', '/work'):
            service.post(IMPORTS, {'source': service.mounts + name}).expect(403, 'forbidden')


def ARepositoryIsNotImportedIntoItself(start):
    with start() as service:
        service.stop()
        service.config['source_roots'] = [service.repositories]
        service.write_config()
        service.start()
        write(f'{service.repositories}/beside', 'x')
        made = service.post(IMPORTS, {'source': service.repositories}).expect(201)
        expect_equal('what is left out', omitted(made), [('data.git', 'git_name')])
        expect_equal('the files', files_of(service), ['beside'])


def exchange(one, other):
    """renameat2(2) with RENAME_EXCHANGE."""
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, one.encode(), -100, other.encode(), 2) != 0:
        fail(f'renameat2: {os.strerror(ctypes.get_errno())}')


def ARaceLeadsNowhereElse(start):
    with started(start) as service:
        make_tree(f'{service.directory}/outside/deep', b='outside', c='outside')
        make_tree(at_source(service, '/data/dir/deep'), b='inside', c='inside')
        os.symlink(f'{service.directory}/outside', at_source(service, '/data/swap'))
        os.symlink(f'{service.directory}/outside', at_source(service, '/swap'))
        is_over = threading.Event()
        def swap():
            while not is_over.is_set():
                exchange(at_source(service, '/data/dir'), at_source(service, '/data/swap'))
                exchange(at_source(service, '/data/dir/deep'), at_source(service, '/swap'))
                exchange(at_source(service, '/data/dir/deep'), at_source(service, '/swap'))
                exchange(at_source(service, '/data/dir'), at_source(service, '/data/swap'))
        swapping = threading.Thread(target=swap)
        swapping.start()
        seen = {}
        try:
            for number in range(60):
                source = at_source(service, ('/data', '/data/dir', '/data/dir/deep')[number % 3])
                answer = service.post(IMPORTS, {'source': source, 'branch': f'b{number}'})
                seen[answer.status] = seen.get(answer.status, 0) + 1
                if answer.status != 201:
                    expect(answer.json['code'] in ('busy', 'forbidden', 'invalid_value'), answer.json)
        finally:
            is_over.set()
            swapping.join()
        print(f'the answers: {seen}')
        expect(seen.get(201, 0) > 0, 'no import succeeded')
        contents = service.git('rev-list', '--objects', '--all').split('\n')
        blob = subprocess.run(['git', 'hash-object', '--stdin'], input=b'outside', check=True, capture_output=True,
                              timeout=300).stdout.decode().strip()
        expect(not any(line.startswith(blob) for line in contents), 'something from outside was imported')


def hold_lease(path):
    """Until the pipe is closed, nobody opens the file without a word with its owner (fcntl(2))."""
    reader, writer = os.pipe()
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(writer)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
            os.write(say, b'x')
            os.read(reader, 1)
        finally:
            os._exit(0)
    os.close(reader)
    os.read(said, 1)
    return child, writer


def has_lease(pid):
    with open('/proc/locks', encoding='ascii') as locks:
        return any(' LEASE ' in line and line.split()[4] == str(pid) for line in locks)


def until_it_reads(service):
    def bytes_read():
        return int(read(f'/proc/{service.process.pid}/io').split()[1])
    before = bytes_read()
    eventually('it reads', lambda: bytes_read() > before + (64 << 20))


def FilesThatChangeMeanwhileAreSaidAndHoldNobodyUp(start):
    with started(start, max_content_bytes=1 << 40) as service:
        make_tree(at_source(service, '/leased'), a='a')
        os.chown(at_source(service, '/leased/a'), NOBODY, NOBODY)
        child, writer = hold_lease(at_source(service, '/leased/a'))
        refused(service, at_source(service, '/leased'), 409, 'busy', 'a file with a lease')
        # open(2) without O_NONBLOCK waits until the holder gives the lease up, or loses it after 45 s.
        expect(has_lease(child), 'the lease held the import up')
        os.close(writer)
        os.waitpid(child, 0)
        make_tree(at_source(service, '/large'))
        path = at_source(service, '/large/a')
        with open(path, 'wb') as file:
            file.truncate(200_000 << 20)  # it is still being read when it becomes shorter
        head, answers = service.git('rev-parse', 'main'), []
        importing = threading.Thread(target=lambda: answers.append(
            service.post(IMPORTS, {'source': at_source(service, '/large')}, timeout=300)))
        importing.start()
        until_it_reads(service)
        os.truncate(path, 10)
        importing.join()
        problem = answers[0].expect(409, 'busy')
        expect('became shorter' in problem['detail'], problem['detail'])
        is_unchanged(service, head, 'a file that became shorter')
        imported(service, '/large')


def ADirectoryThatIsTooLargeOrTooDeepIsRefused(start):
    with started(start, max_content_bytes=3_000_000) as service:
        head = service.git('rev-parse', 'main')
        make_tree(at_source(service, '/large'), a='x' * 1_000_000)
        with open(at_source(service, '/large/sparse'), 'wb') as file:
            file.truncate(2_000_001)
        problem = imported(service, '/large', 413, 'body_too_large')
        expect('max_content_bytes' in problem['detail'], problem['detail'])
        os.truncate(at_source(service, '/large/sparse'), 2_000_000)
        deep = os.open(at_source(service), os.O_RDONLY)
        for _ in range(1100):
            os.mkdir('d', dir_fd=deep)
            inner = os.open('d', os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = inner
        os.close(os.open('file', os.O_CREAT | os.O_WRONLY, dir_fd=deep))
        os.close(deep)
        problem = imported(service, '/d', 409, 'wrong_state')
        expect('1024 deep' in problem['detail'], problem['detail'])
        is_unchanged(service, head, 'too much')
        imported(service, '/large')
        subprocess.run(['rm', '-rf', at_source(service, '/d')], check=True, timeout=300)


# Names that an answer has to tell cost memory: a few links to one fifo, deep down, would have very long ones.
def MoreLeftOutThanAnAnswerCanNameIsRefused(start):
    with started(start) as service:
        deep = at_source(service, '/many') + f'/{"d" * 250}' * 14
        os.makedirs(deep)
        os.mkfifo(f'{deep}/fifo')
        for number in range(5000):
            os.link(f'{deep}/fifo', f'{deep}/{number:0200}')
        problem = refused(service, at_source(service, '/many'), 400, 'bad_request', 'links to a fifo')
        expect('than an answer can name' in problem['detail'], problem)
        shutil.rmtree(at_source(service, '/many'))
        directory = os.open(at_source(service), os.O_RDONLY)
        for _ in range(20):
            os.mkdir('d' * 250, dir_fd=directory)
            below = os.open('d' * 250, os.O_RDONLY, dir_fd=directory)
            os.close(directory)
            directory = below
        os.close(directory)
        problem = refused(service, at_source(service), 400, 'bad_request', 'a path of 5,000 bytes')
        expect('its path is too long' in problem['detail'], problem)


def ADirectoryWithAKeyIsImportedOnceAndNothingIsLeftOfAKilledOne(start):
    with started(start, max_content_bytes=1 << 40) as service:
        make_tree(at_source(service, '/data'), a='a')
        key = {'Idempotency-Key': 'k1'}
        body = {'source': at_source(service, '/data')}
        first = service.post(IMPORTS, body, headers=key).expect(201)
        shutil.rmtree(at_source(service, '/data'))
        expect_equal('the same', service.post(IMPORTS, body, headers=key).expect(201)['session'], first['session'])
        service.post(IMPORTS, {**body, 'message': 'x'}, headers=key).expect(422, 'idempotency_key_reused')
        make_tree(at_source(service, '/large'))
        with open(at_source(service, '/large/a'), 'wb') as file:
            file.truncate(200_000 << 20)  # it is still being read when the service is killed
        head = service.git('rev-parse', 'main')
        body, key = {'source': at_source(service, '/large')}, {'Idempotency-Key': 'k2', 'Prefer': 'respond-async'}
        service.post(IMPORTS, body, headers=key).expect(202)
        session = until_it_is_imported(service)
        service.process.kill()
        service.process.wait()
        service.start()
        ended = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('what became of it', (ended['state'], ended['reason']), ('rolled_back', 'host_lost'))
        is_unchanged(service, head, 'a service that was killed')
        os.truncate(at_source(service, '/large/a'), 10)
        made = service.post(IMPORTS, body, headers={'Idempotency-Key': 'k2'}, timeout=300).expect(201)
        expect_equal('the same request again', made['state'], 'committed')


if __name__ == '__main__':
    main(globals())
