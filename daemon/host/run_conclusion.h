// What the host process of a run leaves in the run's directory when it has decided the session: what of it the commit
// did not take, which nobody knows any more afterwards. A file `omitted`, served as a stream beside the output.
//
// The session's own lock goes with its directory, before that is written: so there is a lock (fcntl(2)) here, too.
// Written once, whole or not at all; not fsynced, so that after power loss it may be missing: the session's record is
// what counts. Functions; safe between processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/process/file_descriptor.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

inline constexpr const char* kOmittedName = "omitted";

// A line of JSON for each, as many as `most_bytes` hold, then how many there are more. A failure leaves it missing.
void write_conclusion(const std::string& directory, const std::vector<session::Omission>& omitted,
                      std::uint64_t most_bytes) noexcept;
bool has_conclusion(const std::string& directory);

// Until the result is destroyed, or the process that has it is gone, a conclusion may still come. Throws
// Error{input_output}.
FileDescriptor promise_conclusion(const std::string& directory);
// Throws Error{unavailable} where that cannot be seen: it is never taken for an end.
bool is_conclusion_promised(const std::string& directory);

}  // namespace escrow::daemon
