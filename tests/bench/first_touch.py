#!/usr/bin/env python3
"""How fast is a tree that a new session has never read? The page cache holds the repository, not the session's files.

Columns take turns in rotated order, each in a fresh directory: native, the same once more as the control, and one or
two builds of Escrow. Nothing of the system is dropped or set. Times are relative to native's warm ones, round by round,
then the median: 1 is as fast, 0.5 half as fast. README.md beside this file.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import systems  # noqa: E402
import workloads  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
ROWS = ("find, first", "tar, first", "tar, second session", "tar, again")


class Context:
    def __init__(self, work, patience):
        self.work, self.patience = work, patience
        self.tree = f"{work}/base"


def make_tree(root, files):
    """Files of 2 to 6 KiB that compress as source code does, 80 to a directory."""
    generator = random.Random(20)
    words = ["".join(generator.choices("abcdefghijklmnop_", k=generator.randrange(2, 12))) for _ in range(4000)]
    for index in range(files):
        folder = f"{root}/d{index // 800}/e{index // 80}"
        os.makedirs(folder, exist_ok=True)
        size, text = generator.randrange(2048, 6144), [str(index)]
        while size > 0:
            line = " ".join(generator.choices(words, k=8))
            text.append(line)
            size -= len(line) + 1
        with open(f"{folder}/file{index}.txt", "w", encoding="ascii") as file:
            file.write("\n".join(text) + "\n")


def read_all(root):  # GNU tar does not read the files when it sees that its output is /dev/null
    return workloads.timed('tar -c -C "$1" . | cat', root)


def list_all(root):
    return workloads.timed('find "$1" -type f -printf "%s\\n"', root)


class Native:
    def __init__(self, name, context):
        self.name, self.context, self.root = name, context, f"{context.work}/{name}"

    def measure(self):
        shutil.rmtree(self.root, ignore_errors=True)
        systems.run("cp", "-a", self.context.tree, self.root)
        read_all(self.root)
        find, tar = list_all(self.root), read_all(self.root)
        shutil.rmtree(self.root)
        # There is no first time of it: the copy has just been in memory.
        return {"find, first": find, "tar, first": tar, "tar, second session": tar, "tar, again": tar}


class Escrow:
    def __init__(self, name, context, program, packing):
        self.name, self.context, self.program = name, context, program
        self.repository, self.root = f"{context.work}/{name}.git", f"{context.work}/{name}"
        systems.run(program, "--repo", self.repository, "init")
        systems.run(program, "--repo", self.repository, "import", context.tree, "--message", "base")
        if packing == "gc":
            systems.run("git", f"--git-dir={self.repository}", "repack", "-q", "-a", "-d", "-f")
        os.mkdir(self.root)

    def mount(self):
        output = systems.run(self.program, "--repo", self.repository, "mount", self.root)
        return output.split()[-1]

    def end(self, session):
        systems.run("umount", self.root)
        systems.run(self.program, "--repo", self.repository, "rollback", session)

    def host(self):
        """The process that serves the mount: its command line names the mountpoint."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if self.root.encode() in words and b"mount" in words:
                return pid
        raise RuntimeError(f"no process serves {self.root}")

    def spent(self):
        """Resident KiB of the process that serves the mount, and its processor time in seconds."""
        host = self.host()
        with open(f"/proc/{host}/status", encoding="ascii") as file:
            resident = int(next(line for line in file if line.startswith("VmRSS:")).split()[1])
        with open(f"/proc/{host}/stat", encoding="ascii") as file:
            words = file.read().rpartition(")")[2].split()
        return resident, (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self):
        found = {}
        session = self.mount()
        found["find, first"] = list_all(self.root)
        self.end(session)
        session = self.mount()
        found["tar, first"] = read_all(self.root)
        found["resident KiB"], found["processor s"] = self.spent()
        found["tar, again"] = read_all(self.root)
        self.end(session)
        session = self.mount()
        found["tar, second session"] = read_all(self.root)
        self.end(session)
        return found


def load():
    with open("/proc/loadavg", encoding="ascii") as file:
        return float(file.read().split()[0])


def measure(columns, rounds):
    """found[row][column] = one number a round."""
    found = {}
    for turn in range(rounds):
        shift = turn % len(columns)
        for column in columns[shift:] + columns[:shift]:
            print(f"round {turn + 1} of {rounds}: {column.name}", file=sys.stderr, flush=True)
            systems.wait_for_quiet_disk(column.context)
            for row, value in column.measure().items():
                found.setdefault(row, {}).setdefault(column.name, []).append(value)
    return found


def table(found, columns):
    names = [column.name for column in columns]
    lines = ["| | native s | " + " | ".join(names[1:]) + " |", "|---" * (len(names) + 1) + "|"]
    for row in ROWS:
        native = found[row]["native"]
        ratios = (statistics.median(n / max(t, 1e-9) for n, t in zip(native, found[row][name])) for name in names[1:])
        lines.append(f"| {row} | {statistics.median(native):.3f} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
    for row, unit, scale in (("resident KiB", "MiB", 1 / 1024), ("processor s", "s", 1.0)):
        values = found.get(row, {})
        cells = (f"{statistics.median(values[name]) * scale:.3g}" if name in values else "" for name in names[1:])
        lines.append(f"| the host's {row.split()[0]} {unit}, first tar | | " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=f"{HERE}/../../build/release", help="the build that is measured")
    parser.add_argument("--before", help="another build: the second control")
    parser.add_argument("--files", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packing", choices=("import", "gc"), default="import",
                        help="the pack as escrow import leaves it, or as git gc does, with deltas")
    parser.add_argument("--directory", help="work here (default: $TMPDIR or /tmp); not a tmpfs")
    parser.add_argument("--json", help="every single measurement goes here")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("first_touch.py: mounting takes root and /dev/fuse; run it with sudo", file=sys.stderr)
        return 1 if os.environ.get("REQUIRE_FUSE") == "1" else SKIPPED
    programs = {"escrow": options.build} | ({"before": options.before} if options.before else {})
    for folder in programs.values():
        if not os.access(f"{folder}/daemon/escrow", os.X_OK):
            sys.exit(f"first_touch.py: there is no {folder}/daemon/escrow; build it or give --build")
    with tempfile.TemporaryDirectory(prefix="escrow-first-touch-", dir=options.directory) as work:
        context = Context(work, 2)
        make_tree(context.tree, options.files)
        columns = [Native("native", context), Native("native-again", context)]
        columns += [Escrow(name, context, f"{folder}/daemon/escrow", options.packing)
                    for name, folder in programs.items()]
        before = load()
        try:
            found = measure(columns, options.rounds)
        finally:
            for column in columns:
                if os.path.ismount(column.root):
                    subprocess.run(["umount", "--lazy", column.root], check=False)
        print(f"{options.files} files, {options.rounds} rounds, load {before:.1f} before, {load():.1f} after")
        print("\n".join(table(found, columns)))
        if options.json:
            with open(options.json, "w", encoding="ascii") as file:
                json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
