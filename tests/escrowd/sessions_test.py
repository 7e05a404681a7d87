#!/usr/bin/env python3
"""What an orchestrator does with escrowd: open sessions, work in them, decide, ask. On a real mount."""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from service import eventually, expect, expect_equal, fail, main, read, write


def ASessionIsOpenedMountedAndCommittedByItsExitStatus(start):
    with start() as service:
        session, point = service.open_mounted(image='img:1', trigger={'name': 'ci', 'id': '42'}, message='from the API')
        expect_equal('a file of the base', read(f'{point}/a.txt'), 'a.txt\n')
        write(f'{point}/new.txt', 'new')
        view = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the outcome', (view['state'], view['reason'], view['exit_code']), ('committed', 'success', 0))
        expect(not service.is_mounted(point), 'the mount is still there')
        expect_equal('the branch', service.git('rev-parse', 'main'), view['commit'])
        expect_equal('the content', service.git('show', 'main:new.txt'), 'new')
        message = service.git('log', '-1', '--format=%B', 'main')
        for line in ('from the API', 'Escrow-Committer: user:root', 'Escrow-Issuer: user:root', 'Escrow-Image: img:1',
                     'Escrow-Source: sandbox', 'Escrow-Trigger: ci', 'Escrow-Trigger-Id: 42',
                     f'Escrow-Session: {session}', 'Escrow-Exit-Code: 0'):
            expect(line in message.split('\n'), f'{line!r} is not in {message!r}')
        logged = service.get('/v1/repositories/data/log?limit=1').expect(200)
        expect_equal('the log', logged['commits'][0]['audit']['Escrow-Session'], session)
        expect_equal('what the catalog confirms', logged['commits'][0]['claimed'], False)
        older = service.get(f'/v1/repositories/data/log?cursor={logged["next"]}').expect(200)
        expect_equal('the older commits', [c['message'].split('\n')[0] for c in older['commits']], ['first import'])
        heads = service.get('/v1/repositories/data/branches').expect(200)['branches']
        expect_equal('the branches', heads, [{'name': 'main', 'head': view['commit']}])


def TrailersThatAnybodyWroteAreClaimed(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/new.txt', 'new')
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        message = service.git('log', '-1', '--format=%B', 'main')
        forged = service.git('-c', 'user.name=m', '-c', 'user.email=m', 'commit-tree', '-p', 'main', '-m', message,
                             'main^{tree}')
        service.git('update-ref', 'refs/heads/main', forged)
        page = service.get('/v1/repositories/data/log?limit=2').expect(200)
        expect_equal('the records', [one['audit'] for one in page['commits']], [page['commits'][0]['audit']] * 2)
        expect_equal('which are claimed', [one['claimed'] for one in page['commits']], [True, False])
        rest = service.get(f'/v1/repositories/data/log?cursor={page["next"]}').expect(200)
        expect_equal('the first import', [one['claimed'] for one in rest['commits']], [False])


def AMountpointThatTheServiceMadeGoesWithItsMount(start):
    def is_gone(point):
        eventually(f'{point} is gone', lambda: not os.path.lexists(point))
    with start() as service:
        for ending in ({'exit_code': 0}, {'cancelled': True}):
            session, point = service.open_mounted()
            service.post(f'/v1/sessions/{session}/finish', ending).expect(200)
            is_gone(point)
        # One that was there stays, with whatever is in it.
        for name, mode in (('mine', 0o755), ('everybodys', 0o1777)):
            os.mkdir(f'{service.mounts}/{name}')
            os.chmod(f'{service.mounts}/{name}', mode)
            session, _ = service.open_mounted(name)
            service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        # Over unmounting, by the service or by hand, a stop and a kill.
        session, point = service.open_mounted('again')
        for unmount in (lambda: service.post(f'/v1/sessions/{session}/unmount').expect(200),
                        lambda: subprocess.run(['umount', point], check=True)):
            unmount()
            is_gone(point)
            service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        for how in (signal.SIGTERM, signal.SIGKILL):
            service.stop(how)
            expect(os.path.isdir(f'{service.mounts}/again') or how == signal.SIGKILL, 'it is gone with the service')
            service.start()
            eventually('it is mounted again', lambda: service.is_mounted(point))
        service.stop()
        service.escrow('commit', session)
        write(f'{service.mounts}/mine/file', 'x')
        os.rmdir(f'{service.mounts}/everybodys')  # it is still there
        service.start()
        is_gone(point)
        expect_equal('what is left', os.listdir(service.mounts), ['mine'])
        expect_equal('what is in it', os.listdir(f'{service.mounts}/mine'), ['file'])


def EveryOtherEndingRollsBack(start):
    with start() as service:
        head = service.git('rev-parse', 'main')
        for ending, reason, code in (({'exit_code': 3}, 'exit_status', 3), ({'signal': 9}, 'signal', 137),
                                     ({'cancelled': True}, 'cancelled', None),
                                     ({'timed_out': True}, 'timed_out', None)):
            session, point = service.open_mounted()
            write(f'{point}/new.txt', 'new')
            view = service.post(f'/v1/sessions/{session}/finish', ending).expect(200)
            expect_equal('the outcome', (view['state'], view['reason'], view['exit_code']),
                         ('rolled_back', reason, code))
            expect(not service.is_mounted(point), 'the mount is still there')
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        session, _ = service.open_mounted()
        for ending in ({}, {'exit_code': 0, 'signal': 9}, {'cancelled': False}, {'exit_code': 256}, {'exit_code': '0'}):
            code = service.post(f'/v1/sessions/{session}/finish', ending).json['code']
            expect(code in ('bad_request', 'invalid_value'), f'{ending} was answered with {code}')
        expect_equal('the state', service.state(session), 'open')


def TheImageThatIsNamedAtTheEndIsThatOfTheRecord(start):
    ran = 'registry.example/job@sha256:' + '0' * 64

    def audited(session):
        [entry] = json.loads(service.escrow('audit', '--json', '--session', session))
        return entry['state'], entry['image'], entry['trigger_id']

    with start() as service:
        asked = {'image': 'job:1', 'trigger': {'name': 'ci', 'id': 'that'}}
        session, point = service.open_mounted(**asked)
        write(f'{point}/new.txt', 'new')
        for image in ('one\ntwo', 'x' * 1025, 7):
            expect_equal('the status', service.finish(session, {'exit_code': 0, 'image': image}).status, 400)
        service.finish(session, {'exit_code': 0, 'image': ran}).expect(200)
        expect_equal('a commit', audited(session), ('committed', ran, 'that'))
        expect(f'Escrow-Image: {ran}' in service.git('log', '-1', '--format=%B', 'main'), 'the commit names another')
        session, point = service.open_mounted(**asked)
        service.finish(session, {'exit_code': 3, 'image': ran}).expect(200)
        expect_equal('a rollback', audited(session), ('rolled_back', ran, 'that'))
        for is_lost in (False, True):
            session = service.open(**asked)['session']
            if is_lost:
                shutil.rmtree(f'{service.repository}/escrow/sessions/{session}')
            service.finish(session, {'exit_code': 3, 'image': ran}).expect(200)
            expect_equal('a rollback without a mount', audited(session), ('rolled_back', ran, 'that'))


def TheSameVerbIsAnsweredTheSameAndAnotherIsRefused(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/new.txt', 'new')
        first = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0})
        again = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0})
        expect_equal('the second answer', (again.status, again.json), (200, first.json))
        for verb, body in (('finish', {'exit_code': 1}), ('finish', {'cancelled': True}), ('rollback', {}),
                           ('mount', {'mountpoint': point})):
            problem = service.post(f'/v1/sessions/{session}/{verb}', body).expect(409, 'session_finished')
            expect_equal('the state', problem['state'], 'committed')
        session = service.open()['session']
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        expect_equal('again', service.post(f'/v1/sessions/{session}/rollback').expect(200)['state'], 'rolled_back')
        service.post(f'/v1/sessions/{session}/commit').expect(409, 'session_finished')


def AConflictNamesThePathsAndLosesNothing(start):
    with start() as service:
        mine, point = service.open_mounted('mine')
        theirs, other = service.open_mounted('theirs')
        write(f'{point}/a.txt', 'mine')
        write(f'{other}/a.txt', 'theirs')
        service.post(f'/v1/sessions/{theirs}/commit', {'message': 'theirs'}).expect(200)
        problem = service.post(f'/v1/sessions/{mine}/commit').expect(409, 'conflict')
        expect_equal('the conflicts', problem['conflicts'],
                     [{'path': 'a.txt', 'ours': 'modified', 'theirs': 'modified'}])
        expect_equal('the state', service.state(mine), 'open')
        expect_equal('the content', read(f'{point}/a.txt'), 'mine')
        view = service.post(f'/v1/sessions/{mine}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the outcome', (view['state'], view['conflicts']), ('commit_failed', [{'path': 'a.txt'}]))
        expect_equal('the result', service.git('show', f'refs/sessions/{mine}:a.txt'), 'mine')


def ChangesAndDiffShowWhatWouldBeCommitted(start):
    with start() as service:
        session, point = service.open_mounted()
        strange = b'bad\xff\n\x1bname'
        with open(point.encode() + b'/' + strange, 'wb') as file:
            file.write(b'12345')
        os.remove(f'{point}/dir/b.txt')
        answer = service.get(f'/v1/sessions/{session}/changes').expect(200)
        first, second = answer['changes']
        expect_equal('first', (first['path'], first['change'], first['before']['size'], first['after']),
                     ('dir/b.txt', 'deleted', 10, None))
        expect_equal('second', (second['path_base64'], second['after']['size']), ('YmFk/wobbmFtZQ==', 5))
        diff = service.get(f'/v1/sessions/{session}/diff')
        expect(b'-dir/b.txt' in diff.body and b'+12345' in diff.body, f'the diff is {diff.body!r}')
        names = service.get(f'/v1/sessions/{session}/diff?format=name_status').body.decode()
        expect(names.startswith('D\tdir/b.txt\n'), f'the names are {names!r}')
        service.get(f'/v1/sessions/{session}/diff?format=pdf').expect(400, 'invalid_value')
        service.post(f'/v1/sessions/{session}/unmount').expect(200)
        detached = service.get(f'/v1/sessions/{session}/changes').expect(200)
        expect_equal('the changes of the detached session', detached, answer)
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        expect_equal('the file', service.git('show', '--raw', '--format=', 'main').count('\n'), 1)


def SessionsAreMountedUnmountedAndMountedAgain(start):
    with start() as service:
        session = service.open()['session']
        point = f'{service.mounts}/later'
        view = service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect_equal('the view', (view['attachment'], view['mountpoint']), ('mounted', point))
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point + '2'}).expect(409, 'wrong_state')
        write(f'{point}/kept', 'kept')
        with open(f'{point}/kept', encoding='utf-8'):
            service.post(f'/v1/sessions/{session}/unmount').expect(409, 'busy')
        view = service.post(f'/v1/sessions/{session}/unmount').expect(200)
        expect_equal('the view', (view['attachment'], view['mountpoint']), ('none', ''))
        service.post(f'/v1/sessions/{session}/unmount').expect(200)
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect_equal('the content', read(f'{point}/kept'), 'kept')
        subprocess.run(['umount', point], check=True)
        eventually('the session is detached',
                   lambda: service.get(f'/v1/sessions/{session}').json['attachment'] == 'none')
        service.post(f'/v1/sessions/{session}/commit').expect(200)
        expect_equal('the content', service.git('show', 'main:kept'), 'kept')


def APrefixIsTheRootAndAReadOnlySessionRefusesWrites(start):
    with start() as service:
        session, point = service.open_mounted(path_prefix='dir', read_only=True)
        expect_equal('the names', sorted(os.listdir(point)), ['b.txt', 'sub'])
        try:
            write(f'{point}/x', '')
            expect(False, 'a write went through')
        except OSError as error:
            expect_equal('the error', error.errno, 30)
        expect_equal('the state', service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).json['reason'],
                     'no_changes')


def CommandsWorkOnASessionOfTheService(start):
    with start() as service:
        session, point = service.open_mounted()
        write(f'{point}/new.txt', 'new')
        expect('new.txt' in service.escrow('diff', session, '--patch'), 'the diff does not show the file')
        service.escrow('commit', session, '--message', 'by the command line')
        eventually('the mount is gone', lambda: not service.is_mounted(point))
        expect_equal('the state', service.state(session), 'committed')
        expect_equal('the content', service.git('show', 'main:new.txt'), 'new')


def SessionsAreListedFilteredAndPaged(start):
    with start() as service:
        made = [service.open(external_id=f'pod-{n}', labels={'team': 'a' if n % 2 else 'b', 'n': str(n)})['session']
                for n in range(5)]
        service.post(f'/v1/sessions/{made[0]}/rollback').expect(200)
        seen, cursor = [], ''
        while cursor is not None:
            page = service.get('/v1/sessions?limit=2' + (f'&cursor={cursor}' if cursor else '')).expect(200)
            expect(len(page['sessions']) <= 2, 'the page is too long')
            seen += [one['session'] for one in page['sessions']]
            cursor = page['next']
        # The first is the import that the repository began with.
        expect_equal('all sessions', sorted(seen[1:]), sorted(made))
        def found(query):
            return {one['external_id'] for one in service.get('/v1/sessions?' + query).expect(200)['sessions']}
        expect_equal('open', found('state=open'), {'pod-1', 'pod-2', 'pod-3', 'pod-4'})
        expect_equal('by label', found('label=team:a&label=n:3'), {'pod-3'})
        expect_equal('by external id', found('external_id=pod-2'), {'pod-2'})
        expect_equal('by principal', found('principal=user:nobody'), set())
        expect_equal('by repository', found('repository=other'), set())
        expect_equal('those that are over', found('ended=true&label=n:0'), {'pod-0'})
        expect_equal('those that are not', found('ended=false'), {'pod-1', 'pod-2', 'pod-3', 'pod-4'})
        newest = [one['session'] for one in service.get('/v1/sessions?order=newest&limit=1000').json['sessions']]
        expect_equal('newest first', newest, seen[::-1])
        page = service.get('/v1/sessions?order=newest&limit=4').expect(200)
        rest = service.get(f'/v1/sessions?order=newest&cursor={page["next"]}').expect(200)
        expect_equal('newest first, in pages', [one['session'] for one in page['sessions'] + rest['sessions']], newest)
        for id_prefix in (made[3], made[3][:12], made[3][:1]):
            listed, cursor = [], ''
            while cursor is not None:
                behind = f'&cursor={cursor}' if cursor else ''
                page = service.get(f'/v1/sessions?id_prefix={id_prefix}&limit=1{behind}')
                listed += [one['session'] for one in page.expect(200)['sessions']]
                cursor = page.json['next']
            expect_equal('by prefix', listed, sorted(one for one in seen if one.startswith(id_prefix)))
        expect_equal('both', found('external_id=pod-2&state=committed'), set())
        for wrong in ('ended=maybe', 'order=random', 'id_prefix=', 'id_prefix=XY', 'id_prefix=ab&order=newest',
                      'cursor=' + 'YWJj', 'order=newest&cursor=' + 'YWJj', 'id_prefix=ab&cursor=YWJj'):
            service.get(f'/v1/sessions?{wrong}').expect(400, 'invalid_value')
        service.get('/v1/sessions?colour=red').expect(400, 'unknown_field')
        service.get('/v1/sessions?state=asleep').expect(400, 'invalid_value')
        service.post('/v1/sessions', {'repository': 'data', 'external_id': 'pod-2'}).expect(409, 'exists')


def WaitingAnswersWhenTheStateIsReached(start):
    with start() as service:
        session = service.open()['session']
        begun = time.monotonic()
        view = service.get(f'/v1/sessions/{session}/wait?timeout_ms=300').expect(200)
        expect_equal('the state at the timeout', view['state'], 'open')
        expect(time.monotonic() - begun >= 0.3, 'it was answered too early')
        answers = []
        def wait():
            answers.append(service.get(f'/v1/sessions/{session}/wait?states=committed,rolled_back&timeout_ms=250000'))
        waiters = [threading.Thread(target=wait) for _ in range(40)]
        for waiter in waiters:
            waiter.start()
        time.sleep(0.3)
        # More clients wait than there are threads, and the service answers others.
        service.post(f'/v1/sessions/{session}/rollback').expect(200)
        for waiter in waiters:
            waiter.join()
        expect_equal('the answers', [a.expect(200)['state'] for a in answers], ['rolled_back'] * 40)


def ManySessionsCommitToOneBranchAtOnce(start):
    with start() as service:
        problems = []
        def work(number):
            try:
                for turn in range(3):
                    session, point = service.open_mounted(f'worker-{number}')
                    write(f'{point}/file-{number}-{turn}', 'x')
                    service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
            except SystemExit as problem:
                problems.append(problem)
        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        expect_equal('problems', problems, [])
        names = service.git('ls-tree', '--name-only', 'main').split('\n')
        expect_equal('the files', len([name for name in names if name.startswith('file-')]), 24)
        expect_equal('the commits', service.git('rev-list', '--count', 'main'), '25')


def ARequestWithAKeyIsAnsweredOnce(start):
    with start() as service:
        body = {'repository': 'data', 'labels': {'a': 'b'}}
        key = {'Idempotency-Key': 'key-1'}
        first = service.post('/v1/sessions', body, headers=key)
        again = service.post('/v1/sessions', body, headers=key)
        expect_equal('the second answer', (again.status, again.body, again.headers['location']),
                     (201, first.body, first.headers['location']))
        service.post('/v1/sessions', {'repository': 'data'}, headers=key).expect(422, 'idempotency_key_reused')
        service.stop()
        service.start()
        expect_equal('after a restart', service.post('/v1/sessions', body, headers=key).body, first.body)
        expect_equal('the sessions', len(service.get('/v1/sessions?label=a:b').json['sessions']), 1)
        service.post('/v1/sessions', body, headers={'Idempotency-Key': 'a b'}).expect(400, 'malformed_request')


def AnOpeningThatFailedOnAFullDiskLeavesItsKeyFree(start):
    with start() as service:
        # What stays when neither the session can be made nor its row be taken back.
        with sqlite3.connect(f'{service.directory}/state/escrowd.db') as database:
            database.execute("INSERT INTO session (id, repository, owner, request_key, message, mountpoint, labels) "
                             "VALUES ('0123456789abcdef', 'data', 'user:root', '/v1/sessions key-1', '', '', '')")
        opened = service.post('/v1/sessions', {'repository': 'data'}, headers={'Idempotency-Key': 'key-1'}).expect(201)
        expect(opened['session'] != '0123456789abcdef', 'it is said to be a session that is not there')


def RequestsWithOneKeyAtOnceAreCarriedOutOnce(start):
    with start() as service:
        key, body, answers = {'Idempotency-Key': 'at-once'}, {'repository': 'data', 'labels': {'one': 'only'}}, []
        def ask():
            while (answer := service.post('/v1/sessions', body, headers=key)).status != 201:
                answer.expect(409, 'idempotency_in_flight')
                expect(answer.headers['retry-after'] == '1', 'when to retry is not said')
                time.sleep(0.01)
            answers.append(answer.body)
        askers = [threading.Thread(target=ask) for _ in range(24)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        expect_equal('the answers', (len(answers), len(set(answers))), (24, 1))
        expect_equal('the sessions', len(service.get('/v1/sessions?label=one:only').json['sessions']), 1)


def ManyCommitsLeaveFewPacksAndNoOpenFileOfAGoneOne(start):
    with start() as service:
        for number in range(60):
            session, point = service.open_mounted()
            write(f'{point}/file-{number}', str(number))
            service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        def packs():
            return [name for name in os.listdir(f'{service.repository}/objects/pack') if name.endswith('.pack')]
        eventually('the packs are folded', lambda: len(packs()) < 20)
        session, point = service.open_mounted()
        write(f'{point}/last', 'last')
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        def gone():
            return [link for link in service.open_files() if '.pack' in link and link.endswith('(deleted)')]
        eventually('files of packs that are gone are closed', lambda: len(gone()) < 10)


def WhatHappensIsCounted(start):
    with start() as service:
        def counted(line):
            found = [text for text in service.get('/metrics').body.decode().split('\n') if text.startswith(line)]
            return float(found[0].split()[-1]) if found else None
        for number in range(3):
            session, point = service.open_mounted(f'work-{number}')
            write(f'{point}/file', str(number))
            if number < 2:
                service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        # A host answers before it lets go of its session, and tells what it served when it has.
        eventually('the hosts of what is committed have let go', lambda: counted('escrow_mounts') == 1)
        expect_equal('committed', counted('escrow_sessions{state="committed"}'), 3)
        expect_equal('failed', counted('escrow_sessions{state="commit_failed"}'), 0)
        expect_equal('open', counted('escrow_sessions{state="open"}'), 1)
        expect_equal('commits', counted('escrow_commits_total{outcome="committed"}'), 2)
        expect_equal('timed', counted('escrow_commit_seconds_count'), 2)
        write(f'{point}/staged', 'x' * 5000)
        expect_equal('staged', counted('escrow_staged_bytes'), 5001)
        writes = counted('escrow_fuse_operations_total{operation="write"}')
        expect(writes >= 4, f'the mounts, also those that are gone, had {writes} calls of write')
        seconds = 'escrow_fuse_operation_seconds'
        # A call is counted when it comes, and timed after its answer.
        eventually('every write is timed', lambda: counted(f'{seconds}_count{{operation="write"}}') >= writes)
        expect(counted(f'{seconds}_sum{{operation="write"}}') > 0, 'they took no time')
        expect_equal('timed writes', counted(f'{seconds}_count{{operation="write"}}'),
                     counted(f'{seconds}_bucket{{operation="write",le="+Inf"}}'))
        fast, slow = (counted(f'{seconds}_bucket{{operation="write",le="{bound}"}}') for bound in ('1e-05', '1'))
        expect(fast <= slow <= counted(f'{seconds}_count{{operation="write"}}'), 'the buckets do not add up')
        read(f'{point}/a.txt')
        expect(counted('escrow_blob_cache_total{result="miss"}') >= 1, 'no content was read')
        expect_equal('denied', counted('escrow_denied_calls'), 0)
        policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['create'], 'paths': ['secret']}]}
        session, point = service.open_mounted('denied', policy=policy)
        try:
            write(f'{point}/secret', 'x')
            fail('what a policy forbids was written')
        except PermissionError:
            service.post(f'/v1/sessions/{session}/rollback', {}).expect(200)
        expect(counted('escrow_denied_calls') >= 1, 'the denied call was not counted')
        service.get('/nowhere')
        service.get('/elsewhere')
        expect_equal('unknown', counted('escrow_http_requests_total{method="other",route="none",status="404"}'), 2)
        posts = 'escrow_http_requests_total{method="POST",route="/v1/sessions/{session}/finish",status="200"}'
        expect_equal('posts', counted(posts), 2)


def ConflictsAreCounted(start):
    with start() as service:
        def counted(line):
            found = [text for text in service.get('/metrics').body.decode().split('\n') if text.startswith(line)]
            return float(found[0].split()[-1])
        conflicts = 'escrow_commits_total{outcome="conflict"}'
        expect_equal('conflicts', counted(conflicts), 0)
        for number, approval in enumerate((False, False, True)):
            session = service.open(require_approval=approval)['session']
            service.put(f'/v1/sessions/{session}/files/a.txt', b'mine').expect(200)
            result = None
            if approval:
                result = service.finish(session, {'exit_code': 0}).expect(200)['result']
            other = service.open()['session']
            service.put(f'/v1/sessions/{other}/files/a.txt', f'theirs {number}'.encode()).expect(200)
            service.finish(other, {'exit_code': 0}).expect(200)
            if approval:  # one of each way to commit
                service.post(f'/v1/sessions/{session}/approve', {'result': result}).expect(409, 'conflict')
            elif number == 0:
                service.post(f'/v1/sessions/{session}/commit').expect(409, 'conflict')
            else:
                expect_equal('failed', service.finish(session, {'exit_code': 0}).json['state'], 'commit_failed')
            expect_equal('conflicts', counted(conflicts), number + 1)
        expect_equal('failed', counted('escrow_sessions{state="commit_failed"}'), 1)


def CurlTalksToIt(start):
    with start() as service:
        def curl(*arguments):
            return subprocess.run(['curl', '--silent', '--fail-with-body', '--unix-socket', service.socket, *arguments],
                                  check=True, capture_output=True, text=True, timeout=300).stdout
        expect('"ok"' in curl('http://escrowd/v1/health'), 'health')
        expect('"ready"' in curl('http://escrowd/v1/ready'), 'ready')
        expect('"api":1' in curl('http://escrowd/v1/version'), 'version')
        opened = curl('-H', 'Content-Type: application/json', '-d', '{"repository": "data"}',
                      'http://escrowd/v1/sessions')
        expect('"state":"open"' in opened, opened)
        large = '{"repository": "data", "message": "' + 'x' * 60000 + '"}'
        expect('"state":"open"' in curl('-H', 'Content-Type: application/json', '-H', 'Expect: 100-continue', '-d',
                                        large, 'http://escrowd/v1/sessions'), 'a body after 100 Continue')


def ForksEndWithASessionThatIsFinishedAsFailed(start):
    with start() as service:
        session = service.open()['session']
        fork = service.escrow('fork', session).split()[0]
        inner = service.escrow('fork', fork).split()[0]
        expect_equal('its end', service.finish(session, {'exit_code': 1}).expect(200)['state'], 'rolled_back')
        for one in (inner, fork):
            expect_equal('a fork', json.loads(service.escrow('status', one, '--json'))['state'], 'rolled_back')


def ASuccessCanBeMadeToCountOnlyIfTheMountWasUsed(start):
    with start() as service:
        ending = {'exit_code': 0, 'only_if_seen': True}
        def end(session):
            view = service.finish(session, ending).expect(200)
            again = service.finish(session, ending).expect(200)
            expect_equal('again', (again['state'], again['reason']), (view['state'], view['reason']))
            return view['state'], view['reason']
        session, point = service.open_mounted()
        os.stat(point)
        expect_equal('one that was looked at', end(session), ('committed', 'no_changes'))
        session = service.open()['session']
        service.put(f'/v1/sessions/{session}/files/kept', b'kept').expect(201)
        service.post(f'/v1/sessions/{session}/mount', {'mountpoint': point}).expect(200)
        expect_equal('one that was not', end(session), ('rolled_back', 'not_started'))
        expect_equal('the kept result', service.git('show', f'refs/sessions/{session}:kept'), 'kept')
        session = service.open()['session']
        expect_equal('one that was never mounted', end(session), ('rolled_back', 'not_started'))
        session, _ = service.open_mounted()
        view = service.finish(session, {**ending, 'exit_code': 3}).expect(200)
        expect_equal('a failure', (view['reason'], view['exit_code']), ('exit_status', 3))


if __name__ == '__main__':
    main(globals())
