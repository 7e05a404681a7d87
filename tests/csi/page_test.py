#!/usr/bin/env python3
"""The transcript of deploy/kubernetes/README.md: its job's manifest is played as a kubelet plays it, and events and
commit are as they are written there. SESSION, COMMIT, BASE, UID and DIGEST are ids.
"""
import re
import subprocess

import yaml

from cluster import ROOT, Pod, expect, main
from service import write

PLACES = {'SESSION': r'[0-9a-f]{16}', 'COMMIT': r'[0-9a-f]{12}', 'BASE': r'[0-9a-f]{40}', 'UID': r'[0-9a-f-]{36}',
          'DIGEST': r'[0-9a-f]{64}'}


def transcript():
    """What each command prints."""
    with open(f'{ROOT}/deploy/kubernetes/README.md', encoding='utf-8') as file:
        text = re.search(r'^```text\n(.*?)^```$', file.read(), re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r'^\$ (.*)\n((?:(?!\$ ).*\n)*)', text, re.MULTILINE))


def expect_as_written(written, printed):
    parts = re.split(r'\b(' + '|'.join(PLACES) + r')\b', written)
    pattern = ''.join(PLACES.get(part, re.escape(part)) for part in parts)
    expect(re.fullmatch(pattern, printed), f'it is\n{printed}\nand not\n{written}')


def TheTranscriptIsPlayedAsWritten(node):
    with open(f'{ROOT}/deploy/kubernetes/csi-job.yaml', encoding='utf-8') as file:
        job = yaml.safe_load(file)
    spec = job['spec']['template']['spec']
    container, volume = spec['containers'][0], spec['volumes'][0]
    seeded = node.service.open()['session']
    node.service.put(f'/v1/sessions/{seeded}/files/reports/numbers', b'1\n2\n').expect(201)
    node.service.finish(seeded, {'exit_code': 0}).expect(200)

    pod = Pod(node.api, name='report-x7k2p', security=spec['securityContext'])
    pod.document['spec'].update(spec)
    fields = node.volume(pod, volume['name'], **volume['csi']['volumeAttributes'])
    target = node.publish(fields)
    point = container['volumeMounts'][0]['mountPath']
    security = spec['securityContext']
    command = [word.replace(point, target) for word in container['command']]
    subprocess.run(['setpriv', f'--reuid={security["runAsUser"]}', f'--regid={security["runAsGroup"]}',
                    '--clear-groups', *command], check=True)
    pod.end(0, image_id=f'docker.io/library/debian@sha256:{"0" * 64}')
    node.unpublish(fields)
    node.expect_end(fields, 'committed', 'success')

    commands = transcript()
    events = ''.join(f'{one["type"]:<8} {one["reason"]:<20} {one["message"]}\n' for one in node.api.events)
    expect_as_written(commands['kubectl get events'], events)
    shown = [name for name in commands if name.startswith('git -C data.git ')][0]
    write(f'{node.directory}/show.sh', shown.replace('data.git', node.service.repository))
    printed = subprocess.run(['sh', f'{node.directory}/show.sh'], check=True, capture_output=True, text=True).stdout
    expect_as_written(commands[shown], printed.rstrip('\n') + '\n')


TESTS = {name: value for name, value in globals().items() if name[0].isupper() and callable(value)}
if __name__ == '__main__':
    main(TESTS)
