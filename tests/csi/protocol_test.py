#!/usr/bin/env python3
"""What escrow-csi answers a kubelet, whatever that asks: the protocol's own rules, and what is refused."""
import concurrent.futures
import os

from cluster import Pod, expect, expect_equal, main
from service import write


def TheDriverSaysWhatItIs(node):
    call = node.kubelet.call
    info = call('Identity', 'GetPluginInfo')
    expect_equal('name', info.name, 'csi.escrow')
    expect(info.vendor_version, 'it has no version')
    expect_equal('node', call('Node', 'NodeGetInfo').node_id, 'node-1')
    expect_equal('capabilities', (len(call('Identity', 'GetPluginCapabilities').capabilities),
                                  len(call('Node', 'NodeGetCapabilities').capabilities)), (0, 0))
    expect(call('Identity', 'Probe').ready.value, 'it is not ready')
    node.service.stop()
    expect(not call('Identity', 'Probe').ready.value, 'it is ready without escrowd')
    pod = Pod(node.api)
    expect_equal('publish', node.publish_code(node.volume(pod))[0], 'UNAVAILABLE')
    expect_equal('unpublish', node.unpublish_code(node.volume(pod))[0], 'UNAVAILABLE')


def ASecondPublishChangesNothing(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    write(f'{node.publish(volume)}/new', 'x')
    session = node.session_of(volume)['session']
    node.publish(volume)
    expect_equal('the session', node.session_of(volume)['session'], session)
    with open('/proc/self/mounts', encoding='utf-8') as table:
        points = [line.split()[1] for line in table]
    expect_equal('mounts', points.count(volume['target_path']), 1)
    others = [({'target_path': volume['target_path'] + '2'}, 'ALREADY_EXISTS'),
              ({'readonly': True}, 'ALREADY_EXISTS'),
              ({'volume_context': {**volume['volume_context'], 'path_prefix': 'dir'}}, 'ALREADY_EXISTS')]
    for changes, expected in others:
        expect_equal(f'{changes}', node.publish_code(volume, **changes)[0], expected)
    expect_equal('what was written', os.path.exists(f'{volume["target_path"]}/new'), True)
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'success')
    expect_equal('after its end', node.publish_code(volume)[0], 'FAILED_PRECONDITION')


def UnpublishMayComeAgainAndForWhatNeverWas(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    node.unpublish(volume)
    os.mkdir(volume['target_path'])  # as a kubelet that reconstructs what it finds
    node.unpublish(volume)
    expect(not os.path.exists(volume['target_path']), 'the directory is still there')
    node.publish(volume)
    pod.end(3)
    for _ in range(3):
        node.unpublish(volume)
    node.expect_end(volume, 'rolled_back', 'exit_status')
    expect_equal('events', node.api.reasons(), ['EscrowSessionOpened', 'EscrowRolledBack'])


def WhatIsMissingOrWrongIsRefusedByName(node):
    volume = node.volume(Pod(node.api))

    def context(**changes):
        changed = {**volume['volume_context'], **{name.replace('__', '/'): value for name, value in changes.items()}}
        return {'volume_context': {name: value for name, value in changed.items() if value is not None}}
    kubelets = 'csi.storage.k8s.io'
    cases = [({'volume_id': ''}, 'volume_id'), ({'volume_id': '../up'}, 'volume_id'),
             ({'volume_id': '.x'}, 'volume_id'), ({'volume_id': 'x' * 200}, 'volume_id'),
             ({'target_path': ''}, 'target_path'),
             ({'target_path': 'here'}, 'target_path'), ({'target_path': '/a/../b'}, 'target_path'),
             ({'volume_capability': None}, 'volume_capability'),
             ({'volume_capability': {'access_mode': {'mode': 'SINGLE_NODE_WRITER'}}}, 'volume_capability'),
             ({'volume_capability': {'block': {}}}, 'block'),
             ({'volume_capability': {'mount': {'mount_flags': ['exec']}}}, 'mount options'),
             ({'secrets': {'token': 'x'}}, 'secret'),
             (context(**{f'{kubelets}__ephemeral': 'false'}), 'inline'),
             (context(**{f'{kubelets}__ephemeral': None}), 'inline'),
             (context(**{f'{kubelets}__pod.uid': None}), 'podInfoOnMount'),
             (context(**{f'{kubelets}__pod.name': ''}), 'podInfoOnMount'),
             (context(repository=None), 'repository'), (context(repository='nowhere'), 'nowhere'),
             (context(branch='nowhere'), 'nowhere'), (context(colour='red'), 'colour'), (context(uid='alice'), 'uid'),
             (context(policy='/etc/passwd'), 'policy'), (context(mount='path=p,source=host:/'), 'mount'),
             (context(timeout='soon'), 'timeout'), (context(path_prefix='../up'), 'path_prefix'),
             (context(message='x' * 2000), 'message')]
    for changes, word in cases:
        code, said = node.publish_code(volume, **changes)
        expect_equal(f'{changes}: {said}', code, 'INVALID_ARGUMENT')
        expect(word in said, f'{changes}: no word of {word} in "{said}"')
    for changes in ({'volume_id': ''}, {'target_path': ''}, {'volume_id': '../up'}):
        expect_equal(f'{changes}', node.unpublish_code(volume, **changes)[0], 'INVALID_ARGUMENT')
    expect_equal('sessions', node.service.get('/v1/sessions?ended=false').expect(200)['sessions'], [])
    expect_equal('directories', os.listdir(f'{node.directory}/pods'), [])


def WhoMayHaveARepositoryIsDecidedByTheNamespace(node):
    node.stop_driver()
    node.start_driver('--allow', 'builds:data', '--allow', '*:other')
    code, said = node.publish_code(node.volume(Pod(node.api)))
    expect_equal(said, code, 'PERMISSION_DENIED')
    expect('default' in said and 'data' in said, said)
    node.publish(node.volume(Pod(node.api, space='builds')))
    expect_equal('sessions', len(node.service.get('/v1/sessions?ended=false').expect(200)['sessions']), 1)


def WithoutAPodThatWillEndNobodyGetsAVolume(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    node.api.pods.clear()
    expect_equal('no pod', node.publish_code(volume)[0], 'UNAVAILABLE')
    Pod(node.api)
    expect_equal('another pod', node.publish_code(volume)[0], 'UNAVAILABLE')
    node.api.answer_with = 500
    expect_equal('an ill server', node.publish_code(volume)[0], 'UNAVAILABLE')
    node.api.answer_with = None
    write(node.api.token_file, 'another token')
    expect_equal('a wrong token', node.publish_code(volume)[0], 'UNAVAILABLE')
    node.api.stop()
    expect_equal('no server', node.publish_code(volume)[0], 'UNAVAILABLE')
    expect_equal('sessions', node.service.get('/v1/sessions?ended=false').expect(200)['sessions'], [])


def OfTwoRequestsAtOnceForOneVolumeOneComesAgain(node):
    pod = Pod(node.api)
    volume = node.volume(pod)
    node.publish(volume)
    with concurrent.futures.ThreadPoolExecutor(2) as both:  # of a pod that still runs: each would wait a while
        codes = [code for code, _ in both.map(lambda _: node.unpublish_code(volume), range(2))]
    expect_equal('answers', sorted(codes), ['ABORTED', 'UNAVAILABLE'])
    pod.end(0)
    node.unpublish(volume)
    node.expect_end(volume, 'committed', 'no_changes')


TESTS = {name: value for name, value in globals().items() if name[0].isupper() and callable(value)}
if __name__ == '__main__':
    main(TESTS)
