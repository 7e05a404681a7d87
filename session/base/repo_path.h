// A validated path inside a repository: bytes, components joined by '/', no leading or trailing slash, none of its
// components empty, "." or "..", none longer than 255 bytes, no NUL. The empty path is the root.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::session {

class RepoPath {
 public:
  RepoPath() = default;
  // Takes what a person or program typed: leading, trailing and doubled slashes are dropped.
  // Throws Error{bad_request} naming `what` (for example "--path-prefix") otherwise.
  static RepoPath parse(std::string_view text, std::string_view what);

  const std::string& text() const noexcept { return text_; }
  bool is_root() const noexcept { return text_.empty(); }
  std::vector<std::string_view> components() const;
  RepoPath child(std::string_view name) const;
  // Whole components: "data" contains "data" and "data/x", not "database".
  bool contains(const RepoPath& other) const;

  friend auto operator<=>(const RepoPath&, const RepoPath&) = default;

 private:
  explicit RepoPath(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

// "base/name", or "name" when base is empty.
std::string join_path(std::string_view base, std::string_view name);

// Path as git shows it to people (core.quotePath=true): quoted C-style when it holds control characters, '"', '\' or
// bytes above 0x7f.
std::string quote_path(std::string_view path);

// Whether git refuses `name` as a tree entry: with a slash, ".git" in any case, "git~1", ".git" with trailing dots or
// spaces or followed by ':' streams, and the HFS+ variants with ignorable code points (git's verify_path,
// verify_dotfile, is_hfs_dotgit, is_ntfs_dotgit in read-cache.c and utf8.c).
bool git_refuses_name(std::string_view name);

// Whether `name` means .gitmodules, or .gitattributes, on some file system; git refuses a symlink that is the former.
bool is_gitmodules_name(std::string_view name);
bool is_gitattributes_name(std::string_view name);

}  // namespace escrow::session
