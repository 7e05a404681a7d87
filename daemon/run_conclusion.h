// What the host process of a run leaves in the run's directory when it has decided the session: what of it a commit did
// not take, which nobody knows any more afterwards. Written once, whole or not at all; not fsynced, so that after power
// loss it may be missing: the session's record is what counts. Functions; safe between processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/overlay.h"

namespace escrow::daemon {

// A failure leaves it missing.
void write_conclusion(const std::string& directory, const std::vector<session::Omission>& left_out) noexcept;
bool has_conclusion(const std::string& directory);
// None where it is missing.
std::vector<session::Omission> read_conclusion(const std::string& directory);

}  // namespace escrow::daemon
