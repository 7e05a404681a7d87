// session::Log over spdlog, to standard error. Thread-safe.
#pragma once

#include <memory>

#include "session/base/log.h"

namespace escrow::daemon {

// `verbose`: everything; else warnings and errors.
std::unique_ptr<session::Log> make_log(bool verbose);

}  // namespace escrow::daemon
