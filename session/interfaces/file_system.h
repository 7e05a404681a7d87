// A file system as the FUSE adapter sees it: what the calls of POSIX mean, without a word of FUSE.
//
// Overlay implements it; decorators (WriteGate, PolicedFileSystem) wrap it. Thread-safe. Methods throw Error
// with the errno-like codes; a missing name is a value. The kernel does permission checks (default_permissions);
// implementations decide names, types, link counts and times. Sources: POSIX.1-2017, the Linux man pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/interfaces/staging_area.h"

namespace escrow::session {

struct Attributes {
  NodeId node;
  std::uint32_t mode = 0;  // with type bits
  std::uint32_t links = 1;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t rdev = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t blocks = 0;  // of 512 bytes
  Timestamp accessed, modified, changed;
  bool volatile_bytes = false;  // size, blocks and times can change without a call: not to be remembered
};

// Only what is set changes. The change time always becomes now.
// page_cache: the kernel writes back what it was told earlier: pages that were dirtied through mmap and, with a
// write-back cache, by write(2), and the times that go with them.
enum class WriteOrigin { call, page_cache };

struct AttributeChange {
  std::optional<std::uint32_t> mode;  // permission bits
  std::optional<std::uint32_t> uid, gid;
  std::optional<std::uint64_t> size_bytes;
  std::optional<Timestamp> accessed, modified;
  std::optional<Timestamp> changed;  // of the page cache; else it is the time of the call
  bool accessed_now = false;
  bool modified_now = false;
  bool by_descriptor = false;  // ftruncate(2): of a file that was opened for writing
  WriteOrigin origin = WriteOrigin::call;
};

struct Caller {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

enum class RenameMode { replace, no_replace, exchange };
enum class AllocateMode { reserve, reserve_keep_size, punch_hole, zero_range, zero_range_keep_size };
enum class XattrMode { any, create, replace };
// How a file or directory is opened, where opens are passed on.
struct OpenIntent {
  bool read = false;
  bool write = false;      // alone or with reading
  bool list = false;       // a directory
  bool raw = false;        // reads and writes would go to the staging file itself
  bool permitted = false;  // nobody is asked: it was made by the same call, or Escrow opens it for its own purposes
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual std::optional<Attributes> lookup(NodeId directory, std::string_view name) = 0;
  // The same, of Escrow itself: nobody's rights are in question.
  virtual std::optional<Attributes> own_lookup(NodeId directory, std::string_view name) {
    return lookup(directory, name);
  }
  virtual Attributes attributes(NodeId node) = 0;
  virtual Attributes change_attributes(NodeId node, const AttributeChange& change) = 0;
  // The bytes that git or the host keeps, which may be no target at all: see link_target.h. At most 4096 of them.
  virtual std::string read_link(NodeId node) = 0;

  // mknod(2), mkdir(2) and open(O_CREAT): `mode` has the type bits (0: regular); the caller's umask was applied.
  // A set-group-id directory hands its group on, and the bit to sub-directories.
  virtual Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                               const Caller& caller) = 0;
  virtual Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                  const Caller& caller) = 0;
  virtual Attributes link(NodeId node, NodeId directory, std::string_view name) = 0;
  virtual void unlink(NodeId directory, std::string_view name) = 0;
  virtual void remove_directory(NodeId directory, std::string_view name) = 0;
  virtual void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                      RenameMode mode) = 0;

  // open(2) of a file or directory, where a mount passes opens on: a file system that wants to refuse one throws. With
  // `raw` it may return the file that holds the node's bytes, all of them and nothing else; from then on, until the
  // matching close(), they are read and (with `write`) changed without a call. nullptr: all of that comes here.
  virtual std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) = 0;
  // The end of one open(); `raw` says whether its file was used.
  virtual void close(NodeId node, OpenIntent intent) = 0;
  // Short only at the end of the file.
  virtual std::size_t read(NodeId node, std::uint64_t offset, std::span<std::byte> out) = 0;
  // O_APPEND was resolved by the kernel. Set-id bits are the kernel's to clear (it asks for
  // them by change_attributes, as FUSE without HANDLE_KILLPRIV does).
  virtual void write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) = 0;
  // A write() of WriteOrigin::page_cache has failed: the kernel drops what the pages held, and tells nobody but who
  // calls fsync(2).
  virtual void pages_lost(NodeId, std::uint64_t /*offset*/, std::uint64_t /*size_bytes*/) {}
  virtual void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) = 0;
  virtual std::optional<std::uint64_t> seek(NodeId node, std::uint64_t offset, SeekTarget target) = 0;
  // fsync(2): content, attributes and name are durable on return. Concurrent calls share the work.
  virtual void sync_file(NodeId node) = 0;
  virtual void sync_directory(NodeId node) = 0;

  struct Entry {
    std::string_view name;
    std::uint64_t next_cookie;  // where a listing continues after this entry
    NodeId node;
    std::uint32_t mode;         // type bits at least
  };
  // Visits entries after `cookie` (0: from the start, "." and ".." included) until `visit` returns false. A name that
  // neither comes nor goes during a listing is visited exactly once. No lock is held during a visit: it may call
  // back, for example attributes(entry.node).
  virtual void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) = 0;

  virtual std::optional<std::string> xattr(NodeId node, std::string_view name) = 0;
  virtual std::vector<std::string> xattr_names(NodeId node) = 0;
  virtual void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) = 0;
  virtual void remove_xattr(NodeId node, std::string_view name) = 0;

  virtual StagingArea::FreeSpace free_space() = 0;

  // The kernel holds (no longer holds) this node: a removed node lives on while it is held.
  virtual void retain(NodeId node) = 0;
  virtual void release(NodeId node) = 0;
};

}  // namespace escrow::session
