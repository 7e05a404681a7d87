// What an import leaves out, by name: as much as an answer can tell, then it is refused. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

class OmittedNames {
 public:
  // Of an import that a service answers: its answer is kept and sent whole.
  static constexpr std::uint64_t kAnswer_bytes = 16 << 20;
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

  explicit OmittedNames(std::uint64_t most_bytes) : left_bytes_(most_bytes) {}

  // Throws Error{bad_request} when it is too much.
  void add(const std::string& path, session::OmissionKind kind) {
    const std::uint64_t bytes = path.size() + sizeof(session::Omission);
    if (bytes > left_bytes_) {
      throw session::Error(session::Errc::bad_request,
                           "cannot import " + session::quote_path(path.substr(0, 200)) +
                               ": more is left out, like fifos and empty directories, which git does not hold, than an "
                               "answer can name; nothing was changed");
    }
    left_bytes_ -= bytes;
    names_.push_back({.path = path, .kind = kind});
  }
  std::size_t size() const { return names_.size(); }
  std::vector<session::Omission> take() { return std::move(names_); }

 private:
  std::uint64_t left_bytes_;
  std::vector<session::Omission> names_;
};

}  // namespace escrow::daemon
