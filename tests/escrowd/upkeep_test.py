#!/usr/bin/env python3
"""What takes long and is not a session's: gc, verify and imports, which hold nobody else up; and what verify says when
there is more wrong than it can say, or nobody to say it.
"""
import contextlib
import fcntl
import glob
import http.client
import os
import signal
import subprocess
import threading
import time

from imports_test import IMPORTS, archive, entry, held, imports_under_way, send
from service import NOBODY, as_user, eventually, expect, expect_equal, fail, main, open_files, write

GC, VERIFY = '/v1/repositories/data/gc', '/v1/repositories/data/verify'
ROUTE = '/v1/repositories/{repository}/imports'
LATER = {'Prefer': 'respond-async'}


def make_hole(service, name, megabytes):
    """Little on the disk, and long to be read: a directory below the source root with one file."""
    path = f'{service.directory}/sources/{name}'
    os.makedirs(path)
    with open(f'{path}/hole', 'wb') as file:
        file.truncate(megabytes << 20)
    return {'source': path, 'branch': name}


def started(start, **config):
    service = start(**config)
    os.mkdir(f'{service.directory}/sources')
    service.config['source_roots'] = [f'{service.directory}/sources']
    service.write_config()
    return service


def with_hole(service, megabytes):
    """What verify has some seconds to read."""
    service.post(IMPORTS, make_hole(service, 'large', megabytes), timeout=300).expect(201)


def with_no_answer(ask):
    try:
        ask()
    except (OSError, http.client.HTTPException):
        return
    fail('there is an answer')


def verifiers(service, verb=b'verify'):
    """The processes that verify the repository: pids."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().split(b'\0')
        except OSError:
            continue
        if verb in words and service.repository.encode() in words:
            found.append(int(pid))
    return found


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def begun(service):
    """Those of them that have come as far as reading the repository."""
    def has_opened(pid):
        return any(file.startswith(f'{service.repository}/') for file in open_files(pid))
    return [pid for pid in verifiers(service) if has_opened(pid)]


class Asking(threading.Thread):
    """A POST that is under way; its answer once it has been joined, and how long that took."""

    def __init__(self, service, target, body=None, **keywords):
        super().__init__()
        self.answer = self.seconds = None
        self.ask = lambda: service.post(target, body, timeout=300, **keywords)
        self.start()

    def run(self):
        begun = time.monotonic()
        self.answer = self.ask()
        self.seconds = time.monotonic() - begun


def answered(service, target, body, headers):
    """What the same request is answered once what it asked for is done."""
    answers = []
    def is_done():
        answer = service.post(target, body, headers=headers)
        if answer.status == 202:
            return False
        answers.append(answer)
        if answer.status == 409 and answer.json['code'] == 'idempotency_in_flight':
            expect_equal('when to come again', answer.headers['retry-after'], '1')
            return False
        return True
    eventually('it is done', is_done)
    return answers


def WhatTakesLongNeedNotBeWaitedFor(start):
    with started(start) as service:
        import_body = make_hole(service, 'large', 300)
        for target, body, status, member in ((IMPORTS, import_body, 201, 'session'), (VERIFY, {}, 200, 'sound'),
                                             (GC, {}, 200, 'objects_after')):
            headers = {'Idempotency-Key': 'later', **LATER}
            answer = service.post(target, body, headers=headers)
            document = answer.expect(202)
            expect_equal('where to look', (document['idempotency_key'], answer.headers['location'],
                                           answer.headers['retry-after'], answer.headers['preference-applied']),
                         ('later', target, '1', 'respond-async'))
            if target == VERIFY:  # a process of its own, which can be held
                eventually('it has begun', lambda: verifiers(service))
                pids = verifiers(service)
                signal_all(pids, signal.SIGSTOP)
                problem = service.post(target, body, headers={'Idempotency-Key': 'later'}).expect(
                    409, 'idempotency_in_flight')
                expect(problem['retryable'], problem)
                signal_all(pids, signal.SIGCONT)
            seen = answered(service, target, body, headers)
            expect(member in seen[-1].expect(status), seen[-1].json)
            again = service.post(target, body, headers={'Idempotency-Key': 'later'})
            expect_equal('the same again', (again.status, again.json), (status, seen[-1].json))
            service.post(target, {**body, 'colour': 'red'}, headers={'Idempotency-Key': 'later'}).expect(
                422, 'idempotency_key_reused')
            # Nowhere to look, or no key that could be.
            answer = service.post(target, {**body, 'colour': 'red'}, headers=LATER)
            answer.expect(400, 'unknown_field')
            expect('preference-applied' not in answer.headers, answer.headers)
            service.post(target, body, headers={'Idempotency-Key': 'a b', **LATER}).expect(400, 'malformed_request')
        answer = service.post(GC, headers={'Idempotency-Key': 'patient', 'Prefer': 'wait=30'})
        answer.expect(200)
        expect_equal('what was applied', answer.headers['preference-applied'], 'wait=30')
        # An archive is asked for in the same way.
        made = archive(entry('a', b'a'))
        headers = {'Idempotency-Key': 'archive', **LATER}
        send(service, made, headers=headers).expect(202)
        eventually('it is imported', lambda: send(service, made, headers=headers).status == 201)


def CommitsDoNotWaitForGc(start):
    service = started(start)
    # Its git waits before it repacks until it is told to go on.
    programs = f'{service.directory}/programs'
    os.mkdir(programs)
    write(f'{programs}/git', f'#!/bin/sh\ncase " $* " in *" repack "*)\n  touch {programs}/waits\n'
          f'  while ! test -e {programs}/go; do sleep 0.02; done;;\nesac\nPATH={os.environ["PATH"]} exec git "$@"\n')
    os.chmod(f'{programs}/git', 0o755)
    service.before = ['env', f'PATH={programs}:{os.environ["PATH"]}']
    with service:
        service.git('config', 'gc.pruneExpire', 'now')
        collecting = Asking(service, GC)
        eventually('git is at work', lambda: os.path.exists(f'{programs}/waits'), 60)
        for number in range(10):
            session = service.open()['session']
            service.put(f'/v1/sessions/{session}/files/file-{number}', b'x').expect(201)
            service.post(f'/v1/sessions/{session}/commit').expect(200)
        expect(collecting.is_alive(), 'gc has ended before')
        # A second one takes its turn.
        second = Asking(service, GC)
        write(f'{programs}/go', '')
        for one in (collecting, second):
            one.join()
            one.answer.expect(200)
        names = service.git('ls-tree', '--name-only', 'main').split('\n')
        expect_equal('what was committed', [name for name in names if name.startswith('file-')],
                     [f'file-{number}' for number in range(10)])
        service.git('fsck', '--full', '--strict')
        service.escrow('verify')


def LongRequestsLeaveTheOthersTheirThreads(start):
    with started(start) as service:
        by_nobody, importing_too = [], []
        bodies = [make_hole(service, f'large-{number}', 1) for number in range(8)]
        def under_way():
            return len(imports_under_way(service))
        with held(service):  # none of them has ended before all of them have begun
            # One principal leaves some places to the others.
            importing = [Asking(service, IMPORTS, body) for body in bodies[:6]]
            eventually('six are under way', lambda: under_way() == 6)
            problem = service.post(IMPORTS, bodies[6]).expect(503, 'unavailable')
            expect(problem['retryable'] and
                   'as one may have at once are under way for user:root (6)' in problem['detail'], problem)
            for body in bodies[6:]:
                def ask(body=body):
                    by_nobody.append(as_user(NOBODY, lambda: service.post(IMPORTS, body, timeout=300).status))
                importing_too.append(threading.Thread(target=ask))
                importing_too[-1].start()
            eventually('eight are under way', lambda: under_way() == 8)
            for ask in (lambda: send(service, archive(entry('a', b'a'))),
                        lambda: service.post(IMPORTS, {**bodies[0], 'branch': 'ninth'})):
                answer = ask()
                problem = answer.expect(503, 'unavailable')
                expect(problem['retryable'] and 'nothing was changed' in problem['detail'], problem)
                expect_equal('when to come again', answer.headers['retry-after'], '1')
            # Who asks for something else does not notice them.
            for asked in range(20):
                session = service.open()['session']
                service.put(f'/v1/sessions/{session}/files/file-{asked}', b'x').expect(201)
                service.post(f'/v1/sessions/{session}/rollback').expect(200)
            expect_equal('meanwhile', under_way(), 8)
        for one in importing:
            one.join()
            expect_equal('the import', one.answer.expect(201)['state'], 'committed')
        for one in importing_too:
            one.join()
        expect_equal('those of nobody', by_nobody, [201, 201])
        # What was answered late is counted as what was answered at once.
        line = f'escrow_http_requests_total{{method="POST",route="{ROUTE}",status="201"}} 8\n'
        expect(line in service.get('/metrics').body.decode(), 'the imports are not counted')
        send(service, archive(entry('a', b'a'))).expect(201)
        with_hole(service, 100)
        checks = [Asking(service, VERIFY) for _ in range(12)]
        def have_begun_or_been_answered():
            signal_all(verifiers(service), signal.SIGSTOP)
            return len(verifiers(service)) + sum(not one.is_alive() for one in checks) == len(checks)
        eventually('each has begun or been answered', have_begun_or_been_answered)
        signal_all(verifiers(service), signal.SIGCONT)
        for one in checks:
            one.join()
        statuses = sorted(one.answer.status for one in checks)
        print(f'of 12 at once: {statuses}')
        expect(statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}, statuses)


def WhatIsUnderWayIsDoneBeforeTheServiceStops(start):
    with started(start, stop_grace_ms=100_000) as service:
        left_body = make_hole(service, 'left', 1)
        headers = {'Idempotency-Key': 'k', 'Prefer': 'wait=3600'}
        def is_stopping():
            try:
                service.get('/v1/health')
                return False
            except OSError:
                return True
        with held(service):  # neither has ended when the service is told to stop
            waited_for = Asking(service, IMPORTS, make_hole(service, 'waited-for', 1))
            left = Asking(service, IMPORTS, left_body, headers=headers)
            eventually('both are under way', lambda: len(imports_under_way(service)) == 2)
            service.process.send_signal(signal.SIGTERM)
            eventually('it has heard', is_stopping)
            left.join()
        expect_equal('the exit status', service.process.wait(300), 0)
        waited_for.join()
        expect_equal('who waited', waited_for.answer.expect(201)['state'], 'committed')
        expect_equal('who need not wait', left.answer.expect(202), {'idempotency_key': 'k'})
        service.start()
        found = service.post(IMPORTS, left_body, headers={'Idempotency-Key': 'k'}).expect(201)
        expect_equal('the answer', found['state'], 'committed')
        expect_equal('its commits', service.git('rev-list', '--count', 'left'), '1')


def WhatTakesTooLongIsBrokenOffWhenTheServiceStops(start):
    with started(start, max_content_bytes=1 << 40, stop_grace_ms=500) as service:
        with_hole(service, 300)
        key, before = {'Idempotency-Key': 'k'}, service.git('for-each-ref')
        body = make_hole(service, 'endless', 200_000)
        keyed = make_hole(service, 'keyed', 200_000)
        # gc waits as long as another has its turn, verify as long as it is stopped.
        with open(f'{service.repository}/escrow/upkeep.lock', 'wb') as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            asking = [Asking(service, IMPORTS, body), Asking(service, IMPORTS, keyed, headers=key),
                      Asking(service, GC), Asking(service, VERIFY)]
            eventually('verify has begun', lambda: verifiers(service))
            os.kill(verifiers(service)[0], signal.SIGSTOP)
            eventually('the imports have begun', lambda: len(imports_under_way(service)) == 2)
            eventually('gc has begun', lambda: verifiers(service, b'gc'))
            left = Asking(service, VERIFY, headers={'Idempotency-Key': 'left', 'Prefer': 'wait=3600'})
            eventually('the second verify has begun', lambda: len(verifiers(service)) == 2)
            for pid in verifiers(service):
                os.kill(pid, signal.SIGSTOP)
            begun = time.monotonic()
            expect_equal('the exit status', service.stop(seconds=300), 0)
            print(f'stopped in {time.monotonic() - begun:.2f} s')
            expect(time.monotonic() - begun < 15, f'the end took {time.monotonic() - begun:.1f} s')
        for one in asking:
            one.join()
            problem = one.answer.expect(503, 'unavailable')
            expect(problem['retryable'] and 'the service stops' in problem['detail'], problem)
        left.join()
        left.answer.expect(202)
        expect_equal('its processes', verifiers(service) + verifiers(service, b'gc'), [])
        service.start()
        expect_equal('sessions', imports_under_way(service), [])
        expect_equal('the references', service.git('for-each-ref'), before)
        service.escrow('verify')
        # What was broken off may come again, also to who had not waited for it.
        os.truncate(f'{keyed["source"]}/hole', 10)
        service.post(IMPORTS, keyed, headers=key).expect(201)
        problem = service.post(VERIFY, headers={'Idempotency-Key': 'left'}).expect(503, 'unavailable')
        expect('the service stops' in problem['detail'], problem)
        service.post(VERIFY, headers={'Idempotency-Key': 'left'}).expect(200)
        service.post(GC).expect(200)


def VerifyDiesWithTheService(start):
    with started(start) as service:
        with_hole(service, 300)
        checking = threading.Thread(target=lambda: with_no_answer(lambda: service.post(VERIFY)))
        checking.start()
        seen = []
        eventually('it has begun', lambda: seen.extend(begun(service)) or seen)
        os.kill(seen[0], signal.SIGSTOP)
        service.stop(signal.SIGKILL)
        checking.join()
        eventually('it has gone, too', lambda: not verifiers(service))


def VerifyThatIsKilledSaysSoAndMayComeAgain(start):
    with started(start) as service:
        with_hole(service, 300)
        checking = Asking(service, VERIFY)
        eventually('it has begun', lambda: verifiers(service))
        signal_all(verifiers(service), signal.SIGKILL)
        checking.join()
        problem = checking.answer.expect(503, 'unavailable')
        expect('could not be verified' in problem['detail'] and 'status 137' in problem['detail'], problem['detail'])
        expect_equal('when to come again', checking.answer.headers['retry-after'], '1')
        # Who did not wait is told, once.
        headers = {'Idempotency-Key': 'k', **LATER}
        service.post(VERIFY, headers=headers).expect(202)
        eventually('it has begun', lambda: verifiers(service))
        signal_all(verifiers(service), signal.SIGKILL)
        expect('status 137' in answered(service, VERIFY, {}, headers)[-1].expect(503, 'unavailable')['detail'],
               'who came back was not told')
        # Who was told while waiting is not told again.
        waiting = Asking(service, VERIFY, headers={'Idempotency-Key': 'waits', 'Prefer': 'wait=60'})
        eventually('it has begun', lambda: verifiers(service))
        signal_all(verifiers(service), signal.SIGKILL)
        waiting.join()
        waiting.answer.expect(503, 'unavailable')
        service.post(VERIFY, headers={'Idempotency-Key': 'waits'}, timeout=300).expect(200)
        expect_equal('then', service.post(VERIFY, headers={'Idempotency-Key': 'k'}, timeout=300).expect(200),
                     {'sound': True, 'problems': []})
        expect_equal('its processes', verifiers(service), [])


def VerifyThatCannotReadTheRepositorySaysWhy(start):
    with start() as service:
        service.git('config', 'core.repositoryFormatVersion', '1')
        service.git('config', 'extensions.objectFormat', 'sha256')
        for target in (VERIFY, GC):
            problem = service.post(target).expect(422, 'unsupported_repository')
            expect('could not be ' in problem['detail'] and 'sha256' in problem['detail'].lower(), problem['detail'])


def OfTooManyFindingsTheRestIsCounted(start):
    count = 6000
    with start() as service:
        made = archive(*(entry(f'dir/file-{number}', f'content {number}'.encode()) for number in range(count)))
        send(service, made, timeout=300).expect(201)
        service.stop()
        # Loose, each damaged by itself.
        for pack in glob.glob(f'{service.repository}/objects/pack/*.pack'):
            aside = f'{service.directory}/aside.pack'
            os.rename(pack, aside)
            for other in glob.glob(pack.removesuffix('.pack') + '.*'):
                os.unlink(other)
            with open(aside, 'rb') as file:
                subprocess.run(['git', '-c', 'safe.directory=*', '--git-dir', service.repository, 'unpack-objects',
                                '-q'], stdin=file, check=True, timeout=300)
        blobs = [line.split()[2] for line in service.git('ls-tree', '-r', 'main').split('\n')]
        expect_equal('the files', len(set(blobs)), count)
        for blob in blobs:
            path = f'{service.repository}/objects/{blob[:2]}/{blob[2:]}'
            os.chmod(path, 0o644)
            write(path, 'damaged')
        service.start()
        answer = service.post(VERIFY, timeout=300)
        document = answer.expect(200)
        problems = document['problems']
        expect_equal('soundness', document['sound'], False)
        rest = problems.pop()
        print(f'{len(answer.body)} bytes; the last of {len(problems) + 1}: {rest}')
        expect_equal('the rest', rest, {'where': 'repository', 'what': f'has {count - len(problems)} further problems'})
        said = {problem['where'] for problem in problems}
        expect(len(said) == len(problems) and said <= {f'object {blob}' for blob in blobs}, problems[:3])
        expect(511 * 1024 <= len(answer.body) <= 512 * 1024, f'{len(answer.body)} bytes are said')
        # The command line here, which has room, says them all.
        result = service.escrow('verify', expect_status=1)
        expect_equal('what is said here', sum(blob in result for blob in blobs), count)


if __name__ == '__main__':
    main(globals())
