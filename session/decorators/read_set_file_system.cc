#include "session/decorators/read_set_file_system.h"

#include "session/overlay/overlay_state.h"

namespace escrow::session {

ReadSetFileSystem::ReadSetFileSystem(FileSystem& inner, ReadRecorder& recorder) : Inner(inner), recorder_(recorder) {}

std::optional<Attributes> ReadSetFileSystem::lookup(NodeId directory, std::string_view name) {
  std::optional<Attributes> found = Inner::lookup(directory, name);
  if (found) {
    recorder_.looked_at(found->node);
  } else {
    recorder_.missed(directory, name);
  }
  return found;
}

Attributes ReadSetFileSystem::attributes(NodeId node) {
  const Attributes found = Inner::attributes(node);
  recorder_.looked_at(node);
  return found;
}

std::string ReadSetFileSystem::read_link(NodeId node) {
  recorder_.read(node);
  return Inner::read_link(node);
}

// Whether a directory can go shows whether something is in it.
void ReadSetFileSystem::note_emptiness(NodeId directory, std::string_view name) {
  const std::optional<Attributes> found = Inner::own_lookup(directory, name);
  if (!found || (found->mode & kTypeMask) != kDirectoryType) return;
  Inner::list(found->node, 0, [](const Entry&) { return false; });
  recorder_.listed(found->node);
}

void ReadSetFileSystem::remove_directory(NodeId directory, std::string_view name) {
  note_emptiness(directory, name);
  Inner::remove_directory(directory, name);
}

void ReadSetFileSystem::rename(NodeId directory, std::string_view name, NodeId new_directory,
                               std::string_view new_name, RenameMode mode) {
  if (mode == RenameMode::replace) note_emptiness(new_directory, new_name);
  Inner::rename(directory, name, new_directory, new_name, mode);
}

std::unique_ptr<RawFile> ReadSetFileSystem::open(NodeId node, OpenIntent intent) {
  if (intent.raw && intent.read) recorder_.read(node);
  return Inner::open(node, intent);
}

std::size_t ReadSetFileSystem::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  recorder_.read(node);
  return Inner::read(node, offset, out);
}

std::optional<std::uint64_t> ReadSetFileSystem::seek(NodeId node, std::uint64_t offset, SeekTarget target) {
  recorder_.read(node);
  return Inner::seek(node, offset, target);
}

void ReadSetFileSystem::list(NodeId directory, std::uint64_t cookie,
                             const std::function<bool(const Entry&)>& visit) {
  ReadRecorder::Batch batch(recorder_);
  Inner::list(directory, cookie, visit);
  recorder_.listed(directory);
  batch.end();
}

}  // namespace escrow::session
