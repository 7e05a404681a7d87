"""What a disk has to show after a power cut: all that was promised before it, and nothing that nobody wrote."""
import hashlib
import random
import sqlite3


class Broken(Exception):
    """A promise that was not kept."""


class Deed:
    """Something that was done: `begun` and `done` are places of the disk's record; `done` None: it was not promised."""

    def __init__(self, begun, **about):
        self.begun, self.done = begun, None
        self.__dict__.update(about)

    def began_before(self, cut):
        return self.begun < cut

    def promised_at(self, cut):
        return self.done is not None and self.done <= cut


def blob_id(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


def change(content, deed):
    """Does to a bytearray what a deed did to a file."""
    if deed.how == 'truncate':
        content[deed.size:] = bytes(max(0, deed.size - len(content)))
    elif deed.how == 'punch':
        end = min(deed.offset + deed.size, len(content))
        content[deed.offset:end] = bytes(max(0, end - deed.offset))
    elif deed.how == 'write':
        content.extend(bytes(max(0, deed.offset - len(content))))
        content[deed.offset:deed.offset + len(deed.data)] = deed.data


class FileHistory:
    """A file that one thread writes. Each byte is as at the last fsync that had ended, or as a later write made it."""

    def __init__(self, base):
        self.base, self.deeds, self.now = base, [], bytearray(base)

    def add(self, deed):
        self.deeds.append(deed)
        change(self.now, deed)

    def versions(self, cut):
        content = bytearray(self.base)
        synced = [n for n, deed in enumerate(self.deeds) if deed.how == 'sync' and deed.promised_at(cut)]
        last = synced[-1] if synced else 0
        for deed in self.deeds[:last]:
            change(content, deed)
        found = [bytes(content)]
        for deed in self.deeds[last:]:
            if deed.how != 'sync' and deed.began_before(cut):
                change(content, deed)
                found.append(bytes(content))
        return found

    def check(self, name, cut, found):
        versions = self.versions(cut)
        sizes = [len(version) for version in versions]
        if not min(sizes) <= len(found) <= max(sizes):
            raise Broken(f'{name} has {len(found)} bytes; since its last fsync it had {sorted(set(sizes))}')
        for begin in range(0, len(found), 4096):
            part = found[begin:begin + 4096]
            if not any(version[begin:begin + 4096] == part for version in versions):
                self.check_bytes(name, begin, part, versions, min(sizes))

    # Behind the end of a version there may be a zero: the size can reach the disk before the bytes do.
    @staticmethod
    def check_bytes(name, begin, part, versions, shortest):
        for at, byte in enumerate(part, begin):
            if not any(at < len(version) and version[at] == byte for version in versions) \
                    and (byte or at < shortest):
                now = ' '.join(str(version[at]) if at < len(version) else '-' for version in versions)
                raise Broken(f'byte {at} of {name} is {byte}; in the {len(versions)} versions since its last fsync '
                             f'it was {now}')


class NameHistory:
    """A name: its files are synced before they get it (`swap`), or under it (`make`); None: it is removed."""

    def __init__(self, base):
        self.base, self.deeds = base, []

    def check(self, name, cut, found):
        certain = [n for n, deed in enumerate(self.deeds) if deed.promised_at(cut)]
        first = certain[-1] if certain else 0
        possible = [deed.content for deed in self.deeds[first:] if deed.promised_at(cut) or deed.began_before(cut)]
        if not certain:
            possible.append(self.base)
        if found in possible:
            return
        if any(deed.how == 'make' and deed.began_before(cut) and not deed.promised_at(cut)
               for deed in self.deeds[first:]):
            return  # its first fsync had not ended
        seen = 'absent' if found is None else f'{len(found)} other bytes: {found[:40]!r}'
        raise Broken(f'{name} is {seen}; it may be any of {[None if c is None else c[:40] for c in possible]}')


class DatabaseHistory:
    """A SQLite database to which one connection commits numbered transactions."""
    ROWS = 4000

    def __init__(self, seed, start):
        self.seed, self.deeds = seed, []
        self.first, self.start = start or (0, dict.fromkeys(range(self.ROWS), 0))

    def last(self):
        """For the next session: the number of the last transaction, and which one changed each row last."""
        state = dict(self.start)
        for number in range(self.first + 1, self.first + len(self.deeds) + 1):
            state.update(dict.fromkeys(self.rows_of(number), number))
        return self.first + len(self.deeds), state

    @classmethod
    def create(cls, path, mode):
        database = sqlite3.connect(path)
        database.execute(f'PRAGMA journal_mode = {mode}')
        database.execute('CREATE TABLE item (id INTEGER PRIMARY KEY, changed INTEGER, text BLOB)')
        rng = random.Random(path)
        database.executemany('INSERT INTO item VALUES (?, 0, ?)', ((n, rng.randbytes(400)) for n in range(cls.ROWS)))
        database.commit()
        database.close()

    def rows_of(self, number):
        rng = random.Random(f'{self.seed} {number}')
        return rng.sample(range(self.ROWS), rng.choice((1, 3, 40)))

    def transact(self, database, number):
        with database:
            for row in self.rows_of(number):
                database.execute('UPDATE item SET changed = ?, text = ? WHERE id = ?',
                                 (number, random.Random(number * 10007 + row).randbytes(400), row))

    def check(self, name, cut, path):
        database = sqlite3.connect(path)
        try:
            said = database.execute('PRAGMA integrity_check').fetchone()[0]
            if said != 'ok':
                raise Broken(f'{name}: SQLite says: {said}')
            found = dict(database.execute('SELECT id, changed FROM item'))
            for row, number, text in database.execute('SELECT id, changed, text FROM item WHERE changed != 0'):
                if text != random.Random(number * 10007 + row).randbytes(400):
                    raise Broken(f'{name}: row {row} is not what transaction {number} wrote')
        except sqlite3.DatabaseError as error:
            raise Broken(f'{name}: SQLite says: {error}') from error
        finally:
            database.close()
        self.check_transactions(name, cut, found)

    # All transactions up to one of them: the last that was acknowledged, or a later one.
    def check_transactions(self, name, cut, found):
        acknowledged, state = sum(deed.promised_at(cut) for deed in self.deeds), dict(self.start)
        for count in range(len(self.deeds) + 1):
            number = self.first + count
            state.update(dict.fromkeys(self.rows_of(number), number) if count else {})
            if state == found and count >= acknowledged:
                if count > acknowledged and not self.deeds[count - 1].began_before(cut):
                    raise Broken(f'{name} has transaction {number}, which had not begun')
                return
        raise Broken(f'{name}: the last of its transactions is {max(found.values())}, the last that was acknowledged '
                     f'is {self.first + acknowledged}; its rows are those of no state since then')


class SessionHistory:
    """A session: `states` are deeds with the state in which each left it, in order."""

    def __init__(self, identity, opened, state):
        self.identity, self.states = identity, []
        self.files, self.databases, self.names, self.bases = {}, {}, {}, []
        self.add(opened, state)

    def add(self, deed, state):
        deed.state = state
        self.states.append(deed)

    def possible(self, cut):
        """The states in which it may be found; nothing: it may also be absent."""
        certain = [n for n, deed in enumerate(self.states) if deed.promised_at(cut)]
        if not certain:
            return None
        return [deed.state for deed in self.states[certain[-1]:] if deed.promised_at(cut) or deed.began_before(cut)]


class History:
    """All of a recording: what checks need besides the record itself."""

    def __init__(self):
        self.made = self.imported = None  # deeds: init, the first import
        self.commits, self.sessions = [], []  # deeds with `commit`; of both those that were reported
        self.branch, self.entries, self.deeds = [], 0, 0
