"""The verbs of escrowd that service_faults.py strikes: what each needs, how it is asked, what it leaves."""
import io
import os
import subprocess
import tarfile
import time

from fault_scenes import MiB, Broken, big_file, random_bytes

SESSIONS = '/v1/sessions'
BIG = big_file()


class Turn:
    """One use of a verb: the files are what the branch has afterwards below `name` and in `big`; None: as before."""

    def __init__(self, service, number):
        self.service, self.number, self.name = service, number, f'turn{number}'
        self.session, self.files, self.result = None, {}, None
        self.point = f'{service.mounts}/{self.name}'
        self.big = None

    def target(self, verb):
        return f'{SESSIONS}/{self.session}/{verb}'

    def post(self, verb, body=None):
        return self.service.post(self.target(verb), body, timeout=180)

    def must(self, answer, *statuses):
        if answer.status not in (statuses or (200,)):
            raise Broken(f'before or after the fault: {answer.status} {answer.body[:2000]}')
        return answer

    def open(self, **options):
        self.session = self.must(self.service.post(SESSIONS, {'repository': 'data', **options}), 201).json['session']

    def put(self, name, data):
        self.files[name] = data
        return self.service.put(f'{SESSIONS}/{self.session}/files/{self.name}/{name}', data, timeout=180)

    def write(self):
        for n in range(4):
            self.must(self.put(f'd/f{n}', b'%d of %d\n' % (n, self.number) * (n * 300 + 1)), 200, 201)
        self.must(self.put('large', random_bytes(self.number, 150_000)), 200, 201)

    def others_commit(self, name):
        """Somebody else commits a file of that name."""
        other = Turn(self.service, self.number)
        other.open()
        other.must(other.put(name, b'theirs %d\n' % self.number), 200, 201)
        other.must(other.post('commit'))
        return other.files

    def take_in_big(self, big):
        self.big = big

    def is_done(self, answer):
        return answer.status in (200, 201)


class Commit(Turn):
    def prepare(self):
        self.open()
        self.write()

    def ask(self):
        return self.post('commit', {'message': self.name})

    def finish(self):
        pass


class Finish(Commit):
    def ask(self):
        return self.post('finish', {'exit_code': 0})


class FailedFinish(Commit):
    def ask(self):
        return self.post('finish', {'exit_code': 3})

    def finish(self):
        self.files = {}


class Rollback(FailedFinish):
    def ask(self):
        return self.post('rollback')


class Merge(Commit):
    def prepare(self):
        super().prepare()
        self.files |= self.others_commit('theirs')


class Conflict(Commit):
    def prepare(self):
        super().prepare()
        self.others = self.others_commit('d/f1')

    def is_done(self, answer):
        return answer.status == 409 and answer.json['code'] == 'conflict'

    def finish(self):
        self.must(self.post('rollback'))
        self.files = self.others


class Update(Merge):
    def ask(self):
        return self.post('update')

    def finish(self):
        self.must(self.post('commit'))


class ConflictingUpdate(Conflict):
    def ask(self):
        return self.post('update')

    def is_done(self, answer):
        return answer.status == 200 and answer.json.get('conflicts')


class Discard(Commit):
    def ask(self):
        return self.post('discard', {'paths': [f'{self.name}/d']})

    def is_done(self, answer):
        # Asked for again, there is nothing of that name any more.
        return answer.status == 200 or (answer.status == 404 and answer.json['code'] == 'not_found')

    def finish(self):
        self.must(self.post('commit'))
        self.files = {'large': self.files['large']}


class Seal(Commit):
    def prepare(self):
        self.open(require_approval=True)
        self.write()

    def is_done(self, answer):
        return answer.status == 200 and answer.json['state'] == 'awaiting_approval'

    def finish(self):
        self.must(self.approve())

    def approve(self):
        result = self.service.get(f'{SESSIONS}/{self.session}').json['result']
        return self.post('approve', {'result': result})


class Approve(Seal):
    def prepare(self):
        super().prepare()
        self.result = self.must(self.post('commit')).json['result']

    def ask(self):
        return self.post('approve', {'result': self.result})

    def is_done(self, answer):
        return answer.status == 200 and answer.json['state'] == 'committed'

    def finish(self):
        pass


class Reject(Approve):
    def ask(self):
        return self.post('reject')

    def is_done(self, answer):
        return answer.status == 200

    def finish(self):
        self.files = {}


class Open(Commit):
    def prepare(self):
        pass

    def ask(self):
        # With a key: asked for again, it is the same session.
        return self.service.post(SESSIONS, {'repository': 'data', 'mountpoint': self.point},
                                 headers={'Idempotency-Key': self.name}, timeout=180)

    def finish(self):
        for session in self.service.get(f'{SESSIONS}?state=open').json['sessions']:
            self.session = session['session']
            self.must(self.post('rollback'))


class Put(Commit):
    def ask(self):
        return self.put('put', random_bytes(self.number, 200_000))

    def finish(self):
        self.must(self.post('commit'))


class Delete(Commit):
    def ask(self):
        answer = self.service.delete(f'{SESSIONS}/{self.session}/files/{self.name}/large', timeout=180)
        self.files.pop('large', None)
        return answer

    def is_done(self, answer):
        return answer.status in (200, 204, 404)

    def finish(self):
        self.must(self.post('commit'))


class Import(Commit):
    def prepare(self):
        self.files = {f'n{n}': b'imported %d\n' % n * 100 for n in range(30)}

    def ask(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode='w') as tar:
            for name, data in self.files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return self.service.post(f'/v1/repositories/data/imports?path_prefix={self.name}', out.getvalue(),
                                 headers={'Content-Type': 'application/x-tar'}, timeout=180)


class Gc(Commit):
    def ask(self):
        return self.service.post('/v1/repositories/data/gc', timeout=180)

    def finish(self):
        self.must(self.post('commit'))


class Verify(Gc):
    def ask(self):
        return self.service.post('/v1/repositories/data/verify', timeout=180)

    def is_done(self, answer):
        return answer.status == 200 and answer.json['sound']


class Mount(Commit):
    def ask(self):
        return self.post('mount', {'mountpoint': self.point})

    def finish(self):
        self.must(self.post('commit'))


class Unmount(Commit):
    def prepare(self):
        super().prepare()
        self.must(self.post('mount', {'mountpoint': self.point}))

    def ask(self):
        return self.post('unmount')

    def finish(self):
        self.must(self.post('commit'))


class StillFails(OSError):
    """What a program says that tried again in vain: the host is dead, or the disk stays full."""


def patiently(work):
    """What fails once does not fail twice."""
    for _ in range(3):
        try:
            return work()
        except OSError as error:
            said = error
    raise StillFails(f'three times in a row: {said}')


class MountedCommit(Commit):
    """Of a session that is mounted, by writes of a program."""

    def prepare(self):
        self.open(mountpoint=self.point)
        self.write_in_mount()

    def write_in_mount(self):
        directory = f'{self.point}/{self.name}/d'
        patiently(lambda: os.makedirs(directory, exist_ok=True))
        self.files = {f'd/f{n}': b'%d of %d\n' % (n, self.number) * (n * 300 + 1) for n in range(5)}
        self.files['large'] = random_bytes(self.number, 200_000)
        for name, data in self.files.items():
            patiently(lambda name=name, data=data: self.write_file(f'{self.point}/{self.name}/{name}', data))
        patiently(lambda: os.rename(f'{directory}/f4', f'{directory}/moved')
                  if os.path.exists(f'{directory}/f4') else None)
        self.files['d/moved'] = self.files.pop('d/f4')
        block = b'%12d' % self.number * 1000
        patiently(lambda: self.write_block(f'{self.point}/big', block))
        self.big = BIG[:MiB + 100] + block + BIG[MiB + 100 + len(block):]

    @staticmethod
    def write_file(path, data):
        with open(path, 'wb') as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())

    @staticmethod
    def write_block(path, block):
        with open(path, 'r+b') as out:
            out.seek(MiB + 100)
            out.write(block)
            out.flush()
            os.fsync(out.fileno())


class Write(MountedCommit):
    """The calls of the mount itself are struck; the program tries again, and all that it wrote is committed."""

    def prepare(self):
        self.open(mountpoint=self.point)

    def ask(self):
        mounted = self.post('mount', {'mountpoint': self.point})  # again, after a kill
        if mounted.status != 200:
            return mounted
        self.write_in_mount()
        return self.service.get(f'{SESSIONS}/{self.session}', timeout=180)

    def finish(self):
        self.must(self.post('commit'))


class Settle(Write):
    """What has stopped changing is stored in the background; what fails there is made good by the commit."""

    def prepare(self):
        self.open(mountpoint=self.point)
        self.write_in_mount()

    def ask(self):
        time.sleep(1.5)  # nobody says when a file has settled
        return self.service.get(f'{SESSIONS}/{self.session}', timeout=180)


class Run(Commit):
    def prepare(self):
        self.files = {'made': b'made\n' * 1000}

    def ask(self):
        script = f'mkdir -p {self.name} && yes made | head -1000 > {self.name}/made'
        answer = self.service.post('/v1/runs', {'repository': 'data', 'command': ['sh', '-c', script]}, timeout=180)
        if answer.status not in (200, 201, 202):
            return answer
        self.run = answer.json['run']
        return self.service.get(f'/v1/runs/{self.run}/wait', timeout=180)

    def is_done(self, answer):
        return answer.status == 200 and answer.json.get('state') == 'committed'


VERBS = {
    'open': Open, 'put': Put, 'delete': Delete, 'commit': Commit, 'finish': Finish, 'finish-failed': FailedFinish,
    'rollback': Rollback, 'merge': Merge, 'conflict': Conflict, 'update': Update,
    'update-conflict': ConflictingUpdate, 'discard': Discard, 'seal': Seal, 'approve': Approve, 'reject': Reject,
    'import': Import, 'gc': Gc, 'verify': Verify, 'mount': Mount, 'unmount': Unmount,
    'commit-mounted': MountedCommit, 'write': Write, 'settle': Settle,
}
