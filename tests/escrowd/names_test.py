#!/usr/bin/env python3
"""A name with 0xFF, newline and ESC through every place of the API that takes or shows a path.

The places are those that api/openapi.yaml has: parameters and fields of requests by route, fields of answers by the
schema that defines them. Each is to be seen with such a name, so a new one cannot be forgotten.
"""
import base64
import json
import os
import re
from urllib.parse import parse_qsl, quote_from_bytes

from description import DESCRIPTION
from events_test import Follower
from imports_test import TAR, archive, entry
from service import Service, expect, expect_equal, main, request, write

HARMLESS = b'odd\xff'  # a repository's own path has no control characters
STRANGE = HARMLESS + b'\n\x1b'
NAMES = {'path', 'paths', 'path_prefix', 'mountpoint', 'source', 'exclude', 'pattern', 'command', 'argument'}
# Schemas whose fields count where they are used.
INLINE = {'Path', 'Conflicts', 'Omitted'}
# Patterns of policies are JSON in JSON, so text: bytes that are none are named by `?`.
TEXT_ONLY = {'Policy.rules.paths'}
SEEN = set()


def in_base64(path):
    return base64.b64encode(path if isinstance(path, bytes) else os.fsencode(path)).decode()


def quoted(path):
    return quote_from_bytes(path, safe='/')


def is_strange(text):
    return HARMLESS in base64.b64decode(text)


def places(node, prefix):
    """The names of fields that are paths, of a schema as it is written."""
    if '$ref' in node:
        name = node['$ref'].split('/')[-1]
        return places(DESCRIPTION.document['components']['schemas'][name], prefix if name in INLINE else f'{name}.')
    found = set()
    for part in [*node.get('allOf', ()), *node.get('oneOf', ()), *([node['items']] if 'items' in node else [])]:
        found |= places(part, prefix)
    for name, value in node.get('properties', {}).items():
        if name in NAMES and 'enum' not in value and value.get('items', {'type': 'string'}).get('type') == 'string':
            found.add(prefix + name)
        found |= places(value, f'{prefix}{name}.')
    return found


def places_seen(node, prefix, document):
    """The same of a document that has this schema: where something strange is."""
    if document is None:
        return set()
    if '$ref' in node:
        name = node['$ref'].split('/')[-1]
        target = DESCRIPTION.document['components']['schemas'][name]
        return places_seen(target, prefix if name in INLINE else f'{name}.', document)
    found = set()
    for part in node.get('allOf', ()):
        found |= places_seen(part, prefix, document)
    for one in document if isinstance(document, list) else ():
        found |= places_seen(node['items'], prefix, one)
    for name, value in node.get('properties', {}).items() if isinstance(document, dict) else ():
        exact = document.get(f'{name}_base64')
        if exact and any(map(is_strange, exact if isinstance(exact, list) else [exact])):
            found.add(prefix + name)
        if name in document:
            found |= places_seen(value, f'{prefix}{name}.', document[name])
    return found


def json_schemas(content):
    return [one['schema'] for kind, one in content.items() if kind.endswith('json')]


def raw_operation(method, path):
    return DESCRIPTION.document['paths'][path][method.lower()]


def target_of(node):
    """A response or parameter, which may be a reference to one."""
    while '$ref' in node:
        *_, kind, name = node['$ref'].split('/')
        node = DESCRIPTION.document['components'][kind][name]
    return node


def described():
    found = set()
    for method, path, operation in DESCRIPTION.operations():
        parameters = DESCRIPTION.paths[path].get('parameters', []) + operation.get('parameters', [])
        found |= {f'{method} {path} ?{one["name"]}' for one in parameters if one['name'] in NAMES}
        raw = raw_operation(method, path)
        for schema in json_schemas(raw.get('requestBody', {}).get('content', {})):
            expect('properties' in schema or '$ref' in schema, f'{method} {path}: the body')
            name = schema['$ref'].split('/')[-1]
            found |= {f'{method} {path} {place.removeprefix(name + ".")}' for place in places(schema, '')
                      if place.startswith(f'{name}.')}
        for response in raw['responses'].values():
            for schema in json_schemas(target_of(response)['content']):
                found |= places(schema, '')
    for kind, schema in DESCRIPTION.document['x-events'].items():
        found |= places(schema, f'event {kind} ')
    return found - TEXT_ONLY


def ask(service, method, target, body=None, headers=None):
    answer = request(service.socket, method, target, body, headers)
    path, _ = DESCRIPTION.described(method, target)
    raw = raw_operation(method, path)
    if answer.status < 300:
        for name, text in parse_qsl(target.partition('?')[2], encoding='latin-1'):
            if STRANGE in text.encode('latin-1'):
                SEEN.add(f'{method} {path} ?{name}')
        if quoted(STRANGE) in target.partition('?')[0]:
            SEEN.add(f'{method} {path} ?path')
        for schema in json_schemas(raw.get('requestBody', {}).get('content', {})):
            own = schema['$ref'].split('/')[-1] + '.'
            SEEN.update(f'{method} {path} {name.removeprefix(own)}' for name in places_seen(schema, '', body)
                        if isinstance(body, dict))
    response = target_of(raw['responses'].get(str(answer.status)) or raw['responses']['default'])
    for schema in json_schemas(response['content']):
        SEEN.update(places_seen(schema, '', answer.json))
    return answer


def check_events(follower):
    expect_equal('what is wrong with the events', follower.wrong, [])
    for one in follower.events:
        schema = DESCRIPTION.document['x-events'][one['type']]
        SEEN.update(places_seen(schema, f'event {one["type"]} ', one))


def others_write(service, path):
    session = ask(service, 'POST', '/v1/sessions', {'repository': 'data'}).expect(201)['session']
    ask(service, 'PUT', f'/v1/sessions/{session}/files/{quoted(path)}', b'theirs ' + session.encode(),
        {'Content-Type': 'application/octet-stream'})
    ask(service, 'POST', f'/v1/sessions/{session}/finish', {'exit_code': 0}).expect(200)


def repositories(service):
    path = os.fsencode(service.repositories) + b'/' + HARMLESS
    made = ask(service, 'POST', '/v1/repositories', {'name': 'odd', 'path_base64': in_base64(path), 'create': True})
    expect_equal('the path', base64.b64decode(made.expect(201)['path_base64']), path)
    ask(service, 'GET', '/v1/repositories').expect(200)


def session(service):
    """A session with odd names in everything it has; what it is told to forget, and what it meets."""
    prefix, mountpoint = b'dir/' + STRANGE, os.fsencode(service.mounts) + b'/' + STRANGE
    policy = {'default': 'allow', 'rules': [{'effect': 'deny', 'actions': ['read'], 'paths': ['kept-odd?\n\x1b']}]}
    opened = ask(service, 'POST', '/v1/sessions', {
        'repository': 'data', 'path_prefix_base64': in_base64(prefix), 'mountpoint_base64': in_base64(mountpoint),
        'exclude_base64': [in_base64(b'*.' + STRANGE)], 'policy': policy}).expect(201)
    at = f'/v1/sessions/{opened["session"]}'
    expect_equal('the mountpoint', base64.b64decode(opened['mountpoint_base64']), mountpoint)
    for name in (STRANGE, b'kept-' + STRANGE, b'left.' + STRANGE, b'gone-' + STRANGE):
        write(mountpoint + b'/' + name, 'mine')
    os.mkdir(mountpoint + b'/empty-' + STRANGE)
    file = f'{at}/files/{quoted(prefix + b"/" + STRANGE)}'
    binary = {'Content-Type': 'application/octet-stream'}
    expect_equal('the content', ask(service, 'GET', file).body, b'mine')
    ask(service, 'PUT', file, b'mine, too', binary).expect(200)
    gone = f'{at}/files/{quoted(prefix + b"/gone-" + STRANGE)}'
    ask(service, 'DELETE', gone).expect(200)
    ask(service, 'PUT', gone, b'again', binary).expect(201)
    ask(service, 'GET', f'{at}/files/{quoted(prefix + b"/kept-" + STRANGE)}').expect(403, 'forbidden')
    listed = ask(service, 'GET', f'{at}/entries?path={quoted(prefix)}').expect(200)['entries']
    expect(STRANGE in [base64.b64decode(one['name_base64']) for one in listed], listed)
    ask(service, 'GET', f'{at}?with_changes=true').expect(200)
    changed = ask(service, 'GET', f'{at}/changes').expect(200)
    expect_equal('the changes', sorted(base64.b64decode(one['path_base64']) for one in changed['changes']),
                 [prefix + b'/gone-' + STRANGE, prefix + b'/kept-' + STRANGE, prefix + b'/' + STRANGE])
    diff = ask(service, 'GET', f'{at}/diff?path={quoted(prefix)}%2F{quoted(STRANGE)}').body
    expect(b'+mine, too' in diff and b'odd\\377\\n\\033' in diff and b'again' not in diff, diff)
    ask(service, 'POST', f'{at}/discard', {'paths_base64': [in_base64(prefix + b'/gone-' + STRANGE)]}).expect(200)
    ask(service, 'POST', f'{at}/unmount', {}).expect(200)
    ask(service, 'POST', f'{at}/mount', {'mountpoint_base64': in_base64(mountpoint)}).expect(200)
    others_write(service, prefix + b'/' + STRANGE)
    foreseen = ask(service, 'GET', f'{at}?with_changes=true').expect(200)['would_conflict']
    expect_equal('what would conflict', [base64.b64decode(one['path_base64']) for one in foreseen],
                 [prefix + b'/' + STRANGE])
    conflict = ask(service, 'POST', f'{at}/commit', {}).expect(409, 'conflict')
    expect_equal('the conflict', base64.b64decode(conflict['conflicts'][0]['path_base64']), prefix + b'/' + STRANGE)
    ask(service, 'POST', f'{at}/update', {}).expect(200)
    others_write(service, prefix + b'/' + STRANGE)
    expect_equal('the end', ask(service, 'POST', f'{at}/finish', {'exit_code': 0}).expect(200)['state'],
                 'commit_failed')
    resumed = ask(service, 'GET', f'/v1/sessions/{service.escrow("resume", opened["session"]).split()[0]}').expect(200)
    expect_equal('what is unresolved', [base64.b64decode(one['path_base64']) for one in resumed['unresolved']],
                 [prefix + b'/' + STRANGE])
    settled = ask(service, 'POST', f'/v1/sessions/{resumed["session"]}/resolve',
                  {'paths_base64': [in_base64(prefix + b'/' + STRANGE)], 'how': 'mine'}).expect(200)['settled']
    expect_equal('what is settled', [base64.b64decode(one['path_base64']) for one in settled],
                 [prefix + b'/' + STRANGE])
    ask(service, 'GET', '/v1/repositories/data/audit').expect(200)
    log = ask(service, 'GET', f'/v1/repositories/data/log?path={quoted(prefix)}%2F{quoted(STRANGE)}').expect(200)
    expect_equal('the commits of the file', len(log['commits']), 2)


def imports(service):
    at = '/v1/repositories/data/imports'
    prefix = b'imported/' + STRANGE
    sent = archive(entry(os.fsdecode(STRANGE), b'1'), entry(os.fsdecode(b'left.' + STRANGE), b'1'))
    ask(service, 'POST', f'{at}?path_prefix={quoted(prefix)}&exclude=*.{quoted(STRANGE)}', sent, TAR).expect(201)
    source = os.fsencode(service.directory) + b'/in/' + STRANGE
    os.mkdir(source)
    write(source + b'/' + STRANGE, '2')
    write(source + b'/left.' + STRANGE, '2')
    ask(service, 'POST', at, {'source_base64': in_base64(source), 'exclude_base64': [in_base64(b'*.' + STRANGE)],
                              'path_prefix_base64': in_base64(b'directory/' + STRANGE)}).expect(201)
    tree = service.git('ls-tree', '-r', '--name-only', 'main', 'imported', 'directory')
    name = r'odd\377\n\033'  # as git quotes it
    expect_equal('the tree', tree.splitlines(), [f'"{place}/{name}/{name}"' for place in ('directory', 'imported')])


def mounts(service):
    at = f'/v1/sessions/{service.open()["session"]}/mounts'
    path, source = b'tools/' + STRANGE, b'inject:' + os.fsencode(service.directory) + b'/in/' + STRANGE
    entry = {'path_base64': in_base64(path), 'source_base64': in_base64(source)}
    ask(service, 'POST', at, {'entry': entry}).expect(200)
    listed = ask(service, 'GET', at).expect(200)['mounts']
    expect_equal('the entries', [base64.b64decode(one['path_base64']) for one in listed], [path])
    expect_equal('left', ask(service, 'DELETE', f'{at}/{quoted(path)}').expect(200)['mounts'], [])


def runs(service):
    script = b"mkdir 'empty-" + STRANGE + b"'; echo 1 > '" + STRANGE + b"'; pwd"
    mountpoint = b'/sandbox/' + STRANGE
    run = ask(service, 'POST', '/v1/runs', {
        'repository': 'data', 'command_base64': [in_base64(word) for word in (b'sh', b'-c', script)],
        'path_prefix_base64': in_base64(b'run/' + STRANGE), 'mountpoint_base64': in_base64(mountpoint),
        'exclude_base64': [in_base64(STRANGE + b'.o')]}).expect(201)['run']
    ended = ask(service, 'GET', f'/v1/runs/{run}/wait?timeout_ms=250000').expect(200)
    expect_equal('the run', (ended['session']['state'], ended['session']['exit_code']), ('committed', 0))
    expect_equal('where it ran', ask(service, 'GET', f'/v1/runs/{run}/output').body, mountpoint + b'\n')
    omitted = json.loads(ask(service, 'GET', f'/v1/runs/{run}/output?stream=omitted').body)
    expect_equal('left out', base64.b64decode(omitted['path_base64']), b'empty-' + STRANGE)


def AnOddNameGoesThroughEveryPlaceOfTheApi(start):
    wanted = described()
    bodies = {re.sub(r'^\S+ \S+ ', '', place) for place in wanted if place.startswith('POST')}
    expect({'mountpoint', 'paths', 'source', 'path_prefix', 'command'} <= bodies, f'the fields of bodies are {bodies}')
    with start() as service:
        service.stop()
        service.config['source_roots'] = [f'{service.directory}/in']
        service.write_config()
        Service.start(service)
        with Follower(service) as follower:
            repositories(service)
            session(service)
            imports(service)
            mounts(service)
            runs(service)
            for kind in ('session.denied', 'session.conflict'):
                follower.wait_for(kind)
            last = service.git('rev-parse', 'main')
            follower.wait_for('branch.updated', new=last)
            check_events(follower)
    missing = sorted(wanted - SEEN)
    expect(not missing, 'no odd name went through:\n' + '\n'.join(missing))


if __name__ == '__main__':
    main(globals())
