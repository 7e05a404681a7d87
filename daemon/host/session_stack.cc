#include "daemon/host/session_stack.h"

#include <algorithm>
#include <utility>

#include "daemon/host/policy_files.h"
#include "session/trees/git_file_rules.h"

namespace escrow::daemon {

namespace {

std::unique_ptr<session::ReadSetFileSystem> recorded_file_system(session::Session& session) {
  session::ReadRecorder* const recorder = session.read_recorder();
  if (recorder == nullptr) return nullptr;
  return std::make_unique<session::ReadSetFileSystem>(session.file_system(), *recorder);
}

std::unique_ptr<session::LimitedFileSystem> limited_file_system(session::Session& session,
                                                                session::FileSystem& files) {
  const session::SessionLimits& limits = session.record().options.limits;
  if (limits.staged_bytes == 0 && limits.files == 0) return nullptr;
  return std::make_unique<session::LimitedFileSystem>(files, session.overlay(), limits);
}

std::unique_ptr<GitInside> git_inside(session::FileSystem& files, session::Session& session,
                                      const storage::Repository& repository, session::Log& log,
                                      const std::optional<GitTerms>& terms, const std::optional<GitViewer>& viewer) {
  if (!terms || !viewer || viewer->hand.empty()) return nullptr;
  return std::make_unique<GitInside>(files, session, repository, log, *terms, viewer->hand);
}

}  // namespace

SessionStack::SessionStack(session::Session& session, storage::Repository& repository, session::Log& log,
                           const std::optional<session::ContainedLinks::Roots>& roots,
                           std::vector<MountEntry> entries, storage::Caches::Place place,
                           const std::optional<GitTerms>& git, const std::optional<GitViewer>& viewer,
                           std::function<void(const std::vector<session::TracedDenial>&)> trace)
    : session_(session),
      place_(place),
      hand_(viewer ? std::optional(viewer->hand) : std::nullopt),
      entries_(Entries{std::move(entries), {}}),
      denials_(session.id(), repository.catalog(), clock_, log, std::move(trace)),
      policy_(compile_policies(session.record().options.policies)),
      recorded_(recorded_file_system(session)),
      limited_(limited_file_system(session, recorded())),
      git_(git_inside(limited(), session, repository, log, git, viewer)),
      table_(make_mount_table(entries_.lock()->there, versioned(), session)),
      hidden_(viewer ? std::make_unique<HiddenGit>(tabled(), *viewer) : nullptr) {
  const session::SessionOptions options = session.record().options;
  if (options.contained_symlinks && roots) {
    links_ = std::make_unique<session::ContainedLinks>(
        without_git_of_others(), [this](session::NodeId node) { return names(node).paths; }, *roots, denials_);
  }
  if (policy_) {
    policed_ = std::make_unique<session::PolicedFileSystem>(
        contained(), [this](session::NodeId node) { return names(node); }, options.prefix.text(), *policy_, denials_);
  }
}

session::FileSystem& SessionStack::recorded() {
  if (recorded_) return *recorded_;
  return session_.file_system();
}

session::FileSystem& SessionStack::limited() {
  if (limited_) return *limited_;
  return recorded();
}

session::FileSystem& SessionStack::versioned() {
  if (git_) return *git_;
  return limited();
}

session::FileSystem& SessionStack::tabled() {
  return *table_;
}

session::FileSystem& SessionStack::without_git_of_others() {
  if (hidden_) return *hidden_;
  return tabled();
}

session::FileSystem& SessionStack::contained() {
  if (links_) return *links_;
  return without_git_of_others();
}

session::Overlay::Names SessionStack::names(session::NodeId node) const {
  return table_->names(node);
}

std::vector<api::MountEntryView> SessionStack::mounts() const {
  std::vector<MountEntrySpec> specs;
  for (const MountEntry& entry : entries()) specs.push_back(entry.spec);
  return views_of(specs, table_.get());
}

std::vector<MountEntry> SessionStack::entries() const { return entries_.lock_shared()->there; }

std::vector<session::Overlay::Stale> SessionStack::replace_entries(std::vector<MountEntry> entries) {
  std::vector<session::Overlay::Stale> names = table_->replace(table_of(entries));
  const auto held = entries_.lock();
  std::erase_if(held->left, [](const Left& left) { return left.files.expired(); });
  for (MountEntry& old : held->there) {
    const bool stays = std::any_of(entries.begin(), entries.end(),
                                   [&old](const MountEntry& entry) { return entry.files == old.files; });
    // A cache that begins anew has another copy: the old one is in nobody's way.
    const bool is_dropped = std::any_of(entries.begin(), entries.end(),
                                        [&old](const MountEntry& entry) { return entry.spec.cache == old.spec.cache; });
    if (!stays) held->left.push_back({old.files, old.spec.content, is_dropped ? std::string() : old.spec.cache});
  }
  held->there = std::move(entries);
  return names;
}

void SessionStack::close_departed() {
  table_->close_departed();
  table_->drop_unheld();
}

SessionStack::Departed SessionStack::departed() {
  table_->drop_unheld();
  Departed departed;
  const auto held = entries_.lock_shared();
  for (const Left& left : held->left) {
    if (left.files.expired()) continue;
    departed.contents.insert(left.content);
    departed.caches.insert(left.cache);
  }
  return departed;
}

std::function<bool(session::NodeId)> SessionStack::volatile_nodes() const {
  return [this](session::NodeId node) { return table_->is_volatile(node); };
}

std::vector<session::NodeId> SessionStack::held_files() const {
  std::vector<session::NodeId> held = session_.overlay().held_files();
  const std::vector<session::NodeId> beside = table_->held_files();
  held.insert(held.end(), beside.begin(), beside.end());
  return held;
}

std::string SessionStack::words_about_hidden_git() const {
  if (!hidden_) return {};
  std::vector<MountEntrySpec> specs;
  std::vector<std::string> caches;
  for (const MountEntry& entry : entries()) {
    specs.push_back(entry.spec);
    if (entry.spec.cache.empty()) continue;
    const std::optional<std::string> maker = entry.files->xattr(session::kRootNode, session::kGitMaker);
    if (hidden_->hides_cache_of(maker.value_or(""))) caches.push_back(entry.spec.cache);
  }
  return describe_hidden_git(session_.id().text(), hidden_->hidden(session_.overlay(), session_.directory(), specs),
                             caches);
}

session::FileSystem& SessionStack::files() {
  if (policed_) return *policed_;
  return contained();
}

}  // namespace escrow::daemon
