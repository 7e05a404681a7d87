// What an index of times (change_times.h) learns when a branch is seen at a new commit: which steps led there from
// where it was last seen, and what each of them changed.
//
// Stateless but for the objects read. Throws Error{input_output} for an object that is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "session/interfaces/object_store.h"
#include "session/trees/different_trees.h"
#include "session/trees/tree_walk.h"

namespace escrow::storage {

struct TimesStep {
  session::TreeRoot before, after;
  std::int64_t at_s = 0;   // of the commit; see kMostSteps
};

// A push is followed commit by commit, along first parents; of a longer one the older commits are one step, with the
// time of the last of them.
inline constexpr std::size_t kMostSteps = 1000;
// Where `seen` is no first parent among so many (the branch was rewritten), all is one step with the time of `head`.
inline constexpr std::size_t kMostCommitsRead = 10'000;

struct TimesSteps {
  std::vector<TimesStep> steps;            // the oldest first
  std::vector<session::ObjectId> commits;  // those that they came with, at most kMostSteps
};
TimesSteps steps_between(const session::ObjectReader& objects, const session::ObjectId& seen,
                         const session::ObjectId& head);

// Told of each entry that changed, those of a directory before the directory itself.
class ChangedEntries {
 public:
  virtual ~ChangedEntries() = default;
  // Of a file: its content is new. Of a directory: it is new, with all below it.
  virtual void is_new(const std::string& directory, const std::string& name, bool is_directory) = 0;
  // It was there, with all below it where it is a directory.
  virtual void is_gone(const std::string& directory, const std::string& name) = 0;
  // Something below it is new or gone; `has_other_names`: of its own entries.
  virtual void differs_below(const std::string& directory, const std::string& name, bool has_other_names) = 0;
};

// The changes of several steps, kept until they are written: the trees are read before the index is locked. Compact:
// a name and a byte or two for each entry.
class RecordedChanges final : public ChangedEntries {
 public:
  void is_new(const std::string& directory, const std::string& name, bool is_directory) override;
  void is_gone(const std::string& directory, const std::string& name) override;
  void differs_below(const std::string& directory, const std::string& name, bool has_other_names) override;
  void tell(ChangedEntries& told) const;

 private:
  void add(const std::string& directory, char kind, const std::string& name);

  std::string bytes_;      // a kind and a name that ends in NUL; after kIn the directory of what follows
  std::string directory_;  // of the last entry
};

// The root is told of with both names empty. With `may_count`, only entries for whose path it is true are told of.
// A file that only became executable, or ceased to be, has not changed. Equal and new trees are not read. Throws
// Error{result_too_large} when the list would exceed the bounds of `bound`, a listing WholeTrees::by_name.
void tell_changes(const session::ObjectReader& objects, const session::TreeRoot& before,
                  const session::TreeRoot& after, session::BoundedListing& bound, ChangedEntries& told,
                  const std::function<bool(const std::string& path)>& may_count = nullptr);

}  // namespace escrow::storage
