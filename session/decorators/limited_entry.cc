#include "session/decorators/limited_entry.h"

#include <utility>

#include "session/base/error.h"

namespace escrow::session {

class LimitedEntry::Taking {
 public:
  Taking(LimitedEntry& entry, std::uint64_t bytes, std::uint64_t names)
      : entry_(entry), bytes_(bytes), names_(names) {
    const EntryLimits& limits = entry.limits_;
    const auto used = entry.used_->lock();
    if (limits.write_bytes != 0 && bytes > limits.write_bytes - used->bytes)
      throw Error(Errc::quota_exceeded, "the entry may have " + std::to_string(limits.write_bytes) +
                                            " bytes written to it (write_bytes_limit)");
    if (limits.entries != 0 && names > limits.entries - used->names)
      throw Error(Errc::quota_exceeded, "the entry may have " + std::to_string(limits.entries) +
                                            " names made in it (entries_limit)");
    if (limits.write_bytes != 0) used->bytes += bytes;
    if (limits.entries != 0) used->names += names;
  }
  ~Taking() {
    if (is_kept_) return;
    const auto used = entry_.used_->lock();
    if (entry_.limits_.write_bytes != 0) used->bytes -= bytes_;
    if (entry_.limits_.entries != 0) used->names -= names_;
  }
  Taking(const Taking&) = delete;
  Taking& operator=(const Taking&) = delete;

  void keep() { is_kept_ = true; }
  // Its content is the session's own from here on.
  void keep(NodeId node) {
    keep();
    if (!entry_.copies_ || entry_.limits_.write_bytes == 0 || !entry_.own_.lock()->insert(node).second) return;
    entry_.files_->retain(node);  // it keeps its id
  }

 private:
  LimitedEntry& entry_;
  const std::uint64_t bytes_, names_;
  bool is_kept_ = false;
};

LimitedEntry::LimitedEntry(std::shared_ptr<EntryFileSystem> files, EntryLimits limits, bool copies)
    : files_(std::move(files)), limits_(limits), copies_(copies), used_(std::make_shared<Synchronized<Used>>()) {}

LimitedEntry::LimitedEntry(std::shared_ptr<EntryFileSystem> files, const LimitedEntry& before)
    : files_(std::move(files)), limits_(before.limits_), copies_(before.copies_), used_(before.used_) {}

std::uint64_t LimitedEntry::copied_bytes(NodeId node) {
  if (!copies_ || limits_.write_bytes == 0 || own_.lock()->contains(node)) return 0;
  return files_->attributes(node).size_bytes;
}

template <typename Change>
void LimitedEntry::change_content(NodeId node, std::uint64_t added, Change change) {
  Taking taking(*this, copied_bytes(node) + added, 0);
  change();
  taking.keep(node);
}

Attributes LimitedEntry::change_attributes(NodeId node, const AttributeChange& change) {
  if (!change.size_bytes || limits_.write_bytes == 0) return files_->change_attributes(node, change);
  // A file that is cut to nothing is not copied.
  const std::uint64_t size_bytes = files_->attributes(node).size_bytes;
  const std::uint64_t copied = *change.size_bytes == 0 ? 0 : copied_bytes(node);
  Taking taking(*this, copied + (*change.size_bytes > size_bytes ? *change.size_bytes - size_bytes : 0), 0);
  Attributes changed = files_->change_attributes(node, change);
  taking.keep(node);
  return changed;
}

Attributes LimitedEntry::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                   const Caller& caller) {
  Taking taking(*this, 0, 1);
  Attributes made = files_->make_node(directory, name, mode, rdev, caller);
  taking.keep(made.node);
  return made;
}

Attributes LimitedEntry::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                      const Caller& caller) {
  Taking taking(*this, target.size(), 1);
  Attributes made = files_->make_symlink(directory, name, target, caller);
  taking.keep();
  return made;
}

Attributes LimitedEntry::link(NodeId node, NodeId directory, std::string_view name) {
  Taking taking(*this, 0, 1);
  Attributes made = files_->link(node, directory, name);
  taking.keep();
  return made;
}

// What the kernel writes past Escrow is not counted.
std::unique_ptr<RawFile> LimitedEntry::open(NodeId node, OpenIntent intent) {
  if (intent.write && limits_.write_bytes != 0) intent.raw = false;
  return files_->open(node, intent);
}

void LimitedEntry::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  change_content(node, bytes.size(), [&] { files_->write(node, offset, bytes, origin); });
}

void LimitedEntry::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  const bool reserves = mode == AllocateMode::reserve || mode == AllocateMode::reserve_keep_size;
  change_content(node, reserves ? length : 0, [&] { files_->allocate(node, mode, offset, length); });
}

Overlay::Names LimitedEntry::names(NodeId node) { return files_->names(node); }
std::vector<NodeId> LimitedEntry::held_files() { return files_->held_files(); }
std::optional<Attributes> LimitedEntry::lookup(NodeId directory, std::string_view name) {
  return files_->lookup(directory, name);
}
Attributes LimitedEntry::attributes(NodeId node) { return files_->attributes(node); }
std::string LimitedEntry::read_link(NodeId node) { return files_->read_link(node); }
void LimitedEntry::unlink(NodeId directory, std::string_view name) { files_->unlink(directory, name); }
void LimitedEntry::remove_directory(NodeId directory, std::string_view name) {
  files_->remove_directory(directory, name);
}
void LimitedEntry::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                          RenameMode mode) {
  files_->rename(directory, name, new_directory, new_name, mode);
}
void LimitedEntry::close(NodeId node, OpenIntent intent) { files_->close(node, intent); }
std::size_t LimitedEntry::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  return files_->read(node, offset, out);
}
std::optional<std::uint64_t> LimitedEntry::seek(NodeId node, std::uint64_t offset, SeekTarget target) {
  return files_->seek(node, offset, target);
}
void LimitedEntry::sync_file(NodeId node) { files_->sync_file(node); }
void LimitedEntry::sync_directory(NodeId node) { files_->sync_directory(node); }
void LimitedEntry::list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  files_->list(directory, cookie, visit);
}
std::optional<std::string> LimitedEntry::xattr(NodeId node, std::string_view name) {
  return files_->xattr(node, name);
}
std::vector<std::string> LimitedEntry::xattr_names(NodeId node) { return files_->xattr_names(node); }
void LimitedEntry::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  files_->set_xattr(node, name, value, mode);
}
void LimitedEntry::remove_xattr(NodeId node, std::string_view name) { files_->remove_xattr(node, name); }
StagingArea::FreeSpace LimitedEntry::free_space() { return files_->free_space(); }
void LimitedEntry::retain(NodeId node) { files_->retain(node); }
void LimitedEntry::release(NodeId node) { files_->release(node); }

}  // namespace escrow::session
