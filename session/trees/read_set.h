// What a session has read of its base, by paths below the root of its mount: files that it looked at or read,
// directories that it listed, names that it did not find. Each path is what the base calls it, whatever the session
// does with it.
//
// Memory has a bound: beyond a half of it, what is read in another directory counts as all that is directly in it, and
// beyond all of it as everything below the directory above. A plain value; its owner locks. What changes it is noted as
// events, from which apply() makes it again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/repo_path.h"
#include "session/interfaces/object_store.h"
#include "session/trees/reconcile.h"

namespace escrow::session {

class ReadSet {
 public:
  using Id = std::uint32_t;  // of a directory
  static constexpr Id kRoot = 0;
  static constexpr Id kCovered = ~Id{0};  // what is read below it is known to be read already

  static constexpr std::size_t kMost_bytes = std::size_t{32} << 20;

  // Of one bit for each entry of a directory, in the order of its tree.
  class Bits {
   public:
    bool has(std::uint64_t index) const;
    bool add(std::uint64_t index);  // false: it was there
    bool empty() const { return words_.empty(); }
    std::size_t size_bytes() const { return words_.capacity() * sizeof(std::uint64_t); }
    std::uint64_t count() const;
    std::string bytes() const;  // without zeroes at the end
    static Bits from(std::string_view bytes);

   private:
    std::vector<std::uint64_t> words_;
  };

  struct Directory {
    Id parent = kRoot;
    std::string name;
    ObjectId tree;          // whose entries the bits are of; null: nothing
    bool is_listed = false;
    bool all_in = false;    // all that is directly in it counts as read
    bool all_below = false;
    Bits looked_at, read;
    std::map<std::string, bool, std::less<>> names;  // false: not found; true: it counts as read with all below it
    std::map<std::string, Id, std::less<>> children;
  };

  struct Summary {
    std::uint64_t looked_at = 0, read = 0, listed = 0, absent = 0;
    std::uint64_t directories = 0, trees = 0;  // that count as read as a whole
  };

  explicit ReadSet(std::size_t most_bytes = kMost_bytes);

  // Each returns whether that is new, but for the first, which returns the directory or kCovered.
  Id add_directory(Id parent, std::string_view name, const ObjectId& tree);
  bool set_root(const ObjectId& tree);
  bool look_at(Id directory, std::uint64_t index);
  bool read(Id directory, std::uint64_t index);
  bool list(Id directory);
  bool miss(Id directory, std::string_view name);
  bool take_all_below(Id directory);
  // The path, with all below it.
  bool take_path(std::string_view path);

  const Directory& at(Id directory) const { return directories_[directory]; }
  bool is_covered(Id directory) const;
  Summary summary() const;

  // The changes since the last call, as events.
  std::string take_events();
  // False: they are not events, or of another ReadSet; what came before the first of that kind counts.
  bool apply(std::string_view events);
  // The events that make an equal one, the same for equal ones.
  std::string encoded() const;
  static std::optional<ReadSet> decoded(std::string_view events);

  // "read PATH", "looked at PATH", "listed PATH/", "absent PATH", "all in PATH/", "all below PATH/": what a person
  // reads. Paths begin with `prefix`. Reads the trees of directories.
  void describe(const ObjectReader& objects, const std::string& prefix,
                const std::function<void(std::string_view what, const std::string& path)>& visit) const;

 private:
  class Writer;
  bool is_short() const { return held_bytes_ >= most_bytes_ / 2; }
  bool takes_nothing(Id directory) const { return directory == kCovered || is_covered(directory); }
  bool mark(Bits& bits, Id directory, std::uint64_t index, char event);
  bool take_all_in(Id directory);
  bool take_name(Id directory, std::string_view name, bool with_all_below);
  std::string path_of(Id directory) const;
  void encode(Id from, Id parent, Id& next, Writer& out) const;

  std::size_t most_bytes_;
  std::size_t held_bytes_ = 0;
  std::vector<Directory> directories_;
  std::string events_;
};

// What of `before` differs in `after`, both trees of the whole repository, and was read below `prefix`; by path. At
// most kMostReadConflicts. Trees that are equal, and directories that nobody looked into, are not read.
inline constexpr std::size_t kMostReadConflicts = 1000;
std::vector<Conflict> changed_reads(const ObjectReader& objects, const ReadSet& reads, const RepoPath& prefix,
                                    const std::optional<ObjectId>& before, const std::optional<ObjectId>& after);
// Adds those whose paths are not in `conflicts`; sorted by path.
void add_conflicts(std::vector<Conflict>& conflicts, std::vector<Conflict> more);

}  // namespace escrow::session
