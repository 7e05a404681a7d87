#!/usr/bin/env python3
"""The tables of the API, read from api/openapi.yaml and walked cell by cell: what each verb is answered in each state
of a session.

A cell is what may be answered, separated by commas: a status, a code (of a 409 without one session_finished), and
`for` whom. A case here says in which situation it asks, with the words of the cell; in none the first answer is the
right one, or that of `else`.
"""
import fcntl
import itertools
import os
import re
import signal
import subprocess
import threading

from description import DESCRIPTION
from service import eventually, expect, expect_equal, fail, host_of, main, write

ENDINGS = {'exit_code 0': {'exit_code': 0}, 'exit_code 1': {'exit_code': 1}, 'signal': {'signal': 9},
           'cancelled': {'cancelled': True}, 'timed_out': {'timed_out': True}}
FILES = {'changes': ('GET', 'changes'), 'diff': ('GET', 'diff'), 'entries': ('GET', 'entries'),
         'savepoints': ('GET', 'savepoints'), 'unresolved': ('GET', 'unresolved'),
         'mounts': ('GET', 'mounts'),
         'GET': ('GET', 'files/a.txt'),
         'PUT': ('PUT', 'files/a.txt'), 'DELETE': ('DELETE', 'files/a.txt')}
OTHER = '0' * 40
NUMBERS = itertools.count()


def tables_of(text):
    """{(state, verb): cell} of all the tables of states in a text."""
    cells, verbs = {}, None
    for line in text.splitlines():
        first, *rest = [part.strip() for part in line.strip().strip('|').split('|')] if '|' in line else ['']
        if first == 'state':
            verbs = [[verb.removesuffix(' of a file') for verb in column.split(', ')] for column in rest]
        elif first and verbs and not first.startswith('-'):
            expect_equal(f'the columns of {line!r}', len(rest), len(verbs))
            for state in first.split(', '):
                cells.update({(state, verb): cell for column, cell in zip(verbs, rest) for verb in column})
        elif not first:
            verbs = None
    return cells


def answers_of(cell):
    """[(for whom, status, code)]"""
    found = []
    for part in cell.split(', '):
        match = re.fullmatch(r'(else )?(\d{3})(?: (?!for )(\w+))?(?: for (.+))?', part)
        expect(match is not None, f'what does {part!r} in the cell {cell!r} mean?')
        code = match[3] or ('session_finished' if match[2] == '409' else None)
        found.append((match[4], int(match[2]), code))
    return found


class Table:
    """Knows which answers were seen."""

    def __init__(self):
        self.cells = tables_of(DESCRIPTION.document['info']['description'])
        self.unseen = {(state, verb, answer) for (state, verb), cell in self.cells.items()
                       for answer in answers_of(cell)}

    def expected(self, state, verb, words):
        answers = answers_of(self.cells[state, verb])
        named = [answer for answer in answers if {answer[0], answer[2], str(answer[1])} & set(words)]
        answer = (named or [answer for answer in answers if answer[0] is None])[0]
        self.unseen.discard((state, verb, answer))
        return answer[1:]

    def check_all_seen(self, states):
        # Of a column with several verbs each answer is one verb's at least.
        seen = {(state, verb, answer) for (state, verb), cell in self.cells.items() for answer in answers_of(cell)}
        seen -= self.unseen
        columns = {}
        for (state, verb), cell in self.cells.items():
            columns.setdefault((state, cell, column_of(verb)), []).append(verb)
        for (state, cell, _), verbs in columns.items():
            for answer in answers_of(cell) if state in states else ():
                expect(any((state, verb, answer) in seen for verb in verbs),
                       f'nothing of {verbs} was answered {answer} in the state {state}')
        for state, verb in self.cells:
            expect(state not in states or any(one[:2] == (state, verb) for one in seen),
                   f'{verb} was not tried in the state {state}')


def column_of(verb):
    for column in (('mount', 'unmount', 'update', 'discard', 'savepoints', 'mounts', 'unresolved'),
                   ('changes', 'diff', 'entries', 'GET'), ('PUT', 'DELETE')):
        if verb in column:
            return column
    return verb


def ask(service, session, verb, body=None):
    if verb not in FILES:
        return service.post(f'/v1/sessions/{session}/{verb}', body)
    method, route = FILES[verb]
    target = f'/v1/sessions/{session}/{body or route}'
    if method == 'PUT':
        return service.put(target, b'new content')
    return service.get(target) if method == 'GET' else service.delete(target)


def bring(service, state, how=''):
    """A session in this state, with a mount as long as it is open."""
    approval = state == 'awaiting_approval' or how in ('after approval', 'by a reviewer')
    name = f'work-{next(NUMBERS)}'
    session, point = service.open_mounted(name, require_approval=approval,
                                          **({} if how == 'without a lease' else {'lease_ms': 600_000}))
    write(f'{point}/{name}.txt', 'new')
    if how == 'conflict' or state == 'commit_failed':
        write(f'{point}/a.txt', 'mine')
    if state == 'commit_failed':
        others_change(service, 'a.txt')
    if how == 'by hand':
        verb = 'rollback' if state == 'rolled_back' else 'commit'
        service.post(f'/v1/sessions/{session}/{verb}').expect(200)
    elif state not in ('open', 'committing'):
        failed = state == 'rolled_back' and not approval
        service.finish(session, {'exit_code': 1 if failed else 0}).expect(200)
    view = service.get(f'/v1/sessions/{session}').expect(200)
    if how == 'after approval':
        service.post(f'/v1/sessions/{session}/approve', {'result': view['result']}).expect(200)
    if how == 'by a reviewer':
        service.post(f'/v1/sessions/{session}/reject').expect(200)
    view = service.get(f'/v1/sessions/{session}').expect(200)
    expect_equal('the state', view['state'], 'open' if state == 'committing' else state)
    return session, view


def others_change(service, path):
    session = service.open()['session']
    service.put(f'/v1/sessions/{session}/files/{path}', f'theirs {next(NUMBERS)}'.encode())
    service.finish(session, {'exit_code': 0}).expect(200)


def plain_cases(service, view, how):
    """(the verb, the words for the situation, what is asked) that can be asked in every state."""
    yield 'mount', (), {'mountpoint': f'{service.mounts}/other-{view["session"]}'}
    for verb in ('unmount', 'update', 'commit', 'rollback', 'reject', 'resume'):
        yield verb, ('a rejected one',) if how == 'by a reviewer' else (), {}
    yield 'discard', (), {'paths': ['a.txt']}
    yield 'resolve', ('not_found',), {'paths': ['a.txt'], 'how': 'mine'}
    yield 'lease', () if how == 'without a lease' else ('one with a lease',), {}
    own = {'by its exit status': 'exit_code 1', 'by a reviewer': 'exit_code 0'}.get(how)
    for name, ending in ENDINGS.items():
        yield 'finish', (name, 'the same ending') if name == own else (name,), ending
    yield 'approve', ('its result',) if view['result'] else (), {'result': view['result'] or OTHER}
    for verb in FILES:
        yield verb, (), None


def check_case(table, service, state, session, view, case):
    """Whether the session may be asked again: it is as it was."""
    verb, words, body = case
    status, code = table.expected(state, verb, words)
    answer = ask(service, session, verb, body)
    said = f'{verb} {body} of a session that is {state} {words}: {answer.status} {answer.body[:300]!r}'
    expect(answer.status == status, f'{said}, expected {status} {code}')
    if status < 400:
        again = answer if verb in ('mount', 'DELETE', 'resolve') else ask(service, session, verb, body)
        usual = 201 if verb == 'resume' else 200
        expect(again.status == usual or again is answer, f'again: {said}, then {again.status}')
        return state not in ('open', 'awaiting_approval')
    expect_equal(said, answer.json['code'], code)
    expect(answer.json.get('state', state) == state, said)
    now = service.get(f'/v1/sessions/{session}').expect(200)
    for member in ('state', 'reason', 'commit', 'result'):
        expect_equal(f'{member} after {said}', now[member], view[member])
    return True


def walk(table, service, state, how):
    """Everything that can be asked of a session that came to its state in this way."""
    session, view = bring(service, state, how)
    for number in range(len(list(plain_cases(service, view, how)))):
        if session is None:
            session, view = bring(service, state, how)
        case = list(plain_cases(service, view, how))[number]
        if case[0] == 'mount' and state == 'open':
            service.post(f'/v1/sessions/{session}/unmount').expect(200)
        if not check_case(table, service, state, session, view, case):
            session = None


def walk_open(table, service):
    for how in ('with a lease', 'without a lease'):
        walk(table, service, 'open', how)
    def check(how, verb, word, body):
        session, view = bring(service, 'open', how)
        return session, lambda: check_case(table, service, 'open', session, view, (verb, (word,), body))
    session, case = check('', 'mount', 'wrong_state', {'mountpoint': f'{service.mounts}/elsewhere'})
    case()
    session, case = check('', 'unmount', 'busy', {})
    point = service.get(f'/v1/sessions/{session}').json['mountpoint']
    with subprocess.Popen(['sleep', '60'], cwd=point) as holder:
        case()
        holder.kill()
    session, case = check('conflict', 'commit', 'conflict', {})
    others_change(service, 'a.txt')
    case()
    session, case = check('conflict', 'resolve', '200', {'paths': ['a.txt'], 'how': 'theirs'})
    others_change(service, 'a.txt')
    case()
    session, case = check('', 'PUT', '201', 'files/new.txt')
    case()


def walk_awaiting(table, service):
    walk(table, service, 'awaiting_approval', '')
    session, view = bring(service, 'awaiting_approval')
    check_case(table, service, 'awaiting_approval', session, view, ('approve', ('wrong_state',), {'result': OTHER}))
    others_change(service, 'dir/b.txt')
    answer = ask(service, session, 'approve', {'result': view['result']})
    moved = answer.expect(*table.expected('awaiting_approval', 'approve', ('result_moved',)))
    expect_equal('the result', service.get(f'/v1/sessions/{session}').json['result'], moved['result'])
    session, view = bring(service, 'awaiting_approval', 'conflict')
    others_change(service, 'a.txt')
    check_case(table, service, 'awaiting_approval', session, view,
               ('approve', ('conflict',), {'result': view['result']}))


class Held:
    """While others cannot have the lock of this file: reference.lock, and no branch moves; gc.lock, and no object comes
    into the repository.
    """

    def __init__(self, service, name):
        self.file = open(f'{service.repository}/escrow/{name}', 'ab')  # pylint: disable=consider-using-with

    def __enter__(self):
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_):
        self.file.close()


def is_sealed(service, session):
    """Whether a commit has sealed it. A commit keeps whole writes out before that, and removals of a file only then."""
    return service.delete(f'/v1/sessions/{session}/files/none').status == 409


def ask_apart(service, session):
    """A thread that commits, and its answer. Who asks meanwhile whether it has begun may have the session's turn; the
    commit is then asked for again.
    """
    answers = []
    def commit():
        try:
            while b'another request on session' in (answer := ask(service, session, 'commit', {})).body:
                pass
            answers.append(answer)
        except OSError:
            pass  # the service is killed
    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    return thread, answers


def begin_to_commit(service, session):
    """A thread that commits, when the commit is on its way."""
    thread, answers = ask_apart(service, session)
    eventually('it is being committed', lambda: service.state(session) == 'committing')
    return thread, answers


def walk_committing(table, service):
    # One after the other: they have processes of their own, which take turns at the branch.
    for how in ('', 'without a lease'):
        session, _ = bring(service, 'committing', how)
        with Held(service, 'reference.lock'):
            thread, answers = begin_to_commit(service, session)
            view = service.get(f'/v1/sessions/{session}').expect(200)
            for case in plain_cases(service, view, how):
                check_case(table, service, 'committing', session, view, case)
            expect_equal('the state', service.state(session), 'committing')
        thread.join(300)
        expect_equal('the commit', [(answer.status, answer.json['state']) for answer in answers], [(200, 'committed')])


def walk_final(table, service):
    for state, how in (('committed', ''), ('committed', 'by hand'), ('committed', 'after approval'),
                       ('commit_failed', ''), ('rolled_back', 'by its exit status'), ('rolled_back', 'by hand'),
                       ('rolled_back', 'by a reviewer')):
        walk(table, service, state, how)
    session = service.open()['session']
    service.put(f'/v1/sessions/{session}/files/kept.txt', b'kept').expect(201)
    view = service.post(f'/v1/sessions/{session}/rollback', {'keep_result': True}).expect(200)
    check_case(table, service, 'rolled_back', session, view, ('resume', ('one that kept its result',), {}))
    session, view = bring(service, 'committed', 'after approval')
    check_case(table, service, 'committed', session, view, ('approve', (), {'result': OTHER}))


def EveryCellOfTheTableIsWhatIsAnswered(start):
    table = Table()
    expect_equal('the states', {state for state, _ in table.cells},
                 set(DESCRIPTION.document['components']['schemas']['State']['enum']))
    with start() as service:
        walk_open(table, service)
        walk_awaiting(table, service)
        walk_committing(table, service)
        walk_final(table, service)
    table.check_all_seen({state for state, _ in table.cells})


def TheReadmeHasTheSameTable(start):
    del start
    with open(f'{os.path.dirname(os.path.abspath(__file__))}/../../api/README.md', encoding='utf-8') as file:
        readme = tables_of(file.read())
    cells = Table().cells
    for at in sorted(cells.keys() | readme.keys()):
        expect_equal(f'api/README.md: {at[1]} in the state {at[0]}', readme.get(at), cells.get(at))
    verbs = {path.split('/')[4] for path in DESCRIPTION.paths if re.match(r'/v1/sessions/{session}/\w', path)}
    expect_equal('the verbs', {verb for _, verb in cells}, verbs - {'wait', 'files'} | {'GET', 'PUT', 'DELETE'})


def WhatComesBeforeTheStateSaysSoIsBusyToo(start):
    """The commit has sealed the session, and is still open: its objects are on their way."""
    with start() as service:
        session, view = bring(service, 'open')
        ask(service, session, 'PUT').expect(200)  # the first notes who writes, and would wait for the commit
        with Held(service, 'gc.lock'):
            thread, answers = ask_apart(service, session)
            eventually('it is sealed', lambda: is_sealed(service, session))
            for verb, _, body in plain_cases(service, view, ''):
                if verb not in ('GET', 'entries', 'lease'):
                    ask(service, session, verb, body).expect(409, 'busy')
            expect_equal('the state', service.state(session), 'open')
        thread.join(300)
        expect_equal('the commit', [(answer.status, answer.json['state']) for answer in answers], [(200, 'committed')])


def ACommitThatNobodyCarriesOnIsConcludedFirst(start):
    """After the session's host was killed, while another process has it so that recovery leaves it alone."""
    verbs = ('commit', 'rollback', 'finish', 'changes', 'mount')
    with start() as service:
        for verb in verbs:
            session = bring(service, 'committing')[0]
            with Held(service, 'reference.lock'):
                begin_to_commit(service, session)
                host = host_of(session)
                service.stop(signal.SIGKILL)
                os.kill(host, signal.SIGKILL)
                held = open(f'{service.repository}/escrow/sessions/{session}/lock', 'ab')
                fcntl.lockf(held, fcntl.LOCK_EX)
            service.start()
            view = service.get(f'/v1/sessions/{session}').expect(200)
            expect_equal('the state', view['state'], 'committing')
            for other, _, body in plain_cases(service, view, ''):
                if other != 'lease':
                    ask(service, session, other, body).expect(409, 'attached_elsewhere')
            held.close()
            body = {'finish': {'exit_code': 0}, 'mount': {'mountpoint': f'{service.mounts}/m'}}.get(verb)
            answer = ask(service, session, verb, body)
            got = (answer.status, answer.json['state'], answer.json.get('code'))
            expected = (200, None) if verb in ('commit', 'finish') else (409, 'session_finished')
            expect_equal(verb, got, (expected[0], 'committed', expected[1]))
        heads = service.git('rev-list', '--count', 'main')
        expect_equal('the commits', int(heads), 1 + len(verbs))


def ACommitThatMissedTheBranchIsConcludedAndRepeated(start):
    """git has the lock of the branch for longer than a commit waits, and moves the branch meanwhile."""
    with start() as service:
        session, _ = bring(service, 'committing')
        lock = f'{service.repository}/refs/heads/main.lock'
        write(lock, '')
        thread, answers = begin_to_commit(service, session)
        tree = service.git('rev-parse', 'main^{tree}')
        head = service.git('-c', 'user.name=t', '-c', 'user.email=t@t', 'commit-tree', tree, '-p', 'main', '-m', 'x')
        write(f'{service.repository}/refs/heads/main', head + '\n')
        thread.join(300)
        answers[0].expect(409, 'busy')
        eventually('it is open again', lambda: service.state(session) == 'open')
        os.unlink(lock)
        expect_equal('the next', ask(service, session, 'commit', {}).expect(200)['state'], 'committed')
        expect_equal('the history', service.git('rev-list', '--count', 'main'), '3')


if __name__ == '__main__':
    main(globals())
