// The body of a request that was kept in a file of no name while it came: gone with its last holder, or the process.
// One thread at a time appends; reading is thread-safe. Nothing of it is synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/content_room.h"
#include "session/interfaces/object_store.h"

namespace escrow::api {

class ReceivedBody final : public session::ByteSource {
 public:
  // In this directory. Null: `failed` is the errno. `share`: what it may take there; null: as much as there is.
  static std::shared_ptr<ReceivedBody> create(const std::string& directory, int& failed,
                                              std::unique_ptr<ContentRoom::Share> share = nullptr);
  // What a peer has opened and sent: it has the descriptor from here on, to read it.
  static std::shared_ptr<ReceivedBody> of_descriptor(int descriptor);
  ReceivedBody(const ReceivedBody&) = delete;
  ReceivedBody& operator=(const ReceivedBody&) = delete;
  ~ReceivedBody() override;

  // 0 or the errno; ENOBUFS: contents have all of the disk that they may take.
  int append(std::string_view bytes);
  std::uint64_t size() const override { return size_bytes_; }
  int descriptor() const noexcept { return descriptor_; }  // for another process, which may only read it
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  explicit ReceivedBody(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
  std::uint64_t size_bytes_ = 0;
  std::unique_ptr<ContentRoom::Share> share_;
};

}  // namespace escrow::api
