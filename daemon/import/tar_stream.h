// Writes a tar archive piece by piece, as POSIX.1-2017 has it (pax): plain ustar headers, and before those that cannot
// hold an entry a pax header with what they cannot. Names are bytes. Not thread-safe; throws what `send` and the
// contents throw.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "daemon/import/directory_walk.h"

namespace escrow::daemon {

class TarStream final : public DirectoryVisitor {
 public:
  explicit TarStream(std::function<void(std::string_view)> send) : send_(std::move(send)) {}

  void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) override;
  // A directory is where something is in it.
  void enter(const std::string&) override {}
  void leave(const std::string&) override {}
  // The mark at the end.
  void finish();

 private:
  const std::function<void(std::string_view)> send_;
};

}  // namespace escrow::daemon
