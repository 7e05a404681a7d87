// The files of a serializable session: notes what programs look at, read, list and do not find (read_recorder.h).
//
// The kernel keeps what it was told, for the life of the mount, so what a program sees was asked for here once. A name
// that was looked up counts with its attributes, and so do all names of a listing that the kernel asked for with
// attributes (READDIRPLUS). Thread-safe. own_lookup() is Escrow's and counts for nothing.
#pragma once

#include "session/decorators/read_recorder.h"
#include "session/interfaces/forwarding_file_system.h"

namespace escrow::session {

class ReadSetFileSystem final : public ForwardingFileSystem {
 public:
  // Both must outlive it.
  ReadSetFileSystem(FileSystem& inner, ReadRecorder& recorder);

  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override;
  Attributes attributes(NodeId node) override;
  std::string read_link(NodeId node) override;
  void remove_directory(NodeId directory, std::string_view name) override;
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode mode) override;
  std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) override;
  std::size_t read(NodeId node, std::uint64_t offset, std::span<std::byte> out) override;
  std::optional<std::uint64_t> seek(NodeId node, std::uint64_t offset, SeekTarget target) override;
  void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override;

 private:
  using Inner = ForwardingFileSystem;
  void note_emptiness(NodeId directory, std::string_view name);

  ReadRecorder& recorder_;  // constant; self-locking
};

}  // namespace escrow::session
