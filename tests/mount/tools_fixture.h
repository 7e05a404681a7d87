// Real, unmodified programs in `escrow run`: the same script in a host directory (ext4 where the tests are judged) and
// in a mount must print the same, and the commit must hold what the host directory then holds.
#pragma once

#include <string>

#include "tests/mount/run_fixture.h"

namespace escrow::test {

class Tools : public EscrowRun {
 protected:
  // `script` under `sh -eu`, in a copy of the repository's content on the host and in a mount: both succeed and print
  // the same, and the commit is the host's directory but for `.git` and what git trees cannot hold.
  void same_as_on_the_host(const std::string& script);
  // `script` in a mount alone, expected to succeed and to be committed: what it printed.
  std::string in_mount(const std::string& script) { return in_mount({}, script); }
  std::string in_mount(const std::vector<std::string>& options, const std::string& script);
  // The head of main as files in a directory of its own; its path.
  std::string exported() const;
  // Every file with its checksum, every link with its target and every executable, below `directory`.
  static std::string manifest(const std::string& directory);
};

}  // namespace escrow::test
