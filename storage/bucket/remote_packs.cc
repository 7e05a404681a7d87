#include "storage/bucket/remote_packs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include "session/base/error.h"
#include "storage/bucket/in_parallel.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/object_format.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr int kMostPackFetches = 3;

// Its last bytes are the hash of all before them.
bool is_whole(const std::string& index) {
  if (index.size() <= 2 * ObjectId::kSize) return false;
  const std::size_t end = index.size() - ObjectId::kSize;
  Sha1 hash;
  hash.update(std::string_view(index).substr(0, end));
  return hash.finish() == ObjectId::from_raw(reinterpret_cast<const std::uint8_t*>(index.data()) + end);
}

// A name that a key may end in and a local file may have.
bool is_pack_name(std::string_view name) {
  return name.starts_with("pack-") && name.size() > 5 && name.find_first_of("/.") == std::string_view::npos;
}

}  // namespace

RemotePack::RemotePack(std::string name, std::uint64_t size_bytes, const std::string& index_path)
    : name_(std::move(name)), size_bytes_(size_bytes), index_(index_path) {}

const std::vector<RemotePack::Entry>& RemotePack::entries() const {
  std::call_once(once_, [this] {
    std::vector<Entry> all;  // an index that cannot be read throws half-way
    all.reserve(index_.count());
    for (std::uint32_t i = 0; i < index_.count(); ++i) all.push_back({index_.offset_at(i), i});
    std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
    entries_ = std::move(all);
  });
  return entries_;
}

std::optional<std::size_t> RemotePack::entry_at(std::uint64_t offset) const {
  const std::vector<Entry>& all = entries();
  const auto found = std::lower_bound(all.begin(), all.end(), offset,
                                      [](const Entry& entry, std::uint64_t at) { return entry.offset < at; });
  if (found == all.end() || found->offset != offset) return std::nullopt;
  return static_cast<std::size_t>(found - all.begin());
}

std::uint64_t RemotePack::end_of(std::size_t place) const {
  const std::vector<Entry>& all = entries();
  const std::uint64_t end = place + 1 < all.size() ? all[place + 1].offset : size_bytes_ - ObjectId::kSize;
  if (end <= all[place].offset || end > size_bytes_)
    throw Error(Errc::damaged_repository, "the pack " + name_ + " of the bucket and its index do not fit each other");
  return end;
}

RemotePacks::RemotePacks(const S3Client& client, std::string directory)
    : client_(client), directory_(std::move(directory)) {
  auto known = std::make_shared<Known>();
  for_each_line(list_path(), [&](std::string_view line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string name(line.substr(0, space));
    std::uint64_t size_bytes = 0;
    const auto parsed = std::from_chars(line.data() + std::min(space + 1, line.size()), line.data() + line.size(),
                                        size_bytes);
    if (parsed.ec != std::errc() || !is_pack_name(name) || !is_there(index_path(name))) return;
    known->emplace(name, std::make_shared<const RemotePack>(name, size_bytes, index_path(name)));
  });
  *known_.lock() = std::move(known);
}

// For the next process. Processes may write over one another: each list is true, and refresh() tells what it lacks.
void RemotePacks::remember(const Known& known) const {
  std::string list;
  for (const auto& [name, pack] : known) list += name + ' ' + std::to_string(pack->size_bytes()) + '\n';
  write_file_durably(list_path(), list, 0644);
}

std::optional<RemotePacks::Place> RemotePacks::find(const ObjectId& id) const {
  const std::shared_ptr<const Known> known = *known_.lock_shared();
  for (const auto& [name, pack] : *known) {
    if (const auto index = pack->index().find(id)) return Place{pack, *index};
  }
  return std::nullopt;
}

void RemotePacks::fetch_index(const std::string& name) const {
  for (int attempt = 1; attempt <= kMostPackFetches; ++attempt) {
    const auto found = client_.get(key_of(name, ".idx"));
    if (!found) return;  // gone since it was listed
    if (is_whole(found->content)) return write_file_durably(index_path(name), found->content, 0444);
  }
  throw Error(Errc::damaged_repository, "the index of the pack " + name + " in " + client_.name().text() +
                                            " is damaged; restore it, or make it anew with git index-pack");
}

void RemotePacks::refresh() {
  std::map<std::string, std::uint64_t> packs;
  std::set<std::string> indexes;
  const std::string_view directory = "objects/pack/";
  for (const S3Listing::Object& object : client_.list(std::string(directory))) {
    std::string_view name = object.key;
    if (!name.starts_with(directory)) continue;
    name.remove_prefix(directory.size());
    const std::string stem(name.substr(0, name.rfind('.')));
    if (!is_pack_name(stem)) continue;
    if (name.ends_with(".pack")) packs[stem] = object.size_bytes;
    if (name.ends_with(".idx")) indexes.insert(stem);
  }
  std::vector<std::string> missing;
  for (const auto& [name, size] : packs) {
    if (indexes.contains(name) && !is_there(index_path(name))) missing.push_back(name);
  }
  in_parallel(missing.size(), [&](std::size_t i) { fetch_index(missing[i]); });
  auto next = std::make_shared<Known>();
  const std::shared_ptr<const Known> before = *known_.lock_shared();
  for (const auto& [name, size] : packs) {
    if (!indexes.contains(name) || !is_there(index_path(name))) continue;
    const auto known = before->find(name);
    next->emplace(name, known != before->end() ? known->second
                                               : std::make_shared<const RemotePack>(name, size, index_path(name)));
  }
  {
    auto known = known_.lock();
    // What was added since the bucket was asked is there all the same.
    for (const auto& [name, pack] : **known) {
      if (!before->contains(name)) next->emplace(name, pack);
    }
    *known = next;
  }
  remember(*next);
}

void RemotePacks::add(const std::string& name, std::uint64_t size_bytes, const std::string& index_path_given) {
  if (::link(index_path_given.c_str(), index_path(name).c_str()) != 0 && errno != EEXIST)
    throw system_error(errno, "keep the index " + index_path(name));
  auto pack = std::make_shared<const RemotePack>(name, size_bytes, index_path(name));
  std::shared_ptr<Known> next;
  {
    auto known = known_.lock();
    next = std::make_shared<Known>(**known);
    next->insert_or_assign(name, std::move(pack));
    *known = next;
  }
  remember(*next);
}

}  // namespace escrow::storage
