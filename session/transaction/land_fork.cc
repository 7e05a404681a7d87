// What a fork changed, into its parent. The merge is that of a commit, of trees; what it takes from the fork is brought
// over as the fork has it, and then what trees have no word for.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <variant>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/overlay/overlay_state.h"
#include "session/transaction/apply_changes.h"
#include "session/transaction/bring_over.h"
#include "session/transaction/forks.h"
#include "session/transaction/session_tree.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

void tell_landing(const Services& services, CommitStep step) {
  if (services.observer) services.observer->reached(step);
}

bool is_left_to_each(const std::string& path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (git_refuses_name(path.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

template <typename T>
const T& three_way(const T& was, const T& is, const T& there, bool& is_disputed) {
  if (is == was || is == there) return there;
  if (there == was) return is;
  is_disputed = true;
  return there;
}

using Xattrs = std::map<std::string, std::optional<std::string>>;

std::vector<std::pair<std::string, std::string>> merged_xattrs(const NodeTraits& was, const NodeTraits& is,
                                                               const NodeTraits& there, bool& is_disputed) {
  std::array<Xattrs, 3> sides;
  const std::array<const NodeTraits*, 3> given{&was, &is, &there};
  for (std::size_t side = 0; side < sides.size(); ++side)
    for (const auto& [name, value] : given[side]->xattrs) {
      for (Xattrs& one : sides) one.try_emplace(name);
      sides[side][name] = value;
    }
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [name, value] : sides[1])
    if (const auto& kept = three_way(sides[0][name], value, sides[2][name], is_disputed))
      result.emplace_back(name, *kept);
  return result;
}

bool is_same_kind(const NodeTraits& one, const NodeTraits& other) {
  return (one.mode & kTypeMask) == (other.mode & kTypeMask);
}

struct MergedTraits {
  NodeTraits traits;
  std::optional<OmissionKind> disputed{};  // of what both set, each to something else
};

// Trait by trait, and a mode bit by bit: what the fork set comes over, and all else stays as the parent has it, what is
// disputed too.
MergedTraits merge_traits(const NodeTraits& was, const NodeTraits& is, const NodeTraits& there) {
  if (!there.is_there() || !is_same_kind(is, there)) return {is};
  if (!was.is_there() || !is_same_kind(was, is)) {
    if (there == is) return {there};
    return {there, there.xattrs == is.xattrs ? OmissionKind::mode : OmissionKind::xattrs};
  }
  MergedTraits result{there};
  const std::uint32_t set = was.mode ^ is.mode;
  result.traits.mode = (there.mode & ~set) | (is.mode & set);
  bool are_owners = false, are_xattrs = false;
  result.traits.uid = three_way(was.uid, is.uid, there.uid, are_owners);
  result.traits.gid = three_way(was.gid, is.gid, there.gid, are_owners);
  result.traits.xattrs = merged_xattrs(was, is, there, are_xattrs);
  if (are_owners) result.disputed = OmissionKind::mode;
  if (are_xattrs) result.disputed = OmissionKind::xattrs;
  return result;
}

class Landing {
 public:
  Landing(const Services& services, Overlay& parent, Quarantine& quarantine, const SessionRecord& row,
          const SessionRecord& fork, Overlay& now, std::vector<Omission>& omitted, const IsStale& is_stale)
      : services_(services), parent_(parent), quarantine_(quarantine), row_(row), fork_(fork), now_(now),
        start_(now.at_savepoint(kForkStart)), omitted_(omitted), is_stale_(is_stale) {}

  // False: there are conflicts.
  bool merge() {
    std::vector<Omission> ignored;
    shown_ = whole_result(parent_, row_, quarantine_, ignored).tree;
    result_ = whole_result(now_, fork_, quarantine_, ignored);
    result_.base_tree = whole_result(*start_, fork_, quarantine_, ignored).tree;
    auto merged = merge_onto(shown_, result_, row_.options.branch, services_, quarantine_);
    if (auto* met = std::get_if<Conflicts>(&merged)) {
      conflicts_ = std::move(*met);
      return false;
    }
    const RepoPath& prefix = row_.options.prefix;
    const auto below = [&](const TreeRoot& tree) { return tree_of(entry_at(quarantine_, tree, prefix)); };
    changes_ = tree_changes(quarantine_, below(shown_), below(std::get<TreeRoot>(merged)));
    own_ = below(result_.tree);
    before_ = below(shown_);
    find_unseen();
    if (!conflicts_.paths.empty()) return false;
    find_traits();
    return true;
  }

  const Conflicts& conflicts() const { return conflicts_; }
  bool changes_nothing() const { return changes_.empty() && removed_.empty() && added_.empty() && altered_.empty(); }
  // Of the fork.
  ChangeCounts counts() const { return count_changes(quarantine_, result_.base_tree, result_.tree); }

  void apply() {
    BringOver over(now_, parent_, is_stale_);
    for (const PathChange& change : changes_) {
      if (!change.after) {
        over.remove(change.path);
        continue;
      }
      const RepoPath path = RepoPath::parse(change.path, "path");
      const auto is_link = [](const TreeEntry& entry) { return entry.mode == GitMode::symlink; };
      const NodeTraits& traits = traits_[change.path];
      const auto is_it = [&](const TreeRoot& tree) {
        const auto entry = entry_at(quarantine_, tree, path);
        return entry && entry->id == change.after->id && is_link(*entry) == is_link(*change.after);
      };
      if (change.after->mode == GitMode::gitlink) {
        is_stale_(parent_.replace(change.path, change.after));
      } else if (is_it(before_)) {
        over.set_traits(change.path, traits);
      } else if (is_it(own_)) {
        over.take(change.path, traits);
      } else {
        over.take(change.path, traits, quarantine_.open_blob(change.after->id).get());
      }
    }
    for (auto path = removed_.rbegin(); path != removed_.rend(); ++path) {
      if (traits_at(parent_, *path).is_directory() && !is_empty(*path)) continue;
      is_stale_(parent_.replace(*path, std::nullopt));
    }
    for (const std::string& path : added_)  // directories may have come with what is in them
      is_same_kind(traits_at(parent_, path), traits_[path]) ? over.set_traits(path, traits_[path])
                                                            : over.take(path, traits_[path]);
    for (const std::string& path : altered_) over.set_traits(path, traits_[path]);
    over.sync();
  }

 private:
  bool is_empty(const std::string& path) {
    const auto node = node_at(parent_, path);
    return node && names_in(parent_, *node).empty();
  }

  // Special files and directories without files are in no tree, so the merge cannot meet them. One that the parent has
  // made at the path of a file from the fork is a conflict.
  void find_unseen() {
    std::set<std::string> met;
    for (const PathChange& change : changes_) {
      if (!change.after) continue;
      for (std::size_t end = 0; end < change.path.size();) {
        end = std::min(change.path.find('/', end + 1), change.path.size());
        const std::string path = change.path.substr(0, end);
        const NodeTraits there = traits_at(parent_, path);
        if (!there.is_there()) break;
        if (end < change.path.size() && there.is_directory()) continue;
        if (entry_at(quarantine_, before_, RepoPath::parse(path, "path"))) continue;  // the merge has looked at it
        const bool is_untouched = there == traits_at(*start_, path) && (!there.is_directory() || is_empty(path));
        if (!is_untouched) met.insert(path);
      }
    }
    const std::string above = row_.options.prefix.text().empty() ? "" : row_.options.prefix.text() + "/";
    for (const std::string& path : met) conflicts_.paths.push_back({above + path, Did::added, Did::added});
  }

  // Of what comes over; and what trees do not tell: empty directories, special files, modes, owners, extended
  // attributes. Of what is disputed the path is named.
  void find_traits() {
    std::set<std::string> changed, paths;
    for (const PathChange& change : changes_) changed.insert(change.path);
    for (Overlay* const one : {start_.get(), &now_})
      for (std::string& path : one->staged_paths()) paths.insert(std::move(path));
    paths.insert(changed.begin(), changed.end());
    for (const std::string& path : paths) {
      if (is_left_to_each(path)) continue;
      const NodeTraits was = traits_at(*start_, path), is = traits_at(now_, path), there = traits_at(parent_, path);
      const bool is_content = changed.contains(path);
      if (!is_content && (was == is || there == is)) continue;
      const bool is_in_both = is.is_there() && is_same_kind(is, there);
      MergedTraits merged = merge_traits(was, is, there);
      const bool are_two_kinds = !is_content && !is_in_both && there.is_there() && is.is_there() && there != was;
      if (are_two_kinds) merged.disputed = OmissionKind::mode;
      if (merged.disputed) omitted_.push_back({path, *merged.disputed});
      if (!is_content && is_in_both && merged.traits != there) altered_.push_back(path);
      if (!is_content && !is_in_both && there == was) (is.is_there() ? added_ : removed_).push_back(path);
      traits_.emplace(path, std::move(merged.traits));
    }
  }

  const Services& services_;
  Overlay& parent_;
  Quarantine& quarantine_;
  const SessionRecord& row_;
  const SessionRecord& fork_;
  Overlay& now_;
  const std::unique_ptr<Overlay> start_;
  std::vector<Omission>& omitted_;
  const IsStale& is_stale_;
  SessionResult result_;
  TreeRoot shown_;          // by the parent: of the whole repository, as the merge is
  TreeRoot own_, before_;   // below the mount's root: of the fork, and of the parent
  Conflicts conflicts_;
  std::vector<PathChange> changes_;
  std::vector<std::string> removed_, added_, altered_;
  std::map<std::string, NodeTraits> traits_;  // by path, of all that comes over
};

SessionRecord record_of_fork(const Services& services, const SessionRecord& row, const SessionId& fork) {
  const std::optional<SessionRecord> record = services.catalog.find(fork);
  if (!record || record->parent != row.id)
    throw Error(Errc::no_session, "session " + row.id.text() + " has no fork " + fork.text());
  if (record->state != State::open)
    throw Error(Errc::wrong_state, "cannot commit session " + fork.text() + ": it is " + name_of(record->state));
  return *record;
}

// The fork is committed from here on, whatever dies.
void record_landed(const Services& services, SessionRecord record, const ChangeCounts& counts, bool is_nothing,
                   const CommitRequest& request) {
  if (!request.message.empty()) record.message = request.message;
  record.exit_code = request.exit_code;
  record.state = State::committed;
  record.reason = is_nothing ? Reason::no_changes : request.reason;
  record.counts = counts;
  record.mountpoint.clear();
  record.last_error.clear();
  record.changed = services.clock.now();
  services.catalog.transition(State::open, record, request.who,
                              is_nothing ? "nothing to commit" : "committed into session " + record.parent->text());
  tell_landing(services, CommitStep::outcome_recorded);
}

}  // namespace

CommitOutcome land_fork(const Services& services, Overlay& parent, SessionDirectory& directory,
                        const SessionRecord& row, const SessionId& fork, const CommitRequest& request,
                        std::vector<Omission>& omitted, const IsStale& is_stale) {
  const SessionRecord record = record_of_fork(services, row, fork);
  const std::unique_ptr<SessionDirectory> lent = services.directories.borrow(fork);
  Overlay::Options options = overlay_options(services, record);
  options.is_frozen = true;
  Overlay now(options, services.objects, lent->staging(), lent->journal(), services.clock, services.log);
  Landing landing(services, parent, directory.quarantine(), row, record, now, omitted, is_stale);
  if (!landing.merge()) return landing.conflicts();
  const ChangeCounts counts = landing.counts();
  if (landing.changes_nothing()) {
    record_landed(services, record, counts, true, request);
    return NothingToCommit{};
  }
  const std::string before = ".landing-" + fork.text();
  parent.create_savepoint(before, "");
  parent.flush(true);
  tell_landing(services, CommitStep::landing_begun);
  try {
    landing.apply();
    parent.flush(true);
    tell_landing(services, CommitStep::landing_applied);
    record_landed(services, record, counts, false, request);
  } catch (const std::exception&) {
    // Also where it cannot be undone now: the next verb does it.
    settle_forks(services, parent, is_stale);
    const std::optional<SessionRecord> after = services.catalog.find(fork);
    if (!after || after->state != State::committed) throw;
  }
  try {
    settle_forks(services, parent, is_stale);
  } catch (const std::exception& failure) {
    services.log.write(LogLevel::warning, "session " + row.id.text() + " keeps what it was before session " +
                                              fork.text() + " was committed into it (the next command drops it): " +
                                              failure.what());
  }
  return Landed{row.id, counts};
}

}  // namespace escrow::session
