#!/usr/bin/env python3
"""Every status that api/openapi.yaml names for an operation was answered in some test, and checked there.

usage: exercised_test.py DIRECTORY: what the tests beside this one have noted, a file each.
"""
import os
import sys

from description import DESCRIPTION


def main(directory):
    seen = set()
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        with open(f'{directory}/{name}', encoding='utf-8') as file:
            seen |= set(file.read().splitlines())
    if not seen:
        sys.exit(f'{directory} has no notes; run the other tests of escrowd first')
    described = {f'{method.upper()} {path} {status}'
                 for path, operations in DESCRIPTION.paths.items()
                 for method, operation in operations.items() if method != 'parameters'
                 for status in operation['responses'] if status != 'default'}
    missing = sorted(described - seen)
    if missing:
        sys.exit('no test has seen:\n' + '\n'.join(missing))
    print(f'{len(described)} described answers, all seen')


if __name__ == '__main__':
    main(sys.argv[1])
