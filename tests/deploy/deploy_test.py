#!/usr/bin/env python3
"""What is installed beside the program does what it says. One test per function, run by name from ctest."""
import argparse
import glob
import inspect
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from expectations import run_cases  # noqa: E402

SKIPPED_OPTIONS = {"--help"}


def run(*command, expect=0, **keywords):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **keywords)
    if expect is not None and result.returncode != expect:
        sys.exit(f"{' '.join(command)}: exit status {result.returncode}, expected {expect}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def expect_equal(what, actual, expected):
    if actual != expected:
        sys.exit(f"{what}: got {actual!r}, expected {expected!r}")


def commands_of(escrow):
    text = run(escrow, "--help").stdout
    block = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    names = re.findall(r"^  ([a-z][a-z-]*)", block.group(1), re.MULTILINE) if block else []
    if len(names) < 10:
        sys.exit(f"`escrow --help` lists only {names}")
    return names


def options_of(escrow, *command):
    text = run(escrow, *command, "--help").stdout
    lines = [line for line in text.split("\n") if re.match(r" *-", line)]
    found = {name for line in lines for name in re.findall(r"(?:^|[ ,])(--[a-z][a-z-]*)", line.split("  ")[1] if
                                                           line.startswith("  ") else line)}
    return found - SKIPPED_OPTIONS


def all_options_of(escrow, command):
    """Also those of its own sub-commands."""
    block = re.search(r"^Subcommands:\n((?:  .*\n)+)", run(escrow, command, "--help").stdout, re.MULTILINE)
    below = re.findall(r"^  ([a-z][a-z-]*)", block.group(1), re.MULTILINE) if block else []
    return options_of(escrow, command).union(*[options_of(escrow, command, name) for name in below])


def executable(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def ManualPageHasNoWarnings(source, build):
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "100"}
    for page in (f"{build}/deploy/escrow.1", f"{source}/deploy/man/escrow-policy.7", f"{source}/deploy/man/escrowd.8"):
        result = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page, env=environment)
        expect_equal(f"warnings of man {page}", result.stderr, "")


def ManualPageNamesEveryCommandAndOption(build, escrow):
    """The build writes the options; what people have written beside them names no option that is not there."""
    with open(f"{build}/deploy/escrow.1", encoding="utf-8") as file:
        page = file.read()
    before, options = page.split(".Sh OPTIONS\n")
    sections = dict(part.split("\n", 1) for part in re.split(r"^\.(?:Ss|Sh) ", options, flags=re.MULTILINE)[1:])
    missing = []
    for command in commands_of(escrow):
        if not re.search(rf"^\.It Cm {command}(?: |$)", before, re.MULTILINE):
            missing.append(command)
        said = "".join(text for name, text in sections.items() if re.match(rf'"escrow {command}[ "]', name))
        named = {f"--{name}" for line in re.findall(r"^\.It (Fl .*)$", said, re.MULTILINE)
                 for name in re.findall(r"Fl -([a-z][a-z-]*)", line)} - SKIPPED_OPTIONS
        missing += [f"{command} {option}" for option in named ^ all_options_of(escrow, command)]
    expect_equal("in --help or in escrow.1 alone", missing, [])
    known = {"repo", "host", "verbose", "version", "help", ""}
    for command in commands_of(escrow):
        known |= {option[2:] for option in all_options_of(escrow, command)}
    named = set(re.findall(r"(?:Fl|\||Fl \w \|) -([a-z][a-z-]*)", page))
    expect_equal("in escrow.1 but in no --help", sorted(named - known), [])


def HelpSaysWhatAnOptionNeeds(escrow):
    def line(command, option):
        return re.search(rf"^  {option} .*\n?.*$", run(escrow, *command, "--help").stdout, re.MULTILINE)[0]
    for command, option, words in ((["policy", "test"], "--action ACTION", "(required)"),
                                   (["run"], "--pull never[|]missing", "(only with --image)"),
                                   (["run"], "--no-git", "(not with --git --git-commits)"),
                                   (["run"], "--memory SIZE", "swap included"),
                                   (["run"], "--umask OCTAL", "(default: 022)")):
        if words not in line(command, option):
            sys.exit(f"{line(command, option)} does not say {words}")


def ManualPageOfTheServiceNamesEveryOption(source, build):
    with open(f"{source}/deploy/man/escrowd.8", encoding="utf-8") as file:
        page = file.read()
    options = options_of(f"{build}/daemon/escrowd")
    named = {"--" + name for name in re.findall(r"^\.It Fl -([a-z][a-z-]*)", page, re.MULTILINE)}
    expect_equal("the options of escrowd and those in escrowd.8", named, options)
    with open(f"{source}/daemon/service/escrowd_config.cc", encoding="utf-8") as file:
        members = set(re.findall(r'fields\.\w+\("(\w+)"', file.read()))
    lines = re.findall(r"^\.It ([a-z_ ,]+)$", page, re.MULTILINE)
    documented = {name for line in lines for name in line.split(" , ")}
    expect_equal("the members of the configuration and those in escrowd.8", documented, members)


def TheApiDescriptionNamesEveryRouteAndProblem(source):
    """api/openapi.yaml and the sources list the same routes, problem codes and fields of requests."""
    def read(path):
        with open(f"{source}/{path}", encoding="utf-8") as file:
            return file.read()
    api = read("api/openapi.yaml")
    routes = set()
    for file in glob.glob(f"{source}/daemon/service/http/service_*routes.cc"):
        text = read(os.path.relpath(file, source))
        for method, route in re.findall(r'^  (get|post|post_long|put|remove)\("(/[^"]*)"', text, re.MULTILINE):
            routes.add(("delete" if method == "remove" else method.removesuffix("_long"), route))
        routes |= {(method.lower(), route) for method, route in re.findall(r'router\.add\("(\w+)", "(/[^"]*)"', text)}
        for route in re.findall(r'router\.add\(method, "(/[^"]*)"', text):
            routes |= {(method.lower(), route) for method in re.findall(r'^  add\("(\w+)"', text, re.MULTILINE)}
    documented, path = set(), None
    for line in api.split("\n"):
        if match := re.match(r"  (/\S*):$", line):
            path = match.group(1)
        elif match := re.match(r"    (get|post|put|delete):$", line):
            documented.add((match.group(1), path))
    expect_equal("the routes", documented, routes)
    codes = re.findall(r'^      \{"(\w+)", \d', read("api/problem.cc"), re.MULTILINE)
    expect_equal("the problem codes", re.findall(r"^            - (\w+)$", api, re.MULTILINE), codes)


def CompletionOffersCommandsAndOptions(source, escrow):
    script = """
source "$1"
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _escrow; printf '%s\\n' "${COMPREPLY[@]}"; }
PATH=$2:$PATH
echo == ; complete_line escrow ro
echo == ; complete_line escrow run --ti
echo == ; complete_line escrow --repo x diff --st
"""
    result = run("bash", "-c", script, "bash", f"{source}/deploy/completions/escrow.bash", os.path.dirname(escrow))
    expect_equal("completion", result.stdout.split(), ["==", "rollback", "==", "--timeout", "==", "--stat"])
    expect_equal("complaints of the completion", result.stderr, "")


HELPER_CASES = [  # arguments of the helper, arguments that escrow gets
    (["/r.git", "/m"], "--repo /r.git mount /m"),
    (["/r.git", "/m", "-o", "rw"], "--repo /r.git mount /m"),
    (["/r.git", "/m", "-sn", "-o", "defaults,noauto,nofail,x-systemd.automount,_netdev"], "--repo /r.git mount /m"),
    (["/r.git", "/m", "-o", "ro,branch=b,path_prefix=a/b,allow_other,noatime"],
     "--repo /r.git mount /m --read-only --branch b --path-prefix a/b -o allow_other,noatime"),
    (["/r.git", "/m", "-v", "-t", "fuse.escrow", "-o", "session=3f", "-o", "uid=5,gid=6,umask=077"],
     "--repo /r.git mount /m --session 3f --uid 5 --gid 6 --umask 077"),
    (["/r.git", "/m", "-o", "io_uring=off"], "--repo /r.git mount /m --io-uring off"),
]


def MountHelperTranslatesItsOptions(source):
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        executable(f"{directory}/escrow", '#!/bin/sh\necho "$@"\n')
        environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
        helper = f"{source}/deploy/mount.fuse.escrow"
        for arguments, expected in HELPER_CASES:
            expect_equal(f"escrow's arguments for {arguments}",
                         run(helper, *arguments, env=environment).stdout.strip(), expected)
        expect_equal("with -f", run(helper, "/r.git", "/m", "-f", env=environment).stdout, "")
        result = run(helper, "/r.git", expect=1, env=environment)
        expect_equal("lines without a mountpoint", len(result.stderr.splitlines()), 1)


def usable_fuse():
    """Whether a FUSE file system can be mounted here; REQUIRE_FUSE=1 does not take no for an answer."""
    if os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK):
        return True
    if os.environ.get("REQUIRE_FUSE") == "1":
        sys.exit("this test mounts a file system: it needs root and a usable /dev/fuse, and REQUIRE_FUSE=1 is set")
    print("skipped: needs root and a usable /dev/fuse")
    return False


def MountHelperIsFoundByMount(source, escrow):
    """mount(8) finds its helper in /sbin: here in a private mount namespace that has it there."""
    if not usable_fuse():
        return
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        os.mkdir(f"{directory}/view")
        script = f"""
set -e
export PATH={os.path.dirname(escrow)}:$PATH
cp -a /sbin/. {directory}/sbin/
install -m 755 {source}/deploy/mount.fuse.escrow {directory}/sbin/
ln -s {escrow} {directory}/sbin/escrow
mount --bind {directory}/sbin "$(readlink -f /sbin)"
escrow --repo {directory}/data.git init
mount -t fuse.escrow {directory}/data.git {directory}/view -o path-prefix=docs,nosuid
findmnt --noheadings --output FSTYPE,OPTIONS {directory}/view
echo kept > {directory}/view/note
session=$(ls {directory}/data.git/escrow/sessions)
escrow --repo {directory}/data.git commit "$session" -m "through mount(8)"
git -C {directory}/data.git show main:docs/note
! mountpoint -q {directory}/view || umount {directory}/view
"""
        os.mkdir(f"{directory}/sbin")
        output = run("unshare", "--mount", "bash", "-c", script).stdout
        if "fuse.escrow" not in output or "nosuid" not in output or not output.rstrip().endswith("kept"):
            sys.exit(f"unexpected output of the mount:\n{output}")


def InstallPutsEverythingInPlace(build):
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        environment = {**os.environ, "DESTDIR": directory}
        run("cmake", "--install", build, "--prefix", "/usr", env=environment)
        expected = {
            "usr/bin/escrow": True, "sbin/mount.fuse.escrow": True, "usr/share/man/man1/escrow.1": False,
            "usr/share/bash-completion/completions/escrow": False, "usr/share/zsh/site-functions/_escrow": False,
            "usr/share/fish/vendor_completions.d/escrow.fish": False,
            "usr/lib/systemd/system/escrow-mount@.service": False, "usr/lib/systemd/system/escrowd.service": False,
            "usr/lib/systemd/system/escrowd.socket": False, "usr/bin/escrowd": True,
            "usr/share/man/man8/escrowd.8": False, "usr/share/man/man7/escrow-policy.7": False,
            "usr/share/doc/escrow/openapi.yaml": False,
        }
        for path, is_program in expected.items():
            if not os.path.isfile(f"{directory}/{path}"):
                sys.exit(f"{path} was not installed")
            mode = os.stat(f"{directory}/{path}").st_mode
            expect_equal(f"{path} is executable", bool(mode & stat.S_IXOTH), is_program)
        with open(f"{directory}/usr/lib/systemd/system/escrow-mount@.service", encoding="utf-8") as file:
            if not re.search(r"^ExecStart=/usr/bin/escrow mount ", file.read(), re.MULTILINE):
                sys.exit("the systemd unit does not start the installed escrow")


def SetUpSaysWhatIsMissingWithoutRoot(source):
    """With a package missing: one sentence for an ordinary user, and for a machine without apt-get."""
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        os.chmod(directory, 0o755)
        executable(f"{directory}/dpkg-query", '#!/bin/sh\nfor last; do :; done\n[ "$last" = rsync ] || printf "ii "\n')
        executable(f"{directory}/apt-get", "#!/bin/sh\necho apt-get was called >&2\nexit 1\n")
        executable(f"{directory}/id", "#!/bin/sh\necho 1000\n")
        environment = {**os.environ, "PATH": f"{directory}:/usr/bin:/bin", "ESCROW_LIBFUSE": "system"}
        result = run(f"{source}/deploy/setup.sh", expect=1, env=environment)
        expect_equal("for an ordinary user", result.stderr,
                     "deploy/setup.sh: only root can install packages; run 'sudo deploy/setup.sh' once to add: rsync\n")
        executable(f"{directory}/dpkg-query", '#!/bin/sh\nprintf "ii "\n')
        result = run(f"{source}/deploy/setup.sh", env=environment)
        expect_equal("with everything there", result.stdout + result.stderr, "")


def checkout_without_libfuse(source, directory):
    """deploy/libfuse.sh in a checkout of its own, on a machine whose libfuse is too old and that has no source package:
    what to run, and its environment."""
    os.makedirs(f"{directory}/deploy")
    os.makedirs(f"{directory}/bin")
    script = shutil.copy(f"{source}/deploy/libfuse.sh", f"{directory}/deploy")
    executable(f"{directory}/bin/pkg-config", '#!/bin/sh\n[ "$2" != fuse3 ] && exec /usr/bin/pkg-config "$@"\n')
    for program in ("apt-get", "dpkg-source", "meson", "ninja", "cc", "apt-config"):
        executable(f"{directory}/bin/{program}", "#!/bin/sh\nexit 0\n")
    environment = {**os.environ, "PATH": f"{directory}/bin:/usr/bin:/bin", "XDG_CACHE_HOME": f"{directory}/cache"}
    environment.pop("ESCROW_LIBFUSE", None)
    return ("bash", script), environment


def LibfuseIsNotMissedWhereItCannotBeHad(source):
    """One line says why, and nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        command, environment = checkout_without_libfuse(source, directory)
        no_source = "#!/bin/sh\nexit 0\n"
        no_network = ('#!/bin/sh\ncase $1 in\n  indextargets) echo "file:/nowhere|/nowhere/debian.sources:1" ;;\n'
                      '  *) echo "E: Could not connect to nowhere" >&2; exit 100 ;;\nesac\n')
        os.makedirs(f"{directory}/cache/escrow")
        for apt_get, reason in ((no_source, "apt has no source of"), (no_network, "Could not connect to nowhere")):
            executable(f"{directory}/bin/apt-get", apt_get)
            result = run(*command, env=environment)
            lines = [line for line in result.stdout.splitlines() if not line.startswith("Building ")]
            expect_equal("lines on failure", len(lines), 1)
            if reason not in lines[0] or not lines[0].endswith("; the installed libfuse is used"):
                sys.exit(f"unexpected reason: {lines[0]}")
            expect_equal("what is said on standard error", result.stderr, "")
            expect_equal("the cache", os.listdir(f"{directory}/cache/escrow"), [])
            expect_equal("the build directory exists", os.path.exists(f"{directory}/build"), False)
        # A regular file where the cache's directory belongs stops root, too.
        os.rmdir(f"{directory}/cache/escrow")
        executable(f"{directory}/cache/escrow", "")
        result = run(*command, env=environment)
        if f"{directory}/cache/escrow cannot be written" not in result.stdout:
            sys.exit(f"unexpected reason: {result.stdout}")


def LibfuseIsKeptForEveryCheckout(source):
    """build/libfuse becomes a link to the kept one; an older one is an error, also of CMake."""
    release = platform.freedesktop_os_release()
    name = f"libfuse-3.18-{release['ID']}-{release['VERSION_CODENAME']}-{platform.machine()}"
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        command, environment = checkout_without_libfuse(source, directory)
        kept, link = f"{directory}/cache/escrow/{name}", f"{directory}/build/libfuse"
        os.makedirs(f"{kept}/lib/pkgconfig")

        def keep(version):
            with open(f"{kept}/lib/pkgconfig/fuse3.pc", "w", encoding="utf-8") as file:
                file.write(f"Name: fuse3\nDescription: of a test\nVersion: {version}\nLibs:\n")

        # An earlier release built into the checkout itself.
        os.makedirs(f"{link}/lib")
        keep("3.18.3")
        for _ in range(2):
            result = run(*command, env=environment)
            expect_equal("output when it is kept", result.stdout + result.stderr, "")
            expect_equal("build/libfuse", os.readlink(link), kept)
        expect_equal("the build directory", os.listdir(f"{directory}/build"), ["libfuse"])

        keep("3.17.1")
        result = run(*command, expect=1, env=environment)
        expect_equal("with an older one", result.stderr,
                     f"deploy/libfuse.sh: {kept} has libfuse '3.17.1', and 3.18 is asked for: remove it\n")
        os.makedirs(f"{directory}/deploy/cmake")
        shutil.copy(f"{source}/deploy/cmake/Libfuse.cmake", f"{directory}/deploy/cmake")
        with open(f"{directory}/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(Test LANGUAGES C)\n"
                       "find_package(PkgConfig REQUIRED)\ninclude(deploy/cmake/Libfuse.cmake)\n")
        result = run("cmake", "-S", directory, "-B", f"{directory}/build/dev", expect=1)
        reason = f"{kept}/lib/pkgconfig is of libfuse 3.17.1, and 3.18 or later is asked for: run deploy/libfuse.sh"
        if reason not in " ".join(result.stderr.split()):
            sys.exit(f"CMake says: {result.stderr}")
        os.rename(kept, f"{kept}.away")
        result = run("cmake", "--fresh", "-S", directory, "-B", f"{directory}/build/dev", expect=1)
        if "build/libfuse leads to no directory: run deploy/libfuse.sh" not in " ".join(result.stderr.split()):
            sys.exit(f"CMake says: {result.stderr}")
        os.rename(f"{kept}.away", kept)
        keep("3.18.3")
        result = run("cmake", "--fresh", "-S", directory, "-B", f"{directory}/build/dev")
        if "libfuse 3.18.3, built by deploy/libfuse.sh" not in result.stdout:
            sys.exit(f"CMake says: {result.stdout}")


def ChangesAreFoldedIntoTheChangeLog(source):
    """Those of the sources can be; and what becomes of a change log."""
    run(sys.executable, f"{source}/deploy/fold_changes.py", "--check")
    with tempfile.TemporaryDirectory(prefix="escrow-deploy.") as directory:
        os.mkdir(f"{directory}/changes")
        script = shutil.copy(f"{source}/deploy/fold_changes.py", directory)

        def write(name, text):
            with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
                file.write(text)

        def change_log():
            with open(f"{directory}/CHANGELOG.md", encoding="utf-8") as file:
                return file.read()

        write("CHANGELOG.md", "# Changes\n\n## 0.1.0 (not released)\n\n- Old.\n")
        write("changes/README.md", "# How\n")
        write("changes/b.md", "### Fixed\n\n- B is\n  mended.\n")
        write("changes/a.md", "### Fixed\n\n- A.\n")
        write("changes/c.md", "### Added\n\n- C.\n")
        run(sys.executable, script, "0.1.0")
        first = ("# Changes\n\n## 0.1.0 (not released)\n\n### Added\n\n- C.\n\n### Fixed\n\n- A.\n- B is\n  mended.\n\n"
                 "- Old.\n")
        expect_equal("the change log", change_log(), first)
        expect_equal("what is left", os.listdir(f"{directory}/changes"), ["README.md"])
        write("changes/d.md", "### Security\n\n- D.\n")
        run(sys.executable, script, "0.2.0")
        second = first.replace("## 0.1.0", "## 0.2.0 (not released)\n\n### Security\n\n- D.\n\n## 0.1.0")
        expect_equal("the change log with two releases", change_log(), second)
        for wrong in ("- No heading.\n", "### Other\n\n- E.\n", "### Added\n\nNo list.\n", "### Added\n\n  no item\n"):
            write("changes/wrong.md", wrong)
            for argument in ("--check", "0.2.0"):
                result = run(sys.executable, script, argument, expect=1)
                if f"{directory}/changes/wrong.md is not one heading" not in result.stderr:
                    sys.exit(f"of {wrong!r}: {result.stderr}")
        expect_equal("the change log after refusals", change_log(), second)
        if "usage" not in run(sys.executable, script, "next", expect=1).stderr:
            sys.exit("a version that is none is not refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--escrow", required=True)
    parser.add_argument("tests", nargs="+")
    arguments = vars(parser.parse_args())

    def run_test(name):
        test = globals()[name]
        test(**{name: arguments[name] for name in inspect.signature(test).parameters})

    run_cases(arguments["tests"], run_test)


if __name__ == "__main__":
    main()
