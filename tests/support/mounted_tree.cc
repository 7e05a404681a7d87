#include "tests/support/mounted_tree.h"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace escrow::support {

const char* fuse_missing() {
  if (access("/dev/fuse", R_OK | W_OK) != 0) return "/dev/fuse is missing or cannot be opened";
  if (geteuid() != 0) return "these tests switch users and need root";
  return nullptr;
}

bool fuse_required() {
  const char* required = std::getenv("REQUIRE_FUSE");
  return required != nullptr && std::string_view(required) == "1";
}

bool io_uring_wanted() {
  const char* wanted = std::getenv("ESCROW_IO_URING");
  return wanted == nullptr || std::string_view(wanted) != "off";
}

fuse::IoMode io_of_environment() {
  const char* const given = std::getenv("ESCROW_TEST_IO");
  if (given == nullptr) return {};
  const std::string_view mode = given;
  if (mode == "daemon") return {fuse::Opens::daemon, fuse::Data::cached};
  if (mode == "writeback") return {fuse::Opens::none, fuse::Data::writeback};
  if (mode == "passthrough") return {fuse::Opens::daemon, fuse::Data::passthrough};
  throw std::runtime_error("ESCROW_TEST_IO is none of daemon, writeback and passthrough");
}

}  // namespace escrow::support
