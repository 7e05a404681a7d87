#!/usr/bin/env python3
"""Trees of a few kilobytes that stand for 10^30 paths: each directory has the next one under ten names."""
import os
import threading

from service import eventually, expect_equal, main, write


def push_bomb(service, content):
    """Made in place: git-push(1) goes through all paths when it looks for what the other side has."""
    def git(*arguments, text):
        return service.git_with(text, *arguments)
    tree = git('mktree', text=f'100644 blob {git("hash-object", "-w", "--stdin", text=content)}\tf\n')
    for _ in range(30):
        tree = git('mktree', text=''.join(f'040000 tree {tree}\t{name}\n' for name in range(10)))
    push_tree(service, tree, content)


def push_tree(service, tree, message):
    head = service.git('rev-parse', 'refs/heads/main')
    commit = service.git('-c', 'user.name=t', '-c', 'user.email=t@x', 'commit-tree', '-m', message, '-p', head, tree)
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


def push_many_pairs(service, names, count):
    """On each level `count` trees, of which each leads to ten of the next. Of two such sets whose counts have no common
    factor each tree of the one meets each of the other."""
    below = [('100644 blob', f'{len(names):036x}{number:04x}') for number in range(count)]
    trees = [[('f', below[number])] for number in range(count)]
    for _ in range(9):
        listed = '\n'.join(''.join(f'{kind} {name_id}\t{name}\n' for name, (kind, name_id) in tree) for tree in trees)
        below = [('040000 tree', line)
                 for line in service.git_with(listed, 'mktree', '--missing', '--batch').splitlines()]
        trees = [[(str(name), below[(10 * number + name) % count]) for name in range(10)] for number in range(count)]
    push_tree(service, below[0][1], names)


def cpu_ticks(service):
    """Of all threads in user space (proc_pid_stat(5))."""
    with open(f'/proc/{service.process.pid}/stat', encoding='ascii') as line:
        return int(line.read().rsplit(')', 1)[1].split()[11])


def AWalkOfTreesEndsWhenTheServiceStops(start):
    with start(stop_grace_ms=1) as service:
        push_many_pairs(service, 'before', 1009)
        service.open()
        push_many_pairs(service, 'after', 1013)
        before, answers = cpu_ticks(service), []
        asking = threading.Thread(target=lambda: answers.append(service.post('/v1/sessions', {'repository': 'data'})))
        asking.start()
        eventually('it walks', lambda: cpu_ticks(service) > before + os.sysconf('SC_CLK_TCK') // 2)
        expect_equal('the exit status', service.stop(), 0)
        asking.join()
        answers[0].expect(503, 'unavailable')


if __name__ == '__main__':
    main(globals())
