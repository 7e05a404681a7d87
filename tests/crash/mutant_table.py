"""The mutants of mutants.py: one promise each, how it is broken, and the tests that should notice."""
import sys

PACK_WRITER, JOURNAL = 'storage/objects/pack_writer.cc', 'session/overlay/overlay_journal.cc'
COMMIT = 'session/transaction/commit.cc'
REFERENCE_LOCK, REFERENCES = 'storage/git/reference_lock.cc', 'storage/git/git_references.cc'
PUBLISH_CC, RECOVERY = 'storage/objects/quarantine_publish.cc', 'session/transaction/recovery.cc'
POLICED, MOVES = 'session/decorators/policed_file_system.cc', 'session/decorators/policed_moves.cc'
REPLY = 'fuse/reply.cc'

INTENT = '''    transition(services_, record_, std::move(intent), who_, "committing");
    tell(services_, CommitStep::intent_recorded);
'''
PUBLISH = '    const auto published = quarantine_.publish(commit);\n'
JOIN = '''    quarantine_.read_through({});
    if (!link.published()) return false;
'''
OBJECTS_DURABLE = '    tell(services_, CommitStep::objects_durable);\n'
OUTCOME = '''  transition(services, record, committed_record(record), who, why);
  tell(services, CommitStep::outcome_recorded);
'''
CLEAN_UP = '  clean_up_or_log(services, record, directory);\n'
BRANCH_MOVED = '    tell(services_, CommitStep::branch_moved);\n'

# What runs a test, and what it needs built. {build} is the build directory, {source} the copy.
DURABILITY, CRASH, SESSION, GIT = 'durability_order', 'crash_tests', 'session_tests', 'storage_git_tests'
POLICY, FILES, SYNCS = 'mount_policy_test', 'storage_file_tests', 'storage_sync_tests'
STAGING_SYNC, MODEL, STAGING = 'storage_staging_sync_tests', 'model_tests', 'storage/staging/file_staging_area.cc'
REFERENCE_STEPS, SYNC_FAULTS, POWER = 'storage_reference_tests', 'sync_faults', 'power_cuts'
SHUTDOWNS, CHECKOUTS, CHECKOUT_KILLS = 'disk_shutdowns', 'work_tests', 'checkout_kills'
CHECKOUT_STEP, CHECKOUT_MOVES = 'daemon/host/checkout_step.cc', 'daemon/host/checkouts.cc'
SYNC_PACKS = ('  if (!wanted.empty() || !publications_.empty()) '
              'sync_directory(pool_.git_directory() + "/objects/pack");\n')
TESTS = {
    DURABILITY: ('escrow', [sys.executable, '{source}/tests/crash/durability_order_test.py',
                            '--escrow', '{build}/daemon/escrow']),
    SHUTDOWNS: ('escrow', [sys.executable, '{source}/tests/crash/disk_shutdowns.py',
                           '--escrow', '{build}/daemon/escrow']),
    CHECKOUTS: ('escrow work_tests', ['{build}/tests/work/work_tests', '--gtest_brief=1',
                                      '--gtest_filter=Checkout*']),
    CHECKOUT_KILLS: ('escrow syscall_faults', [
        sys.executable, '{source}/tests/crash/checkout_kills.py', '--escrow', '{build}/daemon/escrow', '--tool',
        '{build}/tests/crash/syscall_faults']),
    CRASH: ('crash_tests', ['{build}/tests/crash/crash_tests', '--gtest_brief=1']),
    SESSION: ('session_tests', ['{build}/tests/session/session_tests', '--gtest_brief=1']),
    GIT: ('storage_git_tests', ['{build}/tests/storage/storage_git_tests', '--gtest_brief=1']),
    FILES: ('storage_file_tests', ['{build}/tests/storage/storage_file_tests', '--gtest_brief=1']),
    SYNCS: ('storage_sync_tests', ['{build}/tests/storage/storage_sync_tests', '--gtest_brief=1']),
    STAGING_SYNC: ('storage_staging_sync_tests', ['{build}/tests/storage/storage_staging_sync_tests',
                                                  '--gtest_brief=1']),
    MODEL: ('model_tests', ['{build}/tests/model/model_tests', '--gtest_brief=1', '--gtest_filter=PowerLoss*']),
    REFERENCE_STEPS: ('storage_reference_tests', ['{build}/tests/storage/storage_reference_tests', '--gtest_brief=1']),
    SYNC_FAULTS: ('escrow syscall_faults', [
        sys.executable, '{source}/tests/crash/faults.py', '--escrow', '{build}/daemon/escrow', '--tool',
        '{build}/tests/crash/syscall_faults', '--kind', 'SYNC', '--scene', 'init', 'import-first', 'commit-pack',
        'seal', 'update']),
    POWER: ('escrow disk_recorder', [
        sys.executable, '{source}/tests/crash/power_cuts.py', '--escrow', '{build}/daemon/escrow', '--recorder',
        '{build}/tests/crash/disk_recorder', '--cuts', '14', '--rounds', '1', '--seed', '13', '--forget']),
    POLICY: ('mount_policy_test', ['{build}/tests/mount/mount_policy_test', '--gtest_brief=1', '--gtest_repeat=3']),
}

KEEP_RESULT = '''    services_.references.keep_result(record_.id, made);
    tell(services_, CommitStep::result_referenced);
'''
REVIEWED_HEAD = 'if (whom_ == CommitFor::reviewer && head != result_.base)'

MOVED_BASE = "a path that was taken in and then lost would look like a change of the session's.\n  "

# name: (what it breaks, [(file, old, new)...], tests that should fail)
MUTANTS = {
    'pack-unsynced': ('a published pack is not synced', [
        (PACK_WRITER, 'if (::fsync(fd_.get()) == 0) return;', 'if (fd_) return;'),
    ], [DURABILITY, POWER]),
    'index-unsynced': ("a published pack's index is not synced", [
        (PACK_WRITER, 'if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + path);', ''),
    ], [DURABILITY, POWER]),
    'list-unsynced': ('the list of published packs is not on disk before they have their names', [
        (PACK_WRITER, 'if (!sync_data(fd.get())) throw system_error(errno, "sync " + path);', ''),
    ], [DURABILITY, POWER]),
    'pack-directory-unsynced': ('objects/pack is not synced', [
        (PUBLISH_CC, SYNC_PACKS, ''),
    ], [DURABILITY]),
    'reference-unsynced': ("the branch's new content is not synced before its rename", [
        (REFERENCE_LOCK, 'if (::fsync(fd.get()) != 0) throw system_error(errno, "write " + path_);', ''),
    ], [DURABILITY, POWER]),
    'sealed-without-reference': ('a result waits that no reference holds', [
        (COMMIT, KEEP_RESULT, '    tell(services_, CommitStep::result_referenced);\n'),
    ], [SESSION, CRASH]),
    'approved-on-another-head': ('what nobody looked at is committed when others moved the branch', [
        (COMMIT, REVIEWED_HEAD, 'if (false)'),
    ], [SESSION]),
    'rejected-with-what-others-need': ('a rejection removes objects that others came to need', [
        (PACK_WRITER, 'status) != 0 && errno == ENOENT) return remove_pack(stem);',
         'status) <= 0) return remove_pack(stem);'),
    ], [GIT]),
    'staging-unsynced': ('fsync does not sync the staging file', [
        (STAGING, 'const int error = sync_data(file->get()) ? 0 : errno;', 'const int error = 0;'),
    ], [DURABILITY, STAGING_SYNC, POWER]),
    'staging-directory-unsynced': ('fsync does not sync the name of a new staging file', [
        (JOURNAL, '  staging.sync_directory();\n', ''),
        (STAGING, 'write them again");\n  names_.sync();', 'write them again");'),
    ], [DURABILITY]),
    'failed-sync-believed': ('after a failed fsync of a staging file the next one succeeds', [
        (STAGING, '  if (file.is_marked) return false;\n', ''),
    ], [STAGING_SYNC]),
    'failed-segment-believed': ('after a failed fsync of the log of small files the next one succeeds', [
        ('storage/staging/small_file_log.cc', '    fail(item.number, *item.fd);\n', ''),
    ], [STAGING_SYNC]),
    'blocks-named-before-they-are-synced': ('a block map reaches the journal before its blocks are on disk', [
        (JOURNAL, '    if (recorded.is_durable) continue;\n', '    continue;\n'),
    ], [SESSION, MODEL, POWER]),
    'mounted-again': ('a file system that is mounted again has the era that it had', [
        ('storage/disk/disk_era.cc', "+ disk + '/' + mount)", '+ disk)'),
    ], [FILES, SHUTDOWNS]),
    'no-barrier': ('fsync does not sync the journal', [
        (JOURNAL, '  now_writing.journal.barrier();\n', ''),
    ], [DURABILITY, SESSION, POWER]),
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
        (REFERENCES, 'if (target(name) != expected) return false;', ''),
    ], [GIT]),
    'pack-sync-error': ("an error of the sync of a pack is ignored", [
        (PACK_WRITER, 'if (::fsync(fd_.get()) == 0) return;', 'if (::fsync(fd_.get()) <= 0) return;'),
    ], [SYNC_FAULTS]),
    'index-sync-error': ("an error of the sync of a pack's index is ignored", [
        (PACK_WRITER, 'if (::fsync(fd.get()) != 0) throw', 'if (::fsync(fd.get()) > 0) throw'),
    ], [SYNC_FAULTS]),
    'directory-sync-error': ('an error of the sync of a directory is ignored', [
        ('storage/disk/durable_file.cc', 'if (::fsync(fd.get()) != 0) throw', 'if (::fsync(fd.get()) > 0) throw'),
    ], [SYNC_FAULTS]),
    'reference-sync-error': ("an error of the sync of a branch's new content is ignored", [
        (REFERENCE_LOCK, 'if (::fsync(fd.get()) != 0) throw', 'if (::fsync(fd.get()) > 0) throw'),
    ], [SYNC_FAULTS]),
    'reflog-sync-error': ('an error of the sync of a reflog is ignored', [
        ('storage/git/reflog.cc', 'if (::fsync(file_.get()) != 0)', 'if (::fsync(file_.get()) > 0)'),
    ], [SYNC_FAULTS]),
    'init-sync-error': ('an error of a sync of init is ignored', [
        ('storage/repository/repository_init.cc', 'if (::fsync(fd.get()) != 0) throw',
         'if (::fsync(fd.get()) > 0) throw'),
    ], [SYNC_FAULTS]),
    'pin-sync-error': ('an error of the sync of a pin is ignored', [
        (REFERENCES, 'if (!fd || ::fsync(fd.get()) != 0) throw', 'if (!fd || ::fsync(fd.get()) > 0) throw'),
    ], [SYNC_FAULTS]),
    'removed-references-unsynced': ('what a result held is removed before the reference is gone for good', [
        ('storage/repository/repository.cc', '  sync_removed_references(git_directory());\n', ''),
    ], [SYNCS]),
    'catalog-unsynced': ('a row of the catalog is reported before it is on disk', [
        ('storage/database/schema.cc', 'database.execute("PRAGMA synchronous = FULL");',
         'database.execute("PRAGMA synchronous = NORMAL");'),
    ], [DURABILITY, SYNCS, POWER]),
    'log-name-unsynced': ("the name of the catalog's log is not put on disk", [
        ('storage/database/schema.cc', '  if (!has_log) sync_directory(parent_of(path));\n', '  (void)has_log;\n'),
    ], [SYNCS]),
    'errors-are-absence': ('what cannot be looked at is taken for absent', [
        ('storage/disk/file_lookup.cc', 'return error == ENOENT || error == ENOTDIR;', 'return error != 0;'),
    ], [FILES, GIT]),
    'packs-not-kept': ('packs that no reference holds yet are not kept from gc', [
        (PACK_WRITER, '  if (keep.empty() || ::link(keep.c_str(), installed_keep.c_str()) != 0) '
                      'write_keep_file(installed_keep);\n', '  (void)keep;\n'),
    ], [CRASH]),
    'rejected-stays': ('what was published in vain is kept from gc for ever', [
        (PUBLISH_CC, 'void GitQuarantine::discard() {\n  publications_.release();\n',
         'void GitQuarantine::discard() {\n'),
    ], [GIT]),
    'grace-from-the-seal': ('a result that waited for long has no grace when it is rejected', [
        (PACK_WRITER, '  ::utimensat(AT_FDCWD, (stem + ".pack").c_str(), nullptr, 0);\n', ''),
    ], [GIT]),
    'gc-beside-sessions': ('gc drops what the git inside an open session found', [
        ('storage/repository/repository.cc',
         'hold(record.id, record.created.seconds, false);', 'continue;'),
    ], [GIT]),
    'gate-without-waiting': ('the seal does not wait for writes that are under way', [
        ('session/decorators/write_gate.cc', 'return traffic->calls == 0 && (position == Position::draining || '
                                  'traffic->write_backs == 0);', 'return true;'),
    ], [SESSION]),
    'landed-unseen': ('recovery does not find the commit in the branch', [
        (COMMIT, 'if (commit == record.swap_to) return true;', ''),
    ], [SESSION, CRASH]),
    'rewound-unseen': ('recovery does not ask the reflog', [
        (COMMIT, 'return services.references.reflog_has(branch, *record.swap_to);', 'return false;'),
    ], [SESSION]),
    'lost-pin-unseen': ('a pin that the power took is not made again', [
        (RECOVERY, 'return row.state == State::open && row.base && !services_',
         'return false && row.state == State::open && row.base && !services_'),
    ], [SESSION]),
    'opening-left': ('an opening that was cut short leaves its directory', [
        (RECOVERY, 'clean_up(services_, id, *held, record && keeps_result(*record));',
         'if (record) clean_up(services_, id, *held, keeps_result(*record));'),
    ], [SESSION]),
    'clean-up-left': ('a clean-up that was cut short is not finished', [
        (RECOVERY, 'clean_up(services_, id, *held, record && keeps_result(*record));',
         'if (!record) clean_up(services_, id, *held, false);'),
    ], [SESSION, CRASH]),
    'one-stops-all': ('one damaged session keeps the others from recovery', [
        (RECOVERY, '      services_.log.write(LogLevel::error, sentence);\n', '      throw;\n'),
    ], [SESSION]),
    'dead-lock-stays': ('the lock file of a killed process stays', [
        (REFERENCE_LOCK, 'if (!marker) return;\n  const std::string path',
         'if (marker) return;\n  const std::string path'),
    ], [GIT, REFERENCE_STEPS]),
    'chain-unpublished': ('a commit lands before the objects of the one below are on disk', [
        ('session/transaction/commit_chain.cc', 'return node_->stage == Stage::broken || before == nullptr ||',
         'return true || before == nullptr ||'),
    ], [SESSION]),
    'update-unsynced': ('the base moves before what an update took in is on disk', [
        ('session/transaction/session.cc', MOVED_BASE + 'overlay.flush(true);', MOVED_BASE + 'overlay.flush(false);'),
    ], [DURABILITY]),
    'one-undoes-all': ('a refused transaction undoes those that share its commit', [
        ('storage/database/group_commit.h', 'connection.database.execute("ROLLBACK TO job");',
         'connection.database.execute("ROLLBACK");'),
    ], [FILES]),
    'failed-stays-committing': ('a commit that failed does not go back to open', [
        (COMMIT, '      take_commit_back(services_, record_, why, who_);\n', '      (void)why;\n'),
    ], [SESSION]),
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
    ], [POLICY, SESSION]),
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
        (REPLY, 'is_cached = service.caches_listings && ', 'is_cached = '),
    ], [POLICY]),
    'policy-links-cached': ('the kernel keeps targets of links that a move makes unreadable', [
        ('fuse/operation_table.cc',
         '  if (!static_cast<Service*>(user_data)->caches_links) connection->want &= ~FUSE_CAP_CACHE_SYMLINKS;\n', ''),
    ], [POLICY]),
    'policy-made-judged': ('a file that was just made is judged again when it is opened', [
        (REPLY, '.permitted = is_new || is_from_helper(request)',
         '.permitted = (is_new && false) || is_from_helper(request)'),
    ], [POLICY]),
    'checkout-unlocked': ('the index is not locked while the branch moves', [
        ('daemon/host/index_lock.cc', '  if (error == 0) return fd;',
         '  if (error == 0) { ::unlink(path.c_str()); return fd; }'),
    ], [CHECKOUT_KILLS, CHECKOUTS]),
    'checkout-files-first': ('the index goes with the files, and stays with one that cannot be written', [
        (CHECKOUT_MOVES, '  each([](CheckoutStep& step) { step.take_index(); });\n', ''),
    ], [CHECKOUTS]),
    'checkout-copy-times': ('a copy of an index is newer than the index', [
        (CHECKOUT_STEP, 'if (::utimensat(AT_FDCWD, copy.c_str(), times, 0) != 0)',
         'if (times[0].tv_nsec < 0)'),
    ], [CHECKOUTS]),
    'checkout-lock-stays': ('a lock of a killed process stays', [
        ('daemon/host/index_lock.cc', '  return found == kIndexLockText ? std::move(fd) : storage::UniqueFd();',
         '  return {};'),
    ], [CHECKOUT_KILLS]),
    'checkout-record-over-another': ('a commit writes its record over that of a move that is not done', [
        (CHECKOUT_MOVES, 'others_(checkouts.read_record()) {}', 'others_() {}'),
    ], [CHECKOUTS]),
    'checkout-switch-unseen': ('a work tree that comes onto the branch as that moves is not looked for', [
        ('daemon/host/checked_out_references.cc', 'if (has_moved) checkouts_->look_again',
         'if (false) checkouts_->look_again'),
    ], [CHECKOUTS]),
    'checkout-switch-early': ('a switch is to be followed before it is known how far', [
        ('daemon/host/checkout_switches.cc', 'move.record(commits.front())', 'move.record(commits.back())'),
    ], [CHECKOUTS]),
    'checkout-switch-older': ('a switch is taken for one that has read the last commit but one', [
        ('daemon/host/checkout_switches.cc', 'made >= young && least > 0 && found', 'passed.size() < 2 && found'),
    ], [CHECKOUTS]),
    'checkout-lock-gap': ('a lock of a killed process goes before it is taken', [
        (CHECKOUT_MOVES, '    std::optional<IndexLock> lock = lock_index(index, deadline);\n    GitAnswer head',
         '    std::optional<IndexLock> lock = lock_index(index, deadline);\n'
         '    if (lock) ::unlink(IndexLock::path_of(index).c_str());\n    GitAnswer head'),
    ], [CHECKOUTS]),
}
