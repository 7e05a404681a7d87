// The packs that a session has put into the repository, until a reference is known to hold what they were for.
//
// <quarantine>/published lists them: a line is on disk before the pack gets its name in the repository, so whoever
// opens the list after a crash or a power loss finds every pack, whole or not. Under another name the list is the .keep
// file of each pack. A line whose pack never came, or has gone, says nothing. Thread-safe; one thread installs. Throws
// Error{no_space} and the like; what install() has begun is then undone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/objects/pack_reader.h"

namespace escrow::storage {

class Publications {
 public:
  enum class Kind {
    own,   // objects that the repository did not have
    copy,  // of what it had already: never removed, as others may rely on it by now
  };
  struct Pack {
    std::string stem;
    session::ObjectId root;  // what it was published for
    Kind kind;
  };

  // `objects` is the repository's object directory.
  Publications(std::string list_path, std::string objects);

  // Installs the finished pack `stem` (install_pack()); the directory that names it is the caller's to sync.
  void install(const std::string& stem, const session::ObjectId& root, Kind kind, bool link);
  bool empty() const { return packs_.lock()->empty(); }
  std::vector<Pack> packs() const { return *packs_.lock(); }
  // Own packs that git sees.
  std::vector<std::shared_ptr<const PackFile>> own() const;
  // Packs of either kind whose .keep file still stands: any other may be taken away at any moment.
  std::vector<std::shared_ptr<const PackFile>> kept() const;
  // The copies are the repository's from now on.
  void release_copies();
  // So are all. Throws when the .keep file of one could not be removed: they stay listed.
  void release();
  // The copies are the repository's, and the others vanish. Throws when one could not be removed: they stay listed.
  void remove();

 private:
  void record(const Pack& pack);
  std::vector<std::shared_ptr<const PackFile>> open(const std::function<bool(const Pack&)>& wanted) const;
  void end(const std::function<bool(const Pack&)>& end_one, const char* doing);

  const std::string list_path_;                          // constant
  const std::string objects_;                            // constant
  mutable session::Synchronized<std::vector<Pack>> packs_;  // self-locking
};

// What such a list says, in the order in which they were published; a stem is the name alone. Empty: there is no list.
// Throws when it cannot be read.
std::vector<Publications::Pack> read_published(const std::string& path);

}  // namespace escrow::storage
