// What git trees cannot hold, found when a tree is built; it is left out of the commit, by name.
#pragma once

#include <string>

namespace escrow::session {

enum class OmissionKind {
  excluded,          // matched --exclude
  ignored,           // git would not add it (ignore_patterns.h), and the base does not have it
  git_name,          // ".git" and what git takes for it
  git_refused,       // a .gitattributes or .gitmodules that `git fsck --strict` refuses
  socket,
  fifo,
  device,
  empty_directory,
  xattrs,            // the file is committed, its extended attributes are not
  mode,              // the file is committed, mode bits beyond the executable bit are not
  // The file is committed with the bytes that it has, where git would convert them (check_in_conversions.h):
  unconverted_text,      // line ends
  unconverted_encoding,
  unconverted_ident,
  unfiltered,
  inside_submodule,
};
const char* name_of(OmissionKind kind);
// Whether all of the file is committed, and only a conversion is missing.
bool is_conversion(OmissionKind kind);

struct Omission {
  std::string path;  // below the mount's root
  OmissionKind kind;
};

}  // namespace escrow::session
