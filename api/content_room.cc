#include "api/content_room.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <utility>

namespace escrow::api {

struct ContentRoom::Share::Taken {
  struct Bytes {
    std::uint64_t all = 0;
    std::map<std::string, std::uint64_t> of_caller;
  };
  explicit Taken(std::string in) : directory(std::move(in)) {}
  const std::string directory;
  session::Synchronized<Bytes> bytes;  // self-locking
};

ContentRoom::ContentRoom(std::string directory)
    : taken_(std::make_shared<Share::Taken>(std::move(directory))) {}

std::unique_ptr<ContentRoom::Share> ContentRoom::share(std::string caller) const {
  return std::unique_ptr<Share>(new Share(taken_, std::move(caller)));
}

ContentRoom::Share::Share(std::shared_ptr<Taken> taken, std::string caller)
    : taken_(std::move(taken)), caller_(std::move(caller)) {}

ContentRoom::Share::~Share() {
  const auto held = taken_->bytes.lock();
  held->all -= bytes_;
  const auto own = held->of_caller.find(caller_);
  if (own != held->of_caller.end() && (own->second -= bytes_) == 0) held->of_caller.erase(own);
}

int ContentRoom::Share::take(std::uint64_t bytes) {
  struct statvfs disk {};
  if (bytes == 0) return 0;
  if (::statvfs(taken_->directory.c_str(), &disk) != 0) return errno;
  const auto held = taken_->bytes.lock();
  const std::uint64_t most = (std::uint64_t{disk.f_bavail} * disk.f_frsize + held->all) / 2;
  const auto found = held->of_caller.find(caller_);
  const std::uint64_t own = found == held->of_caller.end() ? 0 : found->second;
  const bool is_known = disk.f_blocks != 0;
  if (is_known && (held->all + bytes > most || own + bytes > most / 2)) return ENOBUFS;
  held->all += bytes;
  held->of_caller[caller_] = own + bytes;
  bytes_ += bytes;
  return 0;
}

}  // namespace escrow::api
