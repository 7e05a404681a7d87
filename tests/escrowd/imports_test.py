#!/usr/bin/env python3
"""POST /v1/repositories/{repository}/imports: a tar archive becomes one commit, or nothing."""
import gzip
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import threading
import time

from full_disk_test import small_disk
from authorization_test import asked
from service import NOBODY_NAME, eventually, expect, expect_equal, fail, main, nightly, read, write
from table_test import Held

TAR = {'Content-Type': 'application/x-tar'}
STRANGE = b'bad\xff\n\x1bname'
IMPORTS = '/v1/repositories/data/imports'


def send(service, archive, query='', headers=None, **keywords):
    return service.post(IMPORTS + query, archive, headers={**TAR, **(headers or {})}, **keywords)


def entry(name, content=b'', **fields):
    """An entry for archive(): a tarfile.TarInfo with its content."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def archive(*entries, form=tarfile.PAX_FORMAT, **keywords):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=form, errors='surrogateescape', **keywords) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def imports_under_way(service):
    sessions = service.get('/v1/sessions?state=open').expect(200)['sessions']
    return [one['session'] for one in sessions if one['source'] == 'import']


def is_unchanged(service, head, what):
    """Nothing was committed, and nothing of a session is left."""
    expect_equal(f'{what}: the branch', service.git('rev-parse', 'main'), head)
    states = [one['state'] for one in service.get('/v1/sessions').expect(200)['sessions'] if one['source'] == 'import']
    expect(not {'open', 'committing'} & set(states), f'{what}: the sessions are {states}')
    expect_equal(f'{what}: directories of sessions', os.listdir(f'{service.repository}/escrow/sessions'), [])


def resident(service):
    for line in read(f'/proc/{service.process.pid}/status').splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1])
    return 0


def make_odd_directory(path):
    """All that a directory can have."""
    os.makedirs(f'{path}/deep/' + '/'.join(['d' * 60] * 5))
    os.makedirs(f'{path}/empty/inner')
    os.makedirs(f'{path}/nested/.git/objects')
    os.makedirs(f'{path}/only/pipe')
    for name in ('plain.txt', 'run.sh', '.gitignore', 'nested/.git/config', 'nested/file', 'é', 'deep/x'):
        write(f'{path}/{name}', f'{name}\n')
    write(f'{path}/deep/' + '/'.join(['d' * 60] * 5) + '/' + 'n' * 200, 'long\n')
    os.chmod(f'{path}/run.sh', 0o755)
    with open(os.fsencode(path) + b'/' + STRANGE, 'wb') as file:
        file.write(b'strange\n')
    os.symlink('plain.txt', f'{path}/link')
    os.symlink('/etc/../no/' + 'where/' * 40, f'{path}/away')
    os.symlink(b'to\xff', os.fsencode(path) + b'/strange-link')
    os.symlink('plain.txt', f'{path}/.gitmodules')
    os.link(f'{path}/run.sh', f'{path}/deep/linked.sh')
    os.mkfifo(f'{path}/only/pipe/fifo')
    os.mknod(f'{path}/null', 0o20666, os.makedev(1, 3))
    with open(f'{path}/sparse', 'wb') as file:
        file.truncate(20 << 20)
        file.seek(10 << 20)
        file.write(b'in the middle')


def omitted(document):
    return sorted((one.get('path_base64', one['path']), one['kind']) for one in document['omitted'])


def AnArchiveIsCommittedAsTheDirectoryItWasMadeOf(start):
    with start(run_as={}) as service:
        source = f'{service.directory}/odd'
        make_odd_directory(source)
        local = json.loads(service.escrow('import', source, '--branch', 'here', '--json'))
        tree = service.git('rev-parse', 'here^{tree}')
        for number, command in enumerate((['tar', '--format=gnu'], ['tar', '--format=pax'], ['bsdtar'],
                                          ['tar', '-S', '--format=gnu'], ['tar', '-S', '--format=pax'],
                                          ['tar', '-S', '--format=pax', '--sparse-version=0.1'],
                                          ['tar', '--format=ustar', '--exclude=deep', '--exclude=away'])):
            made = f'{service.directory}/{number}.tar'
            expect(subprocess.run([*command, '-cf', made, '-C', source, '.'], check=False, capture_output=True,
                                  timeout=300).returncode == 0 or command == ['bsdtar'], command)
            branch = f'there-{number}'
            with open(made, 'rb') as file:
                answer = send(service, file.read(), f'?branch={branch}&message=by%20{number}&image=img%3A1&trigger=ci'
                              '&trigger_id=7')
            session = answer.expect(201)
            expect_equal('where', answer.headers['location'], f'/v1/sessions/{session["session"]}')
            expect_equal('the session', (session['state'], session['source'], session['branch'], session['image'],
                                         session['trigger'], session['trigger_id']),
                         ('committed', 'import', branch, 'img:1', 'ci', '7'))
            expect_equal('the message', service.git('log', '-1', '--format=%s', branch), f'by {number}')
            expect('Escrow-Source: import' in service.git('log', '-1', '--format=%b', branch), 'the audit record')
            if '--format=ustar' in command:
                continue  # it has no way to say the long names
            expect_equal(f'the tree of {command}', service.git('rev-parse', f'{branch}^{{tree}}'), tree)
            expect_equal(f'what {command} left out', omitted(session), omitted(local))


def TheBranchBecomesExactlyTheArchive(start):
    with start() as service:
        made = send(service, archive(entry('a.txt', b'new\n'), entry('deep/er/x', b'x', mode=0o755))).expect(201)
        expect_equal('the counts', made['counts'], {'added': 1, 'modified': 1, 'deleted': 2})
        expect_equal('the files', service.git('ls-tree', '-r', '--name-only', 'main').split('\n'),
                     ['a.txt', 'deep/er/x'])
        expect('100755' in service.git('ls-tree', '-r', 'main', 'deep'), 'the executable bit')
        again = send(service, archive(entry('./deep/er/x', b'x', mode=0o711), entry('a.txt', b'new\n'))).expect(201)
        expect_equal('the same again', (again['state'], again['reason'], again['commit']),
                     ('committed', 'no_changes', None))
        send(service, archive(entry('y', b'y')), '?path_prefix=deep/er').expect(201)
        expect_equal('below the prefix', service.git('ls-tree', '-r', '--name-only', 'main').split('\n'),
                     ['a.txt', 'deep/er/y'])
        for refused in ('.git', 'a/.GIT/b', 'git~1'):
            send(service, archive(entry('config', b'y')), f'?path_prefix={refused}').expect(400, 'invalid_value')
        # Of two entries with one name the last one counts, also when it is of another kind.
        send(service, archive(entry('one', b'first'), entry('one', b'second', mode=0o755),
                              entry('two', type=tarfile.FIFOTYPE), entry('two', b'a file'),
                              entry('three', b'a file'), entry('three', type=tarfile.SYMTYPE, linkname='one'),
                              entry('four', b'4'), entry('four', type=tarfile.FIFOTYPE),
                              entry('link', type=tarfile.LNKTYPE, linkname='one'),
                              entry('link-to-link', type=tarfile.LNKTYPE, linkname='./three'),
                              entry('link-to-fifo', type=tarfile.LNKTYPE, linkname='four'))).expect(201)
        expect_equal('contents', [service.git('show', f'main:{name}') for name in ('one', 'two', 'link', 'three')],
                     ['second', 'a file', 'second', 'one'])
        modes = [line.split()[0] for line in service.git('ls-tree', 'main').split('\n')]
        expect_equal('modes', modes, ['100755', '120000', '100755', '120000', '100644'])
        # An archive with nothing in it is a directory with nothing in it.
        head = service.git('rev-parse', 'main')
        empty = send(service, archive(), '?branch=empty').expect(201)
        expect_equal('nothing on a new branch', empty['commit'], None)
        send(service, archive(entry('.', type=tarfile.DIRTYPE)), '?path_prefix=link-less').expect(201)
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        send(service, archive()).expect(201)
        expect_equal('the files', service.git('ls-tree', '-r', '--name-only', 'main'), '')


def TarAndCurlImportADirectory(start):
    with start() as service:
        source = f'{service.directory}/in'
        write(f'{source}/new.txt', 'new\n')
        command = ('tar -c . | curl --silent --show-error --fail-with-body --unix-socket "$SOCKET" -T - -X POST '
                   '-H "Content-Type: application/x-tar" "http://escrow/v1/repositories/data/imports?branch=main"')
        said = subprocess.run(['sh', '-c', command], cwd=source, env={**os.environ, 'SOCKET': service.socket},
                              capture_output=True, text=True, check=False, timeout=300)
        expect_equal(f'curl: {said.stderr} {said.stdout}', said.returncode, 0)
        expect_equal('the state', json.loads(said.stdout)['state'], 'committed')
        expect_equal('the file', service.git('show', 'main:new.txt'), 'new')


def hostile_archives():
    """What each is, and its bytes."""
    deep = '/'.join(['d'] * 1025)
    good = archive(entry('a.txt', b'x' * 100_000), entry('b.txt', b'y' * 3000))
    links = [entry('target', b't'), entry('dir/x', b'x')]
    yield 'a name that leads out', archive(entry('../evil', b'x'))
    yield 'one that leads out below', archive(entry('dir/../../evil', b'x'))
    yield 'one that would not', archive(entry('dir/../evil', b'x'))
    yield 'an absolute name', archive(entry('/etc/passwd', b'x'))
    yield 'the directory itself as a file', archive(entry('./', b'x'), entry('.', b'x', type=tarfile.REGTYPE))
    yield 'a name that is too long', archive(entry('n' * 256, b'x'))
    yield 'one nested too deeply', archive(entry(deep, b'x'))
    yield 'a file that is a directory, too', archive(entry('a', b'x'), entry('a/b', b'x'))
    yield 'a directory that is a file, too', archive(entry('a/b', b'x'), entry('a', b'x'))
    yield 'the same, said', archive(entry('a', b'x'), entry('a', type=tarfile.DIRTYPE))
    yield 'a file below a link', archive(entry('a', type=tarfile.SYMTYPE, linkname='/etc'), entry('a/passwd', b'x'))
    yield 'a file below a fifo', archive(entry('a', type=tarfile.FIFOTYPE), entry('a/b', b'x'))
    for target in ('none', '/etc/passwd', '../../etc/passwd', 'dir', '', 'self'):
        yield f'a hard link to {target!r}', archive(*links, entry('self', type=tarfile.LNKTYPE, linkname=target))
    yield 'a hard link to what is left out', archive(entry('.git/x', b'x'),
                                                      entry('y', type=tarfile.LNKTYPE, linkname='.git/x'))
    yield 'a link to nothing', archive(entry('a', type=tarfile.SYMTYPE, linkname=''))
    yield 'a link that is too long', archive(entry('a', type=tarfile.SYMTYPE, linkname='x' * 5000))
    yield 'nothing', b''
    yield 'no archive', b'{"this": "is JSON"}' * 1000
    yield 'a compressed one', gzip.compress(archive(entry('a', b'x')))
    end = good.rindex(b'y') // 512 * 512 + 512  # of what is in it
    for cut in (1, 511, 512, 1024, 20_000, 100_000, 101_376, 101_888, end - 1, end, end + 1, end + 512, end + 1023):
        yield f'one cut off after {cut} bytes', good[:cut]
    for at in (0, 130, 150, 156, 265):
        yield f'a header that is damaged at {at}', good[:at] + b'\xfe\xfe' + good[at + 2:]
    for size in (b'77777777777', b'-0000000001', b'\x80' + b'\xff' * 11, b'\xff' * 12, b'99999999999'):
        yield f'a size of {size!r}', with_size(size)
    yield 'a size of its own in a pax header', archive(entry('a', b'x', pax_headers={'size': '99999999999999'}))
    yield 'a sparse map that goes back', sparse(b'2\n5\n5\n0\n5\n', 20)
    yield 'a sparse map of nonsense', sparse(b'x\n\n-5\n', 20)
    yield 'a sparse map that never ends', sparse(b'9999999999\n', 20)
    yield 'a sparse map larger than 4 MiB', sparse(b'2000000\n' + b''.join(b'%d\n1\n' % one
                                                                          for one in range(0, 2_000_000, 2)), 2_000_000)
    for kind in (b'x', b'g', b'L', b'K'):
        yield f'nothing but headers of {kind!r}', with_size(b'%011o' % 512, kind)[:1024] * 5000
    yield 'a header larger than any', archive(entry('a', b'x', pax_headers={'comment': 'x' * (5 << 20)}))


def with_size(size, kind=b'0'):
    """An archive whose first header says another size than there is, with the right checksum."""
    block = bytearray(archive(entry('a', b'content'), form=tarfile.USTAR_FORMAT)[:512])
    block[124:136] = size.ljust(12, b'\0')
    block[156:157] = kind
    block[148:156] = b' ' * 8
    block[148:156] = b'%06o\0 ' % sum(block)
    return bytes(block) + b'content'.ljust(512, b'\0') + bytes(1024)


def sparse(numbers, real_size):
    """A file of the GNU sparse format 1.0, whose map this is."""
    return archive(entry('GNUSparseFile.0/a', numbers + bytes(-len(numbers) % 512) + b'0123456789',
                         pax_headers={'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'a',
                                      'GNU.sparse.realsize': str(real_size)}))


def AHostileArchiveChangesNothing(start):
    with start() as service:
        head = service.git('rev-parse', 'main')
        before = resident(service)
        for what, data in hostile_archives():
            answer = send(service, data)
            if answer.status not in (400, 413):
                fail(f'{what}: {answer.status} {answer.body!r}')
            problem = answer.expect(answer.status, 'bad_request' if answer.status == 400 else 'body_too_large')
            expect('nothing was changed' in problem['detail'], f'{what}: {problem["detail"]!r}')
            is_unchanged(service, head, what)
        left = [name for name in os.listdir(f'{service.directory}/state') if name.startswith('.content')]
        expect_equal('files that are left', left, [])
        expect(resident(service) - before < 150_000, f'the memory grew by {resident(service) - before} KiB')
        expect_equal('the process', service.process.poll(), None)


def OddNamesInAnArchiveAreKept(start):
    with start() as service:
        name = os.fsdecode(STRANGE)
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
            made = archive(entry(name, b'content'), entry(f'l-{name}', type=tarfile.SYMTYPE, linkname=name), form=form,
                           encoding='utf-8')
            send(service, made).expect(201)
            expect_equal('the link', subprocess.run(['git', '--git-dir', service.repository, '-c', 'safe.directory=*',
                                                     'cat-file', 'blob', b'main:l-' + STRANGE], check=True,
                                                    capture_output=True, timeout=300).stdout, STRANGE)
            send(service, archive()).expect(201)
        # Not what it seems to be: its name ends at the NUL.
        send(service, archive(entry('a', b'x', pax_headers={'path': 'b\0../c'}))).expect(201)
        expect_equal('the file', service.git('ls-tree', '--name-only', 'main'), 'b')


def AnImportNeedsWhatASessionNeeds(start):
    with start(max_content_bytes=3_000_000) as service:
        head, good = service.git('rev-parse', 'main'), archive(entry('a', b'a'))
        for query, status, code in (('?committer=x', 400, 'invalid_value'), ('?colour=1', 400, 'unknown_field'),
                                    ('?branch=a..b', 400, 'bad_request'), ('?path_prefix=..', 400, 'invalid_value'),
                                    ('?require_approval=1', 400, 'invalid_value'),
                                    ('?approval_expires_s=0', 400, 'invalid_value'),
                                    ('?branch=x&branch=y', 400, 'invalid_value'),
                                    ('?path_prefix=a.txt', 409, 'wrong_state'), ('?image=%0a', 400, 'invalid_value')):
            expect_equal(query, send(service, good, query).expect(status, code)['code'], code)
        service.post('/v1/repositories/none/imports', good, headers=TAR).expect(404, 'no_repository')
        service.post(IMPORTS, good, headers={'Content-Type': 'application/gzip'}).expect(415, 'unsupported_media_type')
        service.post(IMPORTS, b'', headers={'Content-Type': ''}).expect(415, 'unsupported_media_type')
        for target in ('/v1/sessions', '/v1/runs'):
            service.post(target, good, headers=TAR).expect(415, 'unsupported_media_type')
        is_unchanged(service, head, 'what was refused')
        large = archive(entry('large', b'x' * 3_000_000))
        send(service, large).expect(413, 'body_too_large')
        send(service, (large[at:at + 65536] for at in range(0, len(large), 65536))).expect(413, 'body_too_large')
        path = f'{service.directory}/in/sparse'
        with open(path, 'wb') as file:
            file.truncate(3_000_001)
        small = subprocess.run(['tar', '-S', '-c', '-C', f'{service.directory}/in', 'sparse'], check=True,
                               capture_output=True, timeout=300).stdout
        expect(len(small) < 100_000, 'it is not sparse')
        send(service, small).expect(413, 'body_too_large')
        is_unchanged(service, head, 'what was too large')
        # Who it is by is who asks, or whom they have a grant for.
        answer = asked(service, 'POST', IMPORTS + '?committer=user%3Aroot', good, headers=TAR)
        expect_equal('as somebody else', (answer[0], answer[1]['code']), (403, 'forbidden'))
        is_unchanged(service, head, 'as somebody else')
        answer = asked(service, 'POST', IMPORTS, good, headers=TAR)
        expect_equal('as oneself', (answer[0], answer[1]['committer'], answer[1]['issuer']),
                     (201, NOBODY_NAME, NOBODY_NAME))
        send(service, good, '?committer=agent%3Ahelper&branch=other').expect(201)
        expect('Escrow-Committer: agent:helper' in service.git('log', '-1', '--format=%b', 'other'), 'the committer')


def large_archive(megabytes):
    return archive(entry('large', os.urandom(1 << 20) * megabytes))


def sparse_archive(service):
    """As tar makes it of a file with a hole, a.txt."""
    path = f'{service.directory}/sparse'
    os.mkdir(path)
    write(f'{path}/first', 'x')
    with open(f'{path}/a.txt', 'wb') as file:
        file.truncate(1 << 20)
    return subprocess.run(['tar', '-S', '-c', '-C', path, 'first', 'a.txt'], check=True, capture_output=True,
                          timeout=300).stdout


def until_it_is_imported(service):
    def session():
        return [one['session'] for one in service.get('/v1/sessions?state=open').json['sessions']
                if one['source'] == 'import']
    eventually('the import has begun', session)
    return session()[0]


def held(service):
    """While no object comes into the repository: an import that has begun does not end."""
    return Held(service, 'gc.lock')


def commit_of_others(service, path, content):
    """On a branch of its own, one commit after that of main, which can be put there at any time."""
    service.git('branch', '--force', 'others', 'main')
    other = service.open(branch='others')['session']
    service.put(f'/v1/sessions/{other}/files/{path}', content).expect(200)
    return service.finish(other, {'exit_code': 0}).expect(200)['commit']


class Sending(threading.Thread):
    """An import that is under way."""

    def __init__(self, service, data, query='', headers=None):
        super().__init__()
        self.answer = None
        self.send = lambda: send(service, data, query, headers, timeout=300)
        self.start()

    def run(self):
        try:
            self.answer = self.send()
        except OSError:  # the service has died
            pass


def ABranchThatOthersMoveMeanwhileIsAConflict(start):
    with start() as service:
        head = commit_of_others(service, 'a.txt', b'theirs')
        with held(service):
            sending = Sending(service, sparse_archive(service), '?message=mine')
            session = until_it_is_imported(service)
            service.post(f'/v1/sessions/{session}/rollback').expect(409, 'busy')
            service.git('update-ref', 'refs/heads/main', head)
        sending.join()
        problem = sending.answer.expect(409, 'conflict')
        expect('others changed 1 of the same paths' in problem['detail'], problem['detail'])
        expect_equal('whose', problem['session'], session)
        expect('a.txt' in [one['path'] for one in problem['conflicts']], f'the conflicts are {problem["conflicts"]}')
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        expect_equal('the state', service.state(session), 'commit_failed')
        expect_equal('its result', service.git('ls-tree', '--name-only', f'refs/sessions/{session}').split('\n'),
                     ['a.txt', 'first'])


def AnImportWithAKeyIsCarriedOutOnce(start):
    with start() as service:
        key, good = {'Idempotency-Key': 'k1'}, archive(entry('a', b'a'))
        first = send(service, good, headers=key).expect(201)
        service.git('update-ref', 'refs/heads/main', 'main~1')
        again = send(service, iter([good[:700], good[700:]]), headers=key).expect(201)
        expect_equal('the same session', again['session'], first['session'])
        expect_equal('commits', service.git('rev-list', '--count', 'main'), '1')
        send(service, archive(entry('a', b'b')), headers=key).expect(422, 'idempotency_key_reused')
        with held(service):
            sending = Sending(service, sparse := sparse_archive(service), headers={'Idempotency-Key': 'k2'})
            until_it_is_imported(service)
            send(service, sparse, headers={'Idempotency-Key': 'k2'}).expect(409, 'idempotency_in_flight')
        sending.join()
        expect_equal('the first', sending.answer.expect(201)['state'], 'committed')
        # The same key of an opening is another one.
        opened = service.post('/v1/sessions', {'repository': 'data'}, headers=key).expect(201)
        expect(opened['session'] != first['session'], 'an opening was answered with the import')


def AnImportOnAGuardedBranchWaitsForItsReviewer(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        service.git('config', 'escrow.main.requireApproval', 'true')
        head = service.git('rev-parse', 'main')
        made = send(service, archive(entry('a', b'a'))).expect(201)
        expect_equal('the state', made['state'], 'awaiting_approval')
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        answer = asked(service, 'POST', f'/v1/sessions/{made["session"]}/approve', {'result': made['result']})
        expect_equal('approved', (answer[0], answer[1]['state']), (200, 'committed'))
        expect_equal('the files', service.git('ls-tree', '--name-only', 'main'), 'a')
        asked_for = send(service, archive(entry('a', b'a')), '?branch=other&require_approval=true'
                         '&approval_expires_s=1').expect(201)
        expect_equal('asked for', asked_for['state'], 'awaiting_approval')


@nightly()
def AnArchiveOfAGibibyteNeedsLittleMemory(start):
    with start(max_content_bytes=1 << 30) as service:
        source = f'{service.directory}/large'
        os.mkdir(source)
        with open(f'{source}/file', 'wb') as file:
            file.truncate(1 << 30)
            file.seek(1 << 29)
            file.write(b'in the middle')
        send(service, archive(entry('warm', os.urandom(20 << 20)))).expect(201)
        before, begun = resident(service), time.monotonic()
        small = subprocess.run(['tar', '-S', '-c', '-C', source, '.'], check=True, capture_output=True,
                               timeout=300).stdout
        send(service, small, timeout=300).expect(201)
        print(f'1 GiB in {time.monotonic() - begun:.1f} s, {resident(service) - before} KiB more')
        expect(resident(service) - before < 30_000, f'the memory grew by {resident(service) - before} KiB')
        expect_equal('its size', service.git('cat-file', '-s', 'main:file'), str(1 << 30))
        piece = os.urandom(1 << 20)
        head = archive(entry('many', b''))[:512]
        def pieces():
            info = tarfile.TarInfo('whole')
            info.size = 300 << 20
            yield info.tobuf(tarfile.PAX_FORMAT)
            for _ in range(300):
                yield piece
            yield head + bytes(1024)
        send(service, pieces(), timeout=300).expect(201)
        expect(resident(service) - before < 30_000, f'the memory grew by {resident(service) - before} KiB')


@nightly()
def ManyEntriesNeedTheMemoryOfTheirNames(start):
    count = int(os.environ.get('ESCROW_IMPORT_ENTRIES', '100000'))
    with start() as service:
        def pieces():
            for number in range(0, count, 1000):
                yield b''.join(tarfile.TarInfo(f'dir-{number // 1000}/file-{one}').tobuf(tarfile.USTAR_FORMAT)
                               for one in range(number, number + 1000))
            yield bytes(1024)
        before, begun = resident(service), time.monotonic()
        send(service, pieces(), timeout=300).expect(201)
        grown = resident(service) - before
        print(f'{count} entries in {time.monotonic() - begun:.1f} s, {grown} KiB more')
        expect(grown < 20_000 + count // 2, f'the memory grew by {grown} KiB')
        expect_equal('the files', service.git('ls-tree', '-r', '--name-only', 'main').count('file-'), count)


def AnImportThatBreaksOffLeavesNothing(start):
    with start() as service:
        head, data = service.git('rev-parse', 'main'), large_archive(40)
        header = (f'POST {IMPORTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-tar\r\n'
                  f'Content-Length: {len(data)}\r\n\r\n').encode()
        for sent in (0, 1, 300_000, len(data) - 1):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(service.socket)
                client.sendall(header + data[:sent])
        def open_files():
            return [link for link in service.open_files() if '.content' in link]
        eventually('nothing of them is held', lambda: not open_files())
        eventually('nothing of them goes on', lambda: not imports_under_way(service))
        is_unchanged(service, head, 'a client that is gone')
        expect_equal('sessions', [one for one in service.get('/v1/sessions').json['sessions']
                                  if one['source'] == 'import' and one['branch'] != 'main'], [])


def AServiceKilledDuringAnImportLeavesNothing(start):
    with start() as service:
        head, data = service.git('rev-parse', 'main'), sparse_archive(service)
        key = {'Idempotency-Key': 'again'}
        with held(service):
            sending = Sending(service, data, headers=key)
            session = until_it_is_imported(service)
            service.stop(signal.SIGKILL)
        sending.join()
        expect_equal('the answer', sending.answer, None)
        service.start()
        ended = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('what became of it', (ended['state'], ended['reason']), ('rolled_back', 'host_lost'))
        is_unchanged(service, head, 'a service that was killed')
        left = [name for name in os.listdir(f'{service.directory}/state') if name.startswith('.content')]
        expect(len(left) <= 0, f'files that are left: {left}')
        made = send(service, data, headers=key, timeout=300).expect(201)
        expect_equal('the same request again', made['state'], 'committed')
        expect(made['session'] != session, 'it is the same session')


def WhatGitWouldFilterIsInNoCommitOfTheApi(start):
    with start() as service:
        head = service.git('rev-parse', 'main')
        files = (entry('.gitattributes', b'*.key filter=git-crypt\n'), entry('a.key', b'secret'))
        said = send(service, archive(*files)).expect(409, 'wrong_state')['detail']
        expect('a.key (filter=git-crypt)' in said and 'escrow.filters raw' in said, said)
        is_unchanged(service, head, 'an import')
        session = service.open()['session']
        where = f'/v1/sessions/{session}'
        for name, content in (('.gitattributes', b'*.key filter=git-crypt\n'), ('a.key', b'secret')):
            expect(service.put(f'{where}/files/{name}', content).status in (200, 201, 204), f'{name} cannot be put')
        said = service.post(f'{where}/commit').expect(409, 'wrong_state')['detail']
        expect('a.key (filter=git-crypt)' in said, said)
        expect_equal('the session', service.state(session), 'open')
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        service.git('config', 'escrow.filters', 'raw')
        service.post(f'{where}/commit').expect(200)
        expect_equal('the file', service.git('show', 'main:a.key'), 'secret')


def AnImportOnAFullDiskChangesNothing(start):
    with small_disk(24), start() as service:
        head = service.git('rev-parse', 'main')
        for megabytes in (30, 14):  # too much to be received, and too much to be received and kept
            send(service, large_archive(megabytes)).expect(507, 'no_space')
            is_unchanged(service, head, f'{megabytes} MiB')
        expect_equal('a small one', send(service, archive(entry('a', b'a'))).expect(201)['state'], 'committed')


if __name__ == '__main__':
    main(globals())
