#!/usr/bin/env python3
"""Moves deploy/changes/*.md, a file for each change, into deploy/CHANGELOG.md: below `## VERSION (not released)`, by
their headings, before what is there. changes/README.md says what a file looks like.

usage: fold_changes.py VERSION
       fold_changes.py --check      only says which file is not as it should be
"""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHANGELOG = f'{HERE}/CHANGELOG.md'
HEADINGS = ('Added', 'Changed', 'Fixed', 'Security')
FRAGMENT = re.compile(rf'### ({"|".join(HEADINGS)})\n\n((?:(?:- |  )\S.*\n)+)')


def text_of(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def read_fragments():
    """{path: (heading, list)} of all files."""
    fragments = {}
    for path in sorted(glob.glob(f'{HERE}/changes/*.md')):
        if os.path.basename(path) == 'README.md':
            continue
        match = FRAGMENT.fullmatch(text_of(path))
        if not match or not match.group(2).startswith('- '):
            sys.exit(f'fold_changes.py: {path} is not one heading ({", ".join(HEADINGS)}), an empty line and a list')
        fragments[path] = match.groups()
    return fragments


def folded(changelog, version, fragments):
    """The change log with the changes in it."""
    heading = f'## {version} (not released)\n'
    if heading not in changelog:
        before, section, after = changelog.partition('\n## ')
        changelog = f'{before}\n{heading}{section}{after}'
    before, after = changelog.split(heading, 1)
    parts = [f'### {kind}\n\n' + ''.join(lines for have, lines in fragments.values() if have == kind)
             for kind in HEADINGS if any(have == kind for have, _ in fragments.values())]
    return before + heading + '\n' + '\n'.join(parts) + after


def main(arguments):
    if len(arguments) != 1 or not re.fullmatch(r'--check|\d+\.\d+\.\d+', arguments[0]):
        sys.exit(__doc__.split('\n\n', 1)[1].strip())
    fragments = read_fragments()
    if arguments[0] == '--check' or not fragments:
        return
    text = folded(text_of(CHANGELOG), arguments[0], fragments)
    with open(f'{CHANGELOG}.new', 'w', encoding='utf-8') as file:
        file.write(text)
    os.rename(f'{CHANGELOG}.new', CHANGELOG)
    for path in fragments:
        os.remove(path)


if __name__ == '__main__':
    main(sys.argv[1:])
