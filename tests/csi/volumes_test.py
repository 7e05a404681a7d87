#!/usr/bin/env python3
"""Inline volumes of pods: the end of a pod decides its session."""
import concurrent.futures
import errno
import json
import os
import signal
import subprocess

from cluster import OlderService, Pod, eventually, expect, expect_equal, fail, main
from service import host_of, read, write


def as_nobody(*command):
    return subprocess.run(['setpriv', '--reuid=4711', '--regid=4712', '--clear-groups', *command], check=False,
                          capture_output=True, text=True)


def APodWhoseContainersAllExitWithZeroIsCommitted(node):
    pod = Pod(node.api, containers=('main', 'helper'))
    volume = node.volume(pod, path_prefix='dir', message='from a pod')
    target = node.publish(volume)
    expect_equal('what it sees', sorted(os.listdir(target)), ['b.txt', 'sub'])
    write(f'{target}/new', 'x')
    pod.end(0, 0)
    node.unpublish(volume)
    session = node.expect_end(volume, 'committed', 'success')
    git = node.service.git
    expect_equal('changes', git('diff', '--name-status', 'main^', 'main'), 'A\tdir/new')
    expect_equal('subject', git('log', '-1', '--format=%s', 'main'), 'from a pod')
    trailers = git('log', '-1', '--format=%(trailers:only)', 'main').splitlines()
    for line in ('Escrow-Trigger: pod default/job', f'Escrow-Trigger-Id: {pod.uid}', 'Escrow-Exit-Code: 0'):
        expect(line in trailers, f'no {line} in {trailers}')
    audit = json.loads(node.service.escrow('audit', '--json', '--session', session['session']))
    expect('pod default/job' in json.dumps(audit), f'the audit does not name the pod: {audit}')
    expect_equal('events', node.api.reasons(), ['EscrowSessionOpened', 'EscrowCommitted'])
    event = node.api.events[-1]
    expect_equal('whose', (event['involvedObject']['uid'], event['type']), (pod.uid, 'Normal'))
    expect(git('rev-parse', 'main')[:12] in event['message'], f'no commit in {event["message"]}')


def TheImageInTheRecordIsTheOneThatThePodRan(node):
    def image_of(name, end):
        ended = ('rolled_back', 'exit_status') if name == 'bad' else ('committed', 'success')
        session = play(node, name, end, *ended)['session']
        [entry] = json.loads(node.service.escrow('audit', '--json', '--session', session))
        return entry['image']

    digest = 'sha256:' + '1' * 64
    for name, image_id, image in (
            ('one', f'registry.example/other@{digest}', f'registry.example/other@{digest}'),
            ('two', f'docker-pullable://x@{digest}', f'x@{digest}'),
            ('three', digest, f'registry.example/main:1@{digest}')):
        expect_equal(name, image_of(name, lambda pod, which=image_id: pod.end(0, image_id=which)), image)
        trailers = node.service.git('log', '-1', '--format=%(trailers:only)', 'main').splitlines()
        expect(f'Escrow-Image: {image}' in trailers, f'{image} is not in {trailers}')
    other = f'registry.example/other@{digest}'
    expect_equal('a failure', image_of('bad', lambda pod: pod.end(3, image_id=other)), other)


def APodThatNeverUsesItsVolumeHasChangedNothing(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    node.publish(volume)
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'no_changes')


def APodThatDoesNotSeeTheSessionIsRolledBack(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    node.kubelet.call('Node', 'NodePublishVolume', **volume)
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'rolled_back', 'not_started')
    event = node.api.events[-1]
    expect_equal('event', (event['reason'], event['type']), ('EscrowRolledBack', 'Warning'))
    expect('no container has seen it' in event['message'], event['message'])


def play(node, name, end, *expected, **attributes):
    """A pod that writes and then ends as `end` does it to the pod; its volume's session has ended as expected."""
    pod = Pod(node.api, name=name)
    volume = node.volume(pod, **attributes)
    write(f'{node.publish(volume)}/new-{name}', 'x')
    end(pod)
    node.unpublish(volume)
    return node.expect_end(volume, *expected)


def AnEscrowdOfAnEarlierVersionIsToldTheEndInFieldsThatItKnows(node):
    node.stop_driver()
    with OlderService(node, unknown={'image', 'only_if_seen'}) as older:
        node.escrowd = older.server_address
        node.start_driver()
        play(node, 'good', lambda pod: pod.end(0), 'committed', 'success')
        play(node, 'bad', lambda pod: pod.end(3), 'rolled_back', 'exit_status')
        play(node, 'late', lambda pod: pod.end(0, phase='Failed', reason='DeadlineExceeded'), 'rolled_back',
             'timed_out')
        older.shutdown()


def AnyOtherEndOfAPodRollsBack(node):
    first = node.service.git('rev-parse', 'main')
    session = play(node, 'fails', lambda pod: pod.end(3), 'rolled_back', 'exit_status')
    expect_equal('exit code', session['exit_code'], 3)
    play(node, 'memory', lambda pod: pod.end(0, ended='OOMKilled'), 'rolled_back', 'signal')
    play(node, 'deadline', lambda pod: pod.end(0, phase='Failed', reason='DeadlineExceeded'), 'rolled_back',
         'timed_out')
    play(node, 'unknown', lambda pod: pod.end(0, phase='Failed', reason='UnexpectedAdmissionError'), 'rolled_back',
         'exit_status')

    def fail_first(pod):
        pod.document['status'].update(phase='Failed', initContainerStatuses=[
            {'name': 'first', 'state': {'terminated': {'exitCode': 7, 'reason': 'Error'}}}])
        pod.document['status']['containerStatuses'][0]['state'] = {'waiting': {'reason': 'PodInitializing'}}
    expect_equal('exit code', play(node, 'first', fail_first, 'rolled_back', 'exit_status')['exit_code'], 7)
    expect_equal('the branch', node.service.git('rev-parse', 'main'), first)
    warnings = [event for event in node.api.events if event['reason'] == 'EscrowRolledBack']
    expect_equal('warnings', [event['type'] for event in warnings], ['Warning'] * 5)
    expect('ended with 3' in warnings[0]['message'], f'{warnings[0]}')


def ASidecarThatIsEndedAfterAllOthersSaysNothing(node):
    def end(pod):
        pod.document['spec']['initContainers'] = [{'name': 'proxy', 'restartPolicy': 'Always'}]
        pod.document['status']['initContainerStatuses'] = [
            {'name': 'proxy', 'state': {'terminated': {'exitCode': 137, 'reason': 'Error'}}}]
        pod.end(0)
    play(node, 'sidecar', end, 'committed', 'success')


def EvictionDrainAndDeletionAreCancellations(node):
    first = node.service.git('rev-parse', 'main')
    ended = ('rolled_back', 'cancelled')
    play(node, 'evicted', lambda pod: pod.end(0, phase='Failed', reason='Evicted'), *ended)
    play(node, 'shutdown', lambda pod: pod.end(0, phase='Failed', reason='Terminated'), *ended)

    def drain(pod):
        pod.delete()
        pod.document['status']['conditions'] = [{'type': 'DisruptionTarget', 'status': 'True',
                                                 'reason': 'EvictionByEvictionAPI'}]
        pod.end(0)
    play(node, 'drained', drain, *ended)

    # A container that makes a success of being stopped.
    def delete(pod):
        pod.delete(seconds_ago=2)
        pod.end(0)
    play(node, 'deleted', delete, *ended)
    play(node, 'running', lambda pod: pod.delete(), *ended)
    expect_equal('the branch', node.service.git('rev-parse', 'main'), first)


def APodThatHadEndedBeforeItWasDeletedIsDecidedByItsExitStatus(node):
    def end(pod, code):
        pod.end(code, seconds_ago=5)
        pod.delete(seconds_ago=2)
    play(node, 'good', lambda pod: end(pod, 0), 'committed', 'success')
    play(node, 'bad', lambda pod: end(pod, 4), 'rolled_back', 'exit_status')


def APodThatVanishedIsRolledBackAndItsResultKept(node):
    session = play(node, 'gone', lambda pod: pod.vanish(), 'rolled_back', 'requested')
    # What was asked of its successor says nothing about it.
    def replace(pod):
        Pod(node.api, name='again').end(0)
    other = play(node, 'again', replace, 'rolled_back', 'requested')
    for one, name in ((session, 'gone'), (other, 'again')):
        shown = node.service.git('show', f'refs/sessions/{one["session"]}:new-{name}')
        expect_equal('the result', shown, 'x')


def FilesAreTheUsersThatThePodRunsAs(node):
    pod = Pod(node.api, security={'runAsUser': 4711, 'runAsGroup': 4712, 'runAsNonRoot': True})
    volume = node.volume(pod)
    target = node.publish(volume)
    done = as_nobody('sh', '-c', f'cd {target} && cat a.txt && echo x >> a.txt && mkdir made && echo y > made/y')
    expect_equal(f'the command ({done.stderr})', (done.returncode, done.stdout), (0, 'a.txt\n'))
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'success')
    expect_equal('changes', node.service.git('diff', '--name-status', 'main^', 'main'), 'M\ta.txt\nA\tmade/y')


def ReadOnlyVolumesTakeNothing(node):
    for name, fields in (('asked', {'read_only': True}), ('attribute', {'attributes': {'read_only': 'true'}})):
        pod = Pod(node.api, name=name)
        volume = node.volume(pod, read_only=fields.get('read_only', False))
        volume['volume_context'].update(fields.get('attributes', {}))
        target = node.publish(volume)
        try:
            write(f'{target}/new', 'x')
        except OSError as error:
            expect_equal('why', error.errno, errno.EROFS)
        else:
            fail(f'{name}: it was written to')
        pod.end(0)
        node.unpublish(volume)
        node.expect_end(volume, 'committed', 'no_changes')


def ConflictsAndReviewsAreEventsOfThePod(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    write(f'{node.publish(volume)}/a.txt', 'the pod\'s\n')
    other = node.service.open()['session']
    node.service.put(f'/v1/sessions/{other}/files/a.txt', b'another\'s\n').expect(200)
    node.service.finish(other, {'exit_code': 0}).expect(200)
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'commit_failed', 'conflict')
    event = node.api.events[-1]
    expect_equal('event', (event['reason'], event['type']), ('EscrowConflict', 'Warning'))
    expect('a.txt' in event['message'], f'no path in {event["message"]}')
    play(node, 'reviewed', lambda one: one.end(0), 'awaiting_approval', 'none', require_approval='true')
    expect_equal('event', node.api.events[-1]['reason'], 'EscrowAwaitsApproval')


def WhenTheHostOfASessionIsKilledNothingIsCommitted(node):
    first = node.service.git('rev-parse', 'main')
    pod = Pod(node.api)
    volume = node.volume(pod)
    write(f'{node.publish(volume)}/new', 'x')
    session = node.session_of(volume)['session']
    os.kill(host_of(session), signal.SIGKILL)
    eventually('the service has noticed', lambda: 'has died' in read(f'{node.directory}/log'))
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'rolled_back', 'requested')
    expect('broke off' in node.api.events[-1]['message'], f'{node.api.events[-1]}')
    expect_equal('the branch', node.service.git('rev-parse', 'main'), first)


def TwentyPodsAtOnceEachHaveTheirOwnSession(node):
    pods = [Pod(node.api, name=f'job-{number}') for number in range(20)]

    def live(pod):
        volume = node.volume(pod)
        write(f'{node.publish(volume)}/{pod.name}', 'x')
        pod.end(0)
        node.unpublish(volume)
        node.expect_end(volume, 'committed', 'success')
    with concurrent.futures.ThreadPoolExecutor(20) as all_at_once:
        list(all_at_once.map(live, pods))
    names = node.service.git('ls-tree', '--name-only', 'main').split()
    expect(all(pod.name in names for pod in pods), f'{names}')


TESTS = {name: value for name, value in globals().items() if name[0].isupper() and callable(value)}
if __name__ == '__main__':
    main(TESTS)
