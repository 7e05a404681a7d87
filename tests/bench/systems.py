"""The file systems that are compared: each shows the same tree in a fresh, writable directory."""
import os
import shutil
import subprocess
import time


class Unavailable(Exception):
    """This machine cannot offer the file system; the message says why."""


def run(*command, **keywords):
    """Runs to the end; a failure is an exception with the command's own words."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **keywords)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {result.returncode}: {result.stderr.strip()[-500:]}")
    return result.stdout


def disk_activity(directory):
    """What the disk below has done so far, and how many requests it is busy with; None for what is no block device."""
    device = os.stat(directory).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat", encoding="ascii") as file:
            numbers = [int(word) for word in file.read().split()]
    except OSError:
        return None
    return {"busy": numbers[8], "written": numbers[6], "discarded": numbers[13] if len(numbers) > 13 else 0}


def wait_for_quiet_disk(context):
    """Until nothing was written or discarded for 0.3 s: what was deleted before is discarded late, and would be charged
    to whoever reads next. With a bound: others may never leave the disk alone."""
    deadline = time.monotonic() + context.patience
    before = disk_activity(context.work)
    while before and time.monotonic() < deadline:
        time.sleep(0.3)
        now = disk_activity(context.work)
        if now == before and now["busy"] == 0:
            return
        before = now


def drop_caches(context):
    os.sync()
    wait_for_quiet_disk(context)
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")


class Native:
    """A plain copy of the tree on the file system below."""

    def __init__(self, name, context):
        self.name, self.context = name, context
        self.directory = f"{context.work}/{name}"
        self.root = f"{self.directory}/tree"

    def fresh(self):
        self.remove()
        os.makedirs(self.directory)
        run("cp", "-a", self.context.base_tree, self.root)

    def cold(self, keep=False):
        """Nothing of the tree is in memory, neither the kernel's nor a server's; `keep` what was written."""
        drop_caches(self.context)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


class Overlay(Native):
    """Kernel overlayfs over the tree."""

    def __init__(self, name, context):
        super().__init__(name, context)
        self.root = f"{self.directory}/merged"

    def fresh(self):
        self.remove()
        for part in ("upper", "work", "merged"):
            os.makedirs(f"{self.directory}/{part}")
        self.mount()

    def layers(self):
        return f"lowerdir={self.context.base_tree},upperdir={self.directory}/upper,workdir={self.directory}/work"

    def mount(self):
        run("mount", "-t", "overlay", "overlay", "-o", self.layers(), self.root)

    def unmount(self):
        if os.path.ismount(self.root):
            run("umount", self.root)

    def cold(self, keep=False):
        self.unmount()
        drop_caches(self.context)
        self.mount()

    def remove(self):
        self.unmount()
        super().remove()


class FuseOverlay(Overlay):
    def mount(self):
        run("fuse-overlayfs", "-o", self.layers(), self.root)


class Escrow(Overlay):
    """A session over a repository that holds the tree. Cold is a new session, or (`keep`) the same mounted again."""

    def __init__(self, name, context, *options):
        super().__init__(name, context)
        self.options = options
        self.session = None
        self.repository = f"{context.work}/tree.git"

    def prepare(self):
        if not os.path.exists(self.repository):
            escrow = self.context.escrow
            run(escrow, "--repo", self.repository, "init")
            run(escrow, "--repo", self.repository, "import", self.context.base_tree, "--message", "base")

    def fresh(self):
        self.prepare()
        self.remove()
        os.makedirs(self.root)
        self.mount()

    def mount(self, *options):
        output = run(self.context.escrow, "--repo", self.repository, "mount", self.root, *self.options, *options)
        self.session = output.split()[-1]

    def cold(self, keep=False):
        self.unmount()
        if not keep:
            self.end_session()
        drop_caches(self.context)
        self.mount(*(["--session", self.session] if keep else []))

    def end_session(self):
        if self.session:
            run(self.context.escrow, "--repo", self.repository, "rollback", self.session)
            self.session = None

    def remove(self):
        self.unmount()
        self.end_session()
        Native.remove(self)


class Floor(Overlay):
    """Escrow's mount over files in memory: the kernel and the messages, nothing else. Cold is the kernel alone."""

    def mount(self):
        self.server = subprocess.Popen([self.context.floor, self.root], stdout=subprocess.PIPE, text=True)
        if self.server.stdout.readline() != "ready\n":
            raise Unavailable("the mount over memory could not be made")

    def fresh(self):
        self.remove()
        os.makedirs(self.root)
        self.mount()
        run("cp", "-r", f"{self.context.base_tree}/.", self.root)

    def cold(self, keep=False):
        drop_caches(self.context)

    def unmount(self):
        if os.path.ismount(self.root):
            run("umount", self.root)
            self.server.wait()


class EscrowPolicy(Escrow):
    """A session with a policy of one rule, which denies nothing that is measured."""

    def mount(self, *options):
        policy = f"{self.context.work}/policy.json"
        with open(policy, "w", encoding="ascii") as file:
            file.write('{"default": "allow", "rules": [{"effect": "deny", "actions": ["read", "write"], '
                       '"paths": ["/secrets/"]}]}')
        super().mount(*([] if "--session" in options else ["--policy", policy]), *options)


def available(context, wanted=None):
    """(systems, {name: why not}) of this machine; the first two are native and its control. `wanted`: only these."""
    systems = [Native("native", context), Native("native-again", context)]
    missing = {}
    for system in (Overlay("overlayfs", context), FuseOverlay("fuse-overlayfs", context), Escrow("escrow", context),
                   Escrow("escrow-opens", context, "--opens", "daemon"),
                   EscrowPolicy("escrow-policy", context),
                   Escrow("escrow-raw", context, "--io", "passthrough"),
                   Escrow("escrow-writeback", context, "--io", "writeback"), Floor("floor", context)):
        if wanted and system.name not in wanted:
            continue
        try:
            if isinstance(system, Escrow) and not context.escrow:
                raise Unavailable("no escrow program was found; build it or give --build")
            if system.name == "fuse-overlayfs" and not shutil.which("fuse-overlayfs"):
                raise Unavailable("fuse-overlayfs is not installed")
            system.fresh()
            system.remove()
            systems.append(system)
        except (RuntimeError, OSError, Unavailable) as error:
            missing[system.name] = str(error)
    return systems, missing
