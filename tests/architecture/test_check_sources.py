#!/usr/bin/env python3
"""Each rule of check_sources.py stays silent on a clean tree and fires on a tree with one violation of it."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import check_sources  # noqa: E402
import clock_waits  # noqa: E402

LEDGER = check_sources.LEDGER
STATUS = "| id | status | test |\n|---|---|---|\n" + "".join(
    f"| {requirement} | not yet | |\n" for requirement in check_sources.REQUIREMENTS)
CLEAN = {
    "CMakeLists.txt": "project(escrow)\n",
    LEDGER: STATUS,
    "session/CMakeLists.txt": "add_library(escrow_session thing.cc)\n",
    "session/thing.cc": '#include "session/thing.h"\n\n#include <vector>\n',
    "session/thing.h": "#pragma once\n",
    "session/base/synchronized.h": "#include <mutex>\nstd::mutex mutex_;\n",
    "session/INVARIANTS.md": "| rule | test |\n|---|---|\n| one | `Thing.Works` |\n",
    "fuse/CMakeLists.txt": "add_library(escrow_fuse mount.cc)\n",
    "fuse/mount.cc": '#include <fuse_lowlevel.h>\n#include <sys/mount.h>\n\n#include "session/thing.h"\n',
    "fuse/SEMANTICS.md": "| line | test |\n|---|---|\n| two | `Thing.Works` |\n",
    "tests/session/CMakeLists.txt": "escrow_test(session_test TESTS *_test.cc)\n",
    "tests/session/thing_test.cc": "TEST(Thing, Works) {\n}\n",
    "tests/architecture/CMakeLists.txt": "add_test(NAME Script.Runs COMMAND script)\n",
}
CLOCK = "TestsDoNotWaitByTheClock"
LISTED = clock_waits.EXCEPTIONS
SYNCING = "def Runs():\n    os.sy" "nc()\n"
UNNAMED = "UnnamedNamesAreUniqueInATarget"
UNNAMED_CODE = """namespace {
constexpr int kMost = 1;
struct Place {};
Log silent;
int of(const Json& value, int most) { return 1; }
}  // namespace
int of(const Json& value) { return 1; }
"""
PAIR = {"api/CMakeLists.txt": "add_library(a STATIC\n  a.cc\n  b.cc\n)\n", "api/a.cc": UNNAMED_CODE}
LONG_NAME = "x" * check_sources.MAX_COLUMNS

# rule, what is changed in the clean tree, where the violation is reported
VIOLATIONS = [
    ("LayersIncludeOnlyWhatTheyMay", {"session/thing.h": '#include "storage/a.h"\n'}, "session/thing.h:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"session/thing.h": "#include <sys/stat.h>\n"}, "session/thing.h:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"fuse/mount.cc": '\n#include "storage/a.h"\n'}, "fuse/mount.cc:2"),
    ("LayersIncludeOnlyWhatTheyMay", {"api/a.cc": '#include "daemon/a.h"\n'}, "api/a.cc:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"fuse/mount.cc": '#include "mount.h"\n'}, "fuse/mount.cc:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"daemon/process/a.cc": '#include "daemon/host/a.h"\n'}, "daemon/process/a.cc:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"session/base/a.h": '#include "session/trees/a.h"\n'}, "session/base/a.h:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"storage/git/a.h": '#include "storage/objects/a.h"\n'}, "storage/git/a.h:1"),
    ("LayersIncludeOnlyWhatTheyMay", {"daemon/cli/commands/a.cc": '#include "daemon/a.h"\n'},
     "daemon/cli/commands/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <fuse3/fuse.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <fuse_lowlevel.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <nlohmann/json.hpp>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <sys/socket.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <git2.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <git2/blob.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <sqlite3.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": "#include <openssl/evp.h>\n"}, "daemon/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"api/a.cc": "#include <CLI/CLI.hpp>\n"}, "api/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"storage/a.cc": "#include <spdlog/spdlog.h>\n"}, "storage/a.cc:1"),
    ("ForeignLibrariesStayInTheirFolder", {"storage/a.cc": "#include <sched.h>\n"}, "storage/a.cc:1"),
    ("MutexesAreSynchronized", {"session/thing.h": "std::mutex mutex_;\n"}, "session/thing.h:1"),
    ("MutexesAreSynchronized", {"daemon/a.h": "\nstd::shared_mutex mutex_;\n"}, "daemon/a.h:2"),
    ("MutexesAreSynchronized", {"fuse/mount.cc": "pthread_mutex_t mutex;\n"}, "fuse/mount.cc:1"),
    ("LoopsHoldTheirLocks", {"daemon/a.cc": "\n  for (const auto& [a, b] : *all_.lock()) use(a);\n"}, "daemon/a.cc:2"),
    ("LoopsHoldTheirLocks", {"fuse/a.cc": "for (auto& a : state_.lock_shared()->all) use(a);\n"}, "fuse/a.cc:1"),
    ("FilesAreShort", {"session/thing.h": "\n" * (check_sources.MAX_LINES + 1)}, "session/thing.h:601"),
    ("LinesAreShort", {"session/thing.h": f"int {LONG_NAME};\n"}, "session/thing.h:1"),
    ("NothingIsLeftUnfinished", {"session/thing.h": "// TO" "DO: more\n"}, "session/thing.h:1"),
    ("NothingIsLeftUnfinished", {"fuse/SEMANTICS.md": "FIX" "ME\n"}, "fuse/SEMANTICS.md:1"),
    ("NothingIsLeftUnfinished", {"tests/a.cc": "TEST(Thing, DISA" "BLED_Works) {}\n"}, "tests/a.cc:1"),
    ("SourcesAreListed", {"fuse/CMakeLists.txt": "file(GLOB s *.cc)\n# mount.cc\n"}, "fuse/CMakeLists.txt:1"),
    ("SourcesAreListed", {"session/more.cc": "\n"}, "session/more.cc:1"),
    ("SourcesAreListed", {"session/CMakeLists.txt": "add_library(s something.cc) # thing.cc\n"}, "session/thing.cc:1"),
    ("SourcesAreListed", {"tests/session/CMakeLists.txt": "take_tests(a *_test.cc)\nescrow_test(b TESTS *_test.cc)\n"},
     "tests/session/thing_test.cc:1"),
    ("SourcesAreListed", {"tests/session/CMakeLists.txt": "escrow_test(a TESTS other_*_test.cc)\n"},
     "tests/session/thing_test.cc:1"),
    ("SourcesAreListed", {"tests/session/deep/a_test.cc": ""}, "tests/session/deep/a_test.cc:1"),
    ("SourcesAreListed", {"tests/session/CMakeLists.txt": "file(GLOB a *_test.cc)\nadd_executable(a thing_test.cc)\n"},
     "tests/session/CMakeLists.txt:1"),
    ("SourcesAreListed", {"tests/nowhere/a_test.py": "def Runs(start):\n    start()\n"}, "tests/nowhere/a_test.py:1"),
    ("SourcesAreListed", {"tests/lfs/a_test.py": "def Runs(start):\n    start()\n",
                          "tests/lfs/CMakeLists.txt": "python_tests(Csi)\n"}, "tests/lfs/a_test.py:1"),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| T1 | not yet | |", "| T1 | yes | |")}, f"{LEDGER}:3"),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| T1 | not yet | |", "| T1 | yes | `Thing.Gone` |")},
     f"{LEDGER}:3"),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| T2 | not yet | |", "| T2 | maybe | |")}, f"{LEDGER}:4"),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| B7 | not yet | |\n", "")}, f"{LEDGER}:1"),
    ("DocumentedTestsExist", {"fuse/SEMANTICS.md": "\nSee `Thing.Gone`.\n"}, "fuse/SEMANTICS.md:2"),
    ("DocumentedTestsExist", {"session/INVARIANTS.md": "See `Gone.*`.\n"}, "session/INVARIANTS.md:1"),
    ("DocumentedTestsExist", {"fuse/SEMANTICS.md": "See `Podman.Runs`.\n",
                              "tests/containers/run_test.py": "@only('Docker')\ndef Runs(machine):\n    machine()\n"},
     "fuse/SEMANTICS.md:1"),
    ("DocumentedTestsExist", {"fuse/SEMANTICS.md": "| line | test |\n|---|---|\n| two | none |\n"},
     "fuse/SEMANTICS.md:3"),
    ("DocumentedTestsExist", {"api/README.md": "\nSee `Thing.Gone`.\n"}, "api/README.md:2"),
    ("DocumentedTestsExist", {"session/INVARIANTS.md": None}, "session/INVARIANTS.md:1"),
    ("ScriptsAreExecutable", {"tests/a.py": "#!/usr/bin/env python3\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.h": "\nstd::this_thread::sleep_for(10ms);\n"}, "tests/a.h:2"),
    (CLOCK, {"tests/session/a.cc": "::usleep(10);\n"}, "tests/session/a.cc:1"),
    (CLOCK, {"tests/a.py": "time.sleep(1)\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.sh": "true; sleep 1\n"}, "tests/a.sh:1"),
    (CLOCK, {"tests/a.cc": "EXPECT_LT(std::chrono::steady_clock::now() - begin, limit);\n"}, "tests/a.cc:1"),
    (CLOCK, {"tests/a.cc": "ASSERT_LE(best, std::chrono::microseconds(500));\n"}, "tests/a.cc:1"),
    (CLOCK, {"tests/a.cc": "EXPECT_LT(took, 30s);\n"}, "tests/a.cc:1"),
    (CLOCK, {"tests/a.py": "expect(time.monotonic() - began < 5, 'slow')\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.py": "self.assertLess(elapsed, 5)\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.py": "if time.monotonic() - began > 5: fail()\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a/a_test.py": SYNCING}, "tests/a/a_test.py:2"),
    (CLOCK, {"tests/a/a_test.py": SYNCING, "tests/a/CMakeLists.txt": "service_test(A.Runs a_test)\n"
             "service_test(A.Waits a_test)\nset_tests_properties(A.Waits PROPERTIES RESOURCE_LOCK machine)\n"},
     "tests/a/a_test.py:2"),
    (CLOCK, {"tests/a.cc": "  ::sy" "nc();\n"}, "tests/a.cc:1"),
    (CLOCK, {"tests/a.py": "run(['pk" "ill', 'a'])\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.py": "open('/pr" "oc/sys/vm/drop_caches', 'w')\n"}, "tests/a.py:1"),
    (CLOCK, {"tests/a.sh": "echo 1 > /pr" "oc/sys/vm/drop_caches\n"}, "tests/a.sh:1"),
    (CLOCK, {"tests/a.py": "time.sleep(1)\ntime.sleep(2)\n", LISTED: "tests/a.py: 1\n"}, "tests/a.py:2"),
    (CLOCK, {"tests/a.py": "time.sleep(1)\n", LISTED: "tests/a.py: 2\n"}, f"{LISTED}:1"),
    (CLOCK, {"tests/a.py": "\n", LISTED: "# A list.\ntests/a.py: 1\n"}, f"{LISTED}:2"),
    (CLOCK, {LISTED: "tests/gone.py: 1\n"}, f"{LISTED}:1"),
    (CLOCK, {LISTED: "tests/a.py: 0\n"}, f"{LISTED}:1"),
    (UNNAMED, {**PAIR, "api/b.cc": UNNAMED_CODE}, "api/b.cc:2"),
    (UNNAMED, {**PAIR, "api/b.cc": "namespace {\n\nstruct Place {\n};\n}\n"}, "api/b.cc:3"),
    (UNNAMED, {**PAIR, "api/b.cc": "namespace {\nstd::set<int> silent = {};\n}\n"}, "api/b.cc:2"),
    (UNNAMED, {"tests/api/CMakeLists.txt": "escrow_test(a UNIT\n  TESTS *_test.cc\n  SOURCES c.cc\n  LIBRARIES b)\n",
               "tests/api/a_test.cc": UNNAMED_CODE, "tests/api/b_test.cc": UNNAMED_CODE}, "tests/api/b_test.cc:2"),
    (UNNAMED, {**PAIR, "api/b.cc": "namespace {\nint of(const Json& json, int other = 2) {\n  return 1;\n}\n}\n"},
     "api/b.cc:2"),
]
ALLOWED = [
    ("LayersIncludeOnlyWhatTheyMay", {"daemon/a.cc": '#include "fuse/a.h"\n#include "storage/a.h"\n'}),
    ("LayersIncludeOnlyWhatTheyMay", {"daemon/service/http/a.cc": '#include "daemon/host/a.h"\n'}),
    ("LayersIncludeOnlyWhatTheyMay", {"daemon/main.cc": '#include "daemon/cli/a.h"\n'}),
    ("ForeignLibrariesStayInTheirFolder", {"daemon/a.cc": '#include "fuse/fuse.h"\n'}),
    ("MutexesAreSynchronized", {"session/thing.h": "// not a std::mutex\n"}),
    ("LoopsHoldTheirLocks", {"fuse/a.cc": "for (auto& shard : shards_) shard.lock()->clear();\n"}),
    ("SourcesAreListed", {"tests/support/a.cc": "", "tests/session/CMakeLists.txt": "thing_test.cc ../support/a.cc"}),
    ("SourcesAreListed", {"tests/support/a.cc": "",
                          "tests/session/CMakeLists.txt": "thing_test.cc ${PROJECT_SOURCE_DIR}/tests/support/a.cc"}),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| T1 | not yet | |", "| T1 | yes | `Thing.Works` |")}),
    ("StatusTableIsTrue", {LEDGER: STATUS.replace("| T1 | not yet | |", "| T1 | yes | `Script.Runs` |")}),
    ("DocumentedTestsExist", {"fuse/SEMANTICS.md": "README.md, `Thing.*`, `Script.Runs`, e.g. this\n"}),
    ("DocumentedTestsExist", {"fuse/SEMANTICS.md": "`Docker.Runs`, `Podman.Runs`, e.g. this\n",
                              "tests/containers/run_test.py": "def Runs(machine):\n    machine()\n"}),
    ("SourcesAreListed", {"tests/lfs/a_test.py": "def Runs(start):\n    start()\n", "tests/lfs/CMakeLists.txt":
                          "python_tests(Lfs)\n"}),
    ("SourcesAreListed", {"tests/CMakeLists.txt": "file(GLOB files CONFIGURE_DEPENDS ${FOLDER}/*_test.py)\n"}),
    ("SourcesAreListed", {"tests/session/CMakeLists.txt": "take_tests(a thing_*.cc)\nadd_library(b ${a} c.cc)\n"}),
    (CLOCK, {"tests/a.py": "time.sleep(1)\n", LISTED: "tests/a.py: 1\n"}),
    (CLOCK, {"tests/support/expectations.py": "time.sleep(0.02)\n"}),
    (CLOCK, {"tests/a.h": 'run("sleep 1000; python3 -c \'time.sleep(1)\'");  // sleep(1)\nEXPECT_GE(took, 5s);\n'}),
    (CLOCK, {"tests/a.py": "run('sleep 1000')  # sleep(1)\nexpect(time.monotonic() - began >= 5, 'too soon')\n"}),
    (CLOCK, {"tests/a/a_test.py": SYNCING, "tests/a/CMakeLists.txt": "service_test(A.Runs a_test)\n"
             "service_test(A.Waits a_test)\nset_tests_properties(A.Runs PROPERTIES RESOURCE_LOCK machine)\n"}),
    (UNNAMED, {**PAIR, "api/b.cc": "namespace {\nint of(const Json& value) {\n  return kMost;\n}\n}\n"}),
    (UNNAMED, {**PAIR, "api/CMakeLists.txt": "add_library(a a.cc)\nadd_library(b b.cc)\n", "api/b.cc": UNNAMED_CODE}),
    (CLOCK, {"tests/a/disk.py": SYNCING, "tests/a/CMakeLists.txt": "add_test(NAME A.Runs COMMAND run.py)\n"
             "set_tests_properties(A.Runs PROPERTIES RUN_SERIAL TRUE)\n"}),
]


def check(rule, changes):
    with tempfile.TemporaryDirectory(prefix="escrow-architecture.") as root:
        for path, text in {**CLEAN, **changes}.items():
            if text is not None:
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = check_sources.main(["--root", root, *rule])
        return status, said.getvalue()


class CheckSources(unittest.TestCase):
    def test_a_clean_tree_passes_every_rule(self):
        self.assertEqual(check([], {}), (0, ""))

    def test_each_rule_fires_on_its_violation(self):
        for rule, changes, where in VIOLATIONS:
            with self.subTest(rule=rule, changes=changes):
                status, said = check([rule], changes)
                self.assertEqual(status, 1)
                self.assertIn(where + ":", said)

    def test_what_is_allowed_passes(self):
        for rule, changes in ALLOWED:
            with self.subTest(rule=rule, changes=changes):
                self.assertEqual(check([rule], changes), (0, ""))

    def test_every_rule_has_a_violation_here(self):
        self.assertEqual({rule for rule, _, _ in VIOLATIONS}, set(check_sources.RULES))


if __name__ == "__main__":
    unittest.main()
