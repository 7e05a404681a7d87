// A pool of git_repository handles over one git directory: one handle per borrower, never shared between threads.
//
// Thread-safe. Opening the first handle sets libgit2's process-wide settings (fsync, bounded maps and caches). The
// handles see objects and references that other processes add. libgit2 keeps the files of packs open that others have
// removed since, with their maps and their space on the disk: handles that may are closed, at the next loan.
// Throws as open_git_repository().
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "session/base/synchronized.h"
#include "storage/git/git_handle.h"
#include "storage/git/object_source.h"

namespace escrow::storage {

// Starts libgit2 once per process and applies the settings. Idempotent, thread-safe.
void start_libgit2();

class GitRepositoryPool {
 public:
  // `source`: where objects come from that are not here; null: from nowhere. Must outlive the pool.
  explicit GitRepositoryPool(std::string git_directory, ObjectSource* source = nullptr)
      : git_directory_(std::move(git_directory)), source_(source) {}

  // A handle on loan; it goes back when this object is destroyed.
  class Borrowed {
   public:
    Borrowed(GitRepositoryPool& pool, GitRepository handle, unsigned generation)
        : pool_(&pool), handle_(std::move(handle)), generation_(generation) {}
    Borrowed(Borrowed&&) = default;
    Borrowed& operator=(Borrowed&&) = delete;
    ~Borrowed();
    git_repository* get() const noexcept { return handle_.get(); }
    // The repository's object database; valid while the loan lasts.
    git_odb* odb() const;
    // Another one than before: packs were removed meanwhile.
    unsigned generation() const noexcept { return generation_; }
    // It does not go back.
    void close() noexcept { handle_.reset(); }

   private:
    GitRepositoryPool* pool_;
    GitRepository handle_;
    unsigned generation_;
  };

  Borrowed borrow();
  // Closes what is gone without waiting for a loan.
  void renew();
  const std::string& git_directory() const noexcept { return git_directory_; }
  bool has_source() const noexcept { return source_ != nullptr; }

 private:
  struct Idle {
    std::vector<GitRepository> handles;
    unsigned generation = 0;  // of the handles; another one comes too late
    std::int64_t stamp = 0;   // of the directory of packs when it was listed
    std::set<std::string> packs;
  };
  void look(Idle& idle, std::vector<GitRepository>& closed) const;
  const std::string git_directory_;    // constant, as the next
  ObjectSource* const source_;
  session::Synchronized<Idle> idle_;  // self-locking
};

}  // namespace escrow::storage
