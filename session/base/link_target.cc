#include "session/base/link_target.h"

#include <string>

#include "session/base/error.h"

namespace escrow::session {

bool is_link_target(std::string_view target) noexcept {
  return !target.empty() && target.size() <= kLongestTarget_bytes && target.find('\0') == target.npos;
}

void require_link_target(std::string_view target) {
  if (is_link_target(target)) return;
  const char* const why = target.empty()                        ? "is empty"
                          : target.size() > kLongestTarget_bytes ? "is longer than 4095 bytes"
                                                                 : "has a NUL byte";
  throw Error(Errc::input_output, std::string("cannot use a symbolic link: its target ") + why +
                                      "; remove the link, or commit it anew with another target");
}

}  // namespace escrow::session
