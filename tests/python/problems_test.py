#!/usr/bin/env python3
"""What the service refuses, as exceptions of the Python client."""
import time

import yaml

from client import ROOT, escrow, expect, expect_equal, main, raised


def EveryProblemOfTheApiIsAnException(start):
    del start
    with open(f'{ROOT}/api/openapi.yaml', encoding='utf-8') as file:
        codes = yaml.safe_load(file)['components']['schemas']['Problem']['properties']['code']['enum']
    expect_equal('the codes', list(escrow.PROBLEMS), codes)
    for code, kind in escrow.PROBLEMS.items():
        problem = kind({'code': code, 'status': 400, 'detail': 'why', 'retryable': False, 'exit_code': 2})
        expect(isinstance(problem, (escrow.Problem, escrow.EscrowError)), code)
        expect_equal(code, (problem.code, problem.status, str(problem), problem.exit_code), (code, 400, 'why', 2))
        expect(getattr(escrow, kind.__name__) is kind, f'escrow.{kind.__name__}')
        expect(kind.__name__ in escrow.__all__, f'{kind.__name__} is not offered')
    expect_equal('each has its own class', len(set(escrow.PROBLEMS.values())), len(codes))


def RefusalsAreRaisedByTheirCode(start):
    with start(max_content_bytes=100_000) as service:
        client = escrow.connect(service.socket)
        expect_equal('the repository', raised(escrow.NoRepository, lambda: client.session('none')).exit_code, 125)
        raised(escrow.NoBranch, lambda: client.session('data', branch='no/such'))
        raised(escrow.NoSession, lambda: client.status('0123456789abcdef'))
        raised(escrow.NotFound, lambda: client.run('0123456789abcdef'))
        expect_equal('the field', raised(escrow.UnknownField, lambda: client.session('data', colour=1)).field, 'colour')
        expect_equal('the value', raised(escrow.InvalidValue, lambda: client.session('data', umask='9')).field, 'umask')
        raised(escrow.Forbidden, lambda: client.session('data', mountpoint='/elsewhere'))
        raised(escrow.BadRequest, lambda: client.session('data', branch='a..b'))
        policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['write'], 'paths': ['dir']}]}
        with client.session('data', policy=policy, limits={'staged_bytes': 50_000}, external_id='one') as s:
            denied = raised(escrow.Forbidden, lambda: s.write('dir/b.txt', 'x'))
            expect_equal('the denial', (denied.action, denied.path, 'deny dir' in denied.rule),
                         ('write', 'dir/b.txt', True))
            begun = time.monotonic()
            raised(escrow.NoSpace, lambda: s.write('large', b'x' * 60_000))
            expect(time.monotonic() - begun < client._inner.requests.patience_s, 'it was tried for long')
            raised(escrow.BodyTooLarge, lambda: s.write('large', b'x' * 100_001))
            raised(escrow.Exists, lambda: client.session('data', external_id='one'))
            raised(escrow.WrongState, lambda: client.approve(s.id, '0' * 40))
            s.rollback()
            finished = raised(escrow.SessionFinished, s.commit)
            expect_equal('the state', (finished.state, finished.reason), ('rolled_back', 'requested'))
        later = escrow._errors.problem_of({'code': 'from_a_later_version', 'status': 409, 'detail': 'why'})
        expect_equal('an unknown code', (type(later), later.code), (escrow.Problem, 'from_a_later_version'))


def AServiceThatIsNotThereIsSaidAtOnce(start):
    with start() as service:
        begun = time.monotonic()
        error = raised(escrow.Unreachable, lambda: escrow.connect(f'{service.directory}/none', patience=500).session())
        expect(f'{service.directory}/none' in str(error), str(error))
        expect(isinstance(error, ConnectionError), 'it is a ConnectionError')
        expect(time.monotonic() - begun < 400, 'it was tried again')
    for host in ('ftp://a', 'https://', 'http://builds.example.org', 'builds.example.org'):
        raised(ValueError, lambda wrong=host: escrow.connect(wrong, token='escrow_x'))
    raised(ValueError, lambda: escrow.connect('https://localhost'))
    raised(ValueError, lambda: escrow.connect('https://localhost', token='a\r\nb'))


if __name__ == '__main__':
    main(globals())
