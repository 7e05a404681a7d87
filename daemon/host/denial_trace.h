// Where denials are traced: a file that lines of JSON are appended to, or standard error ("-").
//
// Thread-safe as DenialLog uses it: one thread at a time. A reader that does not read, or a disk that is full, costs
// lines and never a call. Throws Error{bad_request} when the file cannot be opened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/process/file_descriptor.h"
#include "session/decorators/denial_log.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

class DenialTrace {
 public:
  // `most_bytes`: what is written at most, whole lines; 0: no limit. A file with less than there was to write is made
  // read-only, as that of a stream (output_capture.h).
  explicit DenialTrace(const std::string& file, std::uint64_t most_bytes = 0);

  void write(const session::SessionRecord& record, const std::vector<session::TracedDenial>& denials);
  // Lines as write() makes them, which came from elsewhere.
  void write(const std::string& lines);

 private:
  bool write_line(std::string_view line);

  const std::uint64_t most_bytes_;  // constant
  std::uint64_t written_bytes_ = 0;

  FileDescriptor opened_;  // none for standard error
  int descriptor_;
};

}  // namespace escrow::daemon
