// What the halves of HostDirectory share: internal to storage/host_directory*.cc.
#pragma once

#include <array>
#include <cerrno>

#include "session/base/error.h"
#include "storage/host_files/host_directory.h"

namespace escrow::storage {

// Throws the Error for a call that failed; no path of the host is in it.
[[noreturn]] void fail_call(const char* call, int error = errno);

template <typename Result>
Result require_done(Result result, const char* call) {
  if (result < 0) fail_call(call);
  return result;
}

// The descriptor as a path that leads to its file and nowhere else.
struct DescriptorPath {
  explicit DescriptorPath(int descriptor);
  const char* get() const { return text.data(); }
  std::array<char, 32> text{};
};

}  // namespace escrow::storage
