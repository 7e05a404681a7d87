// How much of a disk the contents of requests may take while they come: together half of what is free without them, and
// those of one caller half of that. No caller fills the disk, and none keeps the others out.
//
// Thread-safe. A share gives back all that it has taken when it goes. Sizes are bytes. A file system that does not say
// how large it is has no bound. Source: statvfs(3).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "session/base/synchronized.h"

namespace escrow::api {

class ContentRoom {
 public:
  // Of the disk that has this directory.
  explicit ContentRoom(std::string directory);

  // The part of one content. It may outlive the ContentRoom.
  class Share {
   public:
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share();
    // 0, or the errno: ENOBUFS where contents have all that they may take.
    int take(std::uint64_t bytes);

   private:
    friend class ContentRoom;
    struct Taken;
    Share(std::shared_ptr<Taken> taken, std::string caller);
    const std::shared_ptr<Taken> taken_;
    const std::string caller_;
    std::uint64_t bytes_ = 0;
  };
  // `caller` is any text that is the same for all contents of one.
  std::unique_ptr<Share> share(std::string caller) const;

 private:
  const std::shared_ptr<Share::Taken> taken_;
};

}  // namespace escrow::api
