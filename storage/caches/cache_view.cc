#include "storage/caches/cache_view.h"

#include <sys/stat.h>

#include <utility>

#include "session/base/error.h"
#include "session/trees/git_file_rules.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/lock_file.h"

namespace escrow::storage {

using session::Attributes;
using session::NodeId;

namespace {

constexpr char kHold[] = "/hold";  // locked by each view, shared

struct stat status_of_descriptor(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw system_error(errno, "examine a file of a cache");
  return status;
}

}  // namespace

CacheView::CacheView(const std::string& directory, const std::string& generation, std::string maker)
    : hold_(lock_file(directory + kHold, LockKind::shared)),
      maker_(std::move(maker)),
      tree_(directory, generation),
      files_(directory + "/tree",
             {.is_volatile = false,
              .durable = false,
              .shown =
                  [this](std::uint64_t inode, Attributes& attributes) {
                    if (!tree_.is_shared(inode, attributes.mode, attributes.links)) return;
                    attributes.links = 1;
                    attributes.changed = attributes.modified;
                  }},
             "--cache") {}

bool CacheView::is_held(const std::string& directory) { return !try_lock_file(directory + kHold); }

// New calls are refused first: a lock that many share may be waited for without end.
void CacheView::seal() {
  is_sealed_ = true;
  const auto none_is_under_way = changes_.lock();
}

CacheView::Changes::Read CacheView::begin_change() const {
  const auto refuse_if_sealed = [this] {
    if (is_sealed_) throw session::Error(session::Errc::read_only, "the session is sealed");
  };
  refuse_if_sealed();
  auto under_way = changes_.lock_shared();
  refuse_if_sealed();
  return under_way;
}

void CacheView::fill(NodeId directory) {
  if (filled_.lock_shared()->contains(directory)) return;
  const UniqueFd opened = files_.descriptor(directory);
  const struct stat status = status_of_descriptor(opened.get());
  if (!S_ISDIR(status.st_mode)) return;                                  // whoever asks is refused
  if (tree_.fill(opened.get(), status.st_ino)) filled_.lock()->clear();  // of new directories with old ids
  filled_.lock()->insert(directory);
}

bool CacheView::is_shared(int file) const {
  const struct stat status = status_of_descriptor(file);
  return tree_.is_shared(status.st_ino, status.st_mode, status.st_nlink);
}

void CacheView::own(NodeId node, bool with_bytes) {
  tree_.note_changed();
  if (files_.is_open_for_writing(node)) return;
  own(names_.lock(), node, with_bytes);
}

void CacheView::own(const Names::Write&, NodeId node, bool with_bytes) {
  tree_.note_changed();
  const UniqueFd file = files_.descriptor(node);
  if (!is_shared(file.get())) return;
  const HostDirectory::Place place = files_.place_of(node);
  const int directory = place.directory ? place.directory.get() : -1;
  files_.replace(node, tree_.own_copy(file.get(), directory, place.name, with_bytes));
}

void CacheView::take_leave(NodeId directory, std::string_view name) {
  fill(directory);
  const std::optional<Attributes> found = files_.lookup(directory, name);
  if (!found) return;
  if (S_ISDIR(found->mode)) return fill(found->node);
  const UniqueFd file = files_.descriptor(found->node);
  if (is_shared(file.get())) tree_.hide(status_of_descriptor(file.get()).st_ino);
}

// ---- names ----

session::Overlay::Names CacheView::names(NodeId node) { return files_.names(node); }
std::vector<NodeId> CacheView::held_files() { return files_.held_files(); }

std::optional<Attributes> CacheView::lookup(NodeId directory, std::string_view name) {
  fill(directory);
  return files_.lookup(directory, name);
}

void CacheView::list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  fill(directory);
  files_.list(directory, cookie, visit);
}

Attributes CacheView::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                const session::Caller& caller) {
  const auto under_way = begin_change();
  fill(directory);
  const auto turn = names_.lock();
  tree_.note_changed();
  return files_.make_node(directory, name, mode, rdev, caller);
}

Attributes CacheView::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                   const session::Caller& caller) {
  const auto under_way = begin_change();
  fill(directory);
  const auto turn = names_.lock();
  tree_.note_changed();
  return files_.make_symlink(directory, name, target, caller);
}

Attributes CacheView::link(NodeId node, NodeId directory, std::string_view name) {
  const auto under_way = begin_change();
  fill(directory);
  const auto turn = names_.lock();
  own(turn, node, true);
  tree_.note_own(status_of_descriptor(files_.descriptor(node).get()).st_ino);
  return files_.link(node, directory, name);
}

void CacheView::unlink(NodeId directory, std::string_view name) {
  const auto under_way = begin_change();
  const auto turn = names_.lock();
  take_leave(directory, name);
  tree_.note_changed();
  files_.unlink(directory, name);
}

void CacheView::remove_directory(NodeId directory, std::string_view name) {
  const auto under_way = begin_change();
  const auto turn = names_.lock();
  take_leave(directory, name);
  tree_.note_changed();
  files_.remove_directory(directory, name);
}

void CacheView::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                       session::RenameMode mode) {
  const auto under_way = begin_change();
  fill(directory);
  const auto turn = names_.lock();
  if (mode == session::RenameMode::replace)
    take_leave(new_directory, new_name);
  else
    fill(new_directory);
  tree_.note_changed();
  files_.rename(directory, name, new_directory, new_name, mode);
}

// ---- files ----

Attributes CacheView::attributes(NodeId node) { return files_.attributes(node); }

Attributes CacheView::change_attributes(NodeId node, const session::AttributeChange& change) {
  const auto under_way = begin_change();
  fill(node);
  own(node, change.size_bytes.value_or(1) > 0);
  return files_.change_attributes(node, change);
}

std::string CacheView::read_link(NodeId node) { return files_.read_link(node); }

std::unique_ptr<session::RawFile> CacheView::open(NodeId node, session::OpenIntent intent) {
  if (intent.list) {
    fill(node);
    return nullptr;
  }
  // One that is shared is opened for writing when it is written to.
  if (intent.write && is_shared(files_.descriptor(node).get())) {
    intent.write = false;
    intent.read = true;
  }
  return files_.open(node, intent);
}

void CacheView::close(NodeId node, session::OpenIntent intent) { files_.close(node, intent); }

std::size_t CacheView::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  return files_.read(node, offset, out);
}

void CacheView::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes,
                      session::WriteOrigin origin) {
  const auto under_way = begin_change();
  own(node);
  files_.write(node, offset, bytes, origin);
}

void CacheView::allocate(NodeId node, session::AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  const auto under_way = begin_change();
  own(node);
  files_.allocate(node, mode, offset, length);
}

std::optional<std::uint64_t> CacheView::seek(NodeId node, std::uint64_t offset, session::SeekTarget target) {
  return files_.seek(node, offset, target);
}

std::optional<std::string> CacheView::xattr(NodeId node, std::string_view name) {
  if (name == session::kGitMaker) return maker_;
  fill(node);
  return files_.xattr(node, name);
}

std::vector<std::string> CacheView::xattr_names(NodeId node) {
  fill(node);
  return files_.xattr_names(node);
}

void CacheView::set_xattr(NodeId node, std::string_view name, std::string_view value, session::XattrMode mode) {
  const auto under_way = begin_change();
  fill(node);
  own(node);
  files_.set_xattr(node, name, value, mode);
}

void CacheView::remove_xattr(NodeId node, std::string_view name) {
  const auto under_way = begin_change();
  fill(node);
  own(node);
  files_.remove_xattr(node, name);
}

session::StagingArea::FreeSpace CacheView::free_space() { return files_.free_space(); }
void CacheView::retain(NodeId node) { files_.retain(node); }
void CacheView::release(NodeId node) { files_.release(node); }

}  // namespace escrow::storage
