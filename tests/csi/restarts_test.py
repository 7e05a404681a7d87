#!/usr/bin/env python3
"""escrow-csi, escrowd and the API server come and go while pods have volumes: nothing is lost or done twice."""
import random
import signal
import threading

from cluster import Pod, eventually, expect, expect_equal, main
from seed import seed_of_this_run
from service import write


def DriverAndServiceMayRestartInBetween(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    target = node.publish(volume)
    session = node.session_of(volume)['session']
    for how in (signal.SIGTERM, signal.SIGKILL):
        write(f'{target}/before-{how}', 'x')
        node.stop_driver(how)
        node.service.stop(how)
        write(f'{target}/meanwhile-{how}', 'x')
        node.service.start()
        node.start_driver()
        node.publish(volume)
        expect_equal('the session', node.session_of(volume)['session'], session)
    node.stop_driver(signal.SIGKILL)
    pod.end(0)
    node.start_driver()
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'success')
    added = node.service.git('diff', '--name-only', 'main^', 'main').split()
    expect_equal('added', sorted(added), sorted(f'{when}-{how}' for when in ('before', 'meanwhile') for how in
                                                (signal.SIGTERM, signal.SIGKILL)))


def AnEndThatIsToldLateIsWaitedFor(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    write(f'{node.publish(volume)}/new', 'x')
    code, said = node.unpublish_code(volume)
    expect_equal(said, code, 'UNAVAILABLE')
    node.api.stop()
    code, said = node.unpublish_code(volume)
    expect_equal(said, code, 'UNAVAILABLE')
    expect(node.api.url in said, said)
    expect_equal('state', node.session_of(volume)['state'], 'open')
    node.api.start()
    threading.Timer(1, lambda: pod.end(0)).start()
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'success')


def AnEndThatNobodyTellsIsRolledBackAndItsResultKept(node):
    node.stop_driver()
    node.start_driver('--lost-after', '1s')
    pod = Pod(node.api)
    volume = node.volume(pod)
    write(f'{node.publish(volume)}/new', 'x')
    node.api.stop()
    expect_equal('the first time', node.unpublish_code(volume)[0], 'UNAVAILABLE')
    node.unpublish(volume)
    session = node.expect_end(volume, 'rolled_back', 'requested')['session']
    expect_equal('the result', node.service.git('show', f'refs/sessions/{session}:new'), 'x')


def asked_by_a_kubelet(ask, volume):
    """The first answer that is no UNAVAILABLE: after that one a kubelet asks again. escrowd may still be at what the
    killed driver had asked for.
    """
    answers = []
    def is_answered():
        answers.append(ask(volume))
        return answers[-1][0] != 'UNAVAILABLE'
    eventually('there is an answer', is_answered)
    return answers[-1]


def ADriverThatIsKilledAtAnyTimeDoesEverythingOnce(node):
    chance = random.Random(seed_of_this_run())
    for turn in range(8):
        pod = Pod(node.api, name=f'job-{turn}')
        volume = node.volume(pod)
        for ask in (node.publish_code, node.unpublish_code):
            if ask == node.unpublish_code:
                write(f'{volume["target_path"]}/{pod.name}', 'x')
                pod.end(0)
            killing = threading.Timer(chance.uniform(0, 0.15), node.driver.kill)
            killing.start()
            ask(volume)
            killing.join()
            node.driver.wait()
            node.start_driver()
            expect_equal('once more', asked_by_a_kubelet(ask, volume), ('OK', ''))
        node.expect_end(volume, 'committed', 'success')
        expect_equal('changes', node.service.git('diff', '--name-status', 'main^', 'main'), f'A\t{pod.name}')


TESTS = {name: value for name, value in globals().items() if name[0].isupper() and callable(value)}
if __name__ == '__main__':
    main(TESTS)
