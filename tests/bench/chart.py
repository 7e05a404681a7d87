#!/usr/bin/env python3
"""Draws the numbers of run.py as an SVG, speed relative to native: `chart.py bench.json bench.svg`."""
import json
import statistics
import sys
from xml.sax.saxutils import escape

SYSTEMS = {"fuse-overlayfs": "#b8bcc4", "escrow": "#1f6feb", "escrow-raw": "#8250df"}
LABELS = {"escrow-raw": "escrow --io passthrough", "escrow-writeback": "escrow --io writeback"}
LEFT, WIDTH, BAR, GAP, TOP = 240, 480, 11, 12, 64
LIMIT = 1.5  # longer bars are cut, and say their number


def median_ratio(seconds, name, system):
    ours, native = seconds[name].get(system), seconds[name].get("native")
    return statistics.median(b / max(a, 1e-9) for a, b in zip(ours, native)) if ours and native else None


def bars(seconds, name, shown, y):
    for system in shown:
        ratio = median_ratio(seconds, name, system)
        if ratio is not None:
            length = min(ratio, LIMIT) / LIMIT * WIDTH
            yield (f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{SYSTEMS[system]}"/>'
                   f'<text x="{LEFT + length + 4:.1f}" y="{y + 9}" font-size="10">{ratio:.2f}</text>')
        y += BAR


def draw(result):
    seconds, about = result["seconds"], result["environment"]
    measured = {system for by_system in seconds.values() for system in by_system}
    shown = [system for system in SYSTEMS if system in measured]
    step = BAR * len(shown) + GAP
    height = TOP + step * len(seconds) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" '
             'font-family="sans-serif" font-size="12" fill="#24292f">',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             '<text x="10" y="20" font-size="14" font-weight="bold">Speed relative to native (1 = as fast; longer is '
             'better)</text>']
    for index, system in enumerate(shown):
        x = 10 + index * 160
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{SYSTEMS[system]}"/>'
                     f'<text x="{x + 17}" y="42">{LABELS.get(system, system)}</text>')
    one = LEFT + WIDTH / LIMIT
    parts.append(f'<line x1="{one:.1f}" y1="{TOP - 8}" x2="{one:.1f}" y2="{height - 28}" stroke="#cf222e" '
                 'stroke-dasharray="3 3"/>')
    for index, name in enumerate(seconds):
        y = TOP + index * step
        parts.append(f'<text x="{LEFT - 8}" y="{y + step / 2 - 2:.0f}" text-anchor="end">{escape(name)}</text>')
        parts += bars(seconds, name, shown, y)
    machine = (f"{about['cpu']}, {about['cores']} cores, {about['file_system']}, Linux {about['kernel']}, "
               f"libfuse {about['libfuse']}")
    parts.append(f'<text x="10" y="{height - 10}" font-size="10">{escape(machine)}; median of {result["rounds"]} '
                 'rotated rounds</text></svg>')
    return "\n".join(parts) + "\n"


def write(result, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(result))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as numbers:
        write(json.load(numbers), sys.argv[2])
