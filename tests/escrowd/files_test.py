#!/usr/bin/env python3
"""Files of a session over the API: read before and after, written without a mount, guarded as in one."""
import errno
import hashlib
import json
import mmap
import os
import socket
import sqlite3
import subprocess
import threading
import time
from urllib.parse import quote_from_bytes

from authorization_test import asked, refused
from service import NOBODY, UnixConnection, as_user, eventually, expect, expect_equal, main, nightly, read, write

STRANGE = b'bad\xff\n\x1bname'


def target(session, path, query=''):
    return f'/v1/sessions/{session}/files/{quote_from_bytes(path if isinstance(path, bytes) else path.encode())}{query}'


def put(service, session, path, content, query='', **keywords):
    return service.put(target(session, path, query), content, **keywords)


def content(service, session, path, query=''):
    answer = service.get(target(session, path, query))
    expect_equal(f'{path!r}: {answer.body[:200]!r}', answer.status, 200)
    expect_equal('the size', int(answer.headers['escrow-size']), len(answer.body))
    return answer.body


def AFileIsWrittenAndReadWithoutAMountAndInOne(start):
    with start() as service:
        for mounted in (False, True):
            session = service.open()['session']
            point = f'{service.mounts}/work'
            if mounted:
                service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
                expect(not os.path.exists(f'{point}/new'), 'it is there')
                # The kernel keeps what it listed, and has looked up none of the names.
                before = {directory: set(os.listdir(f'{point}/{directory}')) for directory in ('.', 'dir')}
            made = put(service, session, 'new/deep/file.txt', b'one')
            expect_equal('a new file', (made.status, made.json),
                         (201, {'path': 'new/deep/file.txt', 'mode': '100644', 'size': 3}))
            again = put(service, session, 'new/deep/file.txt', b'two, longer', '?mode=100755')
            expect_equal('again', (again.status, again.json['mode'], again.json['size']), (200, '100755', 11))
            expect_equal('shorter', put(service, session, 'new/deep/file.txt', b'3').json['mode'], '100755')
            expect_equal('the content', content(service, session, 'new/deep/file.txt'), b'3')
            expect_equal('a changed one', put(service, session, 'a.txt', b'').status, 200)
            expect_equal('after', content(service, session, 'a.txt'), b'')
            expect_equal('before', content(service, session, 'a.txt', '?side=base'), b'a.txt\n')
            expect_equal('a removed one', service.delete(target(session, 'dir/b.txt')).expect(200)['size'], 10)
            service.get(target(session, 'dir/b.txt')).expect(404, 'not_found')
            expect_equal('before', content(service, session, 'dir/b.txt', '?side=base'), b'dir/b.txt\n')
            service.get(target(session, 'new/deep/file.txt', '?side=base')).expect(404, 'not_found')
            if mounted:
                expect_equal('what is listed', set(os.listdir(point)), before['.'] | {'new'})
                expect_equal('what is listed below', set(os.listdir(f'{point}/dir')), before['dir'] - {'b.txt'})
                expect_equal('in the mount', (read(f'{point}/new/deep/file.txt'), read(f'{point}/a.txt')), ('3', ''))
                expect(not os.path.exists(f'{point}/dir/b.txt'), 'the mount shows what was removed')
                write(f'{point}/a.txt', 'by the mount')
                os.symlink('dir/sub', f'{point}/link')
                expect_equal('what the mount wrote', content(service, session, 'a.txt'), b'by the mount')
                expect_equal('a link', content(service, session, 'link'), b'dir/sub')
                for path in ('link/c.txt', 'link/new'):
                    service.get(target(session, path)).expect(404, 'not_found')
                put(service, session, 'link', b'x').expect(409, 'wrong_state')
                put(service, session, 'link/c.txt', b'x').expect(409, 'wrong_state')
            service.finish(session, {'exit_code': 0}).expect(200)
            expect_equal('committed', service.git('show', 'main:new/deep/file.txt'), '3')
            expect('100755' in service.git('ls-tree', 'main', 'new/deep/file.txt'), 'the mode')
            service.git('update-ref', 'refs/heads/main', 'main~1')


def AnyNameGoesThroughEveryRoute(start):
    with start() as service:
        session = service.open()['session']
        made = put(service, session, b'dir/' + STRANGE, b'12345').expect(201)
        expect_equal('the name', made['path_base64'], 'ZGlyL2JhZP8KG25hbWU=')
        expect_equal('the content', content(service, session, b'dir/' + STRANGE), b'12345')
        whole = '/v1/sessions/' + session + '/files/' + quote_from_bytes(b'dir/' + STRANGE, safe='')
        expect_equal('with its slash encoded', service.get(whole).body, b'12345')
        changed = service.get(f'/v1/sessions/{session}/changes').expect(200)['changes'][0]
        expect_equal('in the changes', changed['path_base64'], made['path_base64'])
        query = f'?path={quote_from_bytes(b"dir/" + STRANGE)}'
        put(service, session, 'other.txt', b'other')
        diff = service.get(f'/v1/sessions/{session}/diff{query}').body
        expect(b'+12345' in diff and b'other' not in diff, f'the diff of one file is {diff!r}')
        expect(b'+other' in service.get(f'/v1/sessions/{session}/diff').body, 'the diff of all')
        expect_equal('of none', service.get(f'/v1/sessions/{session}/diff?path=dir/no').body, b'')
        expect_equal('removed', service.delete(target(session, b'dir/' + STRANGE)).expect(200)['path_base64'],
                     made['path_base64'])
        for path in ('', '.', '..', 'dir/', 'dir//b.txt', 'dir/../a.txt', './a.txt', '%2e%2e/x', '/a.txt', 'x%00y',
                     'n' * 256):
            answer = service.get(f'/v1/sessions/{session}/files/{path}')
            expect(answer.status in (400, 404), f'{path!r} was answered {answer.status}')
        service.get(target(session, 'dir')).expect(409, 'wrong_state')
        service.get(target(session, 'dir', '?side=base')).expect(409, 'wrong_state')
        service.delete(target(session, 'dir')).expect(409, 'wrong_state')
        put(service, session, 'dir', b'').expect(409, 'wrong_state')
        put(service, session, 'a.txt/x', b'').expect(409, 'wrong_state')
        service.get(target(session, 'a.txt', '?side=left')).expect(400, 'invalid_value')
        put(service, session, 'x', b'', '?mode=100600').expect(400, 'invalid_value')


def PoliciesPrefixesAndReadOnlyHoldAsInAMount(start):
    with start() as service:
        policy = {'default': 'allow', 'rules': [
            {'effect': 'deny', 'actions': ['read', 'write', 'create', 'delete'], 'paths': ['dir/sub']},
            {'effect': 'deny', 'actions': ['delete'], 'paths': ['/a.txt']}]}
        for mounted in (False, True):
            fields = {'mountpoint': f'{service.mounts}/work'} if mounted else {}
            session = service.open(policy=policy, **fields)['session']
            before = service.get(f'/v1/sessions/{session}').json['denials']['count']
            for answer in (service.get(target(session, 'dir/sub/c.txt')),
                           service.get(target(session, 'dir/sub/c.txt', '?side=base')),
                           put(service, session, 'dir/sub/c.txt', b'x'), put(service, session, 'dir/sub/new', b'x'),
                           service.delete(target(session, 'dir/sub/c.txt'))):
                problem = answer.expect(403, 'forbidden')
                expect('deny dir/sub' in problem['rule'], f'the rule is {problem["rule"]!r}')
            expect_equal('the action', service.delete(target(session, 'a.txt')).expect(403, 'forbidden')['action'],
                         'delete')
            put(service, session, 'a.txt', b'allowed').expect(200)
            eventually('the denials are counted',
                       lambda: service.get(f'/v1/sessions/{session}').json['denials']['count'] >= before + 6)
            service.post(f'/v1/sessions/{session}/rollback').expect(200)
        session = service.open(path_prefix='dir')['session']
        expect_equal('below the prefix', content(service, session, 'dir/b.txt'), b'dir/b.txt\n')
        service.get(target(session, 'a.txt')).expect(404, 'not_found')
        put(service, session, 'b.txt', b'x').expect(404, 'not_found')
        session = service.open(read_only=True)['session']
        put(service, session, 'a.txt', b'x').expect(403, 'forbidden')
        service.delete(target(session, 'a.txt')).expect(403, 'forbidden')
        expect_equal('reading', content(service, session, 'a.txt'), b'a.txt\n')


def entries(service, session, query='', limit=1000):
    """(name, mode, size) of a directory, page after page."""
    found, cursor = [], ''
    while True:
        page = service.get(f'/v1/sessions/{session}/entries?limit={limit}{query}{cursor}').expect(200)
        expect(len(page['entries']) <= limit, f'{len(page["entries"])} on a page of {limit}')
        found += [(one.get('name_base64', one['name']), one['mode'], one['size']) for one in page['entries']]
        if page['next'] is None:
            return found
        cursor = f'&cursor={page["next"]}'


def ADirectoryIsListedAsAProgramInTheMountSeesIt(start):
    policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['list', 'read'],
                                             'paths': ['dir/hidden', 'dir/sub']}]}
    with start() as service:
        for mounted in (False, True):
            fields = {'mountpoint': f'{service.mounts}/work'} if mounted else {}
            session = service.open(policy=policy, require_approval=True, **fields)['session']
            put(service, session, b'dir/' + STRANGE, b'12345', '?mode=100755').expect(201)
            put(service, session, 'dir/hidden', b'x').expect(201)
            service.delete(target(session, 'a.txt')).expect(200)
            below = [('b.txt', '100644', 10), ('YmFk/wobbmFtZQ==', '100755', 5)]
            root = [('dir', '040000', 0)]
            if mounted:
                os.mkfifo(f'{service.mounts}/work/pipe')
                os.symlink('dir/b.txt', f'{service.mounts}/work/link')
                root += [('link', '120000', 9), ('pipe', '000000', 0)]
            for limit in (1, 2, 1000):
                expect_equal('the root', entries(service, session, limit=limit), root)
                expect_equal('a directory', entries(service, session, '&path=dir', limit), below)
            problem = service.get(f'/v1/sessions/{session}/entries?path=dir/sub').expect(403, 'forbidden')
            expect_equal('the denial', (problem['action'], problem['path']), ('list', 'dir/sub'))
            for path in ('none', 'a.txt', '../x', 'dir/none/deep'):
                service.get(f'/v1/sessions/{session}/entries?path={path}').expect(404, 'not_found')
            service.get(f'/v1/sessions/{session}/entries?path=dir/b.txt').expect(409, 'wrong_state')
            service.get(f'/v1/sessions/{session}/entries?cursor=!').expect(400, 'invalid_value')
            service.get(f'/v1/sessions/{session}/entries?limit=x').expect(400, 'invalid_value')
            service.finish(session, {'exit_code': 0}).expect(200)
            sealed = [one for one in root if one[0] != 'pipe']
            for limit in (1, 1000):
                expect_equal('the sealed root', entries(service, session, limit=limit), sealed)
                expect_equal('sealed', entries(service, session, '&path=dir', limit), below)
            service.get(f'/v1/sessions/{session}/entries?path=dir/sub').expect(403, 'forbidden')
            service.get(f'/v1/sessions/{session}/entries?path=none').expect(404, 'not_found')
            service.get(f'/v1/sessions/{session}/entries?path=dir/b.txt').expect(409, 'wrong_state')
            service.post(f'/v1/sessions/{session}/rollback').expect(200)
        session = service.open(path_prefix='dir')['session']
        expect_equal('the root is the prefix', entries(service, session), entries(service, session, '&path=dir'))
        expect_equal('below it', entries(service, session, '&path=dir/sub'), [('c.txt', '100644', 14)])
        service.get(f'/v1/sessions/{session}/entries?path=elsewhere').expect(404, 'not_found')
        refused(service, 'GET', f'/v1/sessions/{session}/entries', 404, 'no_session')


def OnlyItsOwnersWriteAndTheHistorySaysWho(start):
    with start(reviewers=['user:daemon']) as service:
        session = service.open()['session']
        refused(service, 'GET', target(session, 'a.txt'), 404, 'no_session')
        refused(service, 'DELETE', target(session, 'a.txt'), 404, 'no_session')
        own = asked(service, 'POST', '/v1/sessions', {'repository': 'data'})[1]['session']
        put(service, own, 'by-root.txt', b'x').expect(201)
        put(service, own, 'by-root-2.txt', b'x').expect(201)
        with sqlite3.connect(f'file:{service.repository}/escrow/catalog.db?mode=ro', uri=True) as catalog:
            rows = catalog.execute("SELECT who, why FROM history WHERE session = ? AND why LIKE 'wrote%'", (own,))
            expect_equal('the history', rows.fetchall(), [('user:root', 'wrote files over the API')])
        catalog.close()


def FilesAreThereForTheStateTheSessionIsIn(start):
    with start() as service:
        session = service.open(require_approval=True)['session']
        put(service, session, 'a.txt', b'sealed').expect(200)
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('the sealed content', content(service, session, 'a.txt'), b'sealed')
        expect_equal('before', content(service, session, 'a.txt', '?side=base'), b'a.txt\n')
        put(service, session, 'a.txt', b'late').expect(409, 'session_finished')
        service.delete(target(session, 'a.txt')).expect(409, 'session_finished')
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        service.get(target(session, 'a.txt')).expect(409, 'session_finished')


@nightly()
def LargeContentsNeedLittleMemory(start):
    with start() as service:
        def resident():
            for line in read(f'/proc/{service.process.pid}/status').splitlines():
                if line.startswith('VmHWM'):
                    return int(line.split()[1])
            return 0
        piece = os.urandom(1 << 20)
        def pieces(count):
            for number in range(count):
                yield number.to_bytes(4, 'big') + piece[4:]
        digest = hashlib.sha256(b''.join(pieces(64))).hexdigest()
        for mounted in (True, False):
            fields = {'mountpoint': f'{service.mounts}/work'} if mounted else {}
            session = service.open(**fields)['session']
            before = resident()
            put(service, session, 'large', pieces(64)).expect(201)  # in chunks
            put(service, session, 'large', pieces(64), headers={'Content-Length': str(64 << 20)}).expect(200)
            connection = UnixConnection(service.socket)
            connection.request('GET', target(session, 'large'))
            response = connection.getresponse()
            expect_equal('the size', response.headers['Escrow-Size'], str(64 << 20))
            seen = hashlib.sha256()
            while part := response.read(1 << 20):
                seen.update(part)
            connection.close()
            expect_equal('the content', seen.hexdigest(), digest)
            expect(resident() - before < 40_000, f'the memory grew by {resident() - before} KiB')
            if mounted:
                with open(fields['mountpoint'] + '/large', 'rb') as file:
                    expect_equal('in the mount', hashlib.sha256(file.read()).hexdigest(), digest)
            service.finish(session, {'exit_code': 0}).expect(200)
            after = service.open()['session']
            expect_equal('in the base', hashlib.sha256(content(service, after, 'large', '?side=base')).hexdigest(),
                         digest)
            service.git('update-ref', 'refs/heads/main', 'main~1')


def AContentIsJudgedBeforeItIsSent(start):
    """Whoever may not write cannot fill the disk: the answer comes when nothing of the content has."""
    with start(max_content_bytes=1_000_000, grants={}) as service:
        session = service.open(path_prefix='dir', limits={'staged_bytes': 1000})['session']
        ended = service.open()['session']
        service.post(f'/v1/sessions/{ended}/rollback').expect(200)
        imports, tar = '/v1/repositories/data/imports', 'application/x-tar'
        def begun(method, where, length=500, content_type='', **headers):
            def ask():
                connection = UnixConnection(service.socket)
                connection.request(method, where, headers={'Content-Length': length, 'Content-Type': content_type,
                                                           **headers})
                response = connection.getresponse()
                answer = response.status, json.loads(response.read())['code']
                connection.close()
                return answer
            return ask
        def is_refused(what, status, code, ask):
            expect_equal(what, tuple(ask()), (status, code))
        file = target(session, 'dir/new')
        is_refused('more than the session may stage', 507, 'no_space', begun('PUT', file, 1001))
        is_refused('above the prefix', 404, 'not_found', begun('PUT', target(session, 'new')))
        is_refused('no session', 404, 'no_session', begun('PUT', target('0' * 16, 'dir/new')))
        is_refused('one that has ended', 409, 'session_finished', begun('PUT', target(ended, 'new')))
        is_refused('a query', 400, 'invalid_value', begun('PUT', file + '?mode=1'))
        is_refused('no route', 404, 'not_found', begun('PUT', '/v1/nothing'))
        is_refused('another method', 405, 'method_not_allowed', begun('PUT', '/v1/sessions'))
        is_refused('no archive', 415, 'unsupported_media_type', begun('POST', '/v1/sessions', content_type=tar))
        is_refused('no repository', 404, 'no_repository',
                   begun('POST', '/v1/repositories/none/imports', content_type=tar))
        is_refused("another's session", 404, 'no_session', lambda: as_user(NOBODY, begun('PUT', file)))
        is_refused('no grant', 404, 'no_repository', lambda: as_user(NOBODY, begun('POST', imports, content_type=tar)))
        is_refused('who asks first', 507, 'no_space', begun('PUT', file, 1001, Expect='100-continue'))
        put(service, session, 'dir/new', b'x' * 500, headers={'Expect': '100-continue'}).expect(201)
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('the content', service.git('show', 'main:dir/new'), 'x' * 500)


def AnUploadThatBreaksOffChangesNothing(start):
    with start(max_content_bytes=1_000_000, request_timeout_ms=6000) as service:
        session = service.open()['session']
        put(service, session, 'a.txt', b'x' * 1_000_001).expect(413, 'body_too_large')
        put(service, session, 'a.txt', (b'x' * 65536 for _ in range(32))).expect(413, 'body_too_large')
        def begin():
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.settimeout(100)
            client.connect(service.socket)
            header = f'PUT {target(session, "a.txt")} HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n'
            client.sendall(header.encode() + b'x' * 100_000)
            return client
        begin().close()
        slow = begin()
        expect(b'408' in slow.recv(4096), 'a slow client')
        slow.close()
        expect_equal('the content', content(service, session, 'a.txt'), b'a.txt\n')
        expect_equal('the changes', service.get(f'/v1/sessions/{session}/changes').expect(200)['changes'], [])
        def left():
            return [name for name in os.listdir(f'{service.directory}/state') if name.startswith('.content')]
        eventually('no file is left', lambda: not left())
        def open_files():
            return [link for link in service.open_files() if '.content' in link]
        eventually('nothing of it is held', lambda: not open_files())


def AReaderThatStopsHoldsNoSession(start):
    with start() as service:
        session = service.open()['session']
        put(service, session, 'large', b'x' * (8 << 20)).expect(201)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(service.socket)
        client.sendall(f'GET {target(session, "large")} HTTP/1.1\r\nHost: x\r\n\r\n'.encode())
        expect(client.recv(1000).startswith(b'HTTP/1.1 200'), 'the answer')
        point = f'{service.mounts}/work'
        def mounted():
            return service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).status == 200
        eventually('it is mounted', mounted)
        service.finish(session, {'exit_code': 0}).expect(200)
        # What it did not read in time is broken off: no client takes the beginning for the whole.
        client.settimeout(100)
        got = b''
        while piece := client.recv(1 << 20):
            got += piece
        client.close()
        expect(not got.endswith(b'\r\n0\r\n\r\n'), 'the answer looks whole')


def errno_of(action):
    try:
        action()
        return None
    except OSError as error:
        return error.errno


def LimitsFailTheCallAndTheRequest(start):
    with start() as service:
        session, point = service.open_mounted(limits={'staged_bytes': 1_000_000, 'files': 20})
        view = service.get(f'/v1/sessions/{session}').expect(200)
        expect_equal('the limits', view['limits'], {'staged_bytes': 1_000_000, 'files': 20})
        put(service, session, 'one', b'x' * 600_000).expect(201)
        put(service, session, 'two', b'x' * 600_000).expect(507, 'no_space')
        service.get(target(session, 'two')).expect(404, 'not_found')
        expect_equal('in the mount', errno_of(lambda: write(f'{point}/three', 'x' * 600_000)), 122)
        expect_equal('truncate(2)', errno_of(lambda: os.truncate(f'{point}/one', 2_000_000)), 122)
        os.remove(f'{point}/one')
        eventually('what was removed makes room',
                   lambda: errno_of(lambda: write(f'{point}/three', 'x' * 300_000)) is None)
        for number in range(19):
            eventually('twenty files are made',
                       lambda name=number: errno_of(lambda: write(f'{point}/file-{name}', '')) is None)
        expect_equal('one more', errno_of(lambda: write(f'{point}/one-more', '')), 122)
        service.post(f'/v1/sessions/{session}/unmount').expect(200)
        put(service, session, 'four', b'x').expect(507, 'no_space')
        service.finish(session, {'exit_code': 0}).expect(200)
        for wrong in ({'staged_bytes': 0}, {'colour': 1}, 5):
            service.post('/v1/sessions', {'repository': 'data', 'limits': wrong}).expect(
                400, 'unknown_field' if wrong == {'colour': 1} else 'invalid_value')


def ALimitOfFilesCountsWhatTheSessionHasMade(start):
    with start() as service:
        session, point = service.open_mounted(limits={'files': 1})
        # What was there before may change, also the root and the directories that files are made in.
        write(f'{point}/a.txt', 'changed')
        os.utime(point)
        def refused(action):
            error = errno_of(action)
            expect(error in (None, errno.EDQUOT), f'the error is {error}')
            return error is not None
        for turn in range(3):
            eventually('what was removed makes room',
                       lambda text=f'{turn}': not refused(lambda: write(f'{point}/dir/sub/new', text)))
            for action in (lambda: write(f'{point}/other', ''), lambda: os.mkdir(f'{point}/other'),
                           lambda: os.symlink('x', f'{point}/other'), lambda: os.mkfifo(f'{point}/other')):
                expect(refused(action), 'a second one was made')
            os.remove(f'{point}/dir/sub/new')
        eventually('what was removed makes room', lambda: not refused(lambda: os.mkdir(f'{point}/made')))
        expect(refused(lambda: write(f'{point}/made/file', '')), 'a directory does not count')
        os.rename(f'{point}/made', f'{point}/dir/made')
        put(service, session, 'more', b'x').expect(507, 'no_space')
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('the content', service.git('show', 'main:a.txt'), 'changed')
        session = service.open(limits={'files': 1})['session']
        put(service, session, 'one', b'x').expect(201)
        put(service, session, 'two', b'x').expect(507, 'no_space')
        put(service, session, 'one', b'y').expect(200)


def HowBytesTravelIsChosenAndShown(start):
    with start() as service:
        _, point = service.open_mounted('cached', io={'opens': 'daemon'})
        session = [one for one in service.get('/v1/sessions?state=open').json['sessions']][0]
        expect_equal('the view', (session['mountpoint'], session['io']['opens'], session['io']['data']),
                     (point, 'daemon', 'cached'))
        service.stop()
        service.start()
        again = service.get(f'/v1/sessions/{session["session"]}').expect(200)
        expect_equal('after a restart', again['io']['opens'], 'daemon')
        for wrong in ({'opens': 'x'}, {'opens': 'none', 'data': 'passthrough'}, {'way': 'x'}):
            service.post('/v1/sessions', {'repository': 'data', 'io': wrong}).expect(
                400, 'unknown_field' if 'way' in wrong else 'invalid_value')
        service.post('/v1/sessions', {'repository': 'data', 'io': {'data': 'passthrough'},
                                      'limits': {'staged_bytes': 5}}).expect(400, 'invalid_value')


def WritersAtOnceAllSucceedInAMount(start):
    with start() as service:
        session, point = service.open_mounted()
        problems = []
        def work(worker):
            try:
                for number in range(10):
                    put(service, session, f'd{worker}/f{number}', f'{worker} {number}'.encode()).expect(201)
            except SystemExit as problem:
                problems.append(problem)
        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        expect_equal('problems', problems, [])
        expect_equal('one of them', read(f'{point}/d7/f9'), '7 9')
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('the files', service.git('ls-tree', '-r', '--name-only', 'main').count('/f'), 80)


def AFileIsNotPutBesideAWriteBackCache(start):
    """The kernel would go on showing the size that it knows."""
    with start() as service:
        session, point = service.open_mounted(io={'data': 'writeback'})
        write(f'{point}/a.txt', 'by the mount')
        problem = put(service, session, 'a.txt', b'longer than what is there').expect(409, 'wrong_state')
        expect('--io writeback' in problem['detail'], problem['detail'])
        expect_equal('as it was', content(service, session, 'a.txt'), b'by the mount')
        service.finish(session, {'exit_code': 0}).expect(200)
        expect_equal('committed', service.git('show', 'main:a.txt'), 'by the mount')


def byte_in_session(path):
    """The first, as the session has it now: not from the kernel's cache."""
    with mmap.mmap(-1, 4096) as page:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(file, [page], 0)
        finally:
            os.close(file)
        return page[:1]


def ACommitHasAllOfAWriteOrNothingOfIt(start):
    """And so has a savepoint. Of a mounted session: of others the second request is refused."""
    size = 32 << 20
    with start() as service:
        for verb in ('commit', 'savepoints', 'finish'):
            session, point = service.open_mounted(f'for-{verb}')
            at = f'/v1/sessions/{session}'
            service.put(f'{at}/files/large', b'a' * size).expect(201 if verb == 'commit' else 200)
            answers = []
            def write_anew(at=at, answers=answers):
                answers.append(service.put(f'{at}/files/large', b'b' * size))
            thread = threading.Thread(target=write_anew)
            thread.start()
            while not answers and byte_in_session(f'{point}/large') != b'b':
                pass
            body = {'commit': {}, 'savepoints': {'name': 'cut'}, 'finish': {'exit_code': 0}}[verb]
            service.post(f'{at}/{verb}', body).expect(200)
            thread.join(300)
            expect(answers[0].status in (200, 409), f'the write was answered {answers[0].status} {answers[0].body}')
            if verb == 'savepoints':
                service.post(f'{at}/savepoints/cut/restore').expect(200)
                service.post(f'{at}/commit', {}).expect(200)
            content = subprocess.run(['git', '--git-dir', service.repository, 'cat-file', 'blob', 'main:large'],
                                     check=True, capture_output=True, timeout=300).stdout
            expect_equal(f'the bytes at {verb}', (len(content), len(set(content))), (size, 1))


if __name__ == '__main__':
    main(globals())
