#include "storage/database/times_steps.h"

#include <algorithm>
#include <array>
#include <deque>

#include "session/base/repo_path.h"

namespace escrow::storage {
namespace {

using session::Commit;
using session::GitMode;
using session::ObjectId;
using session::ObjectReader;
using session::TreeEntry;
using session::TreeRoot;

bool is_file(GitMode mode) {
  return mode == GitMode::regular || mode == GitMode::group_writable || mode == GitMode::executable;
}

bool is_same_content(const TreeEntry& before, const TreeEntry& after) {
  return before.id == after.id && (before.mode == after.mode || (is_file(before.mode) && is_file(after.mode)));
}

class Walk {
 public:
  Walk(const ObjectReader& objects, session::BoundedListing& bound, ChangedEntries& told,
       const std::function<bool(const std::string&)>& may_count)
      : objects_(objects), bound_(bound), told_(told), may_count_(may_count) {}

  struct Below {
    bool differs = false, has_other_names = false;
  };

  Below directory(const TreeRoot& before, const TreeRoot& after, const std::string& path, int depth) {
    Below below;
    if (!bound_.enters({before, after}, depth)) return below;
    session::check_tree_depth(depth);
    for (const auto& [name, sides] : session::join_trees<2>(
             {session::read_tree_or_empty(objects_, before), session::read_tree_or_empty(objects_, after)})) {
      if (sides[0] == sides[1]) continue;
      const Below found = entry(sides, path, name, depth);
      below.differs = below.differs || found.differs;
      below.has_other_names = below.has_other_names || found.has_other_names;
    }
    return below;
  }

 private:
  // What it means to the directory.
  Below entry(const std::array<std::optional<TreeEntry>, 2>& sides, const std::string& path, const std::string& name,
              int depth) {
    const auto& [before, after] = sides;
    if (!after) {
      bound_.lists(path.size() + name.size());
      told_.is_gone(path, name);
      return {true, true};
    }
    const bool is_directory = after->mode == GitMode::tree;
    const bool was_directory = before && before->mode == GitMode::tree;
    const std::string own = session::join_path(path, name);
    if (is_directory && was_directory) {
      const Below below = directory(session::tree_of(before), session::tree_of(after), own, depth + 1);
      if (below.differs) {
        bound_.lists(own.size());
        told_.differs_below(path, name, below.has_other_names);
      }
      return {below.differs, false};
    }
    const bool is_other_name = !before || is_directory || was_directory;
    if (!is_other_name && is_same_content(*before, *after)) return {};
    if (may_count_ && !may_count_(own)) return {is_other_name, is_other_name};
    bound_.lists(own.size());
    told_.is_new(path, name, is_directory);
    return {true, is_other_name};
  }

  const ObjectReader& objects_;
  session::BoundedListing& bound_;
  ChangedEntries& told_;
  const std::function<bool(const std::string&)>& may_count_;
};

constexpr char kIn = 'i', kNewFile = 'f', kNewDirectory = 'd', kGone = 'g', kBelow = 'b', kBelowAndNames = 'n';

}  // namespace

TimesSteps steps_between(const ObjectReader& objects, const ObjectId& seen, const ObjectId& head) {
  const auto shown = [&](const Commit& commit) { return session::without_empty(objects, commit.tree); };
  std::deque<std::pair<ObjectId, Commit>> newest;  // the oldest first
  ObjectId id = head;
  bool is_found = false;
  for (std::size_t read = 0; read < kMostCommitsRead; ++read) {
    Commit commit = objects.read_commit(id);
    const std::vector<ObjectId> parents = commit.parents;
    if (newest.size() < kMostSteps) newest.emplace_front(id, std::move(commit));
    is_found = !parents.empty() && parents.front() == seen;
    if (is_found || parents.empty()) break;
    id = parents.front();
  }
  TimesSteps found;
  if (!is_found) newest.erase(newest.begin(), std::prev(newest.end()));
  TreeRoot before = session::tree_of_commit(objects, seen);
  for (const auto& [commit_id, commit] : newest) {
    TreeRoot after = shown(commit);
    found.steps.push_back({before, after, commit.committer.time_s});
    found.commits.push_back(commit_id);
    before = std::move(after);
  }
  return found;
}

void RecordedChanges::add(const std::string& directory, char kind, const std::string& name) {
  if (directory != directory_) {
    bytes_ += kIn;
    bytes_.append(directory.c_str(), directory.size() + 1);
    directory_ = directory;
  }
  bytes_ += kind;
  bytes_.append(name.c_str(), name.size() + 1);
}

void RecordedChanges::is_new(const std::string& directory, const std::string& name, bool is_directory) {
  add(directory, is_directory ? kNewDirectory : kNewFile, name);
}

void RecordedChanges::is_gone(const std::string& directory, const std::string& name) { add(directory, kGone, name); }

void RecordedChanges::differs_below(const std::string& directory, const std::string& name, bool has_other_names) {
  add(directory, has_other_names ? kBelowAndNames : kBelow, name);
}

void RecordedChanges::tell(ChangedEntries& told) const {
  std::string directory;
  for (std::size_t at = 0; at < bytes_.size();) {
    const char kind = bytes_[at];
    const std::string name(bytes_.c_str() + at + 1);
    at += name.size() + 2;
    if (kind == kIn) directory = name;
    else if (kind == kGone) told.is_gone(directory, name);
    else if (kind == kNewFile || kind == kNewDirectory) told.is_new(directory, name, kind == kNewDirectory);
    else told.differs_below(directory, name, kind == kBelowAndNames);
  }
}

void tell_changes(const ObjectReader& objects, const TreeRoot& before, const TreeRoot& after,
                  session::BoundedListing& bound, ChangedEntries& told,
                  const std::function<bool(const std::string&)>& may_count) {
  if (before == after) return;
  bound.begin({before, after});
  const Walk::Below below = Walk(objects, bound, told, may_count).directory(before, after, "", 0);
  if (below.differs) told.differs_below("", "", below.has_other_names);
}

}  // namespace escrow::storage
