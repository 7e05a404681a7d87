#!/usr/bin/env python3
"""Sessions over the API whose result somebody reviews, and sessions under a policy."""
import os

from authorization_test import asked, refused
from clock import HOUR_S, Clock
from service import NOBODY_NAME, eventually, expect, expect_equal, main, read, write


def sealed(service, name='work', text='new', **fields):
    """A session that awaits approval: its id and its result."""
    session, point = service.open_mounted(name, require_approval=True, **fields)
    write(f'{point}/{name}.txt', text)
    view = service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
    expect_equal('the state', view['state'], 'awaiting_approval')
    expect(not service.is_mounted(point), 'the mount is still there')
    return session, view['result']


def AReviewerCommitsExactlyWhatWasShown(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        head = service.git('rev-parse', 'main')
        session, result = sealed(service)
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        status, shown = asked(service, 'GET', f'/v1/sessions/{session}/changes')
        expect_equal('the changes', (status, [(one['path'], one['change'], one['after']['size'])
                                              for one in shown['changes']]), (200, [('work.txt', 'added', 3)]))
        expect('+new' in service.get(f'/v1/sessions/{session}/diff').body.decode(), 'the diff')
        target = f'/v1/sessions/{session}/approve'
        refused(service, 'POST', target, 400, 'invalid_value', {'result': result[:7]})
        refused(service, 'POST', target, 400, 'invalid_value', {})
        refused(service, 'POST', target, 409, 'wrong_state', {'result': '0' * 40})
        status, view = asked(service, 'POST', target, {'result': result, 'comment': 'numbers checked'})
        expect_equal('the outcome', (status, view['state'], view['reviewer'], view['review_comment']),
                     (200, 'committed', NOBODY_NAME, 'numbers checked'))
        expect_equal('the content', service.git('show', 'main:work.txt'), 'new')
        expect_equal('again', asked(service, 'POST', target, {'result': result})[1]['commit'], view['commit'])
        expect_equal('the first verb again',
                     service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)['state'], 'committed')
        refused(service, 'POST', f'/v1/sessions/{session}/reject', 409, 'session_finished', {})


def ARejectedResultLeavesNothing(start):
    with start(reviewers=[NOBODY_NAME]) as service:
        head = service.git('rev-parse', 'main')
        session, result = sealed(service)
        status, view = asked(service, 'POST', f'/v1/sessions/{session}/reject', {'comment': 'no'})
        expect_equal('the outcome', (status, view['state'], view['reason'], view['reviewer']),
                     (200, 'rolled_back', 'rejected', NOBODY_NAME))
        expect_equal('again', asked(service, 'POST', f'/v1/sessions/{session}/reject', {})[0], 200)
        refused(service, 'POST', f'/v1/sessions/{session}/approve', 409, 'session_finished', {'result': result})
        expect_equal('the branch', service.git('rev-parse', 'main'), head)
        session, _ = sealed(service)
        view = service.post(f'/v1/sessions/{session}/rollback').expect(200)
        expect_equal('by its owner', (view['state'], view['reason']), ('rolled_back', 'requested'))


def OnlyReviewersDecide(start):
    with start(operators=['user:daemon']) as service:
        status, own = asked(service, 'POST', '/v1/sessions', {'repository': 'data', 'require_approval': True})
        expect_equal('opened', status, 201)
        for verb, body in (('approve', {'result': '0' * 40}), ('reject', {})):
            refused(service, 'POST', f'/v1/sessions/{own["session"]}/{verb}', 403, 'forbidden', body)
        session, result = sealed(service)
        refused(service, 'POST', f'/v1/sessions/{session}/approve', 404, 'no_session', {'result': result})
    with start(four_eyes=True) as service:
        session, result = sealed(service)
        service.post(f'/v1/sessions/{session}/approve', {'result': result}).expect(403, 'forbidden')


def AResultOnAnotherHeadIsShownFirst(start):
    with start() as service:
        session, result = sealed(service)
        other, point = service.open_mounted('other')
        write(f'{point}/elsewhere', 'x')
        service.post(f'/v1/sessions/{other}/finish', {'exit_code': 0}).expect(200)
        target = f'/v1/sessions/{session}/approve'
        moved = service.post(target, {'result': result}).expect(409, 'result_moved')['result']
        expect(moved != result, 'the id is the same')
        service.post(target, {'result': result}).expect(409, 'wrong_state')
        expect_equal('the state', service.state(session), 'awaiting_approval')
        expect_equal('the outcome', service.post(target, {'result': moved}).expect(200)['state'], 'committed')
        session, result = sealed(service, text='mine')
        other, point = service.open_mounted('other')
        write(f'{point}/work.txt', 'theirs')
        service.post(f'/v1/sessions/{other}/finish', {'exit_code': 0}).expect(200)
        problem = service.post(f'/v1/sessions/{session}/approve', {'result': result}).expect(409, 'conflict')
        expect_equal('the conflicts', [one['path'] for one in problem['conflicts']], ['work.txt'])
        expect_equal('the state', service.state(session), 'awaiting_approval')


def AWaitingResultSurvivesARestartAndExpires(start):
    with start() as service:
        clock = Clock(service)
        kept, result = sealed(service)
        expiring, _ = sealed(service, 'expiring', approval_expires_s=HOUR_S)
        expect(service.get(f'/v1/sessions/{expiring}').json['expires'] is not None, 'it has no end')
        service.stop(9)
        clock.advance(HOUR_S)
        service.start()
        view = service.get(f'/v1/sessions/{expiring}/wait?states=rolled_back&timeout_ms=250000').expect(200)
        expect_equal('the outcome', (view['state'], view['reason']), ('rolled_back', 'expired'))
        expect_equal('the other', service.post(f'/v1/sessions/{kept}/approve', {'result': result}).json['state'],
                     'committed')


def APolicyRefusesInTheVeryCall(start):
    with start() as service:
        policy = {'default': 'deny', 'rules': [
            {'effect': 'allow', 'actions': ['read', 'list', 'write', 'create'], 'paths': ['/']},
            {'effect': 'deny', 'actions': ['read', 'write'], 'paths': ['dir/']}]}
        session, point = service.open_mounted(policy=policy)
        expect_equal('allowed', read(f'{point}/a.txt'), 'a.txt\n')
        for attempt in (lambda: read(f'{point}/dir/b.txt'), lambda: write(f'{point}/dir/b.txt', 'x'),
                        lambda: os.remove(f'{point}/a.txt')):
            try:
                attempt()
                expect(False, 'it was allowed')
            except PermissionError:
                pass
        service.post(f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)
        eventually('the denials are counted',
                   lambda: service.get(f'/v1/sessions/{session}').json['denials']['count'] >= 3)
        for wrong in ({'default': 'maybe', 'rules': []}, {'default': 'deny'}, {}, 'deny',
                      {'default': 'deny', 'rules': [{'effect': 'allow', 'actions': ['fly'], 'paths': ['/']}]}):
            problem = service.post('/v1/sessions', {'repository': 'data', 'policy': wrong}).expect(400, 'invalid_value')
            expect_equal('the field', problem['field'], 'policy')


if __name__ == '__main__':
    main(globals())
