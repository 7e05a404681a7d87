// EXDEV: what a rename(2) or link(2) between two entries of a mount table throws.
#pragma once

#include <string>

#include "session/base/error.h"

namespace escrow::session {

class CrossDevice : public Error {
 public:
  explicit CrossDevice(const std::string& message) : Error(Errc::not_supported, message) {}
};

}  // namespace escrow::session
