#!/usr/bin/env python3
"""The tests of a folder that are written in Python: one for each function `def Case(` of a file `*_test.py`, known to
ctest as Suite.Case. CMake asks for the list (python_tests() in tests/CMakeLists.txt). Decorators of a case mark it:
@nightly() and @only(), of expectations.py.

usage: python_cases.py FOLDER     prints `Suite.Case FILE LABEL...`, a line for each
"""
import glob
import os
import re
import sys

# The suites of a folder, or of one of its files: a case of a file with two is run once for each.
SUITES = {
    'bucket': ['Bucket'],
    'containers': ['Docker', 'Podman'],
    'containers/readme_test.py': ['Docker'],
    'containers/service_test.py': ['Docker'],
    'containers/volume_events_test.py': ['DockerVolumes', 'PodmanVolumes'],
    'containers/volume_plugin_test.py': ['DockerVolumes', 'PodmanVolumes'],
    'csi': ['Csi'],
    'deploy': ['Deploy'],
    'escrowd': ['Escrowd'],
    'escrowd/host_import_test.py': ['EscrowHost'],
    'escrowd/host_options_test.py': ['EscrowHost'],
    'escrowd/host_restart_test.py': ['EscrowHost'],
    'escrowd/host_test.py': ['EscrowHost'],
    'lfs': ['Lfs'],
    'mcp': ['Mcp'],
    'python': ['PythonClient'],
    'work': ['Days'],
}


CASE = re.compile(r'((?:^@.*\n)*)^def ([A-Z]\w*)\(', re.MULTILINE)
MARK = re.compile(r"@(nightly|only)\(((?:'\w+'(?:, )?)*)\)\n")


def has_cases(text):
    """Whether the source of a file has any."""
    return bool(CASE.search(text))


def cases_of(folder, file, text):
    """(Suite.Case, labels) of each test of a file."""
    suites = SUITES.get(f'{folder}/{file}', SUITES.get(folder, []))
    for match in CASE.finditer(text):
        marks = {mark: re.findall(r'\w+', named) for mark, named in MARK.findall(match[1])}
        unknown = {suite for named in marks.values() for suite in named} - set(suites)
        if unknown or len(marks) != match[1].count('\n'):
            sys.exit(f'{folder}/{file}: {match[2]} has a mark or a suite that is not known')
        for suite in suites:
            if suite in marks.get('only', suites):
                labels = ['nightly'] if 'nightly' in marks and suite in (marks['nightly'] or suites) else []
                yield f'{suite}.{match[2]}', labels


def main(folder):
    for path in sorted(glob.glob(f'{folder}/*_test.py')):
        file = os.path.basename(path)
        with open(path, encoding='utf-8') as source:
            for name, labels in cases_of(os.path.basename(folder), file, source.read()):
                print(name, file, *labels)


if __name__ == '__main__':
    main(sys.argv[1])
