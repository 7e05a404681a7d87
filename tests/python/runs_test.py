#!/usr/bin/env python3
"""Runs of the Python client."""
import threading

from client import escrow, eventually, expect, expect_equal, main, raised


def RunsAreSpawnedAwaitedGatheredAndFreed(start):
    with start() as service:
        client = escrow.connect(service.socket)
        runs = [client.spawn('data', ['sh', '-c', f'echo {n} > new-{n}; echo out {n}; echo err >&2'],
                             labels={'job': str(n)}) for n in range(3)]
        results = client.gather(runs)
        expect_equal('the output', [(one.stdout, one.stderr) for one in results],
                     [(f'out {n}\n'.encode(), b'err\n') for n in range(3)])
        expect_equal('the commits', {one.commit for one in results} <= set(service.git('rev-list', 'main').split()),
                     True)
        expect_equal('by its label', [one.id for one in client.runs(labels={'job': '1'})], [runs[1].id])
        failing = client.spawn('data', ['sh', '-c', 'echo half > half; echo why >&2; exit 3'], env={'A': 'b'})
        failed = raised(escrow.RunFailed, failing.result)
        expect_equal('the failure', (failed.result.exit_code, failed.result.reason, failed.result.stderr, str(failed)),
                     (3, 'exit_status', b'why\n',
                      f'run {failing.id} was rolled back (exit_status, exit status 3): why'))
        both = client.gather([runs[0], failing], return_exceptions=True)
        expect_equal('both', [type(one).__name__ for one in both], ['RunResult', 'RunFailed'])
        raised(escrow.RunFailed, lambda: client.gather([runs[0], failing]))
        raised(TypeError, lambda: client.spawn('data', 'a line for a shell'))
        raised(ValueError, lambda: client.wait_any([]))

        endless = client.spawn('data', ['sh', '-c', 'echo begun; sleep 1000'])
        eventually('it has begun', lambda: endless.output() == b'begun\n')
        raised(escrow.WaitTimeout, lambda: endless.wait(timeout=0.2))
        raised(ValueError, lambda: client.result(endless))
        raised(escrow.WrongState, endless.free)
        expect_equal('the first that ends', [one.has_ended for one in client.wait_any([endless, failing])],
                     [False, True])
        expect_equal('alive', (endless.is_alive(), failing.is_alive()), (True, False))
        expect(endless.cancel().cancel_requested, 'it is not marked')
        expect_equal('the end', endless.wait().session.reason, 'cancelled')
        endless.free()
        expect_equal('freed', endless.is_alive(), False)
        raised(escrow.NotFound, endless.output)

        handle = client.sandbox_spawn('import sys; print(6 * 7); open("by-python", "w").write("1")', 60_000, 1 << 30)
        expect_equal('the names of the host functions',
                     ([one.id for one in client.sandbox_await_all([handle])], client.sandbox_await(handle).exit_code,
                      client.sandbox_get_output(handle), client.sandbox_is_alive(handle),
                      client.sandbox_gather([handle])[0].state, client.sandbox_free(handle)),
                     ([handle.id], 0, b'42\n', False, 'committed', None))
        slow = client.spawn('data', ['sleep', '1000'], timeout_ms=200)
        expect_equal('a timeout', raised(escrow.RunFailed, slow.result).result.reason, 'timed_out')


def OutputIsFollowedOverARestart(start):
    with start() as service:
        client = escrow.connect(service.socket, patience=300)
        run = client.spawn('data', ['sh', '-c', 'echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 1'])
        stream = run.follow()
        expect_equal('the beginning', next(stream), b'one\n')
        service.stop()
        rest = []
        reader = threading.Thread(target=lambda: rest.extend(stream))
        reader.start()
        service.start()
        run.cancel()
        reader.join(200)
        expect(not reader.is_alive(), 'the stream did not end')
        expect_equal('no byte twice', b''.join(rest), b'')
        expect_equal('the end', run.wait().session.reason, 'cancelled')


if __name__ == '__main__':
    main(globals())
