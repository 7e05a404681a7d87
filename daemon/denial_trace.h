// Where denials are traced: a file that lines of JSON are appended to, or standard error ("-").
//
// Thread-safe as DenialLog uses it: one thread at a time. A reader that does not read, or a disk that is full, costs
// lines and never a call. Throws Error{bad_request} when the file cannot be opened.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/file_descriptor.h"
#include "session/denial_log.h"
#include "session/session_record.h"

namespace escrow::daemon {

class DenialTrace {
 public:
  explicit DenialTrace(const std::string& file);

  void write(const session::SessionRecord& record, const std::vector<session::TracedDenial>& denials);

 private:
  bool write_line(std::string_view line);

  FileDescriptor opened_;  // none for standard error
  int descriptor_;
};

}  // namespace escrow::daemon
