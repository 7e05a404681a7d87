#include "daemon/run_conclusion.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include "api/json_document.h"
#include "api/remote_documents.h"

namespace escrow::daemon {

namespace {

std::string path_in(const std::string& directory) { return directory + "/conclusion"; }

}  // namespace

void write_conclusion(const std::string& directory, const std::vector<session::Omission>& left_out) noexcept {
  try {
    const std::string path = path_in(directory), unfinished = path + ".new";
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << api::JsonObject().omissions("omitted", left_out).text() << std::flush;
    if (file) ::rename(unfinished.c_str(), path.c_str());
  } catch (const std::exception&) {
    // As for a disk that is full: it is missing.
  }
}

bool has_conclusion(const std::string& directory) { return ::access(path_in(directory).c_str(), F_OK) == 0; }

std::vector<session::Omission> read_conclusion(const std::string& directory) {
  std::ifstream file(path_in(directory), std::ios::binary);
  if (!file) return {};
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return api::omitted_from_json(text);
}

}  // namespace escrow::daemon
