#!/usr/bin/env python3
"""The transcript of api/mcp.md: each call answers what is written below it, and the person's commands work.

SESSION, RESULT and COMMIT are ids, TIME is one, BYTES a number; "..." stands for any lines. The configuration at the
top starts the server, with the test's repository in its place.
"""
import json
import os
import re

from mcp_client import ROOT, Client, expect, expect_equal, main

FILES = {'Makefile': 'check:\n\tpython3 sum.py 2 3\n', 'sum.py': 'import sys\nprint(max(map(int, sys.argv)))\n'}
PLACES = {'SESSION': r'[0-9a-f]{16}', 'RESULT': r'[0-9a-f]{40}', 'COMMIT': r'[0-9a-f]{40}', 'TIME': r'[0-9T:.Z-]+',
          'BYTES': r'\d+'}


def blocks():
    """[(kind, text)]"""
    with open(f'{ROOT}/api/mcp.md', encoding='utf-8') as file:
        return re.findall(r'^```(\w+)\n(.*?)^```$', file.read(), re.MULTILINE | re.DOTALL)


def pattern_of(text):
    """A regular expression for what is written."""
    parts = re.split(r'\b(' + '|'.join(PLACES) + r')\b|^(\.\.\.)$', text, flags=re.MULTILINE)
    found = ''
    for literal, place, dots in zip(parts[0::3], parts[1::3] + [None], parts[2::3] + [None]):
        found += re.escape(literal) + (f'(?P<{place}_{len(found)}>{PLACES[place]})' if place else '')
        found += '(?s:.*)' if dots else ''
    return found


class Page:
    def __init__(self, client):
        self.client, self.known = client, {}

    def put_in(self, text):
        for place, value in self.known.items():
            text = re.sub(rf'\b{place}\b', value, text)
        return text

    def play(self, transcript):
        for tool, arguments, written in re.findall(r'^> (\w+) (.*)\n((?:(?!> ).*\n)*)', transcript, re.MULTILINE):
            answer = self.client.call(tool, **json.loads(self.put_in(arguments)))
            said = '\n'.join([json.dumps(answer.document, separators=(',', ':'), ensure_ascii=False), *answer.texts])
            match = re.fullmatch(pattern_of(written), said + '\n')
            expect(match, f'{tool} {arguments} answered\n{said}\nand not\n{written}')
            for name, value in match.groupdict().items():
                place = name.split('_')[0]
                if place in ('SESSION', 'RESULT', 'COMMIT'):
                    expect_equal(place, self.known.setdefault(place, value), value)


def ThePageIsPlayedAsWritten(repository):
    for name, text in FILES.items():
        with open(f'{repository.directory}/in/{name}', 'w', encoding='utf-8') as file:
            file.write(text)
    for name in ('a.txt', 'dir/b.txt', 'dir/deep/c.txt'):
        os.remove(f'{repository.directory}/in/{name}')
    repository.escrow('import', f'{repository.directory}/in')
    head = repository.head()
    (kind, configuration), *rest = blocks()
    expect_equal('the first block', kind, 'json')
    server = json.loads(configuration)['mcpServers']['escrow']
    expect_equal('the command', (server['command'], server['args'][:3]), ('escrow', ['--repo', '/srv/data.git', 'mcp']))
    with Client(repository, *server['args'][3:]) as client:
        page = Page(client)
        for kind, text in rest:
            if kind == 'text':
                page.play(text)
                continue
            expect_equal('the branch before the review', repository.head(), head)
            for line in text.splitlines():
                words = page.put_in(line.split('  #')[0]).strip()
                expect(words.startswith('escrow '), words)
                repository.escrow(*[word.strip('"') for word in re.findall(r'"[^"]*"|\S+', words)[1:]])
        expect_equal('the branch', (repository.head(), page.known['COMMIT']), (page.known['COMMIT'], repository.head()))
    expect_equal('the file', repository.git('show', 'main:sum.py'), 'import sys\nprint(sum(map(int, sys.argv[1:])))')


if __name__ == '__main__':
    main(globals())
