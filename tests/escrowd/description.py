"""api/openapi.yaml as what answers and requests are held to, by jsonschema. For service.py.

Of an answer everything is to be described: its status, the code of a problem, its headers, its content type, each field
of its document. Of a request that was not refused its query and its body are.
"""
import json
import os
import sys
from urllib.parse import parse_qsl

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f'{HERE}/../support')
from expectations import expect, fail  # pylint: disable=wrong-import-position

# Of HTTP itself.
PLAIN_HEADERS = {'content-type', 'content-length', 'transfer-encoding', 'connection', 'cache-control'}
METHODS = {'get', 'put', 'post', 'delete'}


def open_notes(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)


# Of the answers that were seen, for documented_answers_test.py.
NOTES = open_notes(os.environ['ESCROW_EXERCISED']) if 'ESCROW_EXERCISED' in os.environ else None


def exercised(line):
    if NOTES is not None:
        os.write(NOTES, (line + '\n').encode())


def closed(schema):
    """The schema that refuses what it does not describe. A string beside which its bytes are said is described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if 'allOf' in schema:
        parts = [part for part in schema['allOf']]
        schema = {'type': 'object', 'required': [name for part in parts for name in part.get('required', [])],
                  'properties': {name: value for part in parts for name, value in part['properties'].items()}}
    result = {name: closed(value) for name, value in schema.items()}
    if isinstance(result.get('properties'), dict) and 'additionalProperties' not in result:
        result['additionalProperties'] = False
        result['patternProperties'] = {'_base64$': {'type': ['string', 'array']}}
    return result


def value_of(text, schema):
    """What a header or a parameter of a query says."""
    kind = schema.get('type')
    if kind == 'integer' and text.isdigit():
        return int(text)
    return {'true': True, 'false': False}.get(text, text) if kind == 'boolean' else text


def read_text(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def kept_in(path):
    """The value that keep() has left there, or None if the file is missing or damaged."""
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError):
        return None


def keep(path, value):
    """Replaces the file in one step: other tests may be reading or replacing it."""
    temporary = f'{path}.{os.getpid()}'
    with open(temporary, 'w', encoding='utf-8') as file:
        json.dump(value, file)
    os.replace(temporary, path)


def parsed_document():
    from strict_yaml import parsed  # pylint: disable=import-outside-toplevel
    return parsed(read_text(f'{HERE}/../../api/openapi.yaml'))


def document():
    """api/openapi.yaml. JSON is read twenty times as fast as YAML, so the first test of a build leaves it as JSON.

    The file is beside the directory of the notes. It has the texts that it was made of, and is used while they are the
    same.
    """
    if 'ESCROW_EXERCISED' not in os.environ:
        return parsed_document()
    path = os.path.dirname(os.path.abspath(os.environ['ESCROW_EXERCISED'])) + '.openapi.json'
    texts = [read_text(f'{HERE}/../../api/openapi.yaml'), read_text(f'{HERE}/../support/strict_yaml.py')]
    kept = kept_in(path)
    if not isinstance(kept, dict) or kept.get('texts') != texts or 'document' not in kept:
        kept = {'texts': texts, 'document': parsed_document()}
        keep(path, kept)
    return kept['document']


class Description:
    """The document, its references put in place and `nullable` as JSON Schema has it."""

    def __init__(self):
        self.document = document()
        self.targets = {}
        self.paths = self.resolved(self.document['paths'])
        self.problem = self.resolved(self.document['components']['responses']['Problem'])
        self.events = closed(self.resolved(self.document['x-events']))
        self.validators = {}

    def resolved(self, node):
        if isinstance(node, list):
            return [self.resolved(item) for item in node]
        if not isinstance(node, dict):
            return node
        if '$ref' in node:
            return self.resolved_reference(node['$ref'])
        result = {name: self.resolved(value) for name, value in node.items()}
        if result.pop('nullable', False) is True:
            if 'allOf' in result:
                return {'anyOf': [*result['allOf'], {'type': 'null'}]}
            result['type'] = [result['type'], 'null']
        return result

    def resolved_reference(self, reference):
        """What it stands for: one object, however many places refer to it."""
        if reference not in self.targets:
            target = self.document
            for name in reference.split('/')[1:]:
                target = target[name]
            self.targets[reference] = self.resolved(target)
        return self.targets[reference]

    def operations(self):
        """(method, path, operation) of all that are described."""
        for path, operations in self.paths.items():
            for method in sorted(METHODS & operations.keys()):
                yield method.upper(), path, operations[method]

    def described(self, method, target):
        """The path as it is described, and the operation."""
        names = target.split('?')[0].split('/')
        for path, operations in self.paths.items():
            pattern = path.split('/')
            if pattern[-1] == '{path}' and len(names) > len(pattern):
                pattern += ['{path}'] * (len(names) - len(pattern))
            if len(pattern) == len(names) and all(p == n or (p.startswith('{') and n) for p, n in zip(pattern, names)):
                return path, operations.get(method.lower())
        return None, None

    def codes_of(self, method, operation):
        groups = self.document['x-problems']
        has_json = 'application/json' in operation.get('requestBody', {}).get('content', {})
        return {*operation.get('x-problems', []), *groups['any'], *(groups['body'] if has_json else []),
                *(groups['post'] if method == 'POST' else [])}

    def check(self, method, target, body, answer):
        path, operation = self.described(method, target)
        if operation is None:
            operation, path = {'responses': {'default': self.problem}}, 'anything'
            operation['x-problems'] = self.document['x-problems']['no_operation']
        responses = operation['responses']
        response = responses.get(str(answer.status)) or (responses['default'] if answer.status >= 400 else None)
        expect(response is not None, f'{method} {target}: the status {answer.status} is not described')
        kind = answer.headers.get('content-type', '').split(';')[0]
        expect(kind in response['content'], f'{method} {target}: {kind} is not described for {answer.status}')
        try:
            self.check_headers(answer, response.get('headers', {}))
            if answer.status >= 400:
                code = answer.json['code']
                expect(code in self.codes_of(method, operation),
                       f'{method} {target}: {code} is not described for it ({answer.json["detail"]})')
            if kind.endswith('json'):
                self.validate(answer.json, response['content'][kind]['schema'], close=True)
            if answer.status < 300:
                self.check_request(path, operation, target, body)
        except jsonschema.ValidationError as error:
            fail(f'{method} {target}, {answer.status}: {error.message} at {list(error.absolute_path)}')
        exercised(f'{method} {path} {answer.status}' + (f' {answer.json["code"]}' if answer.status >= 400 else ''))

    def validate(self, instance, schema, close=False):
        key = id(schema), close
        if key not in self.validators:
            self.validators[key] = jsonschema.Draft202012Validator(closed(schema) if close else schema)
        self.validators[key].validate(instance)

    def check_headers(self, answer, described):
        known = {name.lower(): header for name, header in described.items()}
        for name in answer.headers.keys() - PLAIN_HEADERS:
            expect(name in known, f'the header {name}: {answer.headers[name]} of a {answer.status} is not described')
            schema = known[name]['schema']
            self.validate(value_of(answer.headers[name], schema), schema)
        for name, header in known.items():
            expect(name in answer.headers or not header.get('required'), f'a {answer.status} has no header {name}')
        if answer.status >= 400:
            problem = answer.json
            for name, is_due in (('retry-after', problem['retryable']), ('allow', answer.status == 405),
                                 ('www-authenticate', answer.status == 401)):
                expect_said = f'{name} of {problem}: {answer.headers.get(name)}'
                expect((name in answer.headers) == is_due, expect_said)

    def check_request(self, path, operation, target, body):
        given = parse_qsl(target.partition('?')[2], keep_blank_values=True, errors='surrogateescape')
        parameters = {one['name']: one['schema'] for one in
                      self.paths[path].get('parameters', []) + operation.get('parameters', []) if one['in'] == 'query'}
        for name, text in given:
            expect(name in parameters, f'{target}: "{name}" of the query is not described')
            # Of an array each member is a parameter of that name.
            schema = parameters[name].get('items', parameters[name])
            self.validate(value_of(text, schema), schema)
        if body is not None:
            expect('requestBody' in operation, f'{target}: a body is not described')
            self.validate(body, operation['requestBody']['content']['application/json']['schema'])

    def check_event(self, kind, data):
        """What is wrong with an event of /v1/events, or nothing."""
        if kind not in self.events:
            return f'an event {kind} is not described'
        try:
            self.validate(data, self.events[kind])
        except jsonschema.ValidationError as error:
            return f'the event {kind} {data}: {error.message}'
        exercised(f'event {kind}')
        return None


DESCRIPTION = Description()
