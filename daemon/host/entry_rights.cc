#include "daemon/host/entry_rights.h"

#include "daemon/process/user_rights.h"

namespace escrow::daemon {

using session::AllocateMode;
using session::AttributeChange;
using session::Attributes;
using session::Caller;
using session::NodeId;
using session::OpenIntent;
using session::Overlay;
using session::RawFile;
using session::RenameMode;
using session::SeekTarget;
using session::StagingArea;
using session::WriteOrigin;
using session::XattrMode;

Overlay::Names EntryRights::names(NodeId node) {
  return files_->names(node);
}

std::vector<NodeId> EntryRights::held_files() {
  return files_->held_files();
}

std::optional<Attributes> EntryRights::lookup(NodeId directory, std::string_view name) {
  const UserRights rights(user_);
  return files_->lookup(directory, name);
}

Attributes EntryRights::attributes(NodeId node) {
  const UserRights rights(user_);
  return files_->attributes(node);
}

Attributes EntryRights::change_attributes(NodeId node, const AttributeChange& change) {
  const UserRights rights(user_);
  return files_->change_attributes(node, change);
}

std::string EntryRights::read_link(NodeId node) {
  const UserRights rights(user_);
  return files_->read_link(node);
}

Attributes EntryRights::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                  const Caller& caller) {
  const UserRights rights(user_);
  return files_->make_node(directory, name, mode, rdev, caller);
}

Attributes EntryRights::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                     const Caller& caller) {
  const UserRights rights(user_);
  return files_->make_symlink(directory, name, target, caller);
}

Attributes EntryRights::link(NodeId node, NodeId directory, std::string_view name) {
  const UserRights rights(user_);
  return files_->link(node, directory, name);
}

void EntryRights::unlink(NodeId directory, std::string_view name) {
  const UserRights rights(user_);
  files_->unlink(directory, name);
}

void EntryRights::remove_directory(NodeId directory, std::string_view name) {
  const UserRights rights(user_);
  files_->remove_directory(directory, name);
}

void EntryRights::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                         RenameMode mode) {
  const UserRights rights(user_);
  files_->rename(directory, name, new_directory, new_name, mode);
}

std::unique_ptr<RawFile> EntryRights::open(NodeId node, OpenIntent intent) {
  const UserRights rights(user_);
  return files_->open(node, intent);
}

void EntryRights::close(NodeId node, OpenIntent intent) {
  files_->close(node, intent);
}

std::size_t EntryRights::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  const UserRights rights(user_);
  return files_->read(node, offset, out);
}

void EntryRights::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  const UserRights rights(user_);
  files_->write(node, offset, bytes, origin);
}

void EntryRights::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  const UserRights rights(user_);
  files_->allocate(node, mode, offset, length);
}

std::optional<std::uint64_t> EntryRights::seek(NodeId node, std::uint64_t offset, SeekTarget target) {
  const UserRights rights(user_);
  return files_->seek(node, offset, target);
}

void EntryRights::sync_file(NodeId node) {
  const UserRights rights(user_);
  files_->sync_file(node);
}

void EntryRights::sync_directory(NodeId node) {
  const UserRights rights(user_);
  files_->sync_directory(node);
}

void EntryRights::list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  const UserRights rights(user_);
  files_->list(directory, cookie, visit);
}

std::optional<std::string> EntryRights::xattr(NodeId node, std::string_view name) {
  const UserRights rights(user_);
  return files_->xattr(node, name);
}

std::vector<std::string> EntryRights::xattr_names(NodeId node) {
  const UserRights rights(user_);
  return files_->xattr_names(node);
}

void EntryRights::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  const UserRights rights(user_);
  files_->set_xattr(node, name, value, mode);
}

void EntryRights::remove_xattr(NodeId node, std::string_view name) {
  const UserRights rights(user_);
  files_->remove_xattr(node, name);
}

StagingArea::FreeSpace EntryRights::free_space() {
  return files_->free_space();
}

void EntryRights::retain(NodeId node) {
  files_->retain(node);
}

void EntryRights::release(NodeId node) {
  files_->release(node);
}

}  // namespace escrow::daemon
