// What a command writes to its standard output and error, kept in the files `stdout` and `stderr` of a directory.
//
// Each file keeps the first bytes of its stream, up to a limit; the command is never held up by what is not kept. A
// file of which bytes had to be dropped, because it is full or the disk is, is made read-only (0400): so a reader can
// tell. Owned by the supervisor of a run, which is single-threaded. Throws nothing; does nothing without a directory.
#pragma once

#include <poll.h>

#include <array>
#include <string>
#include <vector>

#include "daemon/process/command_spec.h"
#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

inline constexpr std::array<const char*, 2> kOutputNames = {"stdout", "stderr"};
// A file beside them, bounded in the same way: what was denied, written by the host process of the run.
inline constexpr const char* kTraceName = "trace";
inline constexpr unsigned kOutputMode = 0600;
inline constexpr unsigned kTruncatedOutputMode = 0400;

class OutputCapture {
 public:
  explicit OutputCapture(const CommandSpec::Output& output);

  // Why it cannot be kept; empty: it can.
  const std::string& failure() const noexcept { return failure_; }

  // For the command, between fork and exec: its output comes here from now on. Async-signal-safe. 0 or an errno.
  int enter() const noexcept;
  // The command has been started: what this process held open for it is closed.
  void command_started();

  // Adds what is to be waited for.
  void watch(std::vector<pollfd>& descriptors) const;
  // Keeps what has come, without waiting.
  void take();
  // Keeps what is left when the command and all it started are gone; it is on disk afterwards.
  void finish();

 private:
  struct Stream {
    FileDescriptor reader, writer, file;
    std::uint64_t kept_bytes = 0;
  };
  void open(Stream& stream, const std::string& path);
  void keep(Stream& stream, const char* bytes, std::size_t length) const;

  std::uint64_t most_bytes_;                               // constant
  std::array<Stream, kOutputNames.size()> streams_;
  std::string failure_;
};

}  // namespace escrow::daemon
