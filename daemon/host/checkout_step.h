// One work tree that follows its branch from one commit to the next, while its index is locked against git.
//
// All is made ready in copies of the index beside it. Then the branch moves; take_index() puts the index in place, in
// one rename; take_files() writes the files. A commit of the user's between these two has the new contents, and a file
// that cannot be written is one that differs from the index. git reads and writes everything but those renames.
// Not thread-safe. Throws Error{unavailable} where git fails, and says what git says.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/host/index_lock.h"

namespace escrow::daemon {

struct GitAnswer {
  int status = 0;
  std::string out, complaint;
};

// Another index than the work tree's own, and a file as standard input; each may be empty.
struct GitInstead {
  std::string index, input;
};

// The first of them, quoted, and how many more there are.
std::string first_of(const std::vector<std::string>& paths);

class CheckoutStep {
 public:
  // Runs git in the work tree.
  using Git = std::function<GitAnswer(const std::vector<std::string>& arguments, const GitInstead& instead)>;
  struct Places {
    std::string work_tree, index;
    std::string scratch;  // how the names of files begin that only this step has, on the file system of the index
  };
  // From one tree to another. git may be told a commit for a tree.
  CheckoutStep(Places places, IndexLock lock, Git git, std::string from, std::string to);
  CheckoutStep(const CheckoutStep&) = delete;
  CheckoutStep& operator=(const CheckoutStep&) = delete;
  // The index is locked no more.
  ~CheckoutStep();

  const std::string& work_tree() const { return places_.work_tree; }

  // Before the branch moves. Throws Error{wrong_state} naming what is not committed there and in the way. A file that
  // is there already as the commit has it is not.
  void prepare();
  // The same for a move that a dead process began: whatever it has done and not done. Files and entries of the index
  // that are neither as they were nor as the commit has them are left alone. Returns those that hold the move up;
  // nullopt: there is nothing to do.
  std::optional<std::vector<std::string>> take_up();

  void take_index();
  struct Behind {
    std::vector<std::string> paths;  // files that are not as the index has them
    std::string complaint;           // of git
  };
  Behind take_files();

 private:
  // A file that differs. Its entries are as update-index --index-info reads them.
  struct Change {
    std::string path, before, after;
    bool is_added = false, is_removed = false;
  };
  enum class Has { before, after, nothing, other };  // nothing: the file is gone, and the commit changes it
  std::string copy() const { return places_.scratch + "files"; }
  std::string next() const { return places_.scratch + "next"; }
  std::string run(const std::vector<std::string>& arguments, const std::string& index) const;
  std::set<std::string> paths_of(const std::vector<std::string>& arguments, const std::string& index) const;
  std::set<std::string> staged_against(const std::string& tree, const std::string& index) const;
  void refresh(const std::string& index) const;
  void read_changes();
  // What the work tree has of those; of all others it has what was before.
  std::vector<Has> files_of(const std::set<std::string>& candidates) const;
  bool stage(const std::vector<std::string>& paths, const std::string& index) const;
  void set_entries(const std::string& lines, const std::string& index) const;
  // `lines` change the copy of the index. What is in `alone` is in the tree that git compares as the commit has it.
  void make_ready(const std::string& lines, const std::vector<std::size_t>& alone);
  // The index that is put in place, of the copy.
  void make_next() const;

  const Places places_;
  const IndexLock lock_;
  const Git git_;
  std::string from_;
  const std::string to_;
  std::vector<Change> changes_;
  std::set<std::string> followed_;  // paths that git takes along
};

}  // namespace escrow::daemon
