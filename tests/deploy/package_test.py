#!/usr/bin/env python3
"""The Debian package of this build: what is in it, and what dpkg is told. deploy/try-package.sh installs it."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

# Everything but libraries of the system; modes as `ls` shows them.
CONTENTS = {
    "./etc/escrow/escrowd.json": "-rw-r--r--",
    "./sbin/mount.fuse.escrow": "-rwxr-xr-x",
    "./usr/bin/escrow": "-rwxr-xr-x",
    "./usr/bin/escrowd": "-rwxr-xr-x",
    "./usr/lib/systemd/system/escrow-mount@.service": "-rw-r--r--",
    "./usr/lib/systemd/system/escrowd.service": "-rw-r--r--",
    "./usr/lib/systemd/system/escrowd.socket": "-rw-r--r--",
    "./usr/share/bash-completion/completions/escrow": "-rw-r--r--",
    "./usr/share/doc/escrow/README.md": "-rw-r--r--",
    "./usr/share/doc/escrow/changelog.gz": "-rw-r--r--",
    "./usr/share/doc/escrow/copyright": "-rw-r--r--",
    "./usr/share/doc/escrow/openapi.yaml": "-rw-r--r--",
    "./usr/share/fish/vendor_completions.d/escrow.fish": "-rw-r--r--",
    "./usr/share/man/man1/escrow.1.gz": "-rw-r--r--",
    "./usr/share/man/man7/escrow-policy.7.gz": "-rw-r--r--",
    "./usr/share/man/man8/escrowd.8.gz": "-rw-r--r--",
    "./usr/share/zsh/site-functions/_escrow": "-rw-r--r--",
}
EMPTY_DIRECTORIES = {"./var/lib/escrow/repositories/", "./var/lib/escrow/sessions/"}


def run(*command, **keywords):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250, **keywords)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def expect(condition, what):
    if not condition:
        sys.exit(what)


def expect_equal(what, actual, expected):
    expect(actual == expected, f"{what}: got {actual!r}, expected {expected!r}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_contents(package):
    files, directories = {}, {}
    for line in run("dpkg-deb", "--contents", package).splitlines():
        mode, owner, _, _, _, name = line.split(None, 5)
        expect_equal(f"the owner of {name}", owner, "root/root")
        (directories if mode.startswith("d") else files)[name] = mode
    expect_equal("the files", files, CONTENTS)
    closed = {name: mode for name, mode in directories.items() if mode != "drwxr-xr-x"}
    expect_equal("directories of other modes", closed, {})
    full = {name for name in directories if any(other != name and other.startswith(name) for other in
                                                [*files, *directories])}
    expect_equal("empty directories", set(directories) - full, EMPTY_DIRECTORIES)


def check_control(package, control, source):
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", package).splitlines()
                  if line and not line.startswith(" "))
    version = re.search(r"^project\(escrow VERSION ([\d.]+)", read(f"{source}/CMakeLists.txt"), re.MULTILINE).group(1)
    expect_equal("name and version", (fields["Package"], fields["Version"]), ("escrow", f"{version}-1"))
    depends = {word.split()[0].split(":")[0] for word in fields["Depends"].split(", ")}
    for needed in ("libc6", "libgit2-1.5", "libsqlite3-0", "libssl3", "libarchive13", "fuse3", "passwd"):
        expect(needed in depends, f"{needed} is not in Depends: {fields['Depends']}")
    expect_equal("control files", sorted(os.listdir(control)),
                 ["conffiles", "control", "md5sums", "postinst", "postrm", "prerm"])
    expect_equal("conffiles", read(f"{control}/conffiles"), "/etc/escrow/escrowd.json\n")
    for script in ("postinst", "postrm", "prerm"):
        run("sh", "-n", f"{control}/{script}")
        expect(os.stat(f"{control}/{script}").st_mode & 0o777 == 0o755, f"{script} is not executable")
        expect(re.match(r"#!/bin/sh\n(#.*\n)+set -e\n", read(f"{control}/{script}")), f"{script} goes on after errors")


def serve_with_everything(root, directory):
    """What escrowd makes is below `directory` then: with every part of it switched on, and killed while it ran."""
    os.makedirs(f"{directory}/run/docker/plugins")
    os.makedirs(f"{directory}/run/escrowd")
    repositories = f"{directory}/var/lib/escrow/repositories"
    run(f"{root}/usr/bin/escrow", "--repo", f"{repositories}/data.git", "init")
    config = json.loads(read(f"{root}/etc/escrow/escrowd.json"))
    config |= {"socket": f"{directory}/run/escrowd/escrowd.sock", "state_directory": f"{directory}/var/lib/escrowd",
               "repository_roots": [repositories], "mount_roots": [f"{directory}/var/lib/escrow/sessions"],
               "repositories": {"data": f"{repositories}/data.git"},
               "volume_plugin": {"socket": f"{directory}/run/docker/plugins/escrow.sock"}}
    del config["socket_group"]
    with open(f"{directory}/all.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    with subprocess.Popen([f"{root}/usr/bin/escrowd", "--config", f"{directory}/all.json"],
                          stderr=subprocess.DEVNULL) as service:
        deadline = time.monotonic() + 100
        while not os.path.exists(config["volume_plugin"]["socket"]) or not os.path.exists(config["socket"]):
            expect(service.poll() is None and time.monotonic() < deadline, "escrowd does not start")
            time.sleep(0.02)
        service.kill()
    os.remove(f"{directory}/all.json")
    return set(os.listdir(config["state_directory"]))


def is_mountable(directory):
    return os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=False,
                                                stderr=subprocess.DEVNULL).returncode == 0


def check_purge(root, control, directory):
    """postrm, with the directories of a machine below `directory`: what it does not name it does not touch."""
    script = read(f"{control}/postrm")
    for place in ("/var/lib/", "/etc/", "/run/", "/usr/bin/"):
        script = script.replace(f" {place}", f" {directory}{place}").replace(f"={place}", f"={directory}{place}")
    script = script.replace("getent group escrow", "false")
    for name in ("var/lib/escrowd/mine.git/refs", "var/lib/escrow/sessions/job", "var/lib/escrow/repositories",
                 "etc/escrow"):
        os.makedirs(f"{directory}/{name}")
    kept = serve_with_everything(root, directory)
    expect({"escrowd.db", "events.db", "runs", "runs.db", "tokens.db", "volumes", "volumes.db",
            "webhooks.db"} < kept,
           f"escrowd has made {kept}")
    state = f"{directory}/var/lib/escrowd"
    for name in ("runs/1/output", "volumes/gone/file", ".content-a1B2c3"):
        os.makedirs(os.path.dirname(f"{state}/{name}"), exist_ok=True)
        with open(f"{state}/{name}", "w", encoding="ascii"):
            pass
    in_use = f"{state}/volumes/in-use"
    os.makedirs(in_use)
    if is_mountable(in_use):
        with open(f"{in_use}/work", "w", encoding="ascii"):
            pass
        try:
            said = run("sh", "-c", script, "postrm", "purge")
            in_it = os.listdir(in_use)
        finally:
            run("umount", in_use)
        expect_equal("what is left of a volume that a container uses", in_it, ["work"])
        expect_equal("the state then", sorted(os.listdir(state)), ["mine.git", "volumes"])
        expect("/volumes is left" in said, f"a purge does not say what is in use: {said}")
        os.makedirs(f"{directory}/etc/escrow")
    said = run("sh", "-c", script, "postrm", "purge")
    left = {f"{at}/{name}"[len(directory) + 1:] for at, folders, files in os.walk(directory)
            for name in folders + files}
    repository = "var/lib/escrow/repositories/data.git"
    expect(f"{repository}/objects" in left, "a purge takes repositories")
    expect_equal("what a purge leaves", sorted(name for name in left if not name.startswith(f"{repository}/")), [
        "etc", "run", "run/docker", "run/docker/plugins", "var", "var/lib", "var/lib/escrow",
        "var/lib/escrow/repositories", repository, "var/lib/escrowd", "var/lib/escrowd/mine.git",
        "var/lib/escrowd/mine.git/refs"])
    for name in ("var/lib/escrowd is not empty", "repositories/data.git is left"):
        expect(name in said, f"a purge does not say '{name}': {said}")


def check_units(root):
    units = f"{root}/usr/lib/systemd/system"
    for unit in os.listdir(units):
        text = read(f"{units}/{unit}")
        for program in re.findall(r"^Exec\w+=(/usr/bin/\S+)", text, re.MULTILINE):
            expect(os.access(f"{root}{program}", os.X_OK), f"{unit} starts {program}, which is not in the package")
        expect("@program" not in text and "/usr/local" not in text, f"{unit} was not finished:\n{text}")
    if not shutil.which("systemd-analyze"):
        return
    # With only what it needs to know of the system: it looks for the programs below the root, too.
    for target in ("sockets", "multi-user", "basic", "sysinit", "shutdown", "local-fs"):
        with open(f"{units}/{target}.target", "w", encoding="ascii") as file:
            file.write("[Unit]\nDescription=for this test\n")
    os.makedirs(f"{root}/bin", exist_ok=True)
    shutil.copy("/bin/true", f"{root}/bin/umount")
    for unit in ("escrowd.service", "escrowd.socket", "escrow-mount@srv-data.service"):
        result = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", unit], capture_output=True,
                                text=True, check=False, timeout=100)
        expect_equal(f"what systemd-analyze says of {unit}", (result.returncode, result.stderr), (0, ""))


def check_configuration(root, directory):
    """escrowd takes the configuration as it comes, its directories being where the package puts them."""
    config = json.loads(read(f"{root}/etc/escrow/escrowd.json"))
    for roots in ("repository_roots", "mount_roots"):
        config[roots] = [root + path for path in config[roots]]
    with open(f"{directory}/escrowd.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    run(f"{root}/usr/bin/escrowd", "--config", f"{directory}/escrowd.json", "--check-config")


def main():
    source, build = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="escrow-package.") as directory:
        directory = os.path.realpath(directory)
        umask = os.umask(0o077)
        run("cpack", "--config", f"{build}/CPackConfig.cmake", "-B", f"{directory}/made")
        os.umask(umask)
        packages = [name for name in os.listdir(f"{directory}/made") if name.endswith(".deb")]
        expect_equal("packages", len(packages), 1)
        package = f"{directory}/made/{packages[0]}"
        root, control = f"{directory}/root", f"{directory}/control"
        run("dpkg-deb", "--extract", package, root)
        run("dpkg-deb", "--control", package, control)
        check_contents(package)
        check_control(package, control, source)
        check_configuration(root, directory)
        check_units(root)
        os.mkdir(f"{directory}/purged")
        check_purge(root, control, f"{directory}/purged")


if __name__ == "__main__":
    main()
