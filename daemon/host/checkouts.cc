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
constexpr unsigned kRecordMode = 0644;
// Lists of names are read whole: one that was cut would let a file be overwritten that git names further down.
constexpr std::size_t kMostBytesOfAList = std::size_t{1} << 30;
constexpr std::chrono::seconds kCheckoutPatience{60}, kIndexPatience{10};
constexpr int kNotOurs = 128;  // as git itself ends
constexpr int kMostAttempts = 3;
// Of files that git could not write: who committed them as they are would take the session's commit back.
constexpr const char* kWritesOne = "; `git checkout HEAD -- FILE` writes one there, too";

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

// Each move is a branch, a commit and work trees, each text ended by a NUL; an empty text is between two moves.
std::vector<Checkouts::Begun> Checkouts::read_record() const {
  std::vector<std::vector<std::string>> parts(1);
  for (std::string& text : storage::split_texts(storage::read_if_there(record_path()).value_or(""))) {
    if (text.empty())
      parts.emplace_back();
    else
      parts.back().push_back(std::move(text));
  }
  std::vector<Begun> moves;
  for (const std::vector<std::string>& part : parts)
    if (part.size() > 2) moves.push_back({part[0], part[1], {part.begin() + 2, part.end()}});
  return moves;
}

void Checkouts::write_record(const std::vector<Begun>& moves) const {
  std::string record;
  for (const Begun& move : moves)
    record += (record.empty() ? "" : std::string(1, '\0')) + storage::join_texts({move.branch, move.before}) +
              storage::join_texts(move.work_trees);
  if (moves.empty())
    ::unlink(record_path().c_str());
  else
    storage::write_file_durably(record_path(), record, kRecordMode);
}

void Checkouts::keep_record(const std::vector<Begun>& moves) const noexcept {
  try {
    write_record(moves);
  } catch (const std::exception& failure) {
    log_.write(session::LogLevel::warning, std::string("the next command looks at each work tree that has followed its "
                                                       "branch once more: ") + failure.what());
  }
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
GitAnswer Checkouts::git(const std::string& work_tree, const std::vector<std::string>& arguments,
                         const storage::UniqueFd& turn, const GitInstead& instead) const {
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
  const GitAnswer answer = git(work_tree, arguments);
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
  GitAnswer answer = git(work_tree, {"symbolic-ref", "--quiet", "--short", "HEAD"});
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
  const GitAnswer answer = git(work_tree, {"rev-parse", "--verify", "--quiet", "HEAD^{commit}"});
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

bool Checkouts::may_be_any() const {
  return git_directory_.ends_with("/.git") || storage::is_there(git_directory_ + "/worktrees");
}

bool Checkouts::is_listed(const std::string& work_tree) const {
  const std::string linked = git_directory_ + "/worktrees";
  for (const std::string& name : storage::names_in(linked))
    if (path_named_in(linked + "/" + name + "/gitdir") == work_tree + "/.git") return true;
  return false;
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
    const Whose whose = whose_is(at);
    // Its disk may only be away. Where there is another repository by now, it is gone, and git's to prune.
    if (whose == Whose::nobodys && !storage::is_there(at + "/.git"))
      throw Error(Errc::wrong_state, "the branch '" + branch + "' is checked out in " + session::quote_path(at) +
                                         ", which is not there and would no longer match it; mount its disk, or, if "
                                         "it is gone, run `git worktree remove --force --force` of it");
    if (whose == Whose::another_users)
      throw Error(Errc::wrong_state, "the branch '" + branch + "' is checked out in " + session::quote_path(at) +
                                         ", which belongs to another user; check out another branch there, or, if you "
                                         "trust it, name it in your safe.directory (see git-config(1))");
    if (whose == Whose::ours) found.push_back(at);
  }
  return found;
}

std::string Checkouts::index_of(const std::string& work_tree) const {
  std::string directory;
  if (whose_is(work_tree, directory) != Whose::ours)
    throw Error(Errc::wrong_state, session::quote_path(work_tree) + " is no work tree of the repository any more");
  std::string index = directory + "/index";
  struct stat status {};
  if (::lstat(index.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error(Errc::wrong_state, "the index of the work tree " + session::quote_path(work_tree) + ", " +
                                       session::quote_path(index) + ", is not a regular file; move it there, or " +
                                       "remove it and run `git reset` there");
  return index;
}

std::optional<IndexLock> Checkouts::lock_index(const std::string& index, IndexLock::Deadline deadline) const {
  return IndexLock::take(index, scratch_path("held"), deadline);
}

std::unique_ptr<CheckoutStep> Checkouts::begin(const std::string& work_tree, std::size_t number, IndexLock lock,
                                               const std::string& from, const std::string& to,
                                               const storage::UniqueFd& turn) const {
  return std::make_unique<CheckoutStep>(
      CheckoutStep::Places{.work_tree = work_tree,
                           .index = index_of(work_tree),
                           .scratch = scratch_path(std::to_string(number) + ".")},
      std::move(lock),
      [this, work_tree, &turn](const std::vector<std::string>& arguments, const GitInstead& instead) {
        return git(work_tree, arguments, turn, instead);
      },
      from, to);
}

std::unique_ptr<Checkouts::Move> Checkouts::prepare(const std::string& branch,
                                                    const std::optional<session::ObjectId>& from,
                                                    const session::ObjectId& to) const {
  for (int attempt = 1;; ++attempt) {
    const std::vector<std::string> work_trees = on_branch(branch);
    if (work_trees.empty()) return nullptr;
    try {
      return try_to_prepare(branch, from, to);
    } catch (const Error& error) {
      const bool may_be_a_switch = error.code() == Errc::wrong_state && attempt < kMostAttempts;
      if (!may_be_a_switch || !goes_one_elsewhere(work_trees, branch)) throw;
    }
  }
}

std::unique_ptr<Checkouts::Move> Checkouts::try_to_prepare(const std::string& branch,
                                                           const std::optional<session::ObjectId>& from,
                                                           const session::ObjectId& to) const {
  storage::UniqueFd turn = storage::try_lock_file(lock_path(), kCheckoutPatience);
  if (!turn)
    throw Error(Errc::unavailable, "another command has been taking the work trees of '" + branch + "' along for " +
                                       std::to_string(kCheckoutPatience.count()) + " s (it has " + lock_path() +
                                       " locked); wait for it or end it, then commit the session again");
  const auto deadline = std::chrono::steady_clock::now() + kIndexPatience;
  for (const std::string& sentence : mend_now(turn, branch, deadline)) log_.write(session::LogLevel::warning, sentence);
  const std::vector<std::string> work_trees = on_branch(branch);
  if (work_trees.empty()) return nullptr;
  auto move = std::make_unique<Move>(*this, std::move(turn), branch, work_trees);
  const std::string before = from ? from->hex() : kEmptyTree;
  move->record(before);
  try {
    move->lock(deadline);
    move->prepare(before, to.hex());
  } catch (const Error& error) {
    throw Error(error.code(), std::string(error.what()) + "; then commit the session again");
  }
  return move;
}

Checkouts::Move::Move(const Checkouts& checkouts, storage::UniqueFd turn, std::string branch,
                      std::vector<std::string> work_trees)
    : checkouts_(checkouts),
      turn_(std::move(turn)),
      branch_(std::move(branch)),
      work_trees_(std::move(work_trees)),
      others_(checkouts.read_record()) {}

void Checkouts::Move::record(const std::string& before) {
  std::vector<Begun> moves = others_;
  moves.push_back({branch_, before, work_trees_});
  checkouts_.write_record(moves);
}

void Checkouts::Move::lock(IndexLock::Deadline deadline) {
  for (const std::string& one : work_trees_) {
    const std::string index = checkouts_.index_of(one);
    std::optional<IndexLock> lock = checkouts_.lock_index(index, deadline);
    if (!lock)
      throw Error(Errc::unavailable, "the branch is checked out in " + session::quote_path(one) +
                                         ", and git keeps its index locked (" +
                                         session::quote_path(IndexLock::path_of(index)) + "); wait for that git or "
                                         "end it, or, if none is running, remove the lock");
    git_directories_.push_back(storage::parent_of(index));
    locks_.push_back(*std::move(lock));
  }
}

void Checkouts::Move::prepare(const std::string& from, const std::string& to) {
  std::vector<std::unique_ptr<CheckoutStep>> steps;
  for (std::size_t at = 0; at < work_trees_.size(); ++at) {
    steps.push_back(checkouts_.begin(work_trees_[at], at, std::move(locks_[at]), from, to, turn_));
    steps.back()->prepare();
  }
  steps_ = std::move(steps);
  to_ = to;
}

Checkouts::Move::~Move() {
  if (!is_settled_ && steps_.empty()) has_not_moved();  // it was not prepared
  if (is_settled_) return;
  try {
    const GitAnswer head = checkouts_.git(steps_.front()->work_tree(), {"rev-parse", "--verify", "--quiet",
                                                                        "refs/heads/" + branch_});
    if (head.out == to_ + "\n") follow();
  } catch (const std::exception& failure) {
    checkouts_.log_.write(session::LogLevel::warning, std::string("the work trees of '") + branch_ +
                                                          "' may not have followed it: " + failure.what());
  }
}

void Checkouts::Move::has_not_moved() noexcept {
  is_settled_ = true;
  steps_.clear();
  locks_.clear();
  checkouts_.keep_record(others_);
}

// All indexes first: until then a plain `git commit` would take the commit back, if it came through.
bool Checkouts::Move::follow() noexcept {
  is_settled_ = true;
  bool has_followed = true;
  const auto warn = [&](const std::string& work_tree, const std::string& why) {
    has_followed = false;
    checkouts_.log_.write(session::LogLevel::warning, "the branch '" + branch_ + "' has moved, but the work tree " +
                                                          session::quote_path(work_tree) +
                                                          " could not follow (the next command tries again): " + why);
  };
  const auto each = [&](const auto& take) {
    for (const std::unique_ptr<CheckoutStep>& step : steps_) {
      try {
        take(*step);
      } catch (const std::exception& failure) {
        warn(step->work_tree(), failure.what());
      }
    }
  };
  each([](CheckoutStep& step) { step.take_index(); });
  each([&](CheckoutStep& step) {
    const CheckoutStep::Behind behind = step.take_files();
    if (behind.paths.empty()) return;
    warn(step.work_tree(), "these files are not as committed: " + first_of(behind.paths) + " (" + behind.complaint +
                               ")" + kWritesOne);
  });
  steps_.clear();
  if (has_followed) checkouts_.keep_record(others_);
  return has_followed;
}

std::vector<std::string> Checkouts::mend() const {
  if (::access(record_path().c_str(), F_OK) != 0) return {};
  const storage::UniqueFd turn = storage::try_lock_file(lock_path());
  if (!turn) return {};  // it is being made now
  return mend_now(turn, "", std::chrono::steady_clock::now());
}

// The newest move first: an older one takes what that leaves in the index for the work tree's own.
std::vector<std::string> Checkouts::mend_now(const storage::UniqueFd& turn, const std::string& branch,
                                             IndexLock::Deadline deadline) const {
  std::vector<Begun> moves = read_record();
  std::vector<std::string> said;
  std::size_t done = 0;
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    const IndexLock::Deadline until = move->branch == branch ? deadline : std::chrono::steady_clock::now();
    done += std::erase_if(move->work_trees, [&](const std::string& work_tree) {
      const Whose whose = whose_is(work_tree);
      // Another user's next command mends it, or ours, once its disk is back.
      if (whose == Whose::nobodys) return storage::is_there(work_tree + "/.git") || !is_listed(work_tree);
      if (whose != Whose::ours) return false;
      const std::optional<Mended> mended = mend_one(work_tree, move->branch, move->before, turn, until);
      if (mended) said.push_back("the work tree " + session::quote_path(work_tree) + mended->sentence);
      return !mended || mended->follows;
    });
  }
  std::erase_if(moves, [](const Begun& move) { return move.work_trees.empty(); });
  if (done > 0 || moves.empty()) keep_record(moves);
  return said;
}

std::optional<Checkouts::Mended> Checkouts::mend_one(const std::string& work_tree, const std::string& branch,
                                                     const std::string& from, const storage::UniqueFd& turn,
                                                     IndexLock::Deadline deadline) const {
  const std::string is_behind = " is behind its branch '" + branch + "' and cannot follow: ";
  const std::string way_on = "; commit or stash what is changed there, or `git reset --hard` to give it up";
  try {
    const std::string index = index_of(work_tree);
    // First, as a commit of the user's may come until then.
    std::optional<IndexLock> lock = lock_index(index, deadline);
    GitAnswer head = git(work_tree, {"rev-parse", "--verify", "--quiet", "HEAD"});
    const GitAnswer on = git(work_tree, {"symbolic-ref", "--quiet", "HEAD"});
    if (head.out.ends_with('\n')) head.out.pop_back();
    // It never moved; or somebody has taken the work tree elsewhere, knowingly.
    if (head.status != 0 || head.out == from || on.out != "refs/heads/" + branch + "\n") return std::nullopt;
    if (!lock)
      return Mended{false, is_behind + "git has its index locked (" + session::quote_path(IndexLock::path_of(index)) +
                               "); wait for that git or end it, or, if none is running, remove the lock"};
    const auto step = begin(work_tree, 0, std::move(*lock), from, head.out, turn);
    const std::optional<std::vector<std::string>> held_up = step->take_up();
    if (!held_up) return std::nullopt;
    step->take_index();
    const CheckoutStep::Behind behind = step->take_files();
    if (!held_up->empty()) return Mended{false, is_behind + first_of(*held_up) + way_on};
    if (!behind.paths.empty())
      return Mended{false, is_behind + first_of(behind.paths) + " (" + behind.complaint + ")" + kWritesOne};
    return Mended{true, " was behind its branch '" + branch + "', as a command was killed, and follows it again"};
  } catch (const Error& failure) {
    return Mended{false, is_behind + failure.what() + way_on};
  }
}

}  // namespace escrow::daemon
