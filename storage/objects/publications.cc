#include "storage/objects/publications.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/make_directories.h"
#include "storage/objects/pack_writer.h"

namespace escrow::storage {

namespace fs = std::filesystem;
using session::ObjectId;

Publications::Publications(std::string list_path, std::string objects)
    : list_path_(std::move(list_path)), objects_(std::move(objects)) {
  auto packs = packs_.lock();
  *packs = read_published(list_path_);
  for (Pack& pack : *packs) pack.stem = objects_ + "/pack/" + pack.stem;
}

void Publications::install(const std::string& stem, const ObjectId& root, bool link) {
  const Pack pack{new_pack_stem(objects_), root};
  record(pack);
  packs_.lock()->push_back(pack);
  try {
    install_pack(stem, pack.stem, list_path_, link, SharedPermissions::of(parent_of(objects_)));
  } catch (...) {
    auto packs = packs_.lock();
    if (!is_there(pack.stem + ".idx")) packs->pop_back();
    throw;
  }
}

// Begins with a newline: half a line that a full disk left does not spoil it, and says nothing. On disk before the pack
// gets its name: of a pack that no list names after a power loss gc would remove the .keep file.
void Publications::record(const Pack& pack) {
  const std::string line = '\n' + pack.root.hex() + ' ' + fs::path(pack.stem).filename().string() + '\n';
  make_directories(parent_of(list_path_));
  if (!is_there(list_path_)) return write_keep_file(list_path_, line);
  const std::string doing = "write " + list_path_;
  const UniqueFd fd = open_or_throw(AT_FDCWD, list_path_.c_str(), O_WRONLY | O_APPEND, 0, doing);
  const ssize_t count = ::write(fd.get(), line.data(), line.size());
  if (count != static_cast<ssize_t>(line.size())) throw system_error(count < 0 ? errno : ENOSPC, doing);
  if (!sync_data(fd.get())) throw system_error(errno, "sync " + list_path_);
}

std::vector<std::shared_ptr<const PackFile>> Publications::kept() const {
  std::vector<std::shared_ptr<const PackFile>> found;
  for (const Pack& pack : packs()) {
    try {
      if (is_there(pack.stem + ".keep") && is_there(pack.stem + ".idx"))
        found.push_back(std::make_shared<const PackFile>(pack.stem));
    } catch (const session::Error&) {
      if (is_there(pack.stem + ".idx")) throw;  // a gc may take one without .keep meanwhile
    }
  }
  return found;
}

void Publications::release() {
  auto packs = packs_.lock();
  std::string stays;
  int error = 0;
  for (const Pack& pack : *packs) {
    if (leave_pack_to_gc(pack.stem)) continue;
    error = errno;
    stays = pack.stem;
  }
  if (!stays.empty()) throw system_error(error, "let go of the pack " + stays);
  if (::unlink(list_path_.c_str()) != 0 && errno != ENOENT) throw system_error(errno, "remove " + list_path_);
  packs->clear();
}

// Lines of another kind, as that which makes the list a .keep file, say nothing of packs.
std::vector<Publications::Pack> read_published(const std::string& path) {
  std::vector<Publications::Pack> packs;
  std::istringstream in(read_if_there(path).value_or(""));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string hex, stem;
    words >> hex >> stem;  // an older Escrow has a third one
    if (const auto root = ObjectId::from_hex(hex); root && !stem.empty()) packs.push_back({stem, *root});
  }
  return packs;
}

}  // namespace escrow::storage
