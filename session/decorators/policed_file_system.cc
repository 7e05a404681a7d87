#include "session/decorators/policed_file_system.h"

#include "session/decorators/policed_internal.h"

namespace escrow::session {
namespace {

constexpr std::size_t kOrphanLimit = 65536;  // beyond it nothing is allowed on removed files by a new open

}  // namespace

// ---- what was judged before ----

std::optional<Actions> RememberedJudgements::find(NodeId node) {
  auto shard = shard_of(node).lock();
  const auto found = shard->find(node);
  return found == shard->end() ? std::nullopt : std::optional(found->second);
}

void RememberedJudgements::remember(NodeId node, Actions allowed, std::uint64_t judged_at) {
  auto shard = shard_of(node).lock();
  if (changes_.load() != judged_at) return;
  if (shard->size() >= kShardLimit) shard->clear();
  shard->insert_or_assign(node, allowed);
}

void RememberedJudgements::forget(NodeId node) {
  auto shard = shard_of(node).lock();
  changes_ += 1;
  shard->erase(node);
}

void RememberedJudgements::forget_all() {
  changes_ += 1;  // first: what was judged before it is not remembered in a shard that was cleared already
  for (auto& shard : shards_) shard.lock()->clear();
}

// ---- a node that loses its name ----

PolicedFileSystem::Removal::Removal(PolicedFileSystem& files, const std::optional<Attributes>& target)
    : files_(files), target_(target) {
  if (!target_ || (target_->links > 1 && !session::is_directory(*target_))) return;
  const Actions allowed = files_.allowed_on(target_->node);
  auto orphans = files_.orphans_.lock();
  if (orphans->size() < kOrphanLimit) orphans->insert_or_assign(target_->node, allowed);
}

PolicedFileSystem::Removal::~Removal() {
  if (target_ && !is_done_) files_.orphans_.lock()->erase(target_->node);
}

void PolicedFileSystem::Removal::done() {
  is_done_ = true;
  if (target_) files_.remembered_.forget(target_->node);
}

// ---- judging ----

std::string PolicedFileSystem::in_repository(const std::string& path) const {
  return path.empty() ? prefix_ : join_path(prefix_, path);
}

std::optional<PolicedFileSystem::Spot> PolicedFileSystem::find_directory(NodeId directory) {
  const Overlay::Names names = names_of_(directory);
  if (names.paths.empty()) return std::nullopt;
  Spot spot{in_repository(names.paths.front()), {}, true};
  spot.place = policy_.at(spot.path, true);
  return spot;
}

PolicedFileSystem::Spot PolicedFileSystem::directory_at(NodeId directory) {
  std::optional<Spot> spot = find_directory(directory);
  if (!spot) throw Error(Errc::not_found, "the directory was removed");
  return std::move(*spot);
}

PolicedFileSystem::Spot PolicedFileSystem::spot_in(const Spot& directory, std::string_view name,
                                                   bool is_directory) const {
  Spot spot{join_path(directory.path, name), {}, is_directory};
  spot.place = policy_.below(directory.place, spot.path, is_directory);
  return spot;
}

Actions PolicedFileSystem::judge(NodeId node) {
  const Overlay::Names names = names_of_(node);
  if (names.paths.empty()) {
    auto orphans = orphans_.lock();
    const auto found = orphans->find(node);
    return found == orphans->end() ? Actions() : found->second;
  }
  Actions allowed = Actions::all();
  for (const std::string& path : names.paths)
    allowed = allowed & policy_.allowed(in_repository(path), names.is_directory);
  return allowed;
}

Actions PolicedFileSystem::allowed_on(NodeId node) {
  if (const auto known = remembered_.find(node)) return *known;
  const std::uint64_t now = remembered_.now();
  const Actions allowed = judge(node);
  remembered_.remember(node, allowed, now);
  return allowed;
}

void PolicedFileSystem::refuse(const std::string& path, bool is_directory, Action action, const char* operation) {
  const AccessPolicy::Decision decision = policy_.decide(path, is_directory, action);
  const Denial denial{operation, name_of(action), path, AccessPolicy::describe(decision)};
  denials_.denied(denial);
  throw Denied(denial, std::string("the policy does not allow to ") + name_of(action) + " it");
}

void PolicedFileSystem::require_at(const Spot& spot, Action action, const char* operation) {
  if (!policy_.allowed(spot.place).has(action)) refuse(spot.path, spot.is_directory, action, operation);
}

void PolicedFileSystem::require_on(NodeId node, Action action, const char* operation) {
  if (allowed_on(node).has(action)) return;
  // The name at which it is denied.
  const Overlay::Names names = names_of_(node);
  for (const std::string& path : names.paths) {
    const std::string whole = in_repository(path);
    if (!policy_.allowed(whole, names.is_directory).has(action)) refuse(whole, names.is_directory, action, operation);
  }
  if (!names.paths.empty()) return;  // it was renamed at this moment, to where it is allowed
  denials_.denied({operation, name_of(action), "", "it was not allowed when the file was removed"});
  throw Error(Errc::access_denied, "the file was removed, and the policy did not allow this on it");
}

// ---- what needs a judgement ----

// A name at which nothing is allowed, and below which nothing could be, is refused whether it exists or not.
std::optional<Attributes> PolicedFileSystem::lookup(NodeId id, std::string_view name) {
  const std::uint64_t now = remembered_.now();
  const std::optional<Spot> directory = find_directory(id);
  if (!directory) return std::nullopt;
  const Spot file = spot_in(*directory, name, false);
  const Actions on_file = policy_.allowed(file.place);
  Actions on_directory = on_file;
  const auto judge_as_directory = [&] {
    const Spot spot = spot_in(*directory, name, true);
    on_directory = policy_.allowed(spot.place);
    return spot;
  };
  if (on_file.empty()) {
    const Spot spot = judge_as_directory();
    if (on_directory.empty() && policy_.may_be_allowed_below(spot.place).empty())
      refuse(file.path, false, Action::list, "lookup");
  }
  auto found = Inner::lookup(id, name);
  if (found && session::is_directory(*found)) {
    judge_as_directory();
    remembered_.remember(found->node, on_directory, now);
  } else if (found && found->links == 1) {
    remembered_.remember(found->node, on_file, now);
  }
  return found;
}

// Whether nothing but set-user-id and set-group-id is taken away. The kernel asks for that with each write by others
// than root, so it must not need more than the write; and it can only take rights away.
bool PolicedFileSystem::only_clears_set_id(NodeId node, const AttributeChange& change) {
  const std::uint32_t before = Inner::attributes(node).mode & kPermissionMask;
  const std::uint32_t after = *change.mode & kPermissionMask;
  return after != before && (after | (before & (kSetUser | kSetGroup))) == before;
}

Attributes PolicedFileSystem::change_attributes(NodeId node, const AttributeChange& change) {
  if (change.size_bytes && !change.by_descriptor) require_on(node, Action::write, "truncate");
  // A new size brings a new time with it.
  const bool sets_times = change.accessed || change.modified || change.accessed_now ||
                          (change.modified_now && !change.size_bytes);
  if (change.uid || change.gid) {
    require_on(node, Action::metadata, "chown");
  } else if (change.mode && !only_clears_set_id(node, change)) {
    require_on(node, Action::metadata, "chmod");
  } else if (sets_times) {
    require_on(node, Action::metadata, "utimens");
  }
  return Inner::change_attributes(node, change);
}

std::string PolicedFileSystem::read_link(NodeId node) {
  require_on(node, Action::read, "readlink");
  return Inner::read_link(node);
}

Attributes PolicedFileSystem::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                        const Caller& caller) {
  const auto names = names_.lock_shared();
  const bool is_directory = (mode & kTypeMask) == kDirectoryType;
  require_at(spot_in(directory_at(directory), name, is_directory), Action::create, is_directory ? "mkdir" : "create");
  return Inner::make_node(directory, name, mode, rdev, caller);
}

Attributes PolicedFileSystem::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                           const Caller& caller) {
  const auto names = names_.lock_shared();
  require_at(spot_in(directory_at(directory), name, false), Action::create, "symlink");
  return Inner::make_symlink(directory, name, target, caller);
}

void PolicedFileSystem::unlink(NodeId directory, std::string_view name) { remove(directory, name, false, "unlink"); }

void PolicedFileSystem::remove_directory(NodeId directory, std::string_view name) {
  remove(directory, name, true, "rmdir");
}

void PolicedFileSystem::remove(NodeId directory, std::string_view name, bool is_directory, const char* operation) {
  const auto names = names_.lock_shared();
  require_at(spot_in(directory_at(directory), name, is_directory), Action::remove, operation);
  Removal removal(*this, Inner::lookup(directory, name));
  is_directory ? Inner::remove_directory(directory, name) : Inner::unlink(directory, name);
  removal.done();
}

std::unique_ptr<RawFile> PolicedFileSystem::open(NodeId node, OpenIntent intent) {
  if (!intent.permitted) {
    if (intent.list) require_on(node, Action::list, "opendir");
    if (intent.read) require_on(node, Action::read, "open");
    if (intent.write) require_on(node, Action::write, "open");
  }
  return Inner::open(node, intent);
}

// "." and ".." say nothing that the caller does not know.
void PolicedFileSystem::list(NodeId id, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  if (!policy_.can_deny(Action::list)) return Inner::list(id, cookie, visit);
  const std::optional<Spot> directory = find_directory(id);
  Inner::list(id, cookie, [&](const Entry& entry) {
    if (entry.name != "." && entry.name != "..") {
      if (!directory) return true;
      const Spot spot = spot_in(*directory, entry.name, (entry.mode & kTypeMask) == kDirectoryType);
      if (!policy_.allowed(spot.place).has(Action::list)) return true;
    }
    return visit(entry);
  });
}

std::optional<std::string> PolicedFileSystem::xattr(NodeId node, std::string_view name) {
  require_on(node, Action::read, "getxattr");
  return Inner::xattr(node, name);
}

std::vector<std::string> PolicedFileSystem::xattr_names(NodeId node) {
  require_on(node, Action::read, "listxattr");
  return Inner::xattr_names(node);
}

void PolicedFileSystem::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  require_on(node, Action::metadata, "setxattr");
  Inner::set_xattr(node, name, value, mode);
}

void PolicedFileSystem::remove_xattr(NodeId node, std::string_view name) {
  require_on(node, Action::metadata, "removexattr");
  Inner::remove_xattr(node, name);
}

// A node that the kernel forgets cannot be opened any more.
void PolicedFileSystem::release(NodeId node) {
  Inner::release(node);
  orphans_.lock()->erase(node);
}

}  // namespace escrow::session
