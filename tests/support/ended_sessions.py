"""A history: sessions that have ended, put straight into the databases of a repository and of a stopped escrowd."""
import contextlib
import sqlite3

DAY_S = 86400


def numbers(count):
    return f'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})'


def add_ended_sessions(repository, like, count):
    """As many copies of the session `like`, with their history, one a second, the last a day before it."""
    with contextlib.closing(sqlite3.connect(f'{repository}/escrow/catalog.db')) as catalog, catalog:
        columns = [row[1] for row in catalog.execute('PRAGMA table_info(session)')]
        times = {name: f'{name} - {DAY_S} - {count} + i' for name in ('created_s', 'changed_s')}
        others = [name for name in columns if name != 'id']
        copied = ', '.join(times.get(name, f'"{name}"') for name in others)
        names = ', '.join(f'"{name}"' for name in others)
        catalog.execute(f"{numbers(count)} INSERT INTO session (id, {names}) SELECT printf('%016x', i * 16), {copied} "
                        'FROM n JOIN session ON id = ?', (like,))
        catalog.execute(f"{numbers(count)} INSERT INTO history (session, time_s, time_ns, from_state, to_state, who, "
                        "why) SELECT printf('%016x', i * 16), time_s, time_ns, from_state, to_state, who, why "
                        'FROM n JOIN history ON session = ?', (like,))


def add_service_facts(state, like, count):
    """What the service knows of those sessions, with the answers to the requests that opened them, still kept."""
    with contextlib.closing(sqlite3.connect(f'{state}/escrowd.db')) as database, database:
        database.execute(f"{numbers(count)} INSERT INTO session (id, repository, owner, external_id, request_key, "
                         "message, mountpoint, labels, settled) SELECT printf('%016x', i * 16), repository, owner, "
                         "'job-' || i, '/v1/sessions key-' || i, message, mountpoint, labels, 1 FROM n JOIN session ON "
                         'id = ?', (like,))
        database.execute(f"{numbers(count)} INSERT INTO request SELECT owner, 'POST /v1/sessions', 'key-' || i, "
                         "randomblob(32), unixepoch(), 201, 'application/json', randomblob(600), x'' FROM n JOIN "
                         'session ON id = ?', (like,))
