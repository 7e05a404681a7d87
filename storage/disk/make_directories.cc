#include "storage/disk/make_directories.h"

#include <filesystem>

#include "storage/disk/durable_file.h"

namespace escrow::storage {

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw system_error(error.value(), "create the directory " + path);
}

}  // namespace escrow::storage
