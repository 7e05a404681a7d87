#!/usr/bin/env python3
"""deploy/grafana/escrowd.json asks for what /metrics has, by its labels, too."""
import json
import os
import re

from service import eventually, expect, expect_equal, main, read, write

DASHBOARD = f'{os.path.dirname(os.path.abspath(__file__))}/../../deploy/grafana/escrowd.json'


def expressions():
    with open(DASHBOARD, encoding='utf-8') as file:
        return [target['expr'] for panel in json.load(file)['panels'] for target in panel['targets']]


def shown(service):
    """{name: its labels} of /metrics."""
    found = {}
    for line in service.get('/metrics').body.decode().splitlines():
        if match := re.match(r'(\w+)(?:\{(.*)\})? ', line):
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ''))
    return found


def TheDashboardShowsWhatIsCounted(start):
    with start(gc_every_s={'*': 1}) as service:
        session, point = service.open_mounted()
        write(f'{point}/new', 'new')
        expect_equal('what was written', read(f'{point}/new'), 'new')
        service.finish(session, {'exit_code': 0}).expect(200)
        eventually('it is cleaned up', lambda: 'escrow_gc_last_success_timestamp_seconds' in shown(service))
        there, used = shown(service), set()
        for expression in expressions():
            names = re.findall(r'escrow_\w+', expression)
            expect(names, f'{expression} asks for nothing')
            labels = {label for group in re.findall(r'by \(([^)]*)\)', expression) for label in group.split(', ')}
            labels |= set(re.findall(r'(\w+)=', expression))
            for name in names:
                expect(name in there, f'{expression}: there is no {name}')
                expect(labels <= there[name], f'{expression}: {name} has the labels {there[name]}')
            used.update(name.removesuffix('_bucket') for name in names)
        families = {re.sub('_(bucket|sum|count)$', '', name) for name in there}
        expect_equal('what no panel shows', {one for one in families if one.startswith('escrow_')} - used, set())


if __name__ == '__main__':
    main(globals())
