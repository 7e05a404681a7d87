#!/usr/bin/env python3
"""deploy/kubernetes and deploy/docker as far as they can be checked without either: every member is one that the API of
its kind knows, every name that one part uses another part defines, and escrowd takes the configuration.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

TEXT, FLAG, NUMBER = str, bool, int
JOBS = 47100  # the user of jobs, and the group of the socket
ANY_TEXTS = {'*': TEXT}  # an object of texts
META = {'name': TEXT, 'generateName': TEXT, 'namespace': TEXT, 'labels': ANY_TEXTS}
VOLUME = {'name': TEXT, 'configMap': {'name': TEXT}, 'hostPath': {'path': TEXT, 'type': TEXT}, 'emptyDir': {},
          'csi': {'driver': TEXT, 'readOnly': FLAG, 'volumeAttributes': ANY_TEXTS}}
RIGHTS = {'privileged': FLAG, 'readOnlyRootFilesystem': FLAG, 'allowPrivilegeEscalation': FLAG,
          'capabilities': {'drop': [TEXT]}, 'seccompProfile': {'type': TEXT}}
CONTAINER = {
    'name': TEXT, 'image': TEXT, 'imagePullPolicy': TEXT, 'command': [TEXT], 'args': [TEXT],
    'env': [{'name': TEXT, 'value': TEXT, 'valueFrom': {'fieldRef': {'fieldPath': TEXT}}}],
    'securityContext': RIGHTS,
    'readinessProbe': {'exec': {'command': [TEXT]}},
    'volumeMounts': [{'name': TEXT, 'mountPath': TEXT, 'mountPropagation': TEXT, 'readOnly': FLAG}]}
POD = {'metadata': META, 'spec': {
    'serviceAccountName': TEXT, 'automountServiceAccountToken': FLAG, 'nodeSelector': ANY_TEXTS, 'restartPolicy': TEXT,
    'shareProcessNamespace': FLAG,
    'terminationGracePeriodSeconds': NUMBER, 'initContainers': [CONTAINER], 'containers': [CONTAINER],
    'securityContext': {'runAsNonRoot': FLAG, 'runAsUser': NUMBER, 'runAsGroup': NUMBER,
                        'seccompProfile': {'type': TEXT}},
    'volumes': [VOLUME]}}
CLUSTER_WIDE = ('Namespace', 'CSIDriver', 'ClusterRole', 'ClusterRoleBinding')
KINDS = {  # of the API's reference, version 1.28, what is used here
    ('v1', 'Namespace'): {},
    ('v1', 'ServiceAccount'): {'automountServiceAccountToken': FLAG},
    ('v1', 'ConfigMap'): {'data': ANY_TEXTS},
    ('networking.k8s.io/v1', 'NetworkPolicy'): {'spec': {
        'podSelector': {'matchLabels': ANY_TEXTS}, 'policyTypes': [TEXT],
        'egress': [{'ports': [{'protocol': TEXT, 'port': NUMBER}]}]}},
    ('storage.k8s.io/v1', 'CSIDriver'): {'spec': {
        'attachRequired': FLAG, 'podInfoOnMount': FLAG, 'fsGroupPolicy': TEXT, 'volumeLifecycleModes': [TEXT]}},
    ('rbac.authorization.k8s.io/v1', 'ClusterRole'): {
        'rules': [{'apiGroups': [TEXT], 'resources': [TEXT], 'verbs': [TEXT]}]},
    ('rbac.authorization.k8s.io/v1', 'ClusterRoleBinding'): {
        'roleRef': {'apiGroup': TEXT, 'kind': TEXT, 'name': TEXT},
        'subjects': [{'kind': TEXT, 'name': TEXT, 'namespace': TEXT}]},
    ('apps/v1', 'DaemonSet'): {'spec': {
        'selector': {'matchLabels': ANY_TEXTS}, 'template': POD,
        'updateStrategy': {'type': TEXT, 'rollingUpdate': {'maxSurge': NUMBER, 'maxUnavailable': NUMBER}}}},
    ('batch/v1', 'Job'): {'spec': {'backoffLimit': NUMBER, 'template': POD}},
}


def expect(condition, what):
    if not condition:
        sys.exit(what)


def check_shape(where, value, shape):
    if isinstance(shape, dict):
        expect(isinstance(value, dict), f'{where} is not an object')
        for name, member in value.items():
            expect(name in shape or '*' in shape, f'{where}.{name} is not known')
            check_shape(f'{where}.{name}', member, shape.get(name, shape.get('*')))
    elif isinstance(shape, list):
        expect(isinstance(value, list), f'{where} is not a list')
        for item in value:
            check_shape(f'{where}[]', item, shape[0])
    else:
        expect(type(value) is shape, f'{where} is {value!r}, not of type {shape.__name__}')  # a bool is no int


def check_pod(where, template, defined):
    spec = template['spec']
    volumes = {volume['name']: volume for volume in spec['volumes']}
    used = set()
    for container in spec.get('initContainers', []) + spec['containers']:
        for mount in container['volumeMounts']:
            expect(mount['name'] in volumes, f'{where}: {container["name"]} mounts {mount["name"]}, which is no volume')
            used.add(mount['name'])
            expect(mount.get('mountPropagation') != 'Bidirectional' or container['securityContext']['privileged'],
                   f'{where}: Kubernetes refuses Bidirectional without privileged')
    expect(used == set(volumes), f'{where}: nobody mounts {set(volumes) - used}')
    for volume in volumes.values():
        config = volume.get('configMap', {}).get('name')
        expect(config is None or ('ConfigMap', config) in defined, f'{where}: there is no ConfigMap {config}')
    account = spec.get('serviceAccountName')
    expect(account is None or ('ServiceAccount', account) in defined, f'{where}: there is no ServiceAccount {account}')
    return {name: volume['hostPath']['path'] for name, volume in volumes.items() if 'hostPath' in volume}


def check_driver(documents, job):
    """What the driver, the kubelet and a pod say of each other is the same."""
    driver = documents['CSIDriver']
    expect(driver['spec'] == {'attachRequired': False, 'podInfoOnMount': True, 'fsGroupPolicy': 'None',
                              'volumeLifecycleModes': ['Ephemeral']}, f'{driver["spec"]}')
    name = driver['metadata']['name']
    volume, = job['spec']['template']['spec']['volumes']
    expect(volume['csi']['driver'] == name, f'the job wants a volume of {volume["csi"]["driver"]}')
    spec = documents['DaemonSet']['spec']['template']['spec']
    paths = {one['name']: one['hostPath']['path'] for one in spec['volumes'] if 'hostPath' in one}
    registrar, = [one for one in spec['containers'] if one['name'] == 'registrar']
    expect(paths['socket'] == f'/var/lib/kubelet/plugins/{name}', f'the socket is in {paths["socket"]}')
    expect(f'--kubelet-registration-path={paths["socket"]}/csi.sock' in registrar['args'], f'{registrar["args"]}')
    # The service and its operator, the driver: nobody else has the socket, and each sees what process the other is.
    expect(spec['shareProcessNamespace'] and 'run' not in paths,
           'the service would not know the driver, or others would')
    subject, = documents['ClusterRoleBinding']['subjects']
    expect((subject['kind'], subject['name']) == ('ServiceAccount', spec['serviceAccountName']), f'{subject}')
    expect(documents['ClusterRoleBinding']['roleRef']['name'] == documents['ClusterRole']['metadata']['name'],
           'the role that is bound is another')


def check_rights(where, spec, user=JOBS):
    """Of a pod: what mounts for others is privileged, and nothing else has any right; jobs are not even root."""
    for container in spec.get('initContainers', []) + spec['containers']:
        context, name = container.get('securityContext', {}), f'{where}: {container["name"]}'
        expect(context.get('readOnlyRootFilesystem'), f'{name} may write in its image')
        if any(mount.get('mountPropagation') == 'Bidirectional' for mount in container['volumeMounts']):
            continue
        expect(not context.get('privileged') and context.get('allowPrivilegeEscalation') is False and
               context.get('capabilities') == {'drop': ['ALL']}, f'{name} has rights that it does not need: {context}')
        profile = context.get('seccompProfile') or spec.get('securityContext', {}).get('seccompProfile')
        expect(profile == {'type': 'RuntimeDefault'}, f'{name} may make every system call')
    if where.endswith('Job'):
        context = spec.get('securityContext', {})
        expect(context.get('runAsNonRoot') and context['runAsUser'] == context['runAsGroup'] == user,
               f'{where} is of {context}')
        expect(not any('securityContext' in one and 'runAsUser' in one['securityContext']
                       for one in spec['containers']), f'{where}: a container has another user')


def check_only_sessions(config):
    """Of a service in a container: nobody has it do more than open sessions."""
    expect(not config.get('operators'), f'{config["operators"] if "operators" in config else ""} can do anything')
    expect(config['max_runs'] == 0, 'runs would be commands in the container of the service')
    expect(config['socket_group'] == 'escrow' and config['repositories'], f'jobs can do nothing: {config}')


def check_configuration(escrowd, text):
    config = json.loads(text)
    with tempfile.TemporaryDirectory(prefix='escrow-manifests.') as directory:
        for member in ('repository_roots', 'mount_roots'):
            for path in config[member]:
                os.makedirs(directory + path, exist_ok=True)
            config[member] = [os.path.realpath(directory) + path for path in config[member]]
        with open(f'{directory}/escrowd.json', 'w', encoding='utf-8') as file:
            json.dump(config, file)
        result = subprocess.run([escrowd, '--config', f'{directory}/escrowd.json', '--check-config'],
                                capture_output=True, text=True, check=False, timeout=100)
    expect(result.returncode == 0, f'escrowd does not take the configuration: {result.stderr}')


def documents(directory):
    for name in sorted(os.listdir(directory)):
        if name.endswith('.yaml'):
            with open(f'{directory}/{name}', encoding='utf-8') as file:
                for document in yaml.safe_load_all(file):
                    yield name, document


def check_kubernetes(source, escrowd):
    directory = f'{source}/deploy/kubernetes'
    found = list(documents(directory))
    defined = {(document['kind'], document['metadata'].get('name')) for _, document in found}
    host_paths = {}
    for name, document in found:
        where = f'{name}: {document["kind"]}'
        kind = (document['apiVersion'], document['kind'])
        expect(kind in KINDS, f'{where} of {kind[0]} is not known')
        check_shape(where, document, {'apiVersion': TEXT, 'kind': TEXT, 'metadata': META, **KINDS[kind]})
        wanted = None if kind[1] in CLUSTER_WIDE else 'default' if name == 'csi-job.yaml' else 'escrow'
        expect(document['metadata'].get('namespace') == wanted, f'{where}: which namespace?')
        template = document.get('spec', {}).get('template')
        if template is None:
            continue
        host_paths[document['metadata'].get('name', 'job')] = check_pod(where, template, defined)
        check_rights(where, template['spec'], 1000 if name == 'csi-job.yaml' else JOBS)
        selector = document['spec'].get('selector', {}).get('matchLabels', {})
        labels = template.get('metadata', {}).get('labels', {})
        expect(selector.items() <= labels.items(), f'{where}: its selector {selector} does not match {labels}')
    expect(set(host_paths) == {'escrowd', 'job', 'escrow-csi', 'report'}, f'the kinds of pods are {set(host_paths)}')
    for name in ('sessions', 'run'):
        expect(host_paths['escrowd'][name] == host_paths['job'][name],
               f'service and job do not meet: {name} is elsewhere')
    expect(not host_paths['report'], 'a pod with a volume of the driver needs nothing of its node')
    check_driver({document['kind']: document for name, document in found if name == 'csi-driver.yaml'},
                 {document['kind']: document for name, document in found if name == 'csi-job.yaml'}['Job'])
    configs = {document['metadata']['name']: document['data']['escrowd.json'] for _, document in found
               if document['kind'] == 'ConfigMap'}
    for text in configs.values():
        check_configuration(escrowd, text)
    check_only_sessions(json.loads(configs['escrowd']))
    drivers = json.loads(configs['escrow-csi'])
    expect(drivers['operators'] == ['user:root'] and drivers['max_runs'] == 0, f'{drivers}')
    with open(f'{directory}/README.md', encoding='utf-8') as file:
        for name in re.findall(r'-f (\S+\.yaml)', file.read()):
            expect(os.path.exists(f'{directory}/{name}'), f'README.md applies {name}, which is not there')


def check_docker(source, escrowd):
    with open(f'{source}/deploy/docker/escrowd.json', encoding='utf-8') as file:
        text = file.read()
    check_configuration(escrowd, text)
    with open(f'{source}/deploy/docker/compose.yaml', encoding='utf-8') as file:
        services = yaml.safe_load(file)['services']
    targets = {volume['target'] for volume in services['escrowd']['volumes']}
    config = json.loads(text)
    check_only_sessions(config)
    for path in config['repository_roots'] + config['mount_roots'] + ['/var/lib/escrowd', '/run/escrowd']:
        expect(path in targets, f'{path} of the service goes with its container')
    with open(f'{source}/deploy/docker/compose-volume.yaml', encoding='utf-8') as file:
        volume_job = yaml.safe_load(file)['services']['job']
    for job, user in ((services['job'], f'{JOBS}:{JOBS}'), (volume_job, '1000:1000')):
        names = ('user', 'read_only', 'cap_drop', 'security_opt', 'cap_add', 'devices', 'privileged', 'network_mode')
        rights = {name: job.get(name) for name in names}
        expect(rights == {'user': user, 'read_only': True, 'cap_drop': ['ALL'], 'network_mode': 'none',
                          'security_opt': ['no-new-privileges:true'], 'cap_add': None, 'devices': None,
                          'privileged': None}, f'a job has {rights}')
    with open(f'{source}/deploy/docker/Dockerfile', encoding='utf-8') as file:
        lines = file.read().replace('\\\n', '').splitlines()
    words = [line.split(None, 1) for line in lines if line and not line.startswith('#')]
    expect(' '.join(word for word, _ in words) == 'FROM COPY RUN COPY COPY ENTRYPOINT CMD', f'{words}')
    for word, rest in words:
        if word == 'COPY' and '*' not in rest:
            expect(os.path.exists(f'{source}/deploy/docker/{rest.split()[0]}'), f'nothing to copy: {rest}')
        if word == 'RUN':
            subprocess.run(['sh', '-n', '-c', rest], check=True)
            for made in (f'groupadd --system --gid {JOBS} escrow', f'useradd --system --uid {JOBS} --gid escrow'):
                expect(made in rest, f'the image has no user and group of jobs: {made}')
        if word in ('ENTRYPOINT', 'CMD'):
            json.loads(rest)


if __name__ == '__main__':
    check_kubernetes(*sys.argv[1:3])
    check_docker(*sys.argv[1:3])
