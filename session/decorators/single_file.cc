#include "session/decorators/single_file.h"

#include <utility>

#include "session/base/error.h"

namespace escrow::session {
namespace {

[[noreturn]] void refuse_as_directory() { throw Error(Errc::not_a_directory, "a file is mounted there"); }

NodeId find_file(EntryFileSystem& files, std::string_view name) {
  const std::optional<Attributes> found = files.lookup(kRootNode, name);
  if (!found) throw Error(Errc::not_found, "the file that is to be mounted is not there");
  files.retain(found->node);
  return found->node;
}

Attributes as_root(Attributes attributes) {
  attributes.node = kRootNode;
  attributes.links = 1;
  return attributes;
}

}  // namespace

SingleFile::SingleFile(std::shared_ptr<EntryFileSystem> files, std::string_view name)
    : files_(std::move(files)), file_(find_file(*files_, name)) {}

SingleFile::~SingleFile() { files_->release(file_); }

Overlay::Names SingleFile::names(NodeId) { return {{""}, false}; }
std::vector<NodeId> SingleFile::held_files() { return {kRootNode}; }
std::optional<Attributes> SingleFile::lookup(NodeId, std::string_view) { refuse_as_directory(); }
Attributes SingleFile::attributes(NodeId) { return as_root(files_->attributes(file_)); }
Attributes SingleFile::change_attributes(NodeId, const AttributeChange& change) {
  return as_root(files_->change_attributes(file_, change));
}
std::string SingleFile::read_link(NodeId) { throw Error(Errc::invalid_argument, "a file is no symbolic link"); }
Attributes SingleFile::make_node(NodeId, std::string_view, std::uint32_t, std::uint32_t, const Caller&) {
  refuse_as_directory();
}
Attributes SingleFile::make_symlink(NodeId, std::string_view, std::string_view, const Caller&) {
  refuse_as_directory();
}
Attributes SingleFile::link(NodeId, NodeId, std::string_view) { refuse_as_directory(); }
void SingleFile::unlink(NodeId, std::string_view) { refuse_as_directory(); }
void SingleFile::remove_directory(NodeId, std::string_view) { refuse_as_directory(); }
void SingleFile::rename(NodeId, std::string_view, NodeId, std::string_view, RenameMode) { refuse_as_directory(); }
std::unique_ptr<RawFile> SingleFile::open(NodeId, OpenIntent intent) {
  if (intent.list) refuse_as_directory();
  return files_->open(file_, intent);
}
void SingleFile::close(NodeId, OpenIntent intent) { files_->close(file_, intent); }
std::size_t SingleFile::read(NodeId, std::uint64_t offset, std::span<std::byte> out) {
  return files_->read(file_, offset, out);
}
void SingleFile::write(NodeId, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  files_->write(file_, offset, bytes, origin);
}
void SingleFile::allocate(NodeId, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  files_->allocate(file_, mode, offset, length);
}
std::optional<std::uint64_t> SingleFile::seek(NodeId, std::uint64_t offset, SeekTarget target) {
  return files_->seek(file_, offset, target);
}
void SingleFile::sync_file(NodeId) { files_->sync_file(file_); }
void SingleFile::sync_directory(NodeId) { refuse_as_directory(); }
void SingleFile::list(NodeId, std::uint64_t, const std::function<bool(const Entry&)>&) { refuse_as_directory(); }
std::optional<std::string> SingleFile::xattr(NodeId, std::string_view name) { return files_->xattr(file_, name); }
std::vector<std::string> SingleFile::xattr_names(NodeId) { return files_->xattr_names(file_); }
void SingleFile::set_xattr(NodeId, std::string_view name, std::string_view value, XattrMode mode) {
  files_->set_xattr(file_, name, value, mode);
}
void SingleFile::remove_xattr(NodeId, std::string_view name) { files_->remove_xattr(file_, name); }
StagingArea::FreeSpace SingleFile::free_space() { return files_->free_space(); }

}  // namespace escrow::session
