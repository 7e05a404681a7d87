// Where the patterns of ignore_patterns.h come from: .gitignore files in git trees, and above a session's prefix.
// Throws what the reader throws, and Error{bad_request} for a file of more than kLargestIgnoreFile_bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/branch_rule.h"
#include "session/base/repo_path.h"
#include "session/interfaces/object_store.h"
#include "session/trees/ignore_patterns.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

inline constexpr std::string_view kIgnoreFileName = ".gitignore";

// The whole content of the file at `path`, which messages name.
std::string read_ignore_file(const ByteSource& content, const std::string& path);
// Of the entry; "" unless it is a regular file, as git reads no other.
std::string read_ignore_file(const ObjectReader& objects, const TreeEntry& entry, const std::string& path);

// What counts in `prefix` of a repository, from info/exclude and the directories above it in the tree `base`. For one
// thread; the reader must outlive it.
class IgnoringAbove {
 public:
  IgnoringAbove(const ObjectReader& objects, const TreeRoot& base, const RepoPath& prefix, const IgnoreRule& rule);

  // The level of the prefix itself, whose own .gitignore `read` reads.
  std::unique_ptr<IgnoreLevel> level(IgnoreLevel::ReadFile read);
  // The tree that `base` has there.
  const TreeRoot& tracked() const { return tracked_; }

 private:
  const std::string exclude_file_;
  std::string name_;                                    // of the prefix in its parent
  std::vector<std::unique_ptr<IgnoreLevel>> above_;     // from the root to its parent; empty: it is the root
  TreeRoot tracked_;
};

}  // namespace escrow::session
