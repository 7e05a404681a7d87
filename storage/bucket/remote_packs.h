// The packs of a bucket's repository as this machine knows them: their indexes, whole, in a local directory.
//
// A pack is immutable and named by its content, so that an index that was fetched once is never asked for again.
// Thread-safe; no lock that find() needs is held over the network. Throws what S3Client throws, and
// Error{damaged_repository} for an index that stays damaged. Source: gitformat-pack(5).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/bucket/s3_client.h"
#include "storage/objects/pack_index.h"

namespace escrow::storage {

class RemotePack {
 public:
  // `index_path` is the local copy of its index.
  RemotePack(std::string name, std::uint64_t size_bytes, const std::string& index_path);
  const std::string& name() const noexcept { return name_; }  // "pack-1234", as a key ends in it
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  const PackIndex& index() const noexcept { return index_; }

  struct Entry {
    std::uint64_t offset;
    std::uint32_t index;  // in the index
  };
  // In the order in which they lie in the pack; worked out when first asked for.
  const std::vector<Entry>& entries() const;
  // The place among entries() of what lies at `offset`; nullopt: nothing begins there.
  std::optional<std::size_t> entry_at(std::uint64_t offset) const;
  // Where an entry ends.
  std::uint64_t end_of(std::size_t place) const;

 private:
  const std::string name_;
  const std::uint64_t size_bytes_;
  const PackIndex index_;
  mutable std::once_flag once_;
  mutable std::vector<Entry> entries_;  // constant after once_
};

class RemotePacks {
 public:
  // `directory` exists and is this machine's alone. The packs that the last refresh() of any process saw are known.
  RemotePacks(const S3Client& client, std::string directory);

  struct Place {
    std::shared_ptr<const RemotePack> pack;
    std::uint32_t index;
  };
  std::optional<Place> find(const session::ObjectId& id) const;
  // Asks the bucket which packs there are, and for the indexes that are new.
  void refresh();
  // A pack that was just uploaded; the file at `index_path` stays the caller's.
  void add(const std::string& name, std::uint64_t size_bytes, const std::string& index_path);
  static std::string key_of(const std::string& name, const char* suffix) { return "objects/pack/" + name + suffix; }
  std::string index_path(const std::string& name) const { return directory_ + "/" + name + ".idx"; }

 private:
  using Known = std::map<std::string, std::shared_ptr<const RemotePack>>;
  void fetch_index(const std::string& name) const;
  void remember(const Known& known) const;
  std::string list_path() const { return directory_ + "/list"; }

  const S3Client& client_;       // self-locking
  const std::string directory_;  // constant
  session::SharedSynchronized<std::shared_ptr<const Known>> known_{std::make_shared<const Known>()};  // self-locking
};

}  // namespace escrow::storage
