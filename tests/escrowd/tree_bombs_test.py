#!/usr/bin/env python3
"""Trees of a few kilobytes that stand for 10^30 paths: each directory has the next one under ten names."""
import os

from service import expect_equal, main, write


def push_bomb(service, content):
    """Made in place: git-push(1) goes through all paths when it looks for what the other side has."""
    def git(*arguments, text):
        return service.git_with(text, *arguments)
    tree = git('mktree', text=f'100644 blob {git("hash-object", "-w", "--stdin", text=content)}\tf\n')
    for _ in range(30):
        tree = git('mktree', text=''.join(f'040000 tree {tree}\t{name}\n' for name in range(10)))
    head = service.git('rev-parse', 'refs/heads/main')
    commit = service.git('-c', 'user.name=t', '-c', 'user.email=t@x', 'commit-tree', '-m', content, '-p', head, tree)
    service.git('update-ref', 'refs/heads/main', commit)


def NoTreeOfCountlessPathsHangsARequestOrTheStop(start):
    with start() as service:
        push_bomb(service, '1')
        session, point = service.open_mounted()
        push_bomb(service, '2')
        # The index of times moves on from the one to the other.
        other = service.open()['session']
        write(f'{point}/0/1/mine', 'mine')
        target = f'/v1/sessions/{session}'
        changes = service.get(f'{target}/changes').expect(200)['changes']
        expect_equal('the changes', [one['path'] for one in changes], ['0/1/mine'])
        service.post(f'{target}/update', {}).expect(422, 'result_too_large')
        expect_equal('the state', service.state(session), 'open')
        os.rename(f'{point}/1', f'{point}/moved')
        for refused in ('changes', 'diff'):
            service.get(f'{target}/{refused}').expect(422, 'result_too_large')
        # Both sides changed all that is below it.
        service.post(f'{target}/commit').expect(422, 'result_too_large')
        service.finish(session, {'exit_code': 0}).expect(422, 'result_too_large')
        expect_equal('the state', service.state(session), 'open')
        service.post('/v1/repositories/data/gc').expect(200)
        service.post('/v1/repositories/data/verify').expect(200)
        expect_equal('the other session', service.state(other), 'open')
        expect_equal('the exit status', service.stop(), 0)


if __name__ == '__main__':
    main(globals())
