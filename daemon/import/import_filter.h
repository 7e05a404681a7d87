// What an import leaves out because it was asked to (--exclude), or because git would not add it (ignore_patterns.h).
//
// As in a session: what is excluded stays as the branch has it, and what the branch tracks is imported whatever ignores
// it. For one thread; made of a session, which must outlive it. Throws what reading the repository throws.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "session/base/omission.h"
#include "session/base/path_pattern.h"
#include "session/transaction/session.h"
#include "session/trees/ignore_files.h"

namespace escrow::daemon {

class ImportFilter {
 public:
  // Leaves nothing out.
  ImportFilter() = default;
  ImportFilter(session::Session& session, const session::ReferenceStore& references);

 private:
  friend class FilteredDirectory;
  const session::ObjectReader* objects_ = nullptr;
  session::PathPatterns excludes_;
  std::optional<session::IgnoringAbove> ignoring_;
};

// A directory of what is imported, while it is read.
class FilteredDirectory {
 public:
  // `read`: the content of its .gitignore, empty without one; called once, when it is needed.
  FilteredDirectory(ImportFilter& filter, session::IgnoreLevel::ReadFile read);
  FilteredDirectory(FilteredDirectory& above, std::string_view name, session::IgnoreLevel::ReadFile read);

  // nullopt: what has this name in it is imported.
  std::optional<session::OmissionKind> why_left_out(std::string_view name, bool is_directory);

 private:
  std::optional<session::TreeEntry> tracked(std::string_view name);

  ImportFilter& filter_;
  const std::string path_;
  std::unique_ptr<session::IgnoreLevel> level_;  // null: nothing is ignored
  session::TreeRoot tracked_root_;               // what the branch has there ...
  std::optional<session::Tree> tracked_;         // ... once it was read
};

// `imported` with what the patterns exclude as `before` has it.
session::TreeRoot with_excluded(session::Quarantine& quarantine, const session::TreeRoot& before,
                                const session::TreeRoot& imported, const session::PathPatterns& excludes);

}  // namespace escrow::daemon
