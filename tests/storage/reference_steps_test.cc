// Every change of a reference, and the making of a repository, stopped before each system call by which it
// changes a file: git changes and packs references there, the process dies there, or the call fails.
#include <signal.h>

#include <filesystem>
#include <set>

#include "storage/git/reference_lock.h"
#include "tests/storage/reference_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/system_calls.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Error;
using session::ObjectId;
using session::SessionId;
using support::SystemCall;
using support::WatchedSystemCalls;

// More than any change takes.
constexpr int kMostCalls = 60;

// Branches main and other, a branch that git is about to delete, and commits to move them to.
class References {
 public:
  References() {
    const auto quarantine = repository_.quarantine();
    std::vector<std::unique_ptr<session::Quarantine::Published>> keep;
    std::vector<ObjectId> parents;
    for (int i = 0; i <= kMostCalls * 2; ++i) {
      commits_.push_back(GitTestRepository::put_file(*quarantine, "f", std::to_string(i), parents));
      parents = {commits_.back()};
    }
    keep.push_back(quarantine->publish(commits_.back()));
    for (const char* branch : {"main", "other", "target"}) set(branch, commits_[0]);
    repository_.git("pack-refs --all --prune");
  }

  GitReferences& references() { return *repository_.references; }
  const std::string& path() const { return repository_.path; }
  const std::vector<ObjectId>& commits() const { return commits_; }
  std::string git(const std::string& arguments) const { return repository_.git(arguments); }
  void set(const std::string& branch, const ObjectId& to) { git("update-ref refs/heads/" + branch + " " + to.hex()); }
  std::optional<ObjectId> at(const std::string& name) const {
    const Shell found = shell("git -C " + path() + " rev-parse --verify -q " + name);
    return found.status == 0 ? ObjectId::from_hex(found.output) : std::nullopt;
  }
  std::string lock_files() const {
    return run("cd " + path() + " && find . -name '*.lock' ! -path './escrow/*.lock' && "
               "find escrow/locks -type f 2>/dev/null || true");
  }

  // What git does between two of our calls: commits to branches, deletes one, packs them all, and takes what it packed
  // away. Where we hold a lock it is refused at once.
  void git_moves_and_packs(int turn) {
    const std::string git = "git -C " + path() + " -c core.packedRefsTimeout=0 -c core.filesRefLockTimeout=0 ";
    const std::string to = commits_[static_cast<std::size_t>(turn)].hex();
    if (shell(git + "update-ref refs/heads/main " + to).status == 0) main_ = commits_[static_cast<std::size_t>(turn)];
    if (shell(git + "update-ref refs/heads/other " + to).status == 0) other_ = commits_[static_cast<std::size_t>(turn)];
    if (shell(git + "update-ref -d refs/heads/doomed").status == 0) is_doomed_gone_ = true;
    shell(git + "pack-refs --all --prune");
  }
  void begin_round() {
    git("update-ref refs/heads/doomed " + commits_[0].hex());
    git("pack-refs --all --prune");
    is_doomed_gone_ = false;
  }
  void expect_git_lost_nothing(const std::string& where) {
    EXPECT_EQ(at("refs/heads/main"), main_) << where;
    EXPECT_EQ(at("refs/heads/other"), other_) << where;
    EXPECT_EQ(!at("refs/heads/doomed"), is_doomed_gone_) << where;
  }

 private:
  GitTestRepository repository_;
  std::vector<ObjectId> commits_;
  std::optional<ObjectId> main_ = std::nullopt, other_ = std::nullopt;
  bool is_doomed_gone_ = false;

 public:
  void remember() {
    main_ = at("refs/heads/main");
    other_ = at("refs/heads/other");
  }
};

// One change of one reference; `prepare` makes what it changes anew.
struct Change {
  const char* name;
  void (*prepare)(References&, const SessionId&);
  void (*act)(References&, const SessionId&);
  bool (*is_done)(References&, const SessionId&);
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

std::string pin_name(References& all, const SessionId& session) {
  return "refs/escrow/base/" + session.text() + "/" + all.commits()[1].hex();
}
std::string result_name(const SessionId& session) { return "refs/sessions/" + session.text(); }

const Change kChanges[] = {
    {"UnpinningWhatGitPacked",
     [](References& all, const SessionId& session) {
       all.references().pin_base(session, all.commits()[1]);
       all.git("pack-refs --all --prune");
     },
     [](References& all, const SessionId& session) { all.references().unpin_base(session); },
     [](References& all, const SessionId& session) { return !all.at(pin_name(all, session)); }},
    {"UnpinningALooseOne",
     [](References& all, const SessionId& session) { all.references().pin_base(session, all.commits()[1]); },
     [](References& all, const SessionId& session) { all.references().unpin_base(session); },
     [](References& all, const SessionId& session) { return !all.at(pin_name(all, session)); }},
    {"PinningWhatThePackedBranchHas", [](References&, const SessionId&) {},
     [](References& all, const SessionId& session) { all.references().pin_fresh(session, "main", all.commits()[1]); },
     [](References& all, const SessionId& session) { return all.at(pin_name(all, session)) == all.commits()[1]; }},
    {"PinningAnotherBase", [](References&, const SessionId&) {},
     [](References& all, const SessionId& session) { all.references().pin_base(session, all.commits()[1]); },
     [](References& all, const SessionId& session) { return all.at(pin_name(all, session)) == all.commits()[1]; }},
    {"KeepingAResult", [](References&, const SessionId&) {},
     [](References& all, const SessionId& session) { all.references().keep_result(session, all.commits()[1]); },
     [](References& all, const SessionId& session) { return all.at(result_name(session)) == all.commits()[1]; }},
    {"ReplacingAPackedResult",
     [](References& all, const SessionId& session) {
       all.references().keep_result(session, all.commits()[0]);
       all.git("pack-refs --all --prune");
     },
     [](References& all, const SessionId& session) { all.references().keep_result(session, all.commits()[1]); },
     [](References& all, const SessionId& session) { return all.at(result_name(session)) == all.commits()[1]; }},
    {"DroppingAPackedResult",
     [](References& all, const SessionId& session) {
       all.references().keep_result(session, all.commits()[1]);
       all.git("pack-refs --all --prune");
     },
     [](References& all, const SessionId& session) { all.references().drop_result(session); },
     [](References& all, const SessionId& session) { return !all.at(result_name(session)); }},
    {"DroppingAResultThatIsPackedAndLoose",
     [](References& all, const SessionId& session) {
       all.references().keep_result(session, all.commits()[0]);
       all.git("pack-refs --all --prune");
       all.references().keep_result(session, all.commits()[1]);
     },
     [](References& all, const SessionId& session) { all.references().drop_result(session); },
     [](References& all, const SessionId& session) { return !all.at(result_name(session)); }},
    {"MovingABranch",
     [](References& all, const SessionId&) {
       all.set("target", all.commits()[0]);
       all.git("pack-refs --all --prune");
     },
     [](References& all, const SessionId&) {
       all.references().compare_and_swap("target", all.commits()[0], all.commits()[1], "moved");
     },
     [](References& all, const SessionId&) { return all.at("refs/heads/target") == all.commits()[1]; }},
    {"CreatingABranch",
     [](References& all, const SessionId&) { shell("git -C " + all.path() + " update-ref -d refs/heads/new/one"); },
     [](References& all, const SessionId&) {
       all.references().compare_and_swap("new/one", std::nullopt, all.commits()[1], "created");
     },
     [](References& all, const SessionId&) { return all.at("refs/heads/new/one") == all.commits()[1]; }},
};

class EveryCall : public testing::TestWithParam<Change> {
 protected:
  References all_;
};

TEST_P(EveryCall, NothingThatGitDoesMeanwhileIsLost) {
  const Change& change = GetParam();
  for (int step = 1;; ++step) {
    ASSERT_LT(step, kMostCalls);
    const SessionId session = SessionId::generate();
    change.prepare(all_, session);
    all_.begin_round();
    all_.remember();
    std::string where = "no call";
    int count = 0;
    {
      WatchedSystemCalls calls([&](const SystemCall& call) {
        if (call.number != step) return 0;
        where = "before " + call.name + " " + call.path;
        all_.git_moves_and_packs(step);
        return 0;
      });
      change.act(all_, session);
      count = calls.count();
    }
    all_.expect_git_lost_nothing(where);
    EXPECT_TRUE(change.is_done(all_, session)) << where;
    EXPECT_EQ(all_.lock_files(), "") << where;
    if (count < step) break;
  }
  all_.git("fsck --strict --no-dangling");
}

TEST_P(EveryCall, AKillBlocksNobodyAndTheChangeIsMadeByTheNext) {
  const Change& change = GetParam();
  for (int step = 1;; ++step) {
    ASSERT_LT(step, kMostCalls);
    const SessionId session = SessionId::generate();
    change.prepare(all_, session);
    all_.begin_round();
    const pid_t child = ::fork();
    if (child == 0) {
      WatchedSystemCalls calls([&](const SystemCall& call) {
        if (call.number == step) ::kill(::getpid(), SIGKILL);
        return 0;
      });
      change.act(all_, session);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const std::string where = "killed at call " + std::to_string(step);
    if (step % 2 == 0) all_.references().sweep_locks();
    {
      const WatchedSystemCalls calls(finds_no_lock(where));
      change.act(all_, session);
    }
    EXPECT_TRUE(change.is_done(all_, session)) << where;
    all_.references().sweep_locks();
    EXPECT_EQ(all_.lock_files(), "") << where;
    all_.git("pack-refs --all --prune");
    if (WIFEXITED(status)) break;
  }
}

// What a sync that failed was to protect is not on disk: nobody may hear that it is.
TEST_P(EveryCall, AFailureIsToldAndTheNextAttemptSucceeds) {
  const Change& change = GetParam();
  for (const int error : {EIO, ENOSPC}) {
    for (int step = 1;; ++step) {
      ASSERT_LT(step, kMostCalls);
      const SessionId session = SessionId::generate();
      change.prepare(all_, session);
      all_.begin_round();
      all_.remember();
      std::string where = "no call", failed;
      int count = 0;
      bool was_told = false;
      {
        WatchedSystemCalls calls([&](const SystemCall& call) {
          if (call.number != step) return 0;
          failed = call.name;
          where = call.name + " " + call.path + ": " + std::to_string(error);
          return error;
        });
        try {
          change.act(all_, session);
        } catch (const Error& told) {
          was_told = true;
          EXPECT_EQ(std::string(told.what()).find("No such file"), std::string::npos) << where << told.what();
        }
        count = calls.count();
      }
      EXPECT_TRUE(was_told || (failed != "fsync" && failed != "write")) << where;
      EXPECT_TRUE(was_told || change.is_done(all_, session)) << where;
      change.act(all_, session);
      EXPECT_TRUE(change.is_done(all_, session)) << where;
      all_.expect_git_lost_nothing(where);
      all_.references().sweep_locks();
      EXPECT_EQ(all_.lock_files(), "") << where;
      if (count < step) break;
    }
  }
}

// What was created, renamed or written after its last sync is not there after a power loss.
class Unsynced {
 public:
  void saw(const SystemCall& call) {
    const std::string path = fs::weakly_canonical(call.path);
    if (call.name == "fsync") {
      files_.erase(path);
      directories_.erase(path);
    } else if (call.name == "write" || call.name == "ftruncate" || call.name == "open") {
      files_.insert(path);
      if (call.name == "open" && !fs::exists(path)) directories_.insert(fs::path(path).parent_path());
    } else {
      files_.erase(path);  // of a rename: what was written under another name, which is checked by that
      directories_.insert(fs::path(path).parent_path());
    }
  }
  std::vector<std::string> below(const std::string& top) const {
    std::vector<std::string> found;
    for (const std::set<std::string>* all : {&files_, &directories_})
      for (const std::string& path : *all)
        if (path.starts_with(top) && fs::exists(path) && !path.ends_with("-shm")) found.push_back(path);
    return found;
  }

 private:
  std::set<std::string> files_, directories_;
};

TEST(Init, IsOnDiskWithEveryPartBeforeItSaysSo) {
  const support::TemporaryDirectory directory;
  const std::string top = fs::canonical(directory.path());
  for (const bool adopted : {false, true}) {
    const std::string path = top + (adopted ? "/adopted.git" : "/deep/er/r.git");
    if (adopted) run("git init -q --bare " + path);
    Unsynced unsynced;
    bool syncs_head = false, syncs_config = false;
    {
      WatchedSystemCalls calls([&](const SystemCall& call) {
        unsynced.saw(call);
        syncs_head = syncs_head || (call.name == "fsync" && call.path == path + "/HEAD");
        syncs_config = syncs_config || (call.name == "fsync" && call.path == path + "/config");
        return 0;
      });
      Repository::init(path, "main");
    }
    EXPECT_TRUE(syncs_head && syncs_config);
    for (const std::string& one : unsynced.below(top)) ADD_FAILURE() << one << " is not on disk";
    EXPECT_EQ(run("git -C " + path + " rev-parse --is-bare-repository"), "true");
    EXPECT_EQ(run("find " + top + " -name '*.new*' -o -name '*.copy*' -o -name '*.lock' ! -path '*/escrow/*'"), "");
  }
}

// Wherever it is cut short, by a kill or by a call that fails: what is there is no repository, or one that works.
TEST(Init, IsDoneByTheNextAfterAKillOrAFailureAtAnyCall) {
  const support::TemporaryDirectory directory;
  const auto parts = static_cast<int>(support::gate_or_campaign(4, 1));
  const int first = 1 + static_cast<int>(support::seed_of_this_run() % static_cast<std::uint64_t>(parts));
  int tried = 0;
  for (const int error : {0, ENOSPC}) {
    bool is_over = false;
    for (int step = first; !is_over; step += parts * (error == 0 ? 1 : 3)) {
      const std::string path = directory.path() + "/" + std::to_string(error) + "-" + std::to_string(step) + "/r.git";
      const pid_t child = ::fork();
      if (child == 0) {
        int count = 0;
        WatchedSystemCalls calls([&](const SystemCall& call) {
          // SQLite's own are SQLite's to survive.
          if (call.path.find("catalog.db") != std::string::npos || ++count != step) return 0;
          if (error == 0) ::kill(::getpid(), SIGKILL);
          return error;
        });
        try {
          Repository::init(path, "main");
        } catch (const Error&) {
        }
        ::_exit(count < step ? 17 : 0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      is_over = WIFEXITED(status) && WEXITSTATUS(status) == 17;
      const std::string where = std::to_string(error) + " at call " + std::to_string(step);
      {
        const WatchedSystemCalls calls(finds_no_lock(where));
        EXPECT_NO_THROW(Repository::init(path, "main")) << where;
      }
      session::NullLog silent;
      EXPECT_EQ(Repository::open(path, silent)->references().default_branch(), "main") << where;
      if (++tried % 8 != 0) continue;
      EXPECT_EQ(run("git -C " + path + " config --get-all receive.hideRefs"), "refs/sessions") << where;
      run("git -C " + path + " fsck && git -C " + path + " config a.b c && git -C " + path + " pack-refs --all");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryCall, testing::ValuesIn(kChanges),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace escrow::storage
