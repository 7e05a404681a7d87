#!/usr/bin/env python3
"""Measures Escrow's mount against native, kernel overlayfs and fuse-overlayfs, and its sessions against git worktrees.

All systems take turns in rotated order within one run; a second native directory is the control that says how far the
machine can be believed. Needs root (mounts, cold caches). README.md beside this file explains the columns.
"""
import argparse
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import chart  # noqa: E402
import policies  # noqa: E402
import sessions  # noqa: E402
import systems  # noqa: E402
import workloads  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
UNSTABLE = 0.10
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


class Context:
    """The sizes of this run and the inputs that all systems share."""

    def __init__(self, arguments, work):
        self.work = work
        self.files = 300 if arguments.quick else 10000
        self.creates = 500 if arguments.quick else 20000
        self.opens = 500 if arguments.quick else 20000
        self.random_operations = 500 if arguments.quick else 20000
        # From the page cache these take a microsecond each: fewer would measure how the processor wakes up.
        self.warm_reads = 500 if arguments.quick else 500000
        self.big_bytes = (8 if arguments.quick else 1024 if arguments.full else 128) << 20
        self.patience = 0 if arguments.quick else 20  # seconds, for a quiet disk
        self.ops = program(arguments.build, "tests/bench/bench_ops", required=True)
        self.floor = program(arguments.build, "tests/bench/bench_floor", required=True)
        self.escrow = arguments.escrow or program(arguments.build, "daemon/escrow", required=False)
        self.base_tree = f"{work}/base"
        self.base_git = f"{work}/base.git"
        self.archive = f"{work}/base.tar"
        self.one_file = "d0/file0"

    def prepare(self):
        """A tree of small text files, its archive, and a git repository that holds it."""
        generator = random.Random(1)
        words = ["".join(generator.choices("abcdefghij", k=7)) for _ in range(500)]
        for index in range(self.files):
            path = f"{self.base_tree}/d{index // 100}/file{index}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write(f"{index}\n" + " ".join(generator.choices(words, k=generator.randrange(1, 1000))) + "\n")
        systems.run("tar", "-cf", self.archive, "-C", self.base_tree, ".")
        systems.run("git", "init", "--quiet", "--bare", self.base_git)
        git = ["git", *sessions.IDENTITY, f"--git-dir={self.base_git}", f"--work-tree={self.base_tree}"]
        systems.run(*git, "add", "-A")
        systems.run(*git, "commit", "--quiet", "-m", "base")
        self.base_commit = systems.run(*git, "rev-parse", "HEAD").strip()


def program(build, path, required):
    folders = [build] if build else [f"{HERE}/../../build/{preset}" for preset in ("release", "dev")]
    for folder in folders:
        candidate = os.path.abspath(f"{folder}/{path}")
        if os.access(candidate, os.X_OK):
            return candidate
    if required:
        sys.exit(f"run.py: {path} is in none of {', '.join(folders)}; build it with "
                 "`cmake --build --preset release --target all nightly` or give --build")
    return None


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure_files(context, all_systems, rounds, match):
    """seconds[workload][system] = one number per round; failures[workload][system] = why there is none."""
    seconds, failures = {}, {}
    for turn in range(rounds):
        shift = turn % len(all_systems)
        for system in all_systems[shift:] + all_systems[:shift]:
            system.fresh()
            for name, workload in workloads.Workloads(system, context).table():
                if not match.search(name):
                    continue
                say(f"round {turn + 1} of {rounds}: {system.name}: {name}")
                try:
                    seconds.setdefault(name, {}).setdefault(system.name, []).append(workload())
                except (RuntimeError, OSError) as error:
                    failures.setdefault(name, {})[system.name] = str(error)
            system.remove()
    return seconds, failures


def ratios(seconds, failures, name, system, against):
    """Per round, how fast `system` is relative to `against` (1: the same, 0.5: half as fast); None: not measured."""
    ours, theirs = seconds[name].get(system), seconds[name].get(against)
    if not ours or not theirs or failures.get(name, {}).keys() & {system, against}:
        return None
    return [b / max(a, 1e-9) for a, b in zip(ours, theirs)]


def cell(values):
    return "-" if values is None else f"{statistics.median(values):.2f}"


def file_table(seconds, failures, names):
    """Lines of the printed table: speed relative to native, and of Escrow relative to fuse-overlayfs."""
    others = [name for name in names if name != "native"]
    width = max(len(name) for name in seconds)
    header = f"{'':{width}}  {'native s':>9}" + "".join(f"  {name:>14}" for name in others)
    lines = [header + ("  escrow/fuse-overlayfs" if {"escrow", "fuse-overlayfs"} <= set(names) else "")]
    for name in seconds:
        native = seconds[name].get("native")
        line = f"{name:{width}}  " + (f"{statistics.median(native):9.3f}" if native else f"{'-':>9}")
        line += "".join(f"  {cell(ratios(seconds, failures, name, other, 'native')):>14}" for other in others)
        if {"escrow", "fuse-overlayfs"} <= set(names):
            line += f"  {cell(ratios(seconds, failures, name, 'escrow', 'fuse-overlayfs')):>21}"
        control = ratios(seconds, failures, name, "native-again", "native")
        if control is None or abs(statistics.median(control) - 1) > UNSTABLE:
            line += "  unstable"
        lines.append(line)
    return lines


def session_table(rows, resident):
    def median(**wanted):
        column = wanted.pop("column")
        values = [r[column] for r in rows if column in r and all(r[k] == v for k, v in wanted.items())]
        return statistics.median(values) if values else None

    def show(value):
        return f"{value * 1000:14.1f}" if value is not None else f"{'-':>14}"

    sides = ("git", "escrow", "escrowd")
    columns = [f"{side} {step}" for step in ("open", "commit") for side in sides]
    lines = [f"{'files':>8} {'changed':>8} " + " ".join(f"{column:>14}" for column in columns) + "  (ms)"]
    for files in sorted({r["files"] for r in rows}):
        for changed in sorted({r["changed"] for r in rows if "open" in r}):
            line = f"{files:8} {changed:8}"
            for column in ("open", "commit"):
                for side in sides:
                    line += " " + show(median(files=files, changed=changed, side=side, column=column))
            lines.append(line)
    for files in sorted({r["files"] for r in rows if "run_true" in r}):
        lines.append(f"escrow run -- true, {files} files: {show(median(files=files, column='run_true')).strip()} ms"
                     + (f"; resident bytes per visited file: {resident[files]:.0f}" if files in resident else ""))
    for files in sorted({r["files"] for r in rows if "loop" in r}):
        opened, committed = (statistics.median(r["loop"][step] for r in rows if "loop" in r and r["files"] == files)
                             for step in ("open", "commit"))
        lines.append(f"in process, {files} files, warm: opened and mounted in {show(opened).strip()} ms, "
                     f"one changed file committed in {show(committed).strip()} ms")
    return lines


def policy_table(seconds):
    """Times a session takes by the rules of its policy, relative to one rule, round by round."""
    width = max(len(name) for name in seconds)
    lines = [f"{'':{width}}  {'one rule, s':>11}" + "".join(f"  {rules:>5} rules" for rules in policies.RULES)]
    for name, by_rules in seconds.items():
        one = by_rules["1"]
        line = f"{name:{width}}  {statistics.median(one):11.3f}"
        for rules in policies.RULES:
            line += f"  {statistics.median(a / max(b, 1e-9) for a, b in zip(by_rules[str(rules)], one)):11.2f}"
        lines.append(line)
    return lines


def environment(context):
    def first_line(*command, having=""):
        try:
            output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:
            return None
        return next((line for line in output.split("\n") if having in line), None)

    def finding(name):
        line = context.escrow and first_line(context.escrow, "doctor", having=f"{name}: ")
        return line and line.split(f"{name}: ", 1)[1]

    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "kernel": platform.release(), "cpu": models[0] if models else platform.machine(), "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "file_system": first_line("stat", "--file-system", "--format=%T", context.work),
        "escrow": context.escrow and first_line(context.escrow, "--version"),
        "libfuse": finding("libfuse"),
        "io_uring": finding("io_uring"),
        "libgit2": first_line("pkg-config", "--modversion", "libgit2"),
        "sqlite": first_line("pkg-config", "--modversion", "sqlite3"),
        "fuse-overlayfs": first_line("fuse-overlayfs", "--version", having="fuse-overlayfs"),
        "git": first_line("git", "--version"),
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one small round: does it all work?")
    size.add_argument("--full", action="store_true", help="also 1 GB files and a repository of 1M files")
    parser.add_argument("--rounds", type=int, help="rotated rounds (default 5; 1 with --quick)")
    parser.add_argument("--only", choices=("files", "sessions", "policies"), help="measure one part")
    parser.add_argument("--match", type=re.compile, default=re.compile(""), metavar="REGEX",
                        help="only these of the first half's rows; one that reads needs the one that writes before it")
    parser.add_argument("--systems", type=lambda names: names.split(","), metavar="NAME,...",
                        help="only these columns of the first half, and native with its control")
    parser.add_argument("--build", help="build directory (default: build/release, then build/dev)")
    parser.add_argument("--escrow", help="the program to measure (default: the one of the build directory)")
    parser.add_argument("--directory", default=os.environ.get("TMPDIR", "/tmp"), help="where to work; not a tmpfs")
    parser.add_argument("--json", default="bench.json", help="where the numbers go (default: bench.json)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if os.geteuid() != 0:
        print("run.py: mounting overlayfs and dropping caches takes root; run it with sudo", file=sys.stderr)
        return 1 if os.environ.get("REQUIRE_FUSE") == "1" else SKIPPED
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    work = tempfile.mkdtemp(prefix="escrow-bench.", dir=arguments.directory)
    try:
        context = Context(arguments, work)
        context.prepare()
        result = {"environment": environment(context), "rounds": rounds, "quick": arguments.quick,
                  "full": arguments.full}
        for name, value in result["environment"].items():
            print(f"{name}: {value}")
        if arguments.only in (None, "files"):
            found, missing = systems.available(context, arguments.systems)
            seconds, failures = measure_files(context, found, rounds, arguments.match)
            result |= {"seconds": seconds, "failures": failures, "missing": missing}
            say("")
            print("\nSpeed relative to native, median of the rounds (1: as fast, 0.5: half as fast)")
            print("\n".join(file_table(seconds, failures, [system.name for system in found])))
            for name, why in missing.items():
                print(f"{name} was not measured: {why}")
            for name, by_system in failures.items():
                for system, why in by_system.items():
                    print(f"{system} failed at '{name}': {why}")
        if arguments.only in (None, "policies"):
            by_rules = policies.measure(context, rounds, workloads.Workloads, say)
            result |= {"policies": by_rules}
            say("")
            print("\nTime by the number of rules of a policy, relative to one rule, median of the rounds")
            print("\n".join(policy_table(by_rules)))
        if arguments.only in (None, "sessions"):
            sizes = [100] if arguments.quick else [1000, 100000] + ([1000000] if arguments.full else [])
            counts = [1, 10] if arguments.quick else [1, 1000, 10000]
            rows, resident = sessions.measure(context, sizes, counts, rounds, say)
            result |= {"sessions": rows, "resident_bytes_per_visited_file": resident}
            say("")
            print("\nSessions against git worktree add, and git add -A with git commit")
            print("\n".join(session_table(rows, resident)))
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        print(f"\nnumbers: {arguments.json}")
        if result.get("seconds"):
            image = os.path.splitext(arguments.json)[0] + ".svg"
            chart.write(result, image)
            print(f"chart: {image}")
        return 1 if result.get("failures") or not context.escrow or "escrow" in result.get("missing", ()) else 0
    finally:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as file:
            left = [line.split()[1] for line in file if line.split()[1].startswith(work + "/")]
        for mountpoint in left:
            subprocess.run(["umount", "--lazy", mountpoint], check=False)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
