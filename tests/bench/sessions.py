"""Opening sessions and committing in repositories of different sizes, against git worktree, add and commit."""
import contextlib
import json
import os
import shutil
import subprocess
import time

import service_load
from systems import drop_caches, run

IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0", "-c",
            "maintenance.auto=false")


def path_of(index):
    return f"d{index // 10000}/e{index // 100 % 100}/file{index}"


def make_repository(path, files):
    """A bare repository with one commit of `files` small files on main, 100 to a directory."""
    run("git", "init", "--quiet", "--bare", "--initial-branch=main", path)
    stream = subprocess.Popen(["git", f"--git-dir={path}", "fast-import", "--quiet"], stdin=subprocess.PIPE, text=True)
    write = stream.stdin.write
    write("commit refs/heads/main\ncommitter bench <bench@example.org> 1700000000 +0000\ndata 4\nbase\n")
    for index in range(files):
        content = f"content of file {index}\n"
        write(f"M 100644 inline {path_of(index)}\ndata {len(content)}\n{content}\n")
    stream.stdin.close()
    if stream.wait() != 0:
        raise RuntimeError(f"git fast-import into {path} failed")


def change(root, files, count, stamp):
    """Rewrites `count` files spread over the tree; creates more where there are not enough."""
    step = max(1, files // count)
    for number in range(count):
        index = number * step if number * step < files else files + number
        os.makedirs(os.path.dirname(f"{root}/{path_of(index)}"), exist_ok=True)
        with open(f"{root}/{path_of(index)}", "w", encoding="ascii") as file:
            file.write(f"{stamp} {index}\n")


def seconds_of(*command, **keywords):
    start = time.monotonic()
    run(*command, **keywords)
    return time.monotonic() - start


class EscrowSide:
    name = "escrow"

    def __init__(self, context, source, directory):
        self.escrow, self.repository, self.root = context.escrow, f"{directory}/escrow.git", f"{directory}/mount"
        shutil.copytree(source, self.repository)
        os.mkdir(self.root)
        run(self.escrow, "--repo", self.repository, "init")

    def open(self):
        start = time.monotonic()
        self.session = run(self.escrow, "--repo", self.repository, "mount", self.root).split()[-1]
        return time.monotonic() - start

    def commit(self):
        return seconds_of(self.escrow, "--repo", self.repository, "commit", self.session, "--message", "bench")

    def close(self):
        if os.path.ismount(self.root):
            run("umount", self.root)

    def run_true(self):
        return seconds_of(self.escrow, "--repo", self.repository, "run", "--", "true")

    def resident_bytes_per_file(self, files):
        """How much the process that serves a fresh mount grows by, per file whose status was read."""
        self.open()
        server = self.server()
        before = resident_bytes(server)
        run("sh", "-c", 'find "$1" -type f -size +1000 | wc -l', "sh", self.root)
        grown = resident_bytes(server) - before
        run(self.escrow, "--repo", self.repository, "rollback", self.session)
        self.close()
        return grown / files

    def server(self):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        words = file.read().split(b"\0")
                except OSError:
                    continue
                if b"mount" in words and self.root.encode() in words:
                    return int(entry)
        raise RuntimeError(f"no process serves {self.root}")


class ServiceSide:
    """An escrowd that runs already: the same without starting a program for each step."""
    name = "escrowd"

    def __init__(self, context, source, directory):
        self.service = service_load.Escrow(os.path.dirname(context.escrow), directory, source)
        self.connection, self.root = self.service.client(0), f"{self.service.directory}/mounts/bench"

    def post(self, target, body):
        start = time.monotonic()
        self.answer = self.service.ask(self.connection, target, body)
        return time.monotonic() - start

    def open(self):
        return self.post("/v1/sessions", {"repository": "data", "mountpoint": self.root})

    def commit(self):
        return self.post(f"/v1/sessions/{self.answer['session']}/commit", {})

    def close(self):
        if self.answer["state"] != "committed":
            raise RuntimeError(f"the session is {self.answer}")


class GitSide:
    name = "git"

    def __init__(self, _context, source, directory):
        self.repository, self.root = f"{directory}/git.git", f"{directory}/worktree"
        shutil.copytree(source, self.repository)

    def git(self, *arguments):
        return ("git", *IDENTITY, "-C", self.root, *arguments)

    def open(self):
        return seconds_of("git", *IDENTITY, f"--git-dir={self.repository}", "worktree", "add", "--quiet", "--detach",
                          self.root, "main")

    def commit(self):
        return (seconds_of(*self.git("add", "-A")) + seconds_of(*self.git("commit", "--quiet", "-m", "bench"))
                + seconds_of(*self.git("update-ref", "refs/heads/main", "HEAD")))

    def close(self):
        run("git", f"--git-dir={self.repository}", "worktree", "remove", "--force", self.root)


def resident_bytes(process):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {process} has no VmRSS")


def measure(context, sizes, counts, rounds, say):
    """Rows of {files, changed, side, round, open, commit}, `run -- true` and the resident bytes per visited file."""
    rows, resident = [], {}
    for files in sizes:
        directory = f"{context.work}/sessions-{files}"
        os.makedirs(directory)
        source = f"{directory}/source.git"
        say(f"a repository of {files} files")
        make_repository(source, files)
        sides, escrow = [GitSide(context, source, directory)], None
        with contextlib.ExitStack() as ending:
            if context.escrow:
                escrow, service = EscrowSide(context, source, directory), ServiceSide(context, source, directory)
                ending.callback(service.service.stop)
                sides += [escrow, service]
            for turn in range(rounds):
                rows += one_round(context, files, counts, turn, sides, say)
                if escrow:
                    rows.append({"files": files, "changed": 0, "side": "escrow", "round": turn,
                                 "run_true": escrow.run_true()})
            if escrow:
                rows += [{"files": files, "changed": 1, "side": "in process", "round": turn, "loop": in_process(escrow)}
                         for turn in range(rounds)]
                resident[files] = escrow.resident_bytes_per_file(files)
        shutil.rmtree(directory)
    return rows, resident


def in_process(escrow):
    """The seconds of {open, commit} without starting a program or asking one, the caches warm: medians of 21."""
    program = f"{os.path.dirname(escrow.escrow)}/../tests/bench/bench_sessions"
    return json.loads(run(program, escrow.repository, escrow.root, "21"))


def one_round(context, files, counts, turn, sides, say):
    for changed in counts:
        for side in sides[turn % len(sides):] + sides[:turn % len(sides)]:
            say(f"{files} files, round {turn + 1}: {side.name}, {changed} changed")
            drop_caches(context)
            opened = side.open()
            change(side.root, files, changed, f"round {turn}")
            yield {"files": files, "changed": changed, "side": side.name, "round": turn, "open": opened,
                   "commit": side.commit()}
            side.close()
