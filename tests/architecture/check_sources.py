#!/usr/bin/env python3
"""Reads the sources and fails on what the house rules forbid; one rule, or all of them.

usage: check_sources.py [--root DIR] [--list] [RULE...]

Every violation is one line, `file:line: what is wrong`; the exit status is 1 when there is any. `test_check_sources.py`
proves for each rule that it fires.
"""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from anonymous_names import anonymous_names  # noqa: E402
from clock_waits import clock_waits  # noqa: E402
from python_cases import cases_of, has_cases  # noqa: E402
from targets import targets  # noqa: E402

PRODUCT_FOLDERS = ("session", "storage", "fuse", "api", "daemon")
FOLDERS = PRODUCT_FOLDERS + ("deploy", "tests")
MAY_INCLUDE = {  # the layer rule: which folders' headers a folder may include
    "session": {"session"},
    "storage": {"storage", "session"},
    "fuse": {"fuse", "session"},
    "api": {"api", "session"},
    "daemon": set(PRODUCT_FOLDERS),
}
ROOMS = {  # of a folder, lowest first: a room includes only itself and the rooms before it
    "session": ("base", "interfaces", "trees", "overlay", "decorators", "transaction"),
    "storage": ("disk", "host_files", "caches", "git", "lfs", "objects", "database", "staging", "bucket", "repository"),
    "daemon": ("process", "console", "host", "import", "client", "cli", "service", "csi"),
}
FOREIGN = (  # a pattern of system headers, their name in messages, the only folder that may include them
    (r"fuse(_\w+)?\.h|fuse3?/.*|linux/fuse\.h", "libfuse", "fuse"),
    (r"nlohmann/.*", "nlohmann_json", "api"),
    (r"sys/(socket|un)\.h|netinet/.*|arpa/.*|netdb\.h", "sockets", "api"),
    (r"boost/.*", "Boost", "api"),
    (r"prometheus/.*", "prometheus-cpp", "api"),
    (r"git2(\.h|/.*)", "libgit2", "storage"),
    (r"sqlite3(ext)?\.h", "SQLite", "storage"),
    (r"curl/.*", "libcurl", "storage"),
    (r"pugixml\.hpp", "pugixml", "storage"),
    (r"zlib\.h|openssl/.*", "zlib and libcrypto", "storage"),
    (r"CLI/.*|CLI11.*", "CLI11", "daemon"),
    (r"archive(_entry)?\.h", "libarchive", "daemon"),
    (r"spdlog/.*|fmt/.*", "spdlog", "daemon"),
    (r"systemd/.*", "libsystemd", "api"),
    (r"grpc(pp)?/.*|google/protobuf/.*", "gRPC", "daemon"),
    (r"seccomp\.h|linux/(seccomp|filter)\.h", "libseccomp", "daemon"),
    (r"(linux/)?sched\.h|spawn\.h|sys/wait\.h|termios\.h|pty\.h", "processes and namespaces", "daemon"),
)
EXEMPT = {  # (file, header): why it may
    ("api/bearer_token.cc", "openssl/crypto.h"): "tokens are hashed where they are read",
    ("api/bearer_token.cc", "openssl/evp.h"): "the same",
    ("api/bearer_token.cc", "openssl/rand.h"): "the same",
    ("api/http_client.cc", "openssl/ssl.h"): "the name of the server that Asio does not send",
    ("api/listening.cc", "openssl/ssl.h"): "the settings of TLS that Asio has no word for",
    ("api/jwt.cc", "openssl/core_names.h"): "tokens are verified where they are read",
    ("api/jwt.cc", "openssl/ecdsa.h"): "the same",
    ("api/jwt.cc", "openssl/evp.h"): "the same",
    ("api/jwt.cc", "openssl/param_build.h"): "the same",
    ("daemon/process/message_channel.cc", "sys/socket.h"): "frames between processes of one run: no API",
    ("daemon/process/network_namespace.cc", "sys/socket.h"): "turning a loopback on is an ioctl of a socket",
    ("fuse/helper_process.cc", "sys/socket.h"): "socketpair(2) with a child of its own: no API",
    ("fuse/helper_process.cc", "sys/wait.h"): "only another process may wait for a mount of this one",
    ("fuse/mount_visits.cc", "sched.h"): "each processor has a ring of io_uring: a helper runs where it is served",
}
MAX_LINES = 600
MAX_COLUMNS = 120
LEDGER = "tests/REQUIREMENTS.md"
CONTRACTS = ("fuse/SEMANTICS.md", "session/INVARIANTS.md")
REQUIREMENTS = (
    [f"T{n}" for n in range(1, 15)] + [f"M{n}" for n in range(1, 6)] + [f"H{n}" for n in range(1, 5)]
    + [f"S{n}" for n in range(1, 4)] + [f"W{n}" for n in range(1, 8)] + [f"B{n}" for n in range(1, 11)]
    + [f"D{n}" for n in range(1, 10)])
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|\bDISA" r"BLED_\w")
TEST_NAME = re.compile(r"\b([A-Z]\w*)\.([A-Z]\w*|\*)(?![\w/*])")
GTEST_CASE = re.compile(
    r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)"
    r"\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE)
CTEST_CASE = re.compile(r"^\s*\w+\(\s*(?:NAME\s+)?\"?([A-Z]\w*\.[A-Z]\w*)\b", re.MULTILINE)


class Sources:
    """The project's text files below `root`, read once."""

    def __init__(self, root):
        self.root = root
        self.text = {}
        self.executable = set()
        for folder in FOLDERS:
            for directory, folders, names in os.walk(os.path.join(root, folder)):
                folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in ("build", "__pycache__"))
                for name in sorted(names):
                    self._read(os.path.relpath(os.path.join(directory, name), root))
        for name in ("README.md", "CMakeLists.txt", "CMakePresets.json"):
            if os.path.exists(os.path.join(root, name)):
                self._read(name)

    def _read(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            data = file.read()
        if b"\0" not in data:
            self.text[path] = data.decode("utf-8", "surrogateescape")
        if os.access(os.path.join(self.root, path), os.X_OK):
            self.executable.add(path)

    def having(self, *suffixes, folders=None):
        for path, text in self.text.items():
            if path.endswith(suffixes) and (folders is None or path.split("/")[0] in folders):
                yield path, text

    def tests(self):
        """Full names of all tests: GoogleTest's as Suite.Name, those that are functions in Python, and the first
        argument of add_test and its wrappers."""
        names = set()
        for path, text in self.having(".cc", ".h", folders=("tests",)):
            names.update(f"{suite}.{name}" for suite, name in GTEST_CASE.findall(text))
        for path, text in self.having("CMakeLists.txt", folders=("tests",)):
            names.update(CTEST_CASE.findall(text))
        for path, text in self.having("_test.py", folders=("tests",)):
            folder, file = path.split("/")[-2:]
            names.update(name for name, _ in cases_of(folder, file, text))
        return names


def without_comments(text):
    """C++ text with comments and string literals blanked, lines kept (raw strings are not told apart)."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", blank, text, flags=re.DOTALL)


def lines_matching(pattern, text):
    for number, line in enumerate(text.split("\n"), 1):
        match = pattern.search(line)
        if match:
            yield number, match


INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]")


def includes(sources, folders):
    for path, text in sources.having(".h", ".cc", ".hpp", ".cpp", ".c", folders=folders):
        for number, match in lines_matching(INCLUDE, text):
            yield path, number, match.group(1) == "<", match.group(2)


def layers(sources):
    """A folder includes only the folders below it; session only itself and the C++ standard library."""
    for path, number, is_system, header in includes(sources, PRODUCT_FOLDERS):
        folder, target = path.split("/")[0], header.split("/")[0]
        if not is_system and target not in PRODUCT_FOLDERS:
            yield path, number, f'"{header}" must be written from the top of the project, as in "{folder}/..."'
        elif target in PRODUCT_FOLDERS and "/" in header and not is_system and target not in MAY_INCLUDE[folder]:
            yield path, number, f'{folder}/ must not include "{header}": it may only see {sorted(MAY_INCLUDE[folder])}'
        elif folder == target and not is_system and room_rank(header) > room_rank(path):
            room = os.path.dirname(path)
            yield path, number, f'{room}/ must not include "{header}": the order is {ROOMS[folder]}'
        elif is_system and folder == "session" and re.search(r"[./]", header):
            yield path, number, f"session/ must not include <{header}>: it uses the C++ standard library only"


def room_rank(path):
    """How many rooms of its folder a file may include; a file of no room lies above all of them."""
    folder, room = path.split("/")[:2]
    rooms = ROOMS.get(folder, ())
    return rooms.index(room) if room in rooms else len(rooms)


def foreign_libraries(sources):
    """Each foreign library is included by one folder."""
    for path, number, is_system, header in includes(sources, PRODUCT_FOLDERS):
        for pattern, library, owner in FOREIGN:
            if path.split("/")[0] != owner and header.split("/")[0] not in PRODUCT_FOLDERS \
                    and re.fullmatch(pattern, header) and (path, header) not in EXEMPT:
                yield path, number, f"<{header}> ({library}) belongs in {owner}/ only"


def bare_mutexes(sources):
    """Shared mutable state lives in Synchronized<T>."""
    pattern = re.compile(r"\bstd::\w*mutex\b|\bpthread_(mutex|rwlock|spinlock)_t\b")
    for path, text in sources.having(".h", ".cc", folders=PRODUCT_FOLDERS):
        if path != "session/base/synchronized.h":
            for number, match in lines_matching(pattern, without_comments(text)):
                yield path, number, f"{match.group(0)} outside session/base/synchronized.h: use Synchronized<T>"


def loops_under_locks(sources):
    """What a loop goes through is not reached through a lock that is let go of before its first turn."""
    pattern = re.compile(r"\bfor \([^;{]*? : [^;{)]*\block(_shared)?\(\)")
    for path, text in sources.having(".h", ".cc"):
        for number, _ in lines_matching(pattern, without_comments(text)):
            yield path, number, "the lock is let go of before the first turn: give the guard a name, before the loop"


def file_lengths(sources):
    """No file is longer than MAX_LINES lines."""
    for path, text in sources.having(".h", ".cc", ".py", ".sh", "CMakeLists.txt", ".cmake"):
        count = text.count("\n")
        if count > MAX_LINES:
            yield path, count, f"{count} lines; a file has at most {MAX_LINES}: split it by job"


def line_lengths(sources):
    """No line is longer than MAX_COLUMNS columns."""
    for path, text in sources.having(".h", ".cc", ".py", ".sh", "CMakeLists.txt", ".cmake"):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_COLUMNS:
                yield path, number, f"{len(line)} columns; a line has at most {MAX_COLUMNS}"


def unfinished_work(sources):
    """Nothing is marked as to be done later, and no test is switched off."""
    for path, text in sources.having(""):
        for number, match in lines_matching(UNFINISHED, text):
            yield path, number, f"{match.group(0)}: finish it, or write it down as a limit in a document"


def executable_scripts(sources):
    """Scripts that name their interpreter can be executed: others start them by their paths."""
    for path, text in sources.having(""):
        if text.startswith("#!") and path not in sources.executable:
            yield path, 1, "it names an interpreter and cannot be executed: chmod +x"


def explicit_sources(sources):
    """Every source is named in a CMakeLists.txt; none is found by a pattern, but for those of tests (take_tests)."""
    pattern = re.compile(r"file\s*\(\s*GLOB", re.IGNORECASE)
    for path, text in sources.having("CMakeLists.txt", ".cmake"):
        for number, _ in lines_matching(pattern, re.sub(r"#[^\n]*", "", text)):
            if path != "tests/CMakeLists.txt":
                yield path, number, "file(GLOB): name the sources one by one"
    listings = [(os.path.dirname(path), re.sub(r"#[^\n]*", "", text))
                for path, text in sources.having("CMakeLists.txt") if "/" in path]
    taken = {source for path, text in sources.having("CMakeLists.txt", folders=("tests",))
             for _, found in targets(path, text, sources.text) for source in found}
    for path, _ in sources.having(".cc"):
        if path not in taken and not any(is_listed(path, folder, text) for folder, text in listings):
            yield path, 1, "named in no CMakeLists.txt: it is never built"
    yield from cases_that_never_run(sources, dict(listings))


def cases_that_never_run(sources, listings):
    """Files of tests in Python whose cases are in no suite, or in one that the folder's CMakeLists.txt leaves out."""
    for path, text in sources.having("_test.py", folders=("tests",)):
        folder, file = path.split("/")[-2:]
        suites = sorted({name.split(".")[0] for name, _ in cases_of(folder, file, text)})
        if has_cases(text) and not suites:
            yield path, 1, "its folder has no suite in tests/support/python_cases.py: its cases are never run"
        listing = listings.get(os.path.dirname(path), "")
        for suite in suites:
            if "python_tests(" not in listing or not re.search(rf"\b{suite}\b", listing):
                yield path, 1, f"the CMakeLists.txt of its folder has no python_tests({suite}): its cases are never run"


def is_listed(path, folder, listing):
    """Whether a CMakeLists.txt of `folder` names the source, relative to itself or to the top of the project."""
    if path.split("/")[0] != folder.split("/")[0]:
        return False
    names = (re.escape(os.path.relpath(path, folder)), r"\$\{\w+_SOURCE_DIR\}/" + re.escape(path))
    return any(re.search(rf"(?<![\w/]){name}(?![\w.])", listing) for name in names)


def tables(text):
    """(line number, header cells, row cells) of each row of the Markdown tables in `text`."""
    header, previous = None, None
    for number, line in enumerate(text.split("\n"), 1):
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip()[1:-1])] if line.startswith("|") else None
        if cells is None:
            header = None
        elif all(re.fullmatch(r":?-+:?", c) for c in cells):
            header = previous
        elif header:
            yield number, header, cells
        previous = cells


def unknown_tests(text, tests):
    suites = {name.split(".")[0] for name in tests}
    for suite, name in TEST_NAME.findall(text):
        if (suite not in suites) if name == "*" else (f"{suite}.{name}" not in tests):
            yield f"{suite}.{name}"


def status_table(sources):
    """The ledger has a row per requirement, and a "yes" names a test that exists."""
    tests, seen = sources.tests(), {}
    for number, header, cells in tables(sources.text.get(LEDGER, "")):
        ids = [i for i in re.split(r"[,\s]+", cells[0]) if i in REQUIREMENTS]
        if not ids or header[0].lower() != "id":
            continue
        seen.update((i, number) for i in ids)
        row = " | ".join(cells[1:])
        yes = [c for c in cells if re.match(r"(\*\*)?yes\b", c, re.IGNORECASE)]
        if not yes and not any(c.lower().startswith(("not yet", "partly")) for c in cells):
            yield LEDGER, number, f'{cells[0]}: the status is "yes", "partly" or "not yet"'
        if yes and not TEST_NAME.search(row):
            yield LEDGER, number, f'{cells[0]}: "yes", but no test is named'
        for name in unknown_tests(row, tests):
            yield LEDGER, number, f"{cells[0]}: there is no test {name}"
    for requirement in REQUIREMENTS:
        if requirement not in seen:
            yield LEDGER, 1, f"requirement {requirement} has no row in the status table"


def documented_tests(sources):
    """Every test that a document names exists; a table with a "test" column names one in each row."""
    tests = sources.tests()
    for path in CONTRACTS:
        if path not in sources.text:
            yield path, 1, "is missing"
    for path, text in sources.having(".md"):
        for number, line in enumerate(text.split("\n"), 1):
            for name in unknown_tests(line, tests):
                yield path, number, f"there is no test {name}"
        for number, header, cells in tables(text) if path in CONTRACTS else ():
            columns = [i for i, name in enumerate(header) if name.lower() in ("test", "tests")]
            if columns and not any(TEST_NAME.search(cells[i]) for i in columns if i < len(cells)):
                yield path, number, f"names no test: {cells[0]}"


RULES = {
    "LayersIncludeOnlyWhatTheyMay": layers,
    "ForeignLibrariesStayInTheirFolder": foreign_libraries,
    "MutexesAreSynchronized": bare_mutexes,
    "LoopsHoldTheirLocks": loops_under_locks,
    "FilesAreShort": file_lengths,
    "LinesAreShort": line_lengths,
    "NothingIsLeftUnfinished": unfinished_work,
    "ScriptsAreExecutable": executable_scripts,
    "SourcesAreListed": explicit_sources,
    "StatusTableIsTrue": status_table,
    "DocumentedTestsExist": documented_tests,
    "TestsDoNotWaitByTheClock": clock_waits,
    "UnnamedNamesAreUniqueInATarget": anonymous_names,
}


def main(command_line=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--root", default=default_root)
    parser.add_argument("--list", action="store_true", help="print the rules")
    parser.add_argument("rules", nargs="*", metavar="RULE")
    arguments = parser.parse_args(command_line)
    if arguments.list:
        for name, rule in RULES.items():
            print(f"{name}: {rule.__doc__}")
        return 0
    unknown = [r for r in arguments.rules if r not in RULES]
    if unknown:
        parser.error(f"no rule {unknown[0]}; --list prints them")
    sources = Sources(arguments.root)
    violations = 0
    for name in arguments.rules or RULES:
        for path, line, message in RULES[name](sources):
            print(f"{path}:{line}: {message}  [{name}]")
            violations += 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
