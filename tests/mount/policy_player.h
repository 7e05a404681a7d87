// Plays random system calls on a mount with a policy, and beside it in a plain directory, the twin.
//
// What the policy must answer is worked out from the twin's names with the slow evaluator: a call that is denied must
// fail with EACCES on the mount and is not made in the twin; every other must answer the same in both. Runs in a
// process of its own, with its own user. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/slow_policy.h"

namespace escrow::support {

class PolicyPlayer {
 public:
  PolicyPlayer(std::string mount, std::string twin, const SlowPolicy& policy, std::uint64_t seed);
  ~PolicyPlayer();

  // Makes so many calls; stops at the first wrong answer.
  void play(int calls);
  const std::string& failure() const { return failure_; }
  // "call allowed" and "call denied", and how often.
  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  using Actions = session::Actions;
  using Action = session::Action;
  // A file that is open in both.
  struct Held {
    int on_mount = -1, on_twin = -1;
    ino_t inode = 0;  // of the twin
    bool reads = false, writes = false;
    std::optional<Actions> removed_with;  // what was allowed when the last name went
  };
  enum class Kind { absent, file, directory, symlink, other };
  using Call = std::function<long(const std::string& root)>;

  // What is at the twin's path.
  Kind kind(const std::string& path) const;
  ino_t inode(const std::string& path) const;
  std::vector<std::string> all() const;
  std::vector<std::string> names_of(ino_t inode) const;
  std::vector<std::string> some(Kind kind) const;
  std::string any_path();
  std::optional<std::string> existing(Kind kind);
  std::optional<std::string> fresh();
  bool is_empty(const std::string& directory) const;

  // What the policy says.
  bool may(const std::string& path, Action action) const;
  Actions allowed_on(const std::string& path) const;
  Actions allowed_on(const Held& held) const;
  bool may_be_hidden(const std::string& path) const;
  bool may_move(const std::string& from, const std::string& to) const;
  void note_removal(const std::string& path);

  // Makes the call on the mount and, where it is allowed, on the twin. True: it was done in both.
  bool check(const std::string& what, const std::vector<std::string>& paths, bool is_allowed, const Call& call);
  void fail(const std::string& what);
  void compare(const std::string& what, const std::string& on_mount, const std::string& on_twin);

  void open_existing();
  void create();
  void make_name();
  void remove_name();
  void rename();
  void link();
  void change_attributes();
  void xattrs();
  void look();
  void list();
  void use_held();
  void reopen_held();
  void copy_between_held();
  void hold(const std::string& what, const std::string& path, int flags, int on_mount, int on_twin);

  const std::string mount_, twin_;
  const SlowPolicy& policy_;
  std::mt19937_64 random_;
  std::vector<Held> held_;
  std::string failure_;
  std::vector<std::string> history_;
  std::map<std::string, int> counts_;
};

}  // namespace escrow::support
