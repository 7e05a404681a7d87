// A private cgroup (version 2) that holds a command and everything it starts, so that all of it can be killed at once.
//
// Made below the cgroup of the calling process, wherever a v2 hierarchy is mounted and writable; no controller is
// needed. The directory is locked (flock(2)) while its owner lives: leftovers of owners that were killed are found by
// their free lock and removed by the next one. Not thread-safe. Source: the kernel's admin-guide/cgroup-v2.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "daemon/file_descriptor.h"

namespace escrow::daemon {

class Cgroup {
 public:
  // nullptr where the machine does not allow one.
  static std::unique_ptr<Cgroup> try_create();
  // Kills what is in it, waits a moment and removes it.
  ~Cgroup();
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  const std::string& path() const noexcept { return path_; }
  // A process that writes "0" to this descriptor is in the cgroup from then on, with all it starts.
  int entrance() const noexcept { return entrance_.get(); }

  bool is_populated() const;
  // Kills every process in it, again and again until it is empty or `patience` is over. True when it is empty.
  bool end_all(std::chrono::milliseconds patience);

 private:
  Cgroup(std::string path, FileDescriptor directory, FileDescriptor entrance);
  std::string path_;          // constant
  FileDescriptor directory_;  // constant; carries the lock
  FileDescriptor entrance_;   // constant
};

// Ends and removes the cgroup at `path`, which an owner left behind: for the parent of an owner that was killed.
void remove_cgroup(const std::string& path, std::chrono::milliseconds patience);

}  // namespace escrow::daemon
