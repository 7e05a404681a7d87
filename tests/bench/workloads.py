"""What is timed on each file system, in this order on one fresh instance. A workload returns seconds."""
import os
import subprocess
import time

from systems import run, wait_for_quiet_disk


def timed(script, *arguments, environment=None):
    """Seconds that a shell script takes; its output is read by nobody."""
    start = time.monotonic()
    result = subprocess.run(["sh", "-ec", script, "sh", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            check=False, env={**os.environ, "LC_ALL": "C", **(environment or {})})
    seconds = time.monotonic() - start
    if result.returncode != 0:
        words = result.stderr.decode(errors="replace")[-300:]
        raise RuntimeError(f"{script}: exit status {result.returncode}: {words}")
    return seconds


class Workloads:
    """The workloads over one instance of `system`; `context` has the sizes and the prepared inputs."""

    def __init__(self, system, context):
        self.system, self.context, self.root = system, context, system.root
        self.git = f"{context.work}/{system.name}.gitdir"
        self.big = f"{self.root}/big"

    def ops(self, *arguments):
        return float(run(self.context.ops, *[str(a) for a in arguments]))

    def cold(self, workload, keep=False):
        self.system.cold(keep)
        return workload()

    def quietly(self, workload):
        """What the disk still has to do for others is not charged to this."""
        os.sync()
        wait_for_quiet_disk(self.context)
        return workload()

    def find(self):
        return timed('find "$1" -type f -printf "%s\\n"', self.root)

    def tar(self):  # GNU tar does not read the files when it sees that its output is /dev/null
        return timed('tar -c -C "$1" . | cat', self.root)

    def grep(self):
        return timed('grep -rF "no such line in any file" "$1" || [ $? -eq 1 ]', self.root)

    def git_reset(self):
        """An index without any stat data: every system has the same to do in the first `git status`."""
        run("rm", "-rf", self.git)
        run("git", "init", "--quiet", "--bare", self.git)
        with open(f"{self.git}/objects/info/alternates", "w", encoding="utf-8") as file:
            file.write(f"{self.context.base_git}/objects\n")
        run("git", f"--git-dir={self.git}", "update-ref", "refs/heads/main", self.context.base_commit)
        run("git", f"--git-dir={self.git}", "symbolic-ref", "HEAD", "refs/heads/main")
        run("git", f"--git-dir={self.git}", "read-tree", "HEAD")

    def git_status(self):
        return timed('git --git-dir="$1" --work-tree="$2" -c core.fileMode=false status --porcelain',
                     self.git, self.root)

    def open_read_close(self):
        return self.ops("open-read-close", f"{self.root}/{self.context.one_file}", self.context.opens)

    def untar(self):
        return timed('mkdir "$1/untarred" && tar -xf "$2" -C "$1/untarred"', self.root, self.context.archive)

    def create(self):
        os.mkdir(f"{self.root}/created")
        return self.ops("create", f"{self.root}/created", self.context.creates, 4096)

    def create_in_pieces(self):
        os.mkdir(f"{self.root}/pieces")
        return self.ops("create", f"{self.root}/pieces", self.context.creates // 4, 16384, 512)

    def remove(self):
        return timed('rm -rf "$1/untarred" "$1/created" "$1/pieces"', self.root)

    def table(self):
        """(name, function) in the order they run."""
        big, count = self.context.big_bytes, self.context.random_operations
        return [
            ("find, cold", lambda: self.cold(self.find)),
            ("find, warm", self.find),
            ("tar -c, cold", lambda: self.cold(self.tar)),
            ("tar -c, warm", self.tar),
            ("grep -r, warm", self.grep),
            ("git status, cold, new index", lambda: (self.git_reset(), self.cold(self.git_status))[1]),
            ("git status, warm", self.git_status),
            ("open+read+close of one file", self.open_read_close),
            ("untar small files", lambda: self.quietly(self.untar)),
            ("create+write 4 KiB+close", lambda: self.quietly(self.create)),
            ("create+32 writes of 512 bytes+close", lambda: self.quietly(self.create_in_pieces)),
            ("rm -rf of those", self.remove),
            ("write sequentially, fsync", lambda: self.quietly(
                lambda: self.ops("write-sequential", self.big, big))),
            ("read sequentially, warm", lambda: self.ops("read-sequential", self.big)),
            ("read sequentially, cold", lambda: self.cold(
                lambda: self.ops("read-sequential", self.big), keep=True)),
            ("write 4 KiB at random, fsync", lambda: self.ops("write-random", self.big, count)),
            ("read 4 KiB at random, warm", lambda: self.ops("read-random", self.big, self.context.warm_reads)),
            ("read 4 KiB at random, cold", lambda: self.cold(
                lambda: self.ops("read-random", self.big, count), keep=True)),
        ]
