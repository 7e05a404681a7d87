"""What notices each sync of the source that is left out, or whose error is ignored: the table of sync_mutants.py.

A site is the file and the call, with a number where the file has the same call again.
"""
import sys


class Exempt(str):
    """Why no test needs to notice."""


class Open(Exempt):
    """Nothing notices it yet."""


def program(name, *words, targets='escrow syscall_faults', tool=True):
    tools = ['--tool', '{build}/tests/crash/syscall_faults'] if tool else []
    path = '{source}/tests/crash/' + name
    return targets, [sys.executable, path, '--escrow', '{build}/daemon/escrow', *tools, *words]


def unit(name, *words):
    folder = 'model' if name == 'model_tests' else name.split('_')[0]
    return name, [f'{{build}}/tests/{folder}/{name}', '--gtest_brief=1', *words]


LIST, STAGING, CATALOG, SESSION = 'sync_list', 'staging syncs', 'catalog syncs', 'session'
REPOSITORY, FILES = 'repository syncs', 'files of a session'
TESTS = {LIST: program('sync_list.py'),
         STAGING: unit('storage_staging_sync_tests'), CATALOG: unit('storage_sync_tests'),
         REPOSITORY: unit('storage_reference_tests', '--gtest_filter=RepositorySync.*:BlobCacheSync.*'),
         FILES: unit('daemon_files_test'),
         SESSION: unit('session_tests', '--gtest_filter=*Overlay*:*Replaced*:CutShort*:Savepoints*')}
for scene in ('init', 'import-first', 'commit', 'seal', 'approve', 'reject', 'update', 'discard', 'resolve', 'resume',
              'commit-lfs', 'savepoint', 'fork', 'commit-fork', 'export', 'import-session'):
    TESTS[scene] = program('faults.py', '--kind', 'SYNC', '--scene', scene)
for kind in ('small', 'large', 'block', 'grown', 'name'):
    TESTS['fsync of ' + kind] = program('fsync_faults.py', '--kind', kind)
for check in ('fsync', 'growth', 'update', 'review'):
    TESTS['order of ' + check] = program('durability_order_test.py', check, tool=False)

SITES = {
    'session/overlay/content.cc: services_.staging.sync(reached.form.staging)': (
        ['fsync of large'], ['order of fsync']),
    'session/overlay/content.cc: services_.staging.sync(state.form.staging)': ([SESSION], [SESSION]),
    'session/overlay/overlay_restore.cc: impl_->flush(true)': ([SESSION], [SESSION]),
    'session/overlay/overlay.cc: impl_->flush(true)': (
        Exempt('only gives room back: what was not synced stays'), Exempt('as its error')),
    'session/overlay/overlay_journal.cc: staging.sync_all()': (
        Exempt('a sync of each follows, which says what could not be synced'), [SESSION]),
    'session/overlay/overlay_journal.cc: content->sync()': (
        Exempt('the staging area remembers it: the next fsync of the file and the commit say so'), [SESSION]),
    'session/overlay/overlay_journal.cc: staging.sync_directory()': (['fsync of name'], [LIST]),
    'session/overlay/overlay_journal.cc: now_writing.journal.barrier()': (['fsync of small'], ['order of fsync']),
    'session/overlay/overlay_journal.cc: flush(true)': (
        Exempt('staging files without a name go later'), Exempt('as its error')),
    'session/overlay/overlay_journal.cc: flush(true) (2)': (
        Exempt('a session on a full disk can still be read; the flusher tries again'), [SESSION]),
    'session/overlay/overlay_journal.cc: content->sync() (2)': (['fsync of large'], ['order of fsync']),
    'session/overlay/overlay_journal.cc: impl_->flush(true)': (['fsync of small'], ['order of fsync']),
    'session/overlay/overlay_journal.cc: impl_->flush(true) (2)': (['fsync of name'], ['order of fsync']),
    'session/overlay/overlay_unsynced.cc: content->sync()': (
        Exempt('the staging area remembers it: the next fsync of the file and the commit say so'), [SESSION]),
    'session/transaction/resume.cc: overlay.flush(true)': (['resume'], [LIST]),
    'session/transaction/session.cc: overlay.flush(true)': (['update'], [LIST]),
    'session/transaction/session.cc: impl_->overlay.flush(true)': (['discard'], [LIST]),
    'session/transaction/session.cc: impl_->overlay.flush(true) (2)': (['resolve'], [LIST]),
    'session/decorators/single_file.cc: files_->sync_file(file_)': (
        Exempt('a copy that goes with the session'), Exempt('as its error')),
    'storage/objects/blob_cache.cc: ::fdatasync(fd_.get())': ([REPOSITORY], [REPOSITORY]),
    'storage/disk/durable_file.cc: ::fsync(fd.get())': (['init'], [LIST]),
    'storage/disk/durable_file.cc: sync_directory(parent_of(path))': (['init'], [LIST]),
    'storage/disk/durable_file.cc: ::fdatasync(fd)': ([STAGING], [LIST]),
    'storage/disk/durable_file.cc: ::fsync(fd.get()) (2)': (['import-first'], [LIST]),
    'storage/staging/file_staging_area.cc: sync_data(fd.get())': ([STAGING], ['order of growth']),
    'storage/staging/file_staging_area.cc: names_.sync()': ([STAGING], [STAGING, 'order of growth']),
    'storage/staging/file_staging_area.cc: sync_data(file->get())': ([STAGING], ['order of fsync']),
    'storage/staging/file_staging_area.cc: names_.sync() (2)': ([STAGING], [STAGING]),
    'storage/staging/file_staging_area.cc: names_.sync() (3)': ([STAGING], [STAGING, 'order of fsync']),
    'storage/staging/file_staging_area.cc: names_.sync() (4)': ([STAGING], [STAGING]),
    'storage/staging/file_staging_area.cc: ::syncfs(directory)': ([STAGING], [STAGING]),
    'storage/disk/durable_file.cc: ::syncfs(opened.get())': (
        Open('of a cache that is published, and of what is injected into a session'), Open('as its error')),
    'session/decorators/limited_entry.cc: files_->sync_file(node)': (
        Open('of a host directory with limits'), Open('as its error')),
    'session/decorators/limited_entry.cc: files_->sync_directory(node)': (
        Open('of a host directory with limits'), Open('as its error')),
    'daemon/host/entry_rights.cc: files_->sync_file(node)': (
        Open('of a host directory that an operator writes to over the API'), Open('as its error')),
    'daemon/host/entry_rights.cc: files_->sync_directory(node)': (
        Open('of a host directory that an operator writes to over the API'), Open('as its error')),
    'storage/caches/caches.cc: sync_directory(cache)': (
        Exempt('the rename of `current` is synced next, in the same directory'), Open('of a cache that is published')),
    'storage/caches/caches.cc: sync_directory(cache) (2)': (
        Open('of a cache that is published'), Open('as its error')),
    'storage/caches/caches.cc: sync_directory(caches_)': (Open('of a cache that is published'), Open('as its error')),
    'storage/caches/caches.cc: sync_directory(path_of(key))': (
        Exempt('a dropped cache that a crash brings back is dropped again'), Exempt('as its error')),
    'storage/host_files/host_directory_bytes.cc: ::fsync(file(node, false)->descriptor.get())': (
        Open('of a host directory in a mount table'), Open('as its error')),
    'storage/host_files/host_directory_bytes.cc: sync_directory(*named_in)': (
        Open('of a host directory in a mount table'), Open('as its error')),
    'storage/host_files/host_directory_bytes.cc: ::fsync(opened.get())': (
        Open('of a host directory in a mount table'), Open('as its error')),
    'storage/objects/fold_packs.cc: sync_directory(path_ + "/pack")': ([REPOSITORY], [REPOSITORY]),
    'storage/git/git_references.cc: sync_directory(git_directory + "/" + parent_of(name))': (['commit'], [LIST]),
    'storage/git/git_references.cc: sync_names_above(parent_of(name))': ([REPOSITORY], [REPOSITORY]),
    'storage/git/git_references.cc: sync_directory(git_directory + "/" + parent_of(name)) (2)': (
        Exempt('only where a first sync has failed: it takes two faults'), Exempt('as its error')),
    'storage/git/git_references.cc: sync_names_above(parent_of(name)) (2)': (
        Exempt('only where a first sync has failed: it takes two faults'), Exempt('as its error')),
    'storage/git/git_references.cc: Reflog::sync_names(git_directory, name)': (
        Exempt('only where a first sync has failed: it takes two faults'), Exempt('as its error')),
    'storage/git/git_references.cc: sync_directory(pool_.git_directory() + "/" + parent_of(directory))': (
        ['seal'], [LIST]),
    'storage/git/git_references.cc: sync_directory(pool_.git_directory() + "/" + parent_of(name))': (['seal'], [LIST]),
    'storage/git/git_references.cc: sync_names_above(parent_of(name)) (3)': (['seal'], [LIST]),
    'storage/git/git_references.cc: ::fsync(fd.get())': (['update'], [LIST]),
    'storage/git/git_references.cc: sync_names_above(directory)': (['update'], [LIST]),
    'storage/git/hidden_references.cc: sync_directory(git_directory)': ([REPOSITORY], [REPOSITORY]),
    'storage/git/head_file.cc: sync_directory(git_directory)': (
        Exempt('what is lost of a mended HEAD is mended again'), Exempt('as its error')),
    'storage/objects/pack_writer.cc: sync_pack()': (['import-first'], [LIST]),
    'storage/objects/pack_writer.cc: ::fsync(fd_.get())': (['import-first'], [LIST]),
    'storage/objects/pack_writer.cc: ::fsync(fd.get())': (['import-first'], [LIST]),
    'storage/objects/pack_writer.cc: sync_data(fd.get())': (['import-first'], [LIST]),
    'storage/lfs/lfs_holding.cc: sync_directory(*at)': (['commit-lfs'], [LIST]),
    'storage/lfs/lfs_holding.cc: sync_data(fd.get())': (['commit-lfs'], [LIST]),
    'storage/lfs/lfs_holding.cc: sync_data(to.get())': (
        Open('objects of Git LFS on another file system'), Open('as its error')),
    'storage/objects/publications.cc: sync_data(fd.get())': (['approve'], [LIST]),
    'storage/objects/quarantine_publish.cc: sync_directory(pool_.git_directory() + "/objects/pack")': (
        ['commit'], [LIST]),
    'storage/git/reference_files.cc: sync_directory(path)': ([REPOSITORY], [REPOSITORY, LIST]),
    'storage/git/reference_lock.cc: ::fsync(fd.get())': (['commit'], [LIST]),
    'storage/git/reflog.cc: sync_directory(directory)': (['import-first'], [LIST]),
    'storage/git/reflog.cc: ::fsync(file_.get())': (['commit'], [LIST]),
    'storage/git/reflog.cc: sync_names_of(path_)': (['import-first'], [LIST]),
    'storage/git/reflog.cc: sync_names_of(path_of(git_directory, name))': (
        Exempt('only where a first sync has failed: it takes two faults'), Exempt('as its error')),
    'storage/repository/repository.cc: sync_removed_references(git_directory())': ([REPOSITORY], [REPOSITORY]),
    'storage/repository/repository_init.cc: sync_directory(parent_of(*made))': ([REPOSITORY], [REPOSITORY]),
    'storage/repository/repository_init.cc: sync_directory(path + "/" + std::string(directory))': (['init'], [LIST]),
    'storage/repository/repository_init.cc: ::fsync(fd.get())': (['init'], [LIST]),
    'storage/repository/repository_init.cc: sync_file(path)': (['init'], [LIST]),
    'storage/repository/repository_init.cc: ::syncfs(fd.get())': ([REPOSITORY], [REPOSITORY]),
    'storage/repository/repository_init.cc: sync_repository(*found)': (
        Exempt('a lost catalog that is made anew and lost again is made anew again'), Exempt('as its error')),
    'storage/repository/repository_init.cc: sync_repository(*found) (2)': (['init'], [LIST]),
    'storage/database/schema.cc: database.execute("PRAGMA synchronous = FULL")': (
        Exempt('it is what SQLite does unless it is told otherwise'), Exempt('as its error')),
    'storage/database/schema.cc: sync_directory(parent_of(path))': ([CATALOG], [CATALOG]),
    'storage/staging/small_file_log.cc: sync_data(item.fd->get())': (['fsync of small'], ['order of fsync', STAGING]),
    'storage/staging/small_file_log.cc: names_.sync()': ([STAGING], [STAGING]),
    'storage/database/sqlite.cc: file->pMethods->xSync(file, SQLITE_SYNC_NORMAL)': ([STAGING], [LIST]),
    'storage/database/sqlite_session_catalog.cc: (*guard)->database.execute(kSynced)': ([CATALOG], [CATALOG]),
    'storage/staging/sqlite_session_journal.cc: database.execute("PRAGMA synchronous = FULL")': (
        [CATALOG], [CATALOG, 'order of fsync']),
    'storage/staging/sqlite_session_journal.cc: connection_->database.sync_main_file()': ([STAGING], [LIST]),
    'storage/staging/sqlite_session_journal.cc: sync_directory(directory_)': (['fsync of small'], [LIST]),
    'storage/staging/sqlite_session_journal.cc: sync_directory(parent_of(directory_))': (['fsync of small'], [LIST]),
    'storage/disk/synced_names.cc: sync_directory(directory_)': ([STAGING], [STAGING]),
    'storage/disk/synced_names.cc: sync_directory(parent_of(directory_))': ([STAGING], [STAGING]),
    'storage/staging/tiered_staging_area.cc: log_.sync()': ([STAGING], ['order of fsync', STAGING]),
    'storage/staging/tiered_staging_area.cc: sync_log()': ([STAGING], [STAGING]),
    'storage/staging/tiered_staging_area.cc: files_.sync(id)': ([STAGING], ['order of fsync']),
    'storage/staging/tiered_staging_area.cc: sync_log() (2)': ([STAGING], [STAGING]),
    'storage/staging/tiered_staging_area.cc: files_.sync_directory()': ([STAGING], [STAGING]),
    'storage/staging/tiered_staging_area.cc: sync_log() (3)': ([STAGING], [STAGING]),
    'storage/staging/tiered_staging_area.cc: files_.sync_all()': ([STAGING], [STAGING]),
    'daemon/host/run_result.cc: ::fsync(file.get())': (
        Exempt('a report for the caller, beside what git and the catalog say'), Exempt('as its error')),
    'daemon/host/session_files.cc: files_.sync_file(found->node)': ([FILES], [FILES]),
    'daemon/host/session_files.cc: files_.sync_directory(place.directory)': ([FILES], [FILES]),
    'daemon/host/session_files.cc: files_.sync_directory(place.directory) (2)': ([FILES], [FILES]),
    'daemon/process/output_capture.cc: ::fdatasync(stream.file.get())': (
        Exempt("a command's output, which no promise names"), Exempt('as its error')),
    'session/transaction/staged_state_open.cc: overlay_->sync_files(files_)': (['import-session'], [LIST]),
    'session/transaction/staged_state_open.cc: overlay->flush(true)': (['import-session'], [LIST]),
    'storage/staging/file_read_log.cc: sync_data(file_.get())': (
        Open('of what a serializable session has read'), Open('as its error')),
    'storage/staging/file_read_log.cc: sync_data(file_.get()) (2)': (
        Open('of what a serializable session has read'), Open('as its error')),
    'storage/staging/file_read_log.cc: sync_directory(directory_)': (
        Open('of what a serializable session has read'), Open('as its error')),
    'storage/staging/file_read_log.cc: sync_data(file_.get()) (3)': (
        Exempt('a record that is not closed counts as one of everything'), Exempt('as its error')),
    'storage/staging/file_session_directories.cc: sync_directory(staging)': (['fork'], [LIST]),
    'storage/staging/file_session_directories.cc: sync_directory(heir.path())': (['fork'], [LIST]),
    'daemon/cli/commands/export.cc: ::fsync(opened_.get())': (['export'], [LIST]),
    'daemon/host/work_tree_changes.cc: overlay_.flush(true)': (
        Exempt('the work tree still has what a session begins with'), Exempt('as its error')),
    'daemon/host/session_host.cc: session->overlay().flush(true)': (
        Exempt('writers wait the shorter: the savepoint syncs what it leaves'), Exempt('as its error')),
    'session/overlay/overlay_savepoints.cc: flush(true)': (
        Open('in the scenes the savepoint before it has left nothing to sync'), Open('as its error')),
    'session/transaction/forks.cc: parent.flush(true)': (['fork'], [LIST]),
    'session/transaction/forks.cc: heir->journal().barrier()': (['fork'], [LIST]),
    'session/transaction/land_fork.cc: over.sync()': (['commit-fork'], [LIST]),
    'session/transaction/land_fork.cc: parent.flush(true)': (['commit-fork'], [LIST]),
    'session/transaction/land_fork.cc: parent.flush(true) (2)': (
        Open('in the scene the flusher has left nothing to sync'), Open('as its error')),
    'session/transaction/session_layers.cc: overlay.flush(true)': (
        Exempt('writers wait the shorter: the next one syncs what it leaves'), Exempt('as its error')),
    'session/transaction/session_layers.cc: overlay.flush(true) (2)': (['savepoint'], [LIST]),
    'session/transaction/session_layers.cc: impl_->overlay.flush(true)': (
        Exempt('writers wait the shorter: the fork syncs what it leaves'), Exempt('as its error')),
}
