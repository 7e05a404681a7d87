#include "daemon/host/checkout_step.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/joined_texts.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr unsigned kInputMode = 0644;
constexpr std::size_t kNamedInTheWay = 5;
constexpr const char* kNoMode = "000000";

// Those of `own` that are one of `changed`, or a directory above or a file below one.
std::set<std::string> in_the_way_of(const std::set<std::string>& changed, const std::set<std::string>& own) {
  std::set<std::string> found;
  for (const std::string& path : own) {
    bool is_one = changed.contains(path);
    for (std::size_t slash = path.rfind('/'); !is_one && slash != path.npos && slash > 0;
         slash = path.rfind('/', slash - 1))
      is_one = changed.contains(path.substr(0, slash));
    const auto below = changed.lower_bound(path + '/');
    if (is_one || (below != changed.end() && below->starts_with(path + '/'))) found.insert(path);
  }
  return found;
}

enum class Kind { none, directory, link, file };
Kind kind_of(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return Kind::none;
  if (S_ISDIR(status.st_mode)) return Kind::directory;
  return S_ISLNK(status.st_mode) ? Kind::link : Kind::file;
}

// Sorted paths without those below a symbolic link that is one of them: git refuses to look there, and takes what it
// had below out of the index for the link.
std::vector<std::string> without_those_behind_links(const std::string& work_tree,
                                                    const std::vector<std::string>& paths) {
  std::vector<std::string> kept;
  std::set<std::string> links;
  for (const std::string& path : paths) {
    bool is_behind = false;
    for (std::size_t slash = path.find('/'); slash != path.npos && !is_behind; slash = path.find('/', slash + 1))
      is_behind = links.contains(path.substr(0, slash));
    if (is_behind) continue;
    if (kind_of(work_tree + "/" + path) == Kind::link) links.insert(path);
    kept.push_back(path);
  }
  return kept;
}

// A lock beside an index of ours is of a git that was killed.
void drop_index(const std::string& index) {
  ::unlink(index.c_str());
  ::unlink(IndexLock::path_of(index).c_str());
}

// With its times: git takes an entry that is no older than its index for one whose file may have changed since. Without
// a file there is no copy either, which is an empty index.
void copy_index(const std::string& index, const std::string& copy) {
  drop_index(copy);
  struct stat status {};
  if (::stat(index.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw storage::system_error(errno, "look at " + index);
  }
  std::error_code failed;
  std::filesystem::copy_file(index, copy, failed);
  if (failed) throw storage::system_error(failed.value(), "copy " + index);
  const timespec times[2] = {status.st_atim, status.st_mtim};
  if (::utimensat(AT_FDCWD, copy.c_str(), times, 0) != 0) throw storage::system_error(errno, "set times of " + copy);
}

void rename_index(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw storage::system_error(errno, "rename " + from + " to " + to);
}

}  // namespace

std::string first_of(const std::vector<std::string>& paths) {
  std::string named;
  for (std::size_t at = 0; at < std::min(paths.size(), kNamedInTheWay); ++at)
    named += (at == 0 ? "" : ", ") + session::quote_path(paths[at]);
  if (paths.size() > kNamedInTheWay) named += " and " + std::to_string(paths.size() - kNamedInTheWay) + " more";
  return named;
}

CheckoutStep::CheckoutStep(Places places, IndexLock lock, Git git, std::string from, std::string to)
    : places_(std::move(places)),
      lock_(std::move(lock)),
      git_(std::move(git)),
      from_(std::move(from)),
      to_(std::move(to)) {
  copy_index(places_.index, copy());
  refresh(copy());
  read_changes();
}

CheckoutStep::~CheckoutStep() {
  drop_index(copy());
  drop_index(next());
}

std::string CheckoutStep::run(const std::vector<std::string>& arguments, const std::string& index) const {
  GitAnswer answer = git_(arguments, {.index = index, .input = {}});
  if (answer.status != 0)
    throw Error(Errc::unavailable,
                "`git " + arguments.front() + "` failed in " + places_.work_tree + ": " + answer.complaint);
  return std::move(answer.out);
}

std::set<std::string> CheckoutStep::paths_of(const std::vector<std::string>& arguments,
                                             const std::string& index) const {
  const std::vector<std::string> paths = storage::split_texts(run(arguments, index));
  return {paths.begin(), paths.end()};
}

std::set<std::string> CheckoutStep::staged_against(const std::string& tree, const std::string& index) const {
  return paths_of({"diff-index", "--cached", "-z", "--name-only", "--no-renames", "--ignore-submodules", tree}, index);
}

// git exits with 1 where a file has changed.
void CheckoutStep::refresh(const std::string& index) const {
  git_({"update-index", "-q", "--ignore-submodules", "--refresh"}, {.index = index, .input = {}});
}

// ":MODE MODE ID ID LETTER", then the path (git-diff-tree(1), "raw output format").
void CheckoutStep::read_changes() {
  const std::vector<std::string> texts =
      storage::split_texts(run({"diff-tree", "-r", "-z", "--raw", "--no-renames", from_, to_}, ""));
  for (std::size_t at = 0; at + 1 < texts.size(); at += 2) {
    std::vector<std::string> words;
    for (std::size_t begin = 1, end = 0; end != std::string::npos; begin = end + 1) {
      end = texts[at].find(' ', begin);
      words.push_back(texts[at].substr(begin, end - begin));
    }
    if (words.size() < 4) throw Error(Errc::unavailable, "git lists a change as '" + texts[at] + "'");
    const bool is_added = words[0] == kNoMode, is_removed = words[1] == kNoMode;
    changes_.push_back({.path = texts[at + 1],
                        .before = words[0] + " " + words[2],
                        .after = words[1] + " " + words[3],
                        .is_added = is_added,
                        .is_removed = is_removed});
  }
}

// Each is staged in a copy of the index, which is compared with both trees.
std::vector<CheckoutStep::Has> CheckoutStep::files_of(const std::set<std::string>& candidates) const {
  std::vector<Has> found(changes_.size(), Has::before);
  std::vector<std::string> files;
  std::vector<std::size_t> looked_at;
  for (std::size_t at = 0; at < changes_.size(); ++at) {
    const Change& change = changes_[at];
    if (!candidates.contains(change.path)) continue;
    if (kind_of(places_.work_tree + "/" + change.path) == Kind::directory) {
      if (!change.is_added) found[at] = change.is_removed ? Has::after : Has::other;
      continue;
    }
    files.push_back(change.path);
    looked_at.push_back(at);
  }
  if (files.empty()) return found;
  const std::string staged = places_.scratch + "staged";
  copy_index(copy(), staged);
  // git does not stage everything, for example what is behind a symbolic link by now.
  const bool is_staged = stage(files, staged);
  std::set<std::string> not_before, not_after;
  if (is_staged) {
    not_before = staged_against(from_, staged);
    not_after = staged_against(to_, staged);
  }
  drop_index(staged);
  for (const std::size_t at : looked_at) {
    const std::string& path = changes_[at].path;
    if (is_staged && !not_before.contains(path)) continue;
    if (is_staged && !not_after.contains(path))
      found[at] = Has::after;
    else
      found[at] = kind_of(places_.work_tree + "/" + path) == Kind::none ? Has::nothing : Has::other;
  }
  return found;
}

bool CheckoutStep::stage(const std::vector<std::string>& paths, const std::string& index) const {
  const std::string input = places_.scratch + "paths";
  storage::put_file(input, input + ".new", storage::join_texts(without_those_behind_links(places_.work_tree, paths)),
                    kInputMode);
  const GitAnswer answer = git_({"update-index", "--add", "--remove", "--replace", "-z", "--stdin"},
                                {.index = index, .input = input});
  ::unlink(input.c_str());
  return answer.status == 0;
}

void CheckoutStep::set_entries(const std::string& lines, const std::string& index) const {
  const std::string input = places_.scratch + "entries";
  storage::put_file(input, input + ".new", lines, kInputMode);
  const GitAnswer answer = git_({"update-index", "--replace", "-z", "--index-info"}, {.index = index, .input = input});
  ::unlink(input.c_str());
  if (answer.status != 0)
    throw Error(Errc::unavailable, "`git update-index` failed in " + places_.work_tree + ": " + answer.complaint);
}

void CheckoutStep::make_ready(const std::string& lines, const std::vector<std::size_t>& alone) {
  if (!lines.empty()) {
    set_entries(lines, copy());
    refresh(copy());
  }
  for (const Change& change : changes_) followed_.insert(change.path);
  if (!alone.empty()) {
    std::string as_after;
    for (const std::size_t at : alone) {
      as_after += changes_[at].after + "\t" + changes_[at].path + '\0';
      followed_.erase(changes_[at].path);
    }
    const std::string tree = places_.scratch + "tree";
    drop_index(tree);
    run({"read-tree", from_}, tree);
    set_entries(as_after, tree);
    const std::string written = run({"write-tree"}, tree);
    drop_index(tree);
    from_ = written.substr(0, written.find('\n'));
  }
}

void CheckoutStep::make_next() const {
  copy_index(copy(), next());
  run({"read-tree", "-i", "-m", from_, to_}, next());
}

// git itself would bring back a file that was removed here, and does not name all that is in its way. Of what it does
// not know it looks only at what the commit would replace: the session may be mounted in the work tree.
void CheckoutStep::prepare() {
  std::set<std::string> own = staged_against(from_, copy()), changed, candidates;
  own.merge(paths_of({"diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules"}, copy()));
  for (const Change& change : changes_) {
    changed.insert(change.path);
    const bool is_there = change.is_added && kind_of(places_.work_tree + "/" + change.path) != Kind::none;
    if (is_there || own.contains(change.path)) candidates.insert(change.path);
  }
  std::set<std::string> in_the_way = in_the_way_of(changed, own);
  const std::vector<Has> has = files_of(candidates);
  std::string lines;
  std::vector<std::size_t> alone;
  for (std::size_t at = 0; at < changes_.size(); ++at) {
    const Change& change = changes_[at];
    if (has[at] == Has::nothing || has[at] == Has::other) in_the_way.insert(change.path);
    if (has[at] != Has::after) continue;
    in_the_way.erase(change.path);
    lines += change.after + "\t" + change.path + '\0';
    alone.push_back(at);
  }
  std::string named = first_of({in_the_way.begin(), in_the_way.end()});
  if (in_the_way.empty()) {
    make_ready(lines, alone);
    const GitAnswer tried = git_({"read-tree", "-m", "-u", "--dry-run", from_, to_}, {.index = copy(), .input = {}});
    if (tried.status == 0) return make_next();
    named = tried.complaint;
  }
  throw Error(Errc::wrong_state, "the branch is checked out in " + places_.work_tree +
                                     ", and what is not committed there is in the way: " + named +
                                     "; commit, stash or remove it there");
}

std::optional<std::vector<std::string>> CheckoutStep::take_up() {
  std::set<std::string> all;
  for (const Change& change : changes_) all.insert(change.path);
  const std::vector<Has> has = files_of(all);
  const std::set<std::string> not_before = staged_against(from_, copy()), not_after = staged_against(to_, copy());
  std::string lines;
  std::vector<std::size_t> alone;
  std::vector<std::string> held_up;
  bool is_done = true;
  for (std::size_t at = 0; at < changes_.size(); ++at) {
    const Change& change = changes_[at];
    const bool is_index_before = !not_before.contains(change.path), is_index_after = !not_after.contains(change.path);
    const bool is_own_entry = !is_index_before && !is_index_after;
    const bool is_alone = has[at] == Has::after || has[at] == Has::other || is_own_entry;
    const bool is_in_the_way = has[at] != Has::after && is_alone && !is_index_after;
    if (is_alone) alone.push_back(at);
    if (is_in_the_way) held_up.push_back(change.path);
    // What git takes along is in its index as it was before.
    const bool becomes_after = is_alone && (is_index_before || has[at] == Has::after) && !is_index_after;
    const bool becomes_before = !is_alone && is_index_after;
    if (becomes_after || becomes_before)
      lines += (becomes_after ? change.after : change.before) + "\t" + change.path + '\0';
    is_done = is_done && is_alone && is_index_after;
  }
  if (is_done) return std::nullopt;
  make_ready(lines, alone);
  make_next();
  return held_up;
}

void CheckoutStep::take_index() { rename_index(next(), places_.index); }

CheckoutStep::Behind CheckoutStep::take_files() {
  const GitAnswer taken = git_({"read-tree", "-m", "-u", from_, to_}, {.index = copy(), .input = {}});
  std::set<std::string> behind;
  if (taken.status == 0) {
    rename_index(copy(), places_.index);
  } else {
    copy_index(places_.index, copy());
    refresh(copy());
    behind = paths_of({"diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules"}, copy());
  }
  // git only warns of a file that it cannot remove.
  for (const Change& change : changes_) {
    const Kind kind = change.is_removed ? kind_of(places_.work_tree + "/" + change.path) : Kind::none;
    if (kind == Kind::file || kind == Kind::link) behind.insert(change.path);
  }
  Behind found{.paths = {}, .complaint = taken.complaint};
  std::set_intersection(behind.begin(), behind.end(), followed_.begin(), followed_.end(),
                        std::back_inserter(found.paths));
  return found;
}

}  // namespace escrow::daemon
