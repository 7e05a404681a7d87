#!/usr/bin/env python3
"""All that api/openapi.yaml describes was answered in some test, and checked there: each status of an operation, each
code of a problem that it names, each type of event. (That no other is answered, the shared client checks.)

usage: documented_answers_test.py DIRECTORY: what the tests beside this one have noted, a file each.
"""
import os
import sys

from description import DESCRIPTION


# A thousand lost swaps in a row take minutes here: CommitOrder.ASwapThatIsLostForEverGivesUpAndStaysOpen.
ELSEWHERE = {'branch_moved'}


def read_notes(directory):
    """The words of the lines that any test has noted."""
    lines = set()
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        with open(f'{directory}/{name}', encoding='utf-8') as file:
            lines |= set(file.read().splitlines())
    return [line.split() for line in sorted(lines)]


def described():
    groups = DESCRIPTION.document['x-problems']
    for method, path, operation in DESCRIPTION.operations():
        has_json = 'application/json' in operation.get('requestBody', {}).get('content', {})
        yield from (f'{method} {path} {status}' for status in operation['responses'] if status != 'default')
        codes = [*operation.get('x-problems', []), *(groups['body'] if has_json else []),
                 *(groups['post'][:1] if method == 'POST' else [])]
        yield from (f'{method} {path} {code}' for code in codes)
    yield from (f'event {kind}' for kind in DESCRIPTION.events)
    codes = DESCRIPTION.document['components']['schemas']['Problem']['properties']['code']['enum']
    yield from (code for code in codes if code not in ELSEWHERE)


def seen_in(notes):
    for kind, where, *answer in notes:
        yield f'{kind} {where}'
        yield from answer[1:]
        yield from (f'{kind} {where} {one}' for one in answer)


def statuses(notes):
    """Of the codes that an operation names the statuses, and no others, are described by themselves."""
    status_of = {answer[1]: answer[0] for _, _, *answer in notes if len(answer) == 2}
    for method, path, operation in DESCRIPTION.operations():
        named = {status_of.get(code) for code in operation.get('x-problems', [])}
        listed = {status for status in operation['responses'] if status.startswith(('4', '5'))}
        if named != listed:
            yield f'{method} {path}: x-problems have the statuses {sorted(map(str, named))}, it has {sorted(listed)}'


def main(directory):
    notes = read_notes(directory)
    if not notes:
        sys.exit(f'{directory} has no notes; run the other tests of escrowd first')
    wanted = set(described())
    missing = sorted(wanted - set(seen_in(notes)))
    if missing:
        sys.exit('no test has seen:\n' + '\n'.join(missing))
    if wrong := list(statuses(notes)):
        sys.exit('\n'.join(wrong))
    print(f'{len(wanted)} described statuses, codes and events, all seen')


if __name__ == '__main__':
    main(sys.argv[1])
