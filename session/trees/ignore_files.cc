#include "session/trees/ignore_files.h"

#include <span>
#include <utility>

#include "session/base/error.h"

namespace escrow::session {
namespace {

bool is_regular(const TreeEntry& entry) {
  return entry.mode == GitMode::regular || entry.mode == GitMode::executable || entry.mode == GitMode::group_writable;
}

}  // namespace

std::string read_ignore_file(const ByteSource& content, const std::string& path) {
  if (content.size() > kLargestIgnoreFile_bytes)
    throw Error(Errc::bad_request, "cannot tell what git ignores: " + quote_path(path) + " has " +
                                       std::to_string(content.size()) + " bytes, more than the 1 MiB that is read; "
                                       "make it smaller, or commit with --include-ignored");
  return read_all(content);
}

std::string read_ignore_file(const ObjectReader& objects, const TreeEntry& entry, const std::string& path) {
  return is_regular(entry) ? read_ignore_file(*objects.open_blob(entry.id), path) : std::string();
}

IgnoringAbove::IgnoringAbove(const ObjectReader& objects, const TreeRoot& base, const RepoPath& prefix,
                             const IgnoreRule& rule)
    : exclude_file_(rule.exclude_file), tracked_(base) {
  std::string path;
  for (const std::string_view component : prefix.components()) {
    const Tree tree = read_tree_or_empty(objects, tracked_);
    const auto read = [&objects, file = entry_named(tree, kIgnoreFileName), at = join_path(path, kIgnoreFileName)] {
      return file ? read_ignore_file(objects, *file, at) : std::string();
    };
    above_.push_back(level(read));
    path = join_path(path, component);
    name_ = component;
    tracked_ = tree_of(entry_named(tree, component));
  }
}

std::unique_ptr<IgnoreLevel> IgnoringAbove::level(IgnoreLevel::ReadFile read) {
  if (above_.empty()) return std::make_unique<IgnoreLevel>(exclude_file_, std::move(read));
  return std::make_unique<IgnoreLevel>(*above_.back(), name_, std::move(read));
}

}  // namespace escrow::session
