#!/usr/bin/env python3
"""Sessions of the Python client: files, the end of the block, conflicts, review, audit; blocking and with asyncio."""
import asyncio
import os

from client import NOBODY, NOBODY_NAME, as_user, escrow, expect, expect_equal, main, raised

STRANGE = 'bad\udcff\n\x1bname'


class Broken(Exception):
    pass


def break_off(session, error):
    with session:
        session.write('never', 'x')
        raise error


def ASessionCommitsOnLeavingAndRollsBackOnAnException(start):
    with start() as service:
        client = escrow.connect(service.socket)
        with client.session('data', path_prefix='models', message='from Python') as s:
            s.write('latest/weights', b'\x00\xff')
            expect_equal('while it is open', (s.state, service.git('ls-tree', 'main', 'models')), ('open', ''))
        expect_equal('after', (s.state, s.info.commit), ('committed', service.git('rev-parse', 'main')))
        expect_equal('the message', service.git('log', '-1', '--format=%s'), 'from Python')
        expect_equal('the file', service.git('ls-tree', '-r', '--name-only', 'main', 'models'), 'models/latest/weights')
        head = service.git('rev-parse', 'main')
        for error, reason in ((Broken(), 'exit_status'), (KeyboardInterrupt(), 'cancelled')):
            session = client.session('data')
            expect(raised(type(error), lambda one=session, why=error: break_off(one, why)) is error, 'another one')
            expect_equal(f'after {error!r}', (session.state, session.info.reason), ('rolled_back', reason))
        with client.session() as s:
            pass
        expect_equal('without a change', (s.state, s.info.reason, s.info.commit), ('committed', 'no_changes', None))
        with client.session() as s:
            s.write('by-hand', 'x')
            s.rollback()
        expect_equal('ended in the block', s.state, 'rolled_back')
        with client.attach(client.session()) as s:
            s.write('attached', 'x')
            expect_equal('the states', [one.state for one in client.sessions(state='open')], ['open'])
        expect_equal('commits since', service.git('rev-list', '--count', f'{head}..main'), '1')
        expect_equal('the branches', client.branches(), {'main': service.git('rev-parse', 'main')})
        expect_equal('the repositories', [one.name for one in client.repositories()], ['data'])


def FilesOfAVirtualFileSystemAreWrittenIntoASession(start):
    with start() as service:
        client = escrow.connect(service.socket)
        tools = escrow.MemoryFS({'lib/deep/a.py': 'print(1)\n', 'lib/b': b'\x00\xff', 'run': ''})
        expect_equal('the root', tools.readdir(''), [('lib', 'directory', 0), ('run', 'file', 0)])
        expect((tools.exists('lib/deep'), tools.exists('no')) == (True, False), 'exists')
        with client.session('data') as s:
            expect_equal('written', s.write_files('mnt/tools', tools),
                         ['mnt/tools/lib/deep/a.py', 'mnt/tools/lib/b', 'mnt/tools/run'])
            expect_equal('bytes', s.read('mnt/tools/lib/b'), b'\x00\xff')
        expect_equal('committed', service.git('ls-tree', '-r', '--name-only', 'main', 'mnt').split(),
                     ['mnt/tools/lib/b', 'mnt/tools/lib/deep/a.py', 'mnt/tools/run'])
        raised(FileNotFoundError, lambda: tools.read_file('no'))
        raised(IsADirectoryError, lambda: tools.read_file('lib'))
        raised(NotADirectoryError, lambda: tools.readdir('run'))
        for wrong in ({'/a': ''}, {'a/../b': ''}, {'a': '', 'a/b': ''}, {'a/b': '', 'a': ''}):
            raised(ValueError, lambda files=wrong: escrow.MemoryFS(files))


def ASessionGoesBackToItsSavepoints(start):
    with start() as service:
        client = escrow.connect(service.socket)
        with client.session('data') as s:
            s.write('a.txt', 'first')
            expect_equal('made', s.savepoint('first'), ['first'])
            s.write('a.txt', 'second')
            expect_equal('since', (s.diff('name_status', since='first'), s.diff('name_status')),
                         (b'M\ta.txt\n', b'M\ta.txt\n'))
            undo = s.restore('first')
            expect_equal('back', s.read('a.txt'), b'first')
            s.restore(undo)
            expect_equal('undone', s.read('a.txt'), b'second')
            s.drop_savepoint('first')
            expect('first' not in s.savepoints() and undo in s.savepoints(), 'the list')
            expect(raised(escrow.NotFound, lambda: s.restore('first')).code == 'not_found', 'another code')


def ASessionThatConflictedIsResumedAndResolved(start):
    with start() as service:
        client = escrow.connect(service.socket)
        mine = client.session('data')
        mine.write('a.txt', 'mine')
        mine.write('new.txt', 'new')
        with client.session('data') as theirs:
            theirs.write('a.txt', 'theirs')
        raised(escrow.Conflict, lambda: mine.finish(exit_code=0))
        again = mine.resume()
        expect_equal('the paths', (again.unresolved(), again.read('a.txt'), again.read('new.txt')),
                     (['a.txt'], b'mine', b'new'))
        raised(escrow.Conflict, again.commit)
        expect_equal('what is left', again.resolve('a.txt', how='theirs'), [])
        again.commit()
        expect_equal('the branch', (service.git('show', 'main:a.txt'), service.git('show', 'main:new.txt')),
                     ('theirs', 'new'))
        expect_equal('the newest', client.status(mine).state, 'commit_failed')


def FilesAreThoseOfAMountWithAnyName(start):
    with start() as service:
        client = escrow.connect(f'unix://{service.socket}')
        for mounted in (False, True):
            point = f'{service.mounts}/work' if mounted else None
            with client.session('data', path_prefix='dir', mountpoint=point) as s:
                expect_equal('the mountpoint', s.mountpoint, point)
                s.write(f'sub/{STRANGE}', 'odd', executable=True)
                s.write(b'sub/bytes', bytearray(b'1'))
                s.delete('b.txt')
                expect_equal('a content', (s.read(os.fsencode(f'sub/{STRANGE}')), s.read_text('sub/c.txt')),
                             (b'odd', 'dir/sub/c.txt\n'))
                expect_equal('before', s.read('b.txt', base=True), b'dir/b.txt\n')
                expect_equal('the root', [(one.path, one.is_directory) for one in s.list()], [('sub', True)])
                every = [(one.path, one.mode, one.size) for one in s.list(recursive=True)]
                expect_equal('all', every, [('sub', '040000', 0), (f'sub/{STRANGE}', '100755', 3),
                                            ('sub/bytes', '100644', 1), ('sub/c.txt', '100644', 14)])
                if mounted:
                    expect_equal('in the mount', sorted(os.listdir(f'{point}/sub')),
                                 sorted([STRANGE, 'bytes', 'c.txt']))
                    with open(f'{point}/large', 'wb') as file:
                        file.write(b'x' * 3_000_000)
                    expect_equal('a large one', s.read('large'), b'x' * 3_000_000)
                    s.delete('large')
                expect_equal('the changes', sorted((one.change, one.path) for one in s.changes()),
                             sorted([('deleted', 'dir/b.txt'), ('added', f'dir/sub/{STRANGE}'),
                                     ('added', 'dir/sub/bytes')]))
                expect(b'+odd' in s.diff(path=f'dir/sub/{STRANGE}'), 'the diff of one file')
                s.discard(f'dir/sub/{STRANGE}')
                expect_equal('after the discard', s.status(with_changes=True).counts, escrow.Counts(1, 0, 1))
                for wrong in ('', '/etc/passwd'):
                    raised(ValueError, lambda path=wrong: s.read(path))
                for wrong in ('../a.txt', 'none', 'none/deep'):
                    raised(escrow.NotFound, lambda path=wrong: s.read(path))
                raised(escrow.NotFound, lambda: s.list('none'))
                raised(escrow.WrongState, lambda: s.list('sub/c.txt'))
                s.rollback()
        with client.session('data') as s:
            s.mount(f'{service.mounts}/later', mount_options=['noatime'])
            expect(os.path.exists(f'{service.mounts}/later/a.txt'), 'it is not mounted')
            expect(os.statvfs(f'{service.mounts}/later').f_flag & os.ST_NOATIME, 'its options are not taken')
            os.mkdir(f'{service.mounts}/later/many')
            for number in range(1005):
                with open(f'{service.mounts}/later/many/{number:04}', 'wb'):
                    pass
            s.unmount()
            expect_equal('the mountpoint', s.mountpoint, None)
            expect_equal('more than a page', [one.name for one in s.list('many')], [f'{n:04}' for n in range(1005)])
            s.rollback()


def AConflictHasItsPathsAndTheResultIsKept(start):
    with start() as service:
        client = escrow.connect(service.socket)

        def both_change(content):
            with client.session('data') as s:
                s.write('a.txt', 'mine')
                s.write(f'dir/{STRANGE}', 'mine')
                with client.session('data') as other:
                    other.write('a.txt', f'theirs {content}')
                    other.write(f'dir/{STRANGE}', f'theirs {content}')
        conflict = raised(escrow.Conflict, lambda: both_change('1'))
        expect_equal('the paths', sorted(conflict.paths), sorted(['a.txt', f'dir/{STRANGE}']))
        expect_equal('the session', (conflict.session.state, conflict.session.reason), ('commit_failed', 'conflict'))
        expect_equal('the result', service.git('show', f'{conflict.result_ref}:a.txt'), 'mine')
        expect_equal('the branch', service.git('show', 'main:a.txt'), 'theirs 1')
        with client.session('data') as s:
            s.write('a.txt', 'mine')
            s.write('new.txt', 'mine')
            with client.session('data') as other:
                other.write('a.txt', 'theirs 2')
            conflict = raised(escrow.Conflict, s.commit)
            expect_equal('by hand', (conflict.paths, conflict.code, conflict.status, s.status().state),
                         (['a.txt'], 'conflict', 409, 'open'))
            expect_equal('an update', s.update(), ['a.txt'])
            s.discard('a.txt')
            expect_equal('an update without', s.update(), [])
        expect_equal('both', (service.git('show', 'main:a.txt'), service.git('show', 'main:new.txt')),
                     ('theirs 2', 'mine'))


def AReviewerCommitsWhatWasShown(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        client = escrow.connect(service.socket)

        def seal(content):
            with client.session('data', require_approval=True) as s:
                s.write('a.txt', content)
            expect_equal('the state', s.state, 'awaiting_approval')
            return s

        def review(action):
            return as_user(NOBODY, action, [NOBODY])
        first = seal('one')

        def approve():
            reviewer = escrow.connect(service.socket)
            waiting, = reviewer.waiting('data')
            shown = reviewer.diff(waiting, 'name_status').decode()
            return [waiting.id, shown, reviewer.approve(waiting, comment='checked').state]
        expect_equal('the review', review(approve), [first.id, 'M\ta.txt\n', 'committed'])
        expect_equal('the owner waits', first.wait(timeout=60).reviewer, NOBODY_NAME)
        second = seal('one more').id
        expect_equal('rejected', review(lambda: escrow.connect(service.socket).reject(second, comment='no').reason),
                     'rejected')
        expect_equal('what waits', client.waiting(), [])
        moved = seal('two')
        with client.session('data') as other:
            other.write('other.txt', 'x')

        def approve_moved():
            reviewer = escrow.connect(service.socket)
            error = raised(escrow.ResultMoved, lambda: reviewer.approve(moved.id, moved.info.result))
            return [error.result, reviewer.approve(moved.id, error.result).state]
        result, state = review(approve_moved)
        expect(state == 'committed' and result != moved.info.result, f'{state}, {result}')
        raised(ValueError, lambda: client.approve(moved.id))


def TheAuditAndTheLogAreRead(start):
    with start() as service:
        client = escrow.connect(service.socket)
        ids = []
        for number in range(3):
            with client.session('data', labels={'job': f'nightly-{number}'}, external_id=f'job-{number}') as s:
                s.write('count.txt', str(number))
            ids.append(s.id)
        raised(Broken, lambda: break_off(client.session('data'), Broken()))
        entries = list(client.audit('data', states=['committed', 'rolled_back'], since_ms=3_600_000))
        expect_equal('the states', [one.state for one in entries if one.id in ids] + [entries[-1].state],
                     ['committed'] * 3 + ['rolled_back'])
        expect_equal('the history', [step.state for step in entries[-1].history],
                     ['open', 'open', 'rolled_back'])
        expect_equal('one', [one.id for one in client.audit('data', session=ids[1])], [ids[1]])
        commits = [one for one in client.log('data', path='count.txt')]
        expect_equal('the log', [one.audit['Escrow-Session'] for one in commits], ids[::-1])
        expect_equal('what the catalog confirms', [one.claimed for one in commits], [False] * 3)
        expect_equal('by its label', [one.id for one in client.sessions(labels={'job': 'nightly-2'})], [ids[2]])
        expect_equal('by its name', [one.id for one in client.sessions(external_id='job-0')], [ids[0]])
        made = client.register('second', create=True)
        expect_equal('a second repository', (made.name, made.default_branch), ('second', 'main'))
        raised(ValueError, client.session)  # which one?


async def asynchronous(service):
    client = escrow.aio.connect(service.socket)
    async with client.session('data') as s:
        await asyncio.gather(*(s.write(f'new/{number}', str(number)) for number in range(8)))
        expect_equal('the names', [one.name for one in await s.list('new')], [str(number) for number in range(8)])
        expect_equal('a content', await s.read_text('new/7'), '7')
        await s.write('large', b'x' * 3_000_000)
        expect_equal('a large one', await s.read('large'), b'x' * 3_000_000)
        await s.delete('large')
    expect_equal('the state', s.state, 'committed')
    opened = await client.session('data')
    try:
        async with opened:
            await opened.write('never', 'x')
            raise Broken
    except Broken:
        expect_equal('after an exception', opened.state, 'rolled_back')

    async def work(begun):
        async with client.session('data') as hanging:
            begun.set_result(hanging)
            await asyncio.sleep(600)
    begun = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(work(begun))
    hanging = await begun
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    expect_equal('after a cancel', (hanging.state, hanging.info.reason), ('rolled_back', 'cancelled'))
    runs = await asyncio.gather(*(client.spawn('data', ['sh', '-c', f'echo {number}']) for number in range(3)))
    expect_equal('the output', [one.stdout for one in await client.gather(runs)], [b'0\n', b'1\n', b'2\n'])
    expect_equal('followed', b''.join([piece async for piece in runs[1].follow()]), b'1\n')
    try:
        await client.status('0123456789abcdef')
        expect(False, 'it is there')
    except escrow.NoSession:
        pass
    expect_equal('the audit', [one.state async for one in client.audit('data', session=opened.id)], ['rolled_back'])


def TheSameWorksWithAsyncio(start):
    with start() as service:
        asyncio.run(asynchronous(service))


if __name__ == '__main__':
    main(globals())
