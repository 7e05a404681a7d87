// core.sharedRepository: the modes that files and directories get which other users of the repository need too.
//
// As git does (adjust_shared_perm() in path.c; git-config(1), core.sharedRepository): whatever is written below the
// git directory that git itself shares (objects, references, reflogs, configuration) is passed to apply() before it
// gets its final name. <gitdir>/escrow is not shared: sessions belong to the user who opened them. A value, immutable;
// does nothing in a repository that is not shared.
#pragma once

#include <sys/stat.h>

#include <string>

namespace escrow::storage {

class SharedPermissions {
 public:
  // Of a repository that nobody shares.
  SharedPermissions() = default;
  // What the configuration says now. Cheap when <gitdir>/config has not changed since the last call. Thread-safe.
  // Throws Error{bad_request} naming a value that git would not accept.
  static SharedPermissions of(const std::string& git_directory);

  bool is_shared() const noexcept { return value_ != 0; }
  // The mode that a file or directory with mode `mode` is to have.
  mode_t mode(mode_t mode) const noexcept;
  // Gives a file or directory the mode, and the group of `directory`, where it is or is going to be, if that passes its
  // group on. Throws.
  void apply(const std::string& path) const;
  void apply(const std::string& path, const std::string& directory) const;
  void apply(int fd, const std::string& path, const std::string& directory) const;
  // mkdir -p of `path` as far as it lies below `top`, which exists; each new directory with its mode. Throws.
  void make_directories(const std::string& top, const std::string& path) const;

 private:
  explicit SharedPermissions(int value) : value_(value) {}

  int value_ = 0;  // bits to be added; negative: the exact ones
};

}  // namespace escrow::storage
