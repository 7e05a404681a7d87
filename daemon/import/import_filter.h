// What an import leaves out because it was asked to (--exclude), or because git would not add it (ignore_patterns.h),
// and what it makes pointers of, as .gitattributes of what is imported says (attribute_files.h).
//
// As in a session: what is excluded stays as the branch has it, and what the branch tracks is imported whatever ignores
// it. For one thread; made of a session, which must outlive it. Throws what reading the repository throws.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "session/base/omission.h"
#include "session/base/path_pattern.h"
#include "session/transaction/session.h"
#include "session/trees/attribute_files.h"
#include "session/trees/ignore_files.h"

namespace escrow::daemon {

class ImportFilter {
 public:
  // Leaves nothing out, and everything as it is.
  ImportFilter() = default;
  ImportFilter(session::Session& session, const session::ReferenceStore& references);

 private:
  friend class FilteredDirectory;
  const session::ObjectReader* objects_ = nullptr;
  session::PathPatterns excludes_;
  std::optional<session::IgnoringAbove> ignoring_;
  std::optional<session::AttributesAbove> attributes_;
};

// A directory of what is imported, while it is read.
class FilteredDirectory {
 public:
  // `read`: the content of the file of this name in it, .gitignore or .gitattributes, empty without one; called once
  // for each, when it is needed.
  using ReadFile = std::function<std::string(std::string_view name)>;
  FilteredDirectory(ImportFilter& filter, const ReadFile& read);
  FilteredDirectory(FilteredDirectory& above, std::string_view name, const ReadFile& read);

  // nullopt: what has this name in it is imported.
  std::optional<session::OmissionKind> why_left_out(std::string_view name, bool is_directory);
  // Whether the regular file of this name in it is committed as a pointer (Quarantine::put_lfs_file()).
  bool is_for_lfs(std::string_view name) { return attributes_ != nullptr && attributes_->is_for_lfs(name); }

 private:
  std::optional<session::TreeEntry> tracked(std::string_view name);

  ImportFilter& filter_;
  const std::string path_;
  std::unique_ptr<session::IgnoreLevel> level_;  // null: nothing is ignored
  std::unique_ptr<session::AttributeLevel> attributes_;  // null: nothing is for Git LFS
  session::TreeRoot tracked_root_;               // what the branch has there ...
  std::optional<session::Tree> tracked_;         // ... once it was read
};

// The content of a file that ReadFile is asked for.
std::string read_rules(const session::ByteSource& content, std::string_view name, const std::string& path);

// `imported` with what the patterns exclude as `before` has it.
session::TreeRoot with_excluded(session::Quarantine& quarantine, const session::TreeRoot& before,
                                const session::TreeRoot& imported, const session::PathPatterns& excludes);

}  // namespace escrow::daemon
