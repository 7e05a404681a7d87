// What gitattributes(5) says of files, and so which of them git hands to the filter of Git LFS (filter=lfs): the lines
// of one file of attributes, and the files of a directory and all above it.
//
// Matching is git's own (attr.c): the last line that matches decides, a directory's file before those above it,
// info/attributes before all; macros are those of the root and of info/attributes. The user's own file of attributes
// (core.attributesFile) is not read: it says nothing of the repository. AttributeFile is a plain value, thread-safe for
// reading; an AttributeLevel is for one thread. Throws what the reader throws, and Error{bad_request} for a file of
// more than kLargestAttributesFile_bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/repo_path.h"
#include "session/interfaces/object_store.h"
#include "session/trees/ignore_patterns.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

inline constexpr std::string_view kAttributesFileName = ".gitattributes";
inline constexpr std::uint64_t kLargestAttributesFile_bytes = std::uint64_t{1} << 20;

// The whole content of the file at `path`, which messages name.
std::string read_attributes_file(const ByteSource& content, const std::string& path);
// Of the entry; "" unless it is a regular file, as git reads no other.
std::string read_attributes_file(const ObjectReader& objects, const TreeEntry& entry, const std::string& path);

class AttributeFile {
 public:
  struct Setting {
    std::string name;
    enum class State { set, unset, unspecified, value } state;
    std::string value{};
  };
  using Settings = std::vector<Setting>;

  AttributeFile() = default;
  // Lines that git does not read say nothing.
  explicit AttributeFile(std::string_view content);

  bool empty() const { return lines_.empty(); }
  // The settings of each line that matches `path`, from the directory of the file, the last line first, until `visit`
  // returns false; false then.
  bool visit_matches(std::string_view path, const std::function<bool(const Settings&)>& visit) const;
  const std::map<std::string, Settings, std::less<>>& macros() const { return macros_; }

 private:
  struct Line {
    IgnorePatterns pattern;
    Settings settings;
  };
  void add(std::string_view line);

  std::vector<Line> lines_;
  std::map<std::string, Settings, std::less<>> macros_;
};

// The attributes that count in one directory. Files are read when they are first needed.
class AttributeLevel {
 public:
  // The content of the directory's .gitattributes; nothing: there is none.
  using ReadFile = std::function<std::string()>;

  // Of the repository's root. `info_attributes` is the content of info/attributes.
  AttributeLevel(std::string_view info_attributes, ReadFile read);
  // `name` of the directory in that of `above`, which must outlive it.
  AttributeLevel(AttributeLevel& above, std::string_view name, ReadFile read);
  AttributeLevel(const AttributeLevel&) = delete;
  AttributeLevel& operator=(const AttributeLevel&) = delete;

  // What is said of the file of this name in the directory, of those attributes that are `wanted`; nothing is said of
  // one that is unspecified. By the attribute's name.
  std::map<std::string, AttributeFile::Setting, std::less<>> settings_of(std::string_view name,
                                                                         std::span<const std::string_view> wanted);
  // Whether the regular file of this name in the directory is for Git LFS.
  bool is_for_lfs(std::string_view name);

 private:
  class Search;
  const AttributeFile& file();

  AttributeLevel* const above_ = nullptr;
  const AttributeFile info_;   // of the root
  const std::string path_;     // from the root, with a slash at the end; empty: the root
  ReadFile read_;              // until it was called
  AttributeFile file_;
};

// What counts in `prefix` of a repository, from info/attributes and the directories above it in the tree `base`. For
// one thread; the reader must outlive it.
class AttributesAbove {
 public:
  AttributesAbove(const ObjectReader& objects, const TreeRoot& base, const RepoPath& prefix,
                  const std::string& info_attributes);

  // The level of the prefix itself, whose own .gitattributes `read` reads.
  std::unique_ptr<AttributeLevel> level(AttributeLevel::ReadFile read);

 private:
  const std::string info_attributes_;
  std::string name_;                                     // of the prefix in its parent
  std::vector<std::unique_ptr<AttributeLevel>> above_;   // from the root to its parent; empty: it is the root
};

}  // namespace escrow::session
