#!/usr/bin/env python3
"""Breaks one promise (durability, atomicity, policies) at a time in a copy of the source; a test should notice.

  mutants.py [--source DIR] [--work DIR] [--only NAME...] [--list]

Each mutant names the tests that should catch it; every one of them is run and what it said is printed. Exit status 1
names the mutants that no test caught. An edit whose old text is not found exactly once is an error: the source has
moved on, and the mutant has to follow. Takes a build of the tests and some seconds for each mutant.
"""
import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile

PACK_WRITER, COMMIT, JOURNAL = 'storage/pack_writer.cc', 'session/commit.cc', 'session/overlay_journal.cc'
POLICED, MOVES, REPLY = 'session/policed_file_system.cc', 'session/policed_moves.cc', 'fuse/reply.cc'

INTENT = '''    transition(services_, record_, std::move(intent), who_, "committing");
    tell(services_, CommitStep::intent_recorded);
'''
PUBLISH = '    const auto published = quarantine_.publish(commit);\n'
JOIN = '''    quarantine_.read_through({});
    if (!link.published()) return false;
'''
OBJECTS_DURABLE = '    tell(services_, CommitStep::objects_durable);\n'
OUTCOME = '''  transition(services, record, std::move(next), who, why);
  tell(services, CommitStep::outcome_recorded);
'''
CLEAN_UP = '  clean_up_or_log(services, record, directory);\n'
BRANCH_MOVED = '    tell(services_, CommitStep::branch_moved);\n'

# What runs a test, and what it needs built. {build} is the build directory, {source} the copy.
DURABILITY, CRASH, SESSION, GIT = 'durability_order', 'crash_tests', 'session_tests', 'storage_git_tests'
POLICY = 'mount_policy_test'
TESTS = {
    DURABILITY: ('escrow', [sys.executable, '{source}/tests/crash/durability_order_test.py',
                            '--escrow', '{build}/daemon/escrow']),
    CRASH: ('crash_tests', ['{build}/tests/crash/crash_tests', '--gtest_brief=1']),
    SESSION: ('session_tests', ['{build}/tests/session/session_tests', '--gtest_brief=1']),
    GIT: ('storage_git_tests', ['{build}/tests/storage/storage_git_tests', '--gtest_brief=1']),
    POLICY: ('mount_policy_test', ['{build}/tests/mount/mount_policy_test', '--gtest_brief=1', '--gtest_repeat=3']),
}

KEEP_RESULT = '''    services_.references.keep_result(record_.id, made);
    tell(services_, CommitStep::result_referenced);
'''
REVIEWED_HEAD = 'if (whom_ == CommitFor::reviewer && head != result_.base)'

# name: (what it breaks, [(file, old, new)...], tests that should fail)
MUTANTS = {
    'pack-unsynced': ('a published pack is not synced', [
        (PACK_WRITER, 'if (::fsync(fd_.get()) != 0) throw system_error(errno, "sync " + stem_ + ".pack");', ''),
    ], [DURABILITY]),
    'index-unsynced': ("a published pack's index is not synced", [
        (PACK_WRITER, 'if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + path);', ''),
    ], [DURABILITY]),
    'pack-directory-unsynced': ('objects/pack is not synced', [
        (PACK_WRITER, '  sync_directory(directory);\n', ''),
    ], [DURABILITY]),
    'reference-unsynced': ("the branch's new content is not synced before its rename", [
        ('storage/reference_lock.cc', 'if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + candidate);',
         ''),
    ], [DURABILITY]),
    'sealed-without-reference': ('a result waits that no reference holds', [
        (COMMIT, KEEP_RESULT, '    tell(services_, CommitStep::result_referenced);\n'),
    ], [SESSION, CRASH]),
    'approved-on-another-head': ('what nobody looked at is committed when others moved the branch', [
        (COMMIT, REVIEWED_HEAD, 'if (false)'),
    ], [SESSION]),
    'rejected-with-what-others-need': ('a rejection removes objects that others came to need', [
        ('storage/quarantine_publish.cc', 'referenced || is_needed_by_others(repository.get(), *publications)',
         'referenced'),
    ], [GIT]),
    'staging-unsynced': ('fsync does not sync the staging file', [
        ('storage/file_staging_area.cc',
         'if (::fdatasync(descriptor(id)->get()) != 0) throw failure(errno, "sync", id);', '(void)descriptor(id);'),
    ], [DURABILITY]),
    'staging-directory-unsynced': ('fsync does not sync the name of a new staging file', [
        (JOURNAL, '    staging.sync_directory();\n', ''),
    ], [DURABILITY]),
    'no-barrier': ('fsync does not sync the journal', [
        (JOURNAL, '  now_writing->journal.barrier();\n', ''),
    ], [DURABILITY, SESSION]),
    'intent-late': ('the branch moves before the intent is recorded', [
        (COMMIT, INTENT, ''),
        (COMMIT, BRANCH_MOVED, BRANCH_MOVED + INTENT),
    ], [DURABILITY, SESSION, CRASH]),
    'objects-late': ('the objects are published after the branch moved', [
        (COMMIT, PUBLISH + JOIN + OBJECTS_DURABLE, JOIN),
        (COMMIT, BRANCH_MOVED, BRANCH_MOVED + PUBLISH + OBJECTS_DURABLE),
    ], [DURABILITY, SESSION, CRASH]),
    'outcome-late': ('the session is cleaned up before its outcome is recorded', [
        (COMMIT, OUTCOME + CLEAN_UP, CLEAN_UP + OUTCOME),
    ], [SESSION, CRASH]),
    'swap-without-compare': ('the branch moves whatever it was', [
        ('storage/git_references.cc', 'if (read_target(repository.get(), name) != expected) return false;', ''),
    ], [GIT]),
    'policy-moves-unseen': ('what a directory holds is not judged when it moves', [
        (MOVES, '    if (from.is_directory) require_move_of_all(moved.node, from, to);\n', ''),
    ], [POLICY, SESSION]),
    'policy-rename-gains': ('a rename may gain what was denied', [
        (MOVES, 'if (!gained.empty()) refuse(from.path,', 'if (false && !gained.empty()) refuse(from.path,'),
    ], [POLICY, SESSION]),
    'policy-link-gains': ('a link may gain what was denied', [
        (MOVES, 'if (!gained.empty()) require_on(node, gained.first(), "link");', '(void)gained;'),
    ], [POLICY, SESSION]),
    'policy-replaced-free': ('a file that is renamed over needs no permission to be deleted', [
        (MOVES, '      require_at(spot_in(to_directory, new_name, session::is_directory(*target)), Action::remove, '
                '"rename");\n', ''),
    ], [POLICY]),
    'policy-stale-after-move': ('what was remembered of a moved directory is not forgotten', [
        (MOVES, 'remembered_.forget_all();', ''),
    ], [POLICY, SESSION]),
    'policy-one-name': ('a file is judged at its last name only', [
        (POLICED, 'allowed = allowed & policy_.allowed(in_repository(path), names.is_directory);',
         'allowed = policy_.allowed(in_repository(path), names.is_directory);'),
    ], [POLICY, SESSION]),
    'policy-removed-free': ('a removed file allows everything', [
        (POLICED, 'orphans->insert_or_assign(target_->node, allowed);',
         'orphans->insert_or_assign(target_->node, allowed | Actions::all());'),
    ], [POLICY, SESSION]),
    'policy-truncate-free': ('truncate(2) needs no permission', [
        (POLICED, 'if (change.size_bytes && !change.by_descriptor) require_on(node, Action::write, "truncate");', ''),
    ], [POLICY, SESSION]),
    'policy-listing-whole': ('a listing shows what may not be listed', [
        (POLICED, '      if (!policy_.allowed(spot.place).has(Action::list)) return true;\n', ''),
    ], [POLICY, SESSION]),
    'policy-listing-cached': ('the kernel keeps listings that a move makes wrong', [
        (REPLY, '  file.keep_cache = service.caches_listings;\n  file.cache_readdir = service.caches_listings;\n',
         '  file.keep_cache = 1;\n  file.cache_readdir = 1;\n'),
    ], [POLICY]),
    'policy-links-cached': ('the kernel keeps targets of links that a move makes unreadable', [
        ('fuse/operation_table.cc',
         '  if (!static_cast<Service*>(user_data)->caches_links) connection->want &= ~FUSE_CAP_CACHE_SYMLINKS;\n', ''),
    ], [POLICY]),
    'policy-made-judged': ('a file that was just made is judged again when it is opened', [
        (REPLY, '.permitted = is_new || is_from_flush(request)',
         '.permitted = (is_new && false) || is_from_flush(request)'),
    ], [POLICY]),
}


class Stale(Exception):
    pass


class Laboratory:
    def __init__(self, source, work):
        self.work, self.copy, self.build = work, os.path.join(work, 'source'), os.path.join(work, 'build')
        skipped = shutil.ignore_patterns('build', '.git')
        shutil.copytree(source, self.copy, ignore=skipped, dirs_exist_ok=True, copy_function=copy_changed)
        # The compiler's cache then knows the copy again, wherever it lies.
        self.environment = dict(os.environ, CCACHE_BASEDIR=work, CCACHE_NOHASHDIR='1')

    def run(self, command, timeout):
        return subprocess.run(command, capture_output=True, text=True, errors='replace', timeout=timeout, check=False,
                              env=self.environment)

    def configure(self):
        done = self.run(['cmake', '-G', 'Ninja', '-S', self.copy, '-B', self.build, '-DCMAKE_BUILD_TYPE=Debug',
                         '-DCMAKE_CXX_FLAGS_DEBUG=-O0'], 600)
        if done.returncode != 0:
            raise Stale(f'the copy cannot be configured: {done.stderr}')

    def make(self, tests):
        done = self.run(['ninja', '-C', self.build, *sorted({TESTS[test][0] for test in tests})], 3600)
        if done.returncode != 0:
            raise Stale(f'it does not compile: {done.stdout[-2000:]}')

    def test(self, test):
        command = [word.format(build=self.build, source=self.copy) for word in TESTS[test][1]]
        try:
            done = self.run(command, 600)
        except subprocess.TimeoutExpired:
            return 'ran out of time'
        if done.returncode == 0:
            return None
        if done.returncode == 77:
            raise Stale(f'{test} was skipped, and so can catch nothing: {done.stdout.strip()}')
        said = [line.strip() for line in done.stdout.splitlines() if line.startswith(('BROKEN', '[  FAILED  ]'))]
        return said[0] if said else f'ended with {done.returncode}'

    def mutate(self, edits):
        originals = {}
        try:
            for name, old, new in edits:
                path = os.path.join(self.copy, name)
                with open(path, encoding='utf-8') as file:
                    text = file.read()
                originals.setdefault(path, text)
                if text.count(old) != 1:
                    raise Stale(f'in {name} its text stands {text.count(old)} times, not once: {old.strip()}')
                write(path, text.replace(old, new))
        except Stale:
            self.restore(originals)
            raise
        return originals

    @staticmethod
    def restore(originals):
        for path, text in originals.items():
            write(path, text)


# A file that is as it was keeps its time, and a changed one gets a new one: what an earlier run built from a mutant is
# never taken for what the source says.
def copy_changed(source, target):
    if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
        shutil.copy(source, target)


def write(path, text):
    with open(path, 'w', encoding='utf-8') as out:
        out.write(text)


# The tests that noticed, and what each said.
def caught_by(laboratory, edits, tests):
    originals = laboratory.mutate(edits)
    try:
        laboratory.make(tests)
        said = {test: laboratory.test(test) for test in tests}
    finally:
        laboratory.restore(originals)
    return {test: words for test, words in said.items() if words}


def check_unchanged(laboratory, tests):
    laboratory.configure()
    laboratory.make(tests)
    for test in tests:
        said = laboratory.test(test)
        if said:
            raise Stale(f'{test} fails without any mutant: {said}')


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--source', default=os.path.dirname(os.path.dirname(here)), help='the source tree to copy')
    parser.add_argument('--work', help='where to copy and build (default: a temporary directory, removed afterwards)')
    parser.add_argument('--only', nargs='+', choices=sorted(MUTANTS), default=list(MUTANTS), metavar='NAME')
    parser.add_argument('--list', action='store_true', help='name the mutants and leave')
    options = parser.parse_args()
    if options.list:
        for name, (breaks, _, tests) in MUTANTS.items():
            print(f'{name}: {breaks} ({", ".join(tests)})')
        return 0
    work = os.path.abspath(options.work or tempfile.mkdtemp(prefix='escrow-mutants-'))
    failed = []
    try:
        laboratory = Laboratory(os.path.abspath(options.source), work)
        check_unchanged(laboratory, sorted({test for name in options.only for test in MUTANTS[name][2]}))
        for name in options.only:
            breaks, edits, tests = MUTANTS[name]
            try:
                caught = caught_by(laboratory, edits, tests)
            except Stale as error:
                caught = {}
                print(f'{name}: {error}')
            if not caught:
                failed.append(name)
            print(f'{name}: {breaks}: {"caught" if caught else "NOT CAUGHT"}', flush=True)
            for test in tests:
                print(f'    {test}: {caught.get(test, "noticed nothing")}', flush=True)
    except Stale as error:
        print(error)
        return 1
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print(f'{len(options.only) - len(failed)} of {len(options.only)} mutants were caught' +
          (f'; not {", ".join(failed)}' if failed else ''))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
