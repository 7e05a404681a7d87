// Pointers of Git LFS: the text that a git blob has in place of a large file.
//
// Only the one form that git-lfs writes is taken for a pointer: three lines, in their order, and nothing else (the
// pointer to an empty file is an empty file). Whatever
// else git-lfs reads (older names of the version, other orders, extensions) is shown as the text that it is. Pure
// functions, thread-safe. Sources: spec.md and lfs/pointer.go of git-lfs 3.3, git-lfs-clean(1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace escrow::session {

struct LfsPointer {
  std::string oid;               // SHA-256 of the object, 64 lower-case hexadecimal digits: also safe as a file's name
  std::uint64_t size_bytes = 0;  // of the object
  friend bool operator==(const LfsPointer&, const LfsPointer&) = default;
};

// Every pointer is this long, so that no other blob need be read to know that it is none.
inline constexpr std::uint64_t kSmallestLfsPointer_bytes = 126, kLargestLfsPointer_bytes = 139;
// A pointer to more is shown as text: no file of Linux's usual file systems is larger (ext4: 16 TiB).
inline constexpr std::uint64_t kLargestLfsObject_bytes = std::uint64_t{1} << 44;
// git-lfs reads no pointer from a file of this size, or a larger one.
inline constexpr std::uint64_t kNoLfsPointer_bytes = 1024;

// nullopt: the text is no pointer.
std::optional<LfsPointer> parse_lfs_pointer(std::string_view text);
std::string encode(const LfsPointer& pointer);

// Whether git-lfs takes a file of this content for a pointer, and its filter leaves it as it is: also forms that
// parse_lfs_pointer() does not read.
bool is_pointer_to_git_lfs(std::string_view text);

}  // namespace escrow::session
