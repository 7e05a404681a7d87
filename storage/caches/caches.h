// What builds keep from session to session, in <state>/caches/: of each cache the last published generation, whole.
//
//   caches/.lock                whoever opens, publishes or removes a generation has it, for a moment
//   caches/NAME/current         a symbolic link to the generation that is shown; NAME is percent-encoded
//   caches/NAME/<session>/      a generation, named after the session that published it: tree/, several, totals, about
//   caches/NAME/used            its time is that of the last use
//   sessions/<id>/caches/NAME/  what a session has of it (cache_tree.h), and `about`: its generation, its disk_era(),
//                               the Place that it was opened for, where that is in sight, and its hands
//   sessions/<id>/caches/.N.NAME/  what it had before it went back to a savepoint: drop_changes()
//
// The hands of a generation are those (daemon/host/hidden_git.h) that had the sessions which wrote to it, since it last
// had no name that git takes for .git. A session's are those of its generation and of each open(). Where nothing is
// noted, as by an earlier version, they are unknown, and stay so until it has no such name.
//
// Opening takes the same time however large a cache is. publish() completes the session's tree, syncs the file system,
// moves the tree to the caches and renames the link: before that rename the old generation is the cache, after it the
// new one, whatever dies. A generation stays while a session is over it. Thread-safe, and safe between processes.
// Throws Error. Sources: rename(2), syncfs(2).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/synchronized.h"
#include "session/decorators/mount_table.h"

namespace escrow::storage {

class CacheView;

enum class CacheStep { completed, synced, moved, published, retired };

struct CacheStatus {
  std::string name;
  std::uint64_t bytes = 0, entries = 0;  // of the generation that is shown
  std::uint64_t sessions = 0;            // that have it open
  session::Timestamp used;
};

class Caches {
 public:
  struct Owner {
    uid_t uid = 0;
    gid_t gid = 0;
    mode_t umask = 022;
  };
  using Observer = std::function<void(CacheStep)>;  // of tests, which stop there
  // Where the session's mount is. Build files name the path where they were made, and with a cache they come to another
  // session: one that sees others has no cache that one that is seen has open, or a build in the one would read the
  // files of the other.
  struct Place {
    bool is_seen = false;      // it is at a path of the machine, which leads every program there
    bool sees_others = false;  // its own programs find other sessions at such paths
    bool operator==(const Place&) const = default;
  };

  // <gitdir>/escrow, with sessions/ in it.
  explicit Caches(std::string state_directory);

  // Throws Error{bad_request} that begins with `what`.
  static void check_name(std::string_view name, std::string_view what);

  // The cache for a session, which it had before or has now: what it changed is kept, also over a kill of its process,
  // but for a crash of the machine, after which it begins anew. `owner`: of the directory of a cache that is new.
  // `hand`: whose programs will see the cache, noted before they can change anything; empty: it is not known; nullopt:
  // no program will. Each node's kGitMaker is the cache's only hand. It is empty where the cache has several hands, or
  // where they are not known.
  // The caller holds the session's lock. Throws Error{wrong_state} naming the other session where `place` forbids it.
  std::shared_ptr<session::EntryFileSystem> open(const std::string& session_directory, const std::string& name,
                                                 const Owner& owner, Place place,
                                                 const std::optional<std::string>& hand) const;
  // What the session has of all other caches is at no place any more: they are no longer in its mount table.
  void leave_all_but(const std::string& session_directory, const std::vector<std::string>& names) const;
  // Makes what a session that was committed has of its caches their published state, and it is gone from the session:
  // what has them open changes them no more, and a call that would is refused with Error{read_only}.
  // One that it did not change stays what it is. All are tried; the first Error is thrown, and names its cache.
  // Idempotent. A cache of more than `most_bytes` is refused; with more in all, least recently used ones go.
  void publish(const std::string& session_directory, std::uint64_t most_bytes, const Observer& observer = {}) const;

  // Takes from a session, which nobody else holds, what it has changed of its caches, and returns their names, sorted:
  // open() begins them anew, with what is published then. The older ones are never published, and who has them open
  // goes on with them. A kill or a power cut leaves each cache as it was, or to begin anew.
  std::vector<std::string> drop_changes(const std::string& session_directory) const;
  // Removes those of them that nobody has open any more, which takes as long as they are large. The others go with a
  // later call, or with the session's directory.
  void remove_dropped(const std::string& session_directory) const;
  // Whether open() would go on with what the session has of it.
  static bool has(const std::string& session_directory, const std::string& name);

  std::vector<CacheStatus> list() const;  // by name
  // False: there is none. Sessions that have it open keep what they see.
  bool drop(const std::string& name) const;
  // Removes what nothing needs, and least recently used caches until all have at most so many bytes.
  void collect(std::uint64_t most_bytes) const;
  struct Fault {
    std::string cache, what;
  };
  std::vector<Fault> check() const;

 private:
  struct Used;

  struct View {
    std::string copy;
    std::weak_ptr<CacheView> files;
  };

  std::string path_of(const std::string& encoded) const { return caches_ + '/' + encoded; }
  std::string current(const std::string& encoded) const;
  void publish_one(const std::string& session, const std::string& encoded, std::uint64_t most_bytes,
                   const Observer& observer) const;
  // Under the lock:
  void refuse_beside_others(const std::string& session_directory, const std::string& name, Place place) const;
  Used used() const;
  void set_aside(const Used& used, const std::string& encoded) const;
  void evict(const Used& used, std::uint64_t most_bytes, const std::string& but_for) const;

  void seal_views_of(const std::string& copy) const;

  const std::string caches_, sessions_, orphans_;  // constant
  mutable session::Synchronized<std::vector<View>> views_;  // that this process has opened; a leaf
};

}  // namespace escrow::storage
