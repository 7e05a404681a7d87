// A private cgroup that holds a command and everything it starts, so that all of it can be killed at once, or so that
// all of it together gets a limited amount of memory.
//
// For killing: of version 2, below the cgroup of the calling process; no controller is needed. For memory: of version 2
// where the controller is on for the children of that cgroup or of one above it, else of version 1. No setting of a
// cgroup that somebody else made is changed. The directory is locked (flock(2)) while its owner lives: leftovers of
// owners that were killed are found by their free lock and removed by the next one. Not thread-safe. Sources: the
// kernel's admin-guide/cgroup-v2 and admin-guide/cgroup-v1/memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/file_descriptor.h"

namespace escrow::daemon {

class Cgroup {
 public:
  // nullptr where the machine does not allow one.
  static std::unique_ptr<Cgroup> try_create();
  // Whose processes together may use `memory_bytes`, swap included where the kernel counts it. nullptr: `why` says what
  // is missing.
  static std::unique_ptr<Cgroup> try_create_limited(std::uint64_t memory_bytes, std::string& why);
  // Kills what is in it, waits a moment and removes it.
  ~Cgroup();
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  const std::string& path() const noexcept { return path_; }
  // A process that writes "0" to this descriptor is in the cgroup from then on, with all it starts.
  int entrance() const noexcept { return entrance_.get(); }

  bool is_populated() const;
  // Whether the kernel has killed a process in it because the memory was used up.
  bool ran_out_of_memory() const;
  // Kills every process in it, again and again until it is empty or `patience` is over. True when it is empty.
  bool end_all(std::chrono::milliseconds patience);

 private:
  Cgroup(std::string path, FileDescriptor directory, FileDescriptor entrance);
  static std::unique_ptr<Cgroup> create_below(const std::string& parent);
  std::string path_;          // constant
  FileDescriptor directory_;  // constant; carries the lock
  FileDescriptor entrance_;   // constant
};

// Ends and removes the cgroup at `path`, which an owner left behind: for the parent of an owner that was killed.
void remove_cgroup(const std::string& path, std::chrono::milliseconds patience);

}  // namespace escrow::daemon
