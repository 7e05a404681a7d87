// A directory as it comes out of an archive: entries in any order, of two with one name the later one counts.
//
// In memory are the names, the modes and the ids of contents. What git cannot hold has a place here, too: it is left
// out and named when the git tree is made, as directory_walk.h has it. Not thread-safe. Throws Error{bad_request} for
// what no directory could have (names that lead out of it, a file that is a directory, too, a hard link to nothing) and
// for more than 4 million entries.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/import/import_filter.h"
#include "daemon/import/omitted_names.h"
#include "session/interfaces/object_store.h"
#include "session/overlay/overlay.h"
#include "session/trees/tree_walk.h"

namespace escrow::daemon {

class ArchivedTree {
 public:
  // A file or a symbolic link; `content` is asked for unless it is left out.
  void add_leaf(std::string_view name, session::GitMode mode, const std::function<session::ObjectId()>& content);
  void add_special(std::string_view name, session::OmissionKind kind);
  void add_directory(std::string_view name);
  // A file with the content and mode of another that came before.
  void add_hard_link(std::string_view name, std::string_view target);

  session::BuiltTree build(session::Quarantine& quarantine, ImportFilter filter = {}) const;

 private:
  struct Leaf {
    session::GitMode mode;
    session::ObjectId id;
  };
  struct Entry;
  using Directory = std::map<std::string, Entry, std::less<>>;
  using Parts = std::vector<std::string_view>;
  struct Entry {
    std::variant<Leaf, session::OmissionKind, std::unique_ptr<Directory>> is;
  };

  static Parts parts_of(std::string_view name);
  std::pair<Entry&, bool> entry_in(Directory& directory, std::string_view part);
  Directory* parent_of(std::string_view name, const Parts& parts);
  Entry* place(std::string_view name, const Parts& parts);
  const Entry* find(const Parts& parts) const;
  static session::TreeRoot build(session::Quarantine& quarantine, const Directory& directory, const std::string& path,
                                 FilteredDirectory& filtered, OmittedNames& omitted);
  static std::string read_rules_file(const session::ObjectReader& objects, const Directory& directory,
                                     const std::string& path, std::string_view name);

  Directory root_;
  std::size_t entries_ = 0;
};

}  // namespace escrow::daemon
