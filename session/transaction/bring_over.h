// Names of one overlay into another, as they are: bytes, attributes, extended attributes, hard links; what git has no
// word for, too. How a fork's changes come into its parent.
//
// Not thread-safe; the caller keeps everybody else from changing either. Bytes of a file's own are copied, and holes
// stay holes; a file whose bytes are a blob's goes on being that blob. Throws what the overlays throw; what was done by
// then stays done.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/base/file_mode.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

// The attributes of a path, without its bytes and times.
struct NodeTraits {
  std::uint32_t mode = 0;  // with the type bits; 0: nothing
  std::uint32_t uid = 0, gid = 0, rdev = 0;
  std::vector<std::pair<std::string, std::string>> xattrs;  // by name

  bool is_there() const { return mode != 0; }
  bool is_directory() const { return (mode & kTypeMask) == kDirectoryType; }
  friend bool operator==(const NodeTraits&, const NodeTraits&) = default;
};
NodeTraits traits_at(FileSystem& files, std::string_view path);

class BringOver {
 public:
  using IsStale = std::function<void(std::vector<Overlay::Stale>)>;
  // `is_stale` gets what the kernel may have cached, as soon as it has changed.
  BringOver(Overlay& from, Overlay& to, IsStale is_stale) : from_(from), to_(to), is_stale_(std::move(is_stale)) {}

  // Makes `path` what `from` has there, a directory without what is in it, with these traits; of a file with the bytes
  // that are given. Its parents are made where they are missing.
  void take(const std::string& path, const NodeTraits& traits, const ByteSource* bytes = nullptr);
  // Nothing happens where there is nothing.
  void set_traits(const std::string& path, const NodeTraits& traits);
  // With the directories that it leaves empty and `from` does not have.
  void remove(const std::string& path);
  // All that was taken is on disk.
  void sync() { to_.sync_files(files_); }

 private:
  std::pair<NodeId, std::string> place_for(const std::string& path);
  void make(NodeId source, const std::string& path, const NodeTraits& traits, const ByteSource* bytes);
  NodeId make_file(NodeId source, const std::string& path, const NodeTraits& traits, const ByteSource* bytes);
  void write_bytes(const ByteSource& bytes, NodeId target);
  void copy_bytes(NodeId source, NodeId target);
  void apply_traits(const NodeTraits& wanted, NodeId target);

  Overlay& from_;
  Overlay& to_;
  const IsStale is_stale_;
  std::map<NodeId, NodeId> linked_;  // files with several names, from -> to
  std::vector<NodeId> files_;        // of `to`, with bytes that were written
};

}  // namespace escrow::session
