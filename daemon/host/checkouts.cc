#include "daemon/host/checkouts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/process/program_output.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/joined_texts.h"
#include "storage/disk/lock_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr const char* kEmptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
constexpr std::size_t kNamedInTheWay = 5;
constexpr unsigned kRecordMode = 0644;
// Lists of names are read whole: one that was cut would let a file be overwritten that git names further down.
constexpr std::size_t kMostBytesOfAList = std::size_t{1} << 30;
constexpr std::chrono::seconds kCheckoutPatience{60};
constexpr int kNotOurs = 128;  // as git itself ends

// Those of `own` that are one of `changed`, or a directory above or a file below one.
std::vector<std::string> in_the_way_of(const std::set<std::string>& changed, const std::vector<std::string>& own) {
  std::vector<std::string> found;
  for (const std::string& path : own) {
    bool is_one = changed.contains(path);
    for (std::size_t slash = path.rfind('/'); !is_one && slash != path.npos && slash > 0;
         slash = path.rfind('/', slash - 1))
      is_one = changed.contains(path.substr(0, slash));
    const auto below = changed.lower_bound(path + '/');
    if (is_one || (below != changed.end() && below->starts_with(path + '/'))) found.push_back(path);
  }
  return found;
}

std::string first_of(const std::vector<std::string>& paths) {
  std::string named;
  for (std::size_t at = 0; at < std::min(paths.size(), kNamedInTheWay); ++at)
    named += (at == 0 ? "" : ", ") + session::quote_path(paths[at]);
  if (paths.size() > kNamedInTheWay) named += " and " + std::to_string(paths.size() - kNamedInTheWay) + " more";
  return named;
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
    struct stat status {};
    if (::lstat((work_tree + "/" + path).c_str(), &status) == 0 && S_ISLNK(status.st_mode)) links.insert(path);
    kept.push_back(path);
  }
  return kept;
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code failed;
  return std::filesystem::equivalent(one, other, failed);
}

// All of a small file but the ends of lines after it; empty: there is none.
std::string path_named_in(const std::string& file) {
  std::string path = storage::read_if_there(file).value_or("");
  while (path.ends_with('\n') || path.ends_with('\r')) path.pop_back();
  return path;
}

// The git directory that a work tree's .git is, or names (gitrepository-layout(5)); empty: neither.
std::filesystem::path where_git_leads(const std::filesystem::path& work_tree) {
  const std::filesystem::path dot_git = work_tree / ".git";
  struct stat status {};
  if (::stat(dot_git.c_str(), &status) != 0 && errno != ENOENT && errno != ENOTDIR)
    throw storage::system_error(errno, "look at " + dot_git.string());
  if (S_ISDIR(status.st_mode)) return dot_git;
  constexpr std::string_view kLeads = "gitdir: ";
  const std::string text = S_ISREG(status.st_mode) ? path_named_in(dot_git) : "";
  return text.starts_with(kLeads) ? work_tree / text.substr(kLeads.size()) : std::filesystem::path();
}

}  // namespace

Checkouts::Checkouts(std::string git_directory, session::Log& log)
    : git_directory_(std::move(git_directory)), log_(log) {}

std::string Checkouts::record_path() const { return git_directory_ + "/escrow/checkouts.behind"; }
std::string Checkouts::scratch_path(const std::string& what) const {
  return git_directory_ + "/escrow/checkouts." + what;
}
std::string Checkouts::lock_path() const { return git_directory_ + "/escrow/checkouts.lock"; }

Checkouts::Whose Checkouts::whose_is(const std::string& work_tree, std::string& git_directory) const {
  const std::string dot_git = work_tree + "/.git", linked = git_directory_ + "/worktrees";
  try {
    const std::filesystem::path found = where_git_leads(work_tree);
    if (found.empty()) return Whose::nobodys;
    git_directory = git_directory_;
    if (!is_same_file(found, git_directory_)) {
      if (!is_same_file(found.parent_path(), linked)) return Whose::nobodys;
      // By its name in the repository: what .git says may be another path to it, that somebody changes.
      git_directory = linked + "/" + found.filename().string();
      const std::filesystem::path own = git_directory, back = path_named_in(git_directory + "/gitdir");
      if (back.filename() != ".git" || !is_same_file(own / back.parent_path(), work_tree) ||
          !is_same_file(own / path_named_in(git_directory + "/commondir"), git_directory_))
        return Whose::nobodys;
    }
    struct stat repository {};
    if (::stat(git_directory_.c_str(), &repository) != 0) return Whose::another_users;
    const std::array<std::string, 3> all = {work_tree, dot_git, git_directory};
    const bool is_ours = std::all_of(all.begin(), all.end(), [&](const std::string& one) {
      struct stat status {};
      if (::lstat(one.c_str(), &status) != 0) return false;
      return status.st_uid == ::geteuid() || status.st_uid == repository.st_uid;
    });
    if (is_ours) return Whose::ours;
  } catch (const Error&) {
    return Whose::another_users;  // it cannot be looked at
  }
  // git asks for safe.directory, and reads no configuration there unless it is named.
  const ProgramOutput asked = run_program({"env", "LC_ALL=C", "git", "-C", work_tree, "rev-parse", "--git-dir"});
  return asked.status == 0 ? Whose::ours : Whose::another_users;
}

Checkouts::Whose Checkouts::whose_is(const std::string& work_tree) const {
  std::string git_directory;
  return whose_is(work_tree, git_directory);
}

// The repository is trusted: that was decided when it was opened. main() has dropped the caller's GIT_DIR and its kin.
Checkouts::Answer Checkouts::git(const std::string& work_tree, const std::vector<std::string>& arguments,
                                 const storage::UniqueFd& turn, const Instead& instead) const {
  std::string directory;
  const Whose whose = whose_is(work_tree, directory);
  if (whose == Whose::nobodys) return {kNotOurs, "", "it is no work tree of the repository any more"};
  if (whose == Whose::another_users) return {kNotOurs, "", "it belongs to another user"};
  std::vector<std::string> command;
  if (!instead.input.empty()) command = {"sh", "-c", "exec \"$@\" < \"$0\"", instead.input};
  command.emplace_back("env");
  if (!instead.index.empty()) command.push_back("GIT_INDEX_FILE=" + instead.index);
  command.insert(command.end(), {"LC_ALL=C", "GIT_COMMON_DIR=" + git_directory_, "git", "--no-optional-locks",
                                 "--git-dir=" + directory, "--work-tree=" + work_tree, "-C", work_tree});
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProgramOutput output = run_program(command, {.most_bytes = kMostBytesOfAList, .lock = turn.get()});
  return {output.status, std::move(output.out), output.complaint()};
}

std::vector<std::string> Checkouts::list(const std::string& work_tree,
                                         const std::vector<std::string>& arguments) const {
  const Answer answer = git(work_tree, arguments);
  if (answer.status != 0)
    throw Error(Errc::unavailable, "`git " + arguments.front() + "` failed in " + work_tree + ": " + answer.complaint);
  return storage::split_texts(answer.out);
}

std::optional<std::string> Checkouts::work_tree_around(const std::string& directory) const {
  std::error_code failed;
  std::filesystem::path at = std::filesystem::canonical(directory, failed);
  for (; !at.empty() && !is_same_file(at, git_directory_); at = at.parent_path()) {
    const Whose whose = whose_is(at);
    if (whose == Whose::ours) return at;
    const std::filesystem::path dot_git = at / ".git";
    const bool is_of_another = std::filesystem::is_regular_file(dot_git, failed) ||
                               std::filesystem::exists(dot_git / "HEAD", failed);
    if (whose == Whose::another_users || is_of_another || at == at.root_path()) break;
  }
  return std::nullopt;
}

std::optional<std::string> Checkouts::branch_of(const std::string& work_tree) const {
  Answer answer = git(work_tree, {"symbolic-ref", "--quiet", "--short", "HEAD"});
  if (answer.out.ends_with('\n')) answer.out.pop_back();
  if (answer.status != 0 || answer.out.empty()) return std::nullopt;
  return answer.out;
}

std::vector<std::string> Checkouts::uncommitted(const std::string& work_tree, Untracked untracked) const {
  const char* which = untracked == Untracked::counted ? "--untracked-files=normal" : "--untracked-files=no";
  std::vector<std::string> paths;
  constexpr std::size_t kLetters = 3;  // "XY "
  for (const std::string& line :
       list(work_tree, {"status", "--porcelain", "-z", which, "--no-renames", "--ignore-submodules"}))
    if (line.size() > kLetters) paths.push_back(line.substr(kLetters));
  return paths;
}

std::optional<session::ObjectId> Checkouts::head_of(const std::string& work_tree) const {
  const Answer answer = git(work_tree, {"rev-parse", "--verify", "--quiet", "HEAD^{commit}"});
  if (answer.status != 0) return std::nullopt;
  return session::ObjectId::from_hex(answer.out.substr(0, answer.out.find('\n')));
}

std::vector<std::string> Checkouts::changed_paths(const std::string& work_tree) const {
  const std::string against = head_of(work_tree) ? "HEAD" : kEmptyTree;
  std::vector<std::string> paths =
      list(work_tree, {"diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules", against});
  const std::vector<std::string> untracked = list(work_tree, {"ls-files", "--others", "--exclude-standard", "-z"});
  paths.insert(paths.end(), untracked.begin(), untracked.end());
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::vector<std::string> Checkouts::on_branch(const std::string& branch) const {
  const ProgramOutput output = run_program({"env", "LC_ALL=C", "git", "--git-dir=" + git_directory_, "worktree", "list",
                                            "--porcelain", "-z"}, {.most_bytes = kMostBytesOfAList});
  if (output.status != 0)
    throw Error(Errc::unavailable, "`git worktree list` failed in " + git_directory_ + ": " + output.complaint());
  std::vector<std::string> found;
  std::string at;
  for (const std::string& line : storage::split_texts(output.out)) {
    if (line.starts_with("worktree ")) at = line.substr(9);
    if (line != "branch refs/heads/" + branch) continue;
    // One whose directory is gone is git's to prune, also where there is another one by now.
    const Whose whose = whose_is(at);
    if (whose == Whose::another_users)
      throw Error(Errc::wrong_state, "the branch '" + branch + "' is checked out in " + session::quote_path(at) +
                                         ", which belongs to another user; check out another branch there, or, if you "
                                         "trust it, name it in your safe.directory (see git-config(1))");
    if (whose == Whose::ours) found.push_back(at);
  }
  return found;
}

// git itself would bring back a file that was removed here, and does not name all that is in its way. Of what it does
// not know it looks only at what the commit would replace: the session may be mounted in the work tree.
void Checkouts::check(const std::string& work_tree, const std::string& from, const std::string& to,
                      const storage::UniqueFd& turn) const {
  git(work_tree, {"update-index", "-q", "--ignore-submodules", "--refresh"}, turn);
  const std::vector<std::string> changed =
      list(work_tree, {"diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to});
  std::vector<std::string> own =
      in_the_way_of(std::set<std::string>(changed.begin(), changed.end()), uncommitted(work_tree, Untracked::left_out));
  const Touched touched = this->touched(work_tree, from, to, turn);
  const std::set<std::string> same(touched.same.begin(), touched.same.end());
  std::erase_if(own, [&](const std::string& path) { return same.contains(path); });
  for (const std::string& path : touched.other)
    if (std::find(own.begin(), own.end(), path) == own.end()) own.push_back(path);
  std::string named = first_of(own);
  if (own.empty()) {
    // It locks the index, too.
    const Instead after = {.index = touched.same.empty() ? "" : scratch_path("index"), .input = {}};
    const Answer tried = git(work_tree, {"read-tree", "-m", "-u", "--dry-run", touched.from, to}, turn, after);
    ::unlink(scratch_path("index").c_str());
    if (tried.status == 0) return;
    named = tried.complaint;
  }
  throw Error(Errc::wrong_state, "the branch is checked out in " + work_tree +
                                     ", and what is not committed there is in the way: " + named +
                                     "; commit, stash or remove it there, then commit the session again");
}

// Candidates are what the work tree has otherwise than `from`, known to git or not; each is staged in a copy of the
// index, and compared with `to` there.
Checkouts::Touched Checkouts::touched(const std::string& work_tree, const std::string& from, const std::string& to,
                                      const storage::UniqueFd& turn) const {
  std::set<std::string> changed, candidates;
  const std::vector<std::string> moves =
      list(work_tree, {"diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to});
  for (std::size_t at = 0; at + 1 < moves.size(); at += 2) {
    const std::string& path = moves[at + 1];
    changed.insert(path);
    struct stat status {};
    const bool is_added = moves[at] == "A";
    if (is_added && ::lstat((work_tree + "/" + path).c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
      candidates.insert(path);
  }
  for (const std::string& path :
       list(work_tree, {"diff-index", "-z", "--name-only", "--no-renames", "--ignore-submodules", from}))
    if (changed.contains(path)) candidates.insert(path);
  Touched found{.same = {}, .other = {}, .from = from};
  if (candidates.empty()) return found;
  Answer index = git(work_tree, {"rev-parse", "--path-format=absolute", "--git-path", "index"});
  if (index.out.ends_with('\n')) index.out.pop_back();
  const std::string copy = scratch_path("index");
  std::error_code failed;
  std::filesystem::copy_file(index.out, copy, std::filesystem::copy_options::overwrite_existing, failed);
  if (failed) ::unlink(copy.c_str());  // there may be none yet
  found.other.assign(candidates.begin(), candidates.end());
  // git does not stage everything, for example what is behind a symbolic link by now.
  if (stage(work_tree, found.other, copy, turn).status != 0) return found;
  const Answer differing = git(work_tree, {"diff-index", "--cached", "-z", "--name-only", "--no-renames", to}, turn,
                               {.index = copy, .input = {}});
  if (differing.status != 0) return found;
  const std::vector<std::string> lines = storage::split_texts(differing.out);
  const std::set<std::string> differ(lines.begin(), lines.end());
  found.other.clear();
  for (const std::string& path : candidates) (differ.contains(path) ? found.other : found.same).push_back(path);
  if (found.same.empty()) return found;
  const std::string scratch = scratch_path("tree");
  const Instead in_scratch = {.index = scratch, .input = {}};
  ::unlink(scratch.c_str());
  if (git(work_tree, {"read-tree", from}, turn, in_scratch).status != 0 ||
      stage(work_tree, found.same, scratch, turn).status != 0)
    throw Error(Errc::unavailable, "git cannot take what is in " + work_tree + " into an index");
  Answer tree = git(work_tree, {"write-tree"}, turn, in_scratch);
  ::unlink(scratch.c_str());
  if (tree.status != 0)
    throw Error(Errc::unavailable, "`git write-tree` failed in " + work_tree + ": " + tree.complaint);
  found.from = tree.out.substr(0, tree.out.find('\n'));
  return found;
}

Checkouts::Answer Checkouts::stage(const std::string& work_tree, const std::vector<std::string>& paths,
                                   const std::string& index, const storage::UniqueFd& turn) const {
  const std::string input = scratch_path("paths");
  storage::write_file_durably(input, storage::join_texts(without_those_behind_links(work_tree, paths)), kRecordMode);
  Answer answer = git(work_tree, {"update-index", "--add", "--remove", "--replace", "-z", "--stdin"}, turn,
                      {.index = index, .input = input});
  ::unlink(input.c_str());
  return answer;
}

Checkouts::Answer Checkouts::follow(const std::string& work_tree, const std::string& from, const std::string& to,
                                    const storage::UniqueFd& turn) const {
  const Touched touched = this->touched(work_tree, from, to, turn);
  ::unlink(scratch_path("index").c_str());
  if (!touched.same.empty()) {
    Answer staged = stage(work_tree, touched.same, "", turn);
    if (staged.status != 0) return staged;
  }
  return git(work_tree, {"read-tree", "-m", "-u", touched.from, to}, turn);
}

std::unique_ptr<Checkouts::Move> Checkouts::prepare(const std::string& branch,
                                                    const std::optional<session::ObjectId>& from,
                                                    const session::ObjectId& to) const {
  if (on_branch(branch).empty()) return nullptr;
  storage::UniqueFd turn = storage::try_lock_file(lock_path(), kCheckoutPatience);
  if (!turn)
    throw Error(Errc::unavailable, "another command has been taking the work trees of '" + branch + "' along for " +
                                       std::to_string(kCheckoutPatience.count()) + " s (it has " + lock_path() +
                                       " locked); wait for it or end it, then commit the session again");
  for (const std::string& sentence : mend_now(turn)) log_.write(session::LogLevel::warning, sentence);
  const std::string before = from ? from->hex() : kEmptyTree;
  std::vector<std::string> work_trees = on_branch(branch);
  std::string record = branch + '\0' + before + '\0';
  for (const std::string& one : work_trees) {
    check(one, before, to.hex(), turn);
    record += one + '\0';
  }
  if (work_trees.empty()) return nullptr;
  storage::write_file_durably(record_path(), record, kRecordMode);
  return std::make_unique<Move>(*this, std::move(turn), std::move(work_trees), before, to.hex());
}

Checkouts::Move::Move(const Checkouts& checkouts, storage::UniqueFd turn, std::vector<std::string> work_trees,
                      std::string from, std::string to)
    : checkouts_(checkouts),
      turn_(std::move(turn)),
      work_trees_(std::move(work_trees)),
      from_(std::move(from)),
      to_(std::move(to)) {}

Checkouts::Move::~Move() {
  if (!is_behind_) ::unlink(checkouts_.record_path().c_str());
}

void Checkouts::Move::follow() noexcept {
  try {
    bool has_followed = true;
    for (const std::string& one : work_trees_) {
      const Answer answer = checkouts_.follow(one, from_, to_, turn_);
      if (answer.status == 0) continue;
      has_followed = false;
      checkouts_.log_.write(session::LogLevel::warning,
                            "the branch has moved, but the work tree " + one + " could not follow (the next command "
                            "tries again): " + answer.complaint);
    }
    is_behind_ = !has_followed;
  } catch (const std::exception& failure) {
    checkouts_.log_.write(session::LogLevel::warning,
                          std::string("the branch has moved, but its work trees could not follow (the next command "
                                      "tries again): ") + failure.what());
  }
}

std::vector<std::string> Checkouts::mend() const {
  if (::access(record_path().c_str(), F_OK) != 0) return {};
  const storage::UniqueFd turn = storage::try_lock_file(lock_path());
  if (!turn) return {};  // it is being made now
  return mend_now(turn);
}

// What was begun: a branch, where it was, and the work trees that were on it.
std::vector<std::string> Checkouts::mend_now(const storage::UniqueFd& turn) const {
  const std::optional<std::string> record = storage::read_if_there(record_path());
  if (!record) return {};
  const std::vector<std::string> parts = storage::split_texts(*record);
  std::vector<std::string> said;
  bool is_done = true;
  for (std::size_t at = 2; at < parts.size(); ++at) {
    const std::string& work_tree = parts[at];
    if (whose_is(work_tree) == Whose::another_users) {
      is_done = false;  // its owner's next command mends it
      continue;
    }
    Answer head = git(work_tree, {"rev-parse", "--verify", "--quiet", "HEAD"});
    const Answer on = git(work_tree, {"symbolic-ref", "--quiet", "HEAD"});
    if (head.out.ends_with('\n')) head.out.pop_back();
    // It never moved; or somebody has taken the work tree elsewhere, knowingly.
    if (head.status != 0 || head.out == parts[1] || on.out != "refs/heads/" + parts[0] + "\n") continue;
    git(work_tree, {"update-index", "-q", "--ignore-submodules", "--refresh"}, turn);
    const Answer followed = follow(work_tree, parts[1], head.out, turn);
    is_done = is_done && followed.status == 0;
    said.push_back(followed.status == 0
                       ? "the work tree " + work_tree + " was behind its branch '" + parts[0] +
                             "', as a command was killed, and follows it again"
                       : "the work tree " + work_tree + " is behind its branch '" + parts[0] +
                             "', as a command was killed, and cannot follow: " + followed.complaint +
                             "; commit or stash what is changed there, or `git reset --hard` to give it up");
  }
  if (is_done) ::unlink(record_path().c_str());
  return said;
}

}  // namespace escrow::daemon
