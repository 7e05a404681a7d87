// A copy of a directory as it is now: bytes, modes, times, links of both kinds and user.* attributes; as root, owners.
//
// The source is walked by openat2(2) without following anything (beneath.h), so that nobody who changes it meanwhile
// leads the walk out of it; what is changed while it is copied is copied as it was at some moment, each file by itself.
// Device files, fifos and sockets are left out, and what other file systems have mounted below. Where the disk can
// share blocks (FICLONE) no byte is copied; holes stay holes (lseek(2)). A copy of more than 16 MiB leaves others room
// on the disk: 5 % of it, at most 1 GiB. Before each file and each 16 MiB a copy asks whether it is still wanted
// (session/base/still_wanted.h). Functions; thread-safe. Throws Error, naming the path below the source: {no_space}
// also for that room, {unavailable} where it is not wanted any more.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "storage/disk/unique_fd.h"

namespace escrow::storage {

struct CopyOptions {
  // Calls what it is given, which opens a file or directory of the source: with whose rights that is, is its matter. It
  // keeps errno. Empty: with this process's.
  std::function<void(const std::function<void()>& open)> access{};
  // Of contents together, without holes; more is Error{quota_exceeded}.
  std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max();
};

// `to` is an empty directory; both are open, O_PATH will do. The directory's own mode and times are copied, too.
void copy_tree(int from, int to, const CopyOptions& options = {});
// One regular file, to a name that does not exist; without its bytes it is empty, and all else as it was.
void copy_file(int from, int to_directory, const std::string& name, bool with_bytes = true,
               const CopyOptions& options = {});
// One symbolic link, fifo or socket (a new one that nobody listens on), to a name that does not exist.
void copy_special(int from, int to_directory, const std::string& name);
// Owner, user.* attributes, mode and times of a directory, both open to be read.
void copy_directory_attributes(int from, int to);

}  // namespace escrow::storage
