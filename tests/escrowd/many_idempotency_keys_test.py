#!/usr/bin/env python3
"""A hundred thousand requests with a key, of sessions that have ended: whoever holds a socket can send them."""
import sqlite3
import threading
import time

from service import eventually, expect, expect_equal, main, nightly

MANY = 100_000
OWNER = 'user:root'
# Generous: each takes milliseconds. What grows with the square of the number of keys takes hours.
PATIENCE_S = 60


def add_old_keys(service, ended):
    """MANY sessions like `ended`, each opened by a request with a key two days ago, in a service that is stopped."""
    numbers = f'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})'
    with sqlite3.connect(f'{service.repository}/escrow/catalog.db') as catalog:
        columns = [row[1] for row in catalog.execute('PRAGMA table_info(session)')]
        copied = ', '.join(f'"{name}"' for name in columns if name != 'id')
        catalog.execute(f"{numbers} INSERT INTO session (id, {copied}) SELECT printf('%016x', i), {copied} "
                        'FROM n JOIN session ON id = ?', (ended,))
    with sqlite3.connect(f'{service.directory}/state/escrowd.db') as database:
        database.execute(f"{numbers} INSERT INTO session (id, repository, owner, external_id, request_key, "
                         "message, mountpoint, labels) SELECT printf('%016x', i), 'data', ?, NULL, "
                         "'/v1/sessions key-' || i, x'', x'', x'' FROM n", (OWNER,))
        database.execute(f"{numbers} INSERT INTO request SELECT ?, 'POST /v1/sessions', 'key-' || i, randomblob(32), "
                         "?, 201, 'application/json', randomblob(600), x'' FROM n", (OWNER, time.time() - 2 * 86400))


def count(service, query):
    with sqlite3.connect(f'file:{service.directory}/state/escrowd.db?mode=ro', uri=True) as database:
        return database.execute(query).fetchone()[0]


@nightly()
def AHundredThousandOldKeysHoldNobodyUp(start):
    with start() as service:
        ended = service.open()['session']
        service.finish(ended, {'exit_code': 0}).expect(200)
        service.stop()
        add_old_keys(service, ended)

        begun = time.monotonic()
        service.start()
        expect(time.monotonic() - begun < PATIENCE_S, f'starting took {time.monotonic() - begun} s')

        # Clean-up is under way, beside those who commit and those who ask.
        slowest, done, failures = {'health': 0.0, 'commit': 0.0}, threading.Event(), []
        def repeat(what, work):
            try:
                number = 0
                while not done.is_set() or number == 0:  # once at least, however soon the old keys have gone
                    since = time.monotonic()
                    work(number)
                    slowest[what] = max(slowest[what], time.monotonic() - since)
                    number += 1
            except BaseException as failure:  # pylint: disable=broad-except
                failures.append(f'{what}: {failure!r}')
        def commit(number):
            headers = {'Idempotency-Key': f'new-{number}'}
            opened = service.post('/v1/sessions', {'repository': 'data'}, headers=headers).expect(201)['session']
            service.put(f'/v1/sessions/{opened}/files/file-{number}', b'x').expect(201)
            expect_equal('the state', service.finish(opened, {'exit_code': 0}).expect(200)['state'], 'committed')
        threads = [threading.Thread(target=repeat, args=one) for one in
                   (('health', lambda _: service.get('/v1/health').expect(200)), ('commit', commit))]
        for thread in threads:
            thread.start()
        old = "FROM request WHERE key LIKE 'key-%'"
        eventually('the old keys are forgotten', lambda: count(service, f'SELECT count(*) {old}') == 0, 300)
        done.set()
        for thread in threads:
            thread.join()
        expect_equal('failures', failures, [])
        for what, seconds in slowest.items():
            expect(0 < seconds < PATIENCE_S, f'{what} took {seconds} s')
        print(f'slowest: {slowest}')
        # Of the new ones none is forgotten, and of the old ones the sessions stay.
        expect(count(service, "SELECT count(*) FROM request WHERE key LIKE 'new-%'") > 0, 'the new keys are forgotten')
        expect_equal('sessions with an old key',
                     count(service, "SELECT count(*) FROM session WHERE request_key LIKE '% key-%'"), 0)
        expect(count(service, 'SELECT count(*) FROM session') > MANY, 'sessions were forgotten with their keys')


if __name__ == '__main__':
    main(globals())
