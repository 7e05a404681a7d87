// What the two halves of PolicedFileSystem share: internal to session/policed_*.cc.
#pragma once

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/decorators/policed_file_system.h"
#include "session/overlay/overlay_state.h"

namespace escrow::session {

inline bool is_directory(const Attributes& attributes) { return (attributes.mode & kTypeMask) == kDirectoryType; }

// A node that is about to lose a name. If it is the last, what was allowed on it stays allowed for those who have it
// open, and no more: a descriptor must not become a way to what the path was refused.
class PolicedFileSystem::Removal {
 public:
  Removal(PolicedFileSystem& files, const std::optional<Attributes>& target);
  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  void done();

 private:
  PolicedFileSystem& files_;
  const std::optional<Attributes> target_;
  bool is_done_ = false;
};

}  // namespace escrow::session
