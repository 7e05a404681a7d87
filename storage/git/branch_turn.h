// Whose turn it is to move a branch: first come, first served, among all processes and threads of Escrow.
//
// Without it a commit that takes longer to make than others' loses the branch to them again and again. Each that comes
// takes the next ticket, a byte of <state>/turns under an OFD lock (fcntl(2)), and waits until no lower byte is locked.
// A process that dies gives its ticket back. Only fairness rests on this, as a branch moves under git's lock alone:
// where the first in the queue does not end for long (it is stopped, or waits for somebody else), the others go on
// without it, and where there is no descriptor, right or lock to be had nobody waits. Throws nothing. One object per
// turn; not shared between threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "session/interfaces/object_store.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class BranchTurn final : public session::ReferenceStore::Turn {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};

  // Waits for those who came before, but not longer than `patience` for any one of them.
  BranchTurn(const std::string& state_directory, const std::string& branch,
             std::chrono::milliseconds patience = kPatience);
  bool is_wanted() const override;

 private:
  void queue(std::chrono::milliseconds patience);
  // The lowest ticket from `first` to `last` that somebody else holds; `last` + 1: none.
  std::uint64_t lowest(std::uint64_t first, std::uint64_t last) const;
  bool is_taken(std::uint64_t first, std::uint64_t last, std::uint64_t& by) const;
  bool try_lock(std::uint64_t byte, short type) const;
  bool pass_the_door(std::chrono::milliseconds patience) const;
  void take_ticket();
  void wait(std::chrono::milliseconds patience) const;

  const std::string path_;
  const std::uint64_t begin_;  // of this branch's bytes
  UniqueFd file_;              // holds the locks; none: no turns are taken. Constant once constructed
  std::uint64_t ticket_ = 0;
};

}  // namespace escrow::storage
