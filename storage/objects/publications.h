// The packs that a session has put into the repository, until a reference is known to hold what they were for.
//
// <quarantine>/published lists them: a line is on disk before the pack gets its name in the repository, so whoever
// opens the list after a crash or a power loss finds every pack, whole or not. Under another name the list is the .keep
// file of each pack. A line whose pack never came, or has gone, says nothing. A pack that git could see is never
// removed here: once released it is gc's, like any other. Thread-safe; one thread installs. Throws Error{no_space} and
// the like; what install() has begun is then undone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/objects/pack_reader.h"

namespace escrow::storage {

class Publications {
 public:
  struct Pack {
    std::string stem;
    session::ObjectId root;  // what it was published for
  };

  // `objects` is the repository's object directory.
  Publications(std::string list_path, std::string objects);

  // Installs the finished pack `stem` (install_pack()); the directory that names it is the caller's to sync.
  void install(const std::string& stem, const session::ObjectId& root, bool link);
  bool empty() const { return packs_.lock()->empty(); }
  std::vector<Pack> packs() const { return *packs_.lock(); }
  // Packs whose .keep file still stands: any other may be taken away at any moment.
  std::vector<std::shared_ptr<const PackFile>> kept() const;
  // They are the repository's from now on (leave_pack_to_gc()). Throws when one could not be let go: they stay listed.
  void release();

 private:
  void record(const Pack& pack);

  const std::string list_path_;                          // constant
  const std::string objects_;                            // constant
  mutable session::Synchronized<std::vector<Pack>> packs_;  // self-locking
};

// What such a list says, in the order in which they were published; a stem is the name alone. Empty: there is no list.
// Throws when it cannot be read.
std::vector<Publications::Pack> read_published(const std::string& path);

}  // namespace escrow::storage
