#include "daemon/import/directory_import.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/import/import_filter.h"
#include "session/base/path_pattern.h"

namespace escrow::daemon {

using session::GitMode;

namespace {

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void DirectoryImport::leaf(const std::string& path, GitMode mode, const session::ByteSource& content) {
  open_.back().push_back({.name = name_of(path), .mode = mode, .id = quarantine_.put_blob(content)});
}

void DirectoryImport::lfs_file(const std::string& path, GitMode mode, const session::ByteSource& content) {
  open_.back().push_back({.name = name_of(path), .mode = mode, .id = quarantine_.put_lfs_file(content)});
}

void DirectoryImport::enter(const std::string&) { open_.emplace_back(); }

void DirectoryImport::leave(const std::string& path) {
  const session::TreeRoot tree = put(std::move(open_.back()));
  open_.pop_back();
  if (tree) open_.back().push_back({.name = name_of(path), .mode = GitMode::tree, .id = *tree});
}

session::TreeRoot DirectoryImport::tree() { return put(std::exchange(open_.front(), {})); }

session::TreeRoot DirectoryImport::put(session::Tree tree) {
  if (tree.empty()) return std::nullopt;
  std::sort(tree.begin(), tree.end(), session::tree_order_less);
  return quarantine_.put_tree(tree);
}

session::CommitOutcome commit_import(session::Session& session, const std::function<session::TreeRoot()>& read,
                                     const std::string& message, const std::string& who) {
  try {
    const session::TreeRoot imported = read();
    const session::SessionRecord record = session.record();
    const session::TreeRoot before = session::tree_of_commit(session.quarantine(), record.base);
    const session::RepoPath& prefix = record.options.prefix;
    const session::TreeRoot there =
        with_excluded(session.quarantine(), session::tree_of(session::entry_at(session.quarantine(), before, prefix)),
                      imported, session::PathPatterns(record.options.excludes));
    const session::TreeRoot after = session::graft_tree(session.quarantine(), before, prefix, there);
    return session.commit_tree(after, {.message = message, .exit_code = {}, .reason = session::Reason::success,
                                       .by_hand = false, .who = who});
  } catch (...) {
    // Nothing of a failed import stays, whatever made it fail.
    if (session.record().state == session::State::open) {
      session.rollback(session::Reason::not_started, std::nullopt, who, false);
    }
    throw;
  }
}

}  // namespace escrow::daemon
