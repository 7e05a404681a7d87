#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "storage/git/reference_lock.h"
#include "tests/session/eventually.h"
#include "tests/storage/reference_fixture.h"
#include "tests/support/seed.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::ObjectId;
using session::SessionId;

TEST(GitReferences, ABranchIsCreatedOnlyWhenItIsAbsent) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b");
  EXPECT_EQ(commits.references().head("main"), std::nullopt);
  EXPECT_TRUE(commits.references().compare_and_swap("main", std::nullopt, a, "first"));
  EXPECT_FALSE(commits.references().compare_and_swap("main", std::nullopt, b, "second"));
  EXPECT_EQ(commits.references().head("main"), a);
  EXPECT_EQ(commits.repository.git("rev-parse main"), a.hex());
}

TEST(GitReferences, ABranchMovesOnlyFromWhereItIsExpected) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a}), c = commits.make("c", {a});
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, a, "first"));
  commits.repository.git("pack-refs --all");
  EXPECT_TRUE(commits.references().compare_and_swap("main", a, b, "second"));
  EXPECT_FALSE(commits.references().compare_and_swap("main", a, c, "third"));
  EXPECT_FALSE(commits.references().compare_and_swap("gone", a, c, "third"));
  EXPECT_EQ(commits.references().head("main"), b);
  EXPECT_FALSE(fs::exists(commits.repository.path + "/refs/heads/main.lock"));
  EXPECT_FALSE(fs::exists(commits.repository.path + "/refs/heads/gone"));
}

TEST(GitReferences, TheReflogNamesTheCommitterAndTheReason) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a});
  commits.references().compare_and_swap("main", std::nullopt, a, "escrow: session 1");
  commits.references().compare_and_swap("main", a, b, "escrow: session 2");
  EXPECT_TRUE(commits.references().reflog_has("main", a));
  EXPECT_TRUE(commits.references().reflog_has("main", b));
  EXPECT_FALSE(commits.references().reflog_has("main", commits.make("c")));
  EXPECT_FALSE(commits.references().reflog_has("absent", a));
  EXPECT_EQ(commits.repository.git("log -g --format='%gn %gs' main"), "Ann escrow: session 2\nAnn escrow: session 1");
}

TEST(GitReferences, ALockThatNobodyGivesBackIsNamed) {
  Commits commits;
  const ObjectId a = commits.make("a");
  std::ofstream(commits.repository.path + "/refs/heads/main.lock").flush();
  const auto error =
      error_of([&] { commits.references().compare_and_swap("main", std::nullopt, a, "never"); });
  EXPECT_EQ(error.code(), Errc::busy);
  EXPECT_NE(std::string(error.what()).find("main.lock"), std::string::npos) << error.what();
}

TEST(GitReferences, WhoeverRecoversTakesTheLocksOfKilledProcessesAway) {
  Commits commits;
  commits.references().compare_and_swap("main", std::nullopt, commits.make("a"), "first");
  const SessionId session = SessionId::generate();
  for (const std::string& name : {std::string("refs/heads/a/b"), "refs/sessions/" + session.text(),
                                  std::string("packed-refs")}) {
    const pid_t child = fork();
    if (child == 0) {
      const ReferenceLock lock(commits.repository.path, name);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const std::string lock = commits.repository.path + "/" + name + ".lock";
    ASSERT_TRUE(fs::exists(lock));
    commits.references().sweep_locks();
    EXPECT_FALSE(fs::exists(lock)) << name;
  }
  const ReferenceLock held(commits.repository.path, "refs/heads/held");
  commits.references().sweep_locks();
  EXPECT_TRUE(fs::exists(commits.repository.path + "/refs/heads/held.lock")) << "its owner lives";
  commits.repository.git("pack-refs --all");
}

TEST(GitReferences, AReflogThatEndsInHalfALineTakesTheNextEntryWhole) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a});
  commits.references().compare_and_swap("main", std::nullopt, a, "one");
  std::ofstream(commits.repository.path + "/logs/refs/heads/main", std::ios::app) << a.hex() << " 12";
  commits.references().compare_and_swap("main", a, b, "two");
  EXPECT_EQ(commits.repository.git("reflog show --format=%gs main"), "two\none");
  EXPECT_TRUE(commits.references().reflog_has("main", b));
}

// We may have died between the move and its entry; a push that came next says where the branch was.
TEST(GitReferences, WhereTheBranchWasIsSeenInWhatFollowed) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a}), c = commits.make("c", {a});
  commits.references().compare_and_swap("main", std::nullopt, a, "one");
  std::ofstream(commits.repository.path + "/refs/heads/main") << b.hex() << "\n";
  EXPECT_FALSE(commits.references().reflog_has("main", b));
  commits.repository.git("update-ref refs/heads/main " + c.hex());
  EXPECT_TRUE(commits.references().reflog_has("main", b));
}

TEST(GitReferences, ASymbolicBranchMovesWhatItPointsTo) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a});
  commits.references().compare_and_swap("main", std::nullopt, a, "one");
  commits.repository.git("symbolic-ref refs/heads/alias refs/heads/main");
  EXPECT_EQ(commits.references().head("alias"), a);
  EXPECT_TRUE(commits.references().compare_and_swap("alias", a, b, "two"));
  EXPECT_EQ(commits.references().head("main"), b);
  EXPECT_EQ(commits.repository.git("symbolic-ref refs/heads/alias"), "refs/heads/main");
  EXPECT_TRUE(commits.references().reflog_has("alias", b));
}

// In a file that git has sorted, and in one that it has not.
TEST(GitReferences, APackedReferenceIsFoundWhereverItLies) {
  Commits commits;
  const ObjectId a = commits.make("a");
  std::set<std::string> names{"main"};
  for (int i = 0; i < 5000; ++i) names.insert("b" + std::to_string(i));
  const std::string packed = commits.repository.path + "/packed-refs";
  for (const std::string traits : {"peeled fully-peeled sorted ", "peeled fully-peeled "}) {
    {
      std::ofstream out(packed);
      out << "# pack-refs with: " << traits << '\n';
      for (const std::string& name : names) out << a.hex() << " refs/heads/" << name << '\n';
      out << a.hex() << " refs/sessions/0123456789abcdef\n" << a.hex() << " refs/tags/v1\n^" << a.hex() << '\n';
    }
    for (const char* name : {"main", "b0", "b1", "b17", "b4999", "b999"})
      EXPECT_EQ(commits.references().head(name), a) << name;
    for (const char* name : {"a", "b", "b10000", "b49990", "maim", "maina", "z"})
      EXPECT_EQ(commits.references().head(name), std::nullopt) << name;
    run("cp " + packed + " " + commits.repository.scratch("before"));
    const SessionId session = *SessionId::parse("0123456789abcdef");
    EXPECT_EQ(commits.references().result(session), a);
    commits.references().drop_result(session);
    EXPECT_EQ(run("diff " + commits.repository.scratch("before") + " " + packed + " || true"),
              "5003d5002\n< " + a.hex() + " refs/sessions/0123456789abcdef");
    EXPECT_EQ(commits.repository.git("rev-list --count --all"), "1");
  }
}

TEST(GitReferences, ABranchBelowAnotherIsRefusedInOneSentence) {
  Commits commits;
  const ObjectId a = commits.make("a");
  commits.references().compare_and_swap("x", std::nullopt, a, "x");
  commits.repository.git("pack-refs --all");
  auto error = error_of([&] { commits.references().compare_and_swap("x/y", std::nullopt, a, "x/y"); });
  EXPECT_EQ(error.code(), Errc::bad_request);
  EXPECT_NE(std::string(error.what()).find("'x'"), std::string::npos) << error.what();
  commits.references().compare_and_swap("p/q", std::nullopt, a, "p/q");
  commits.repository.git("pack-refs --all");
  error = error_of([&] { commits.references().compare_and_swap("p", std::nullopt, a, "p"); });
  EXPECT_EQ(error.code(), Errc::bad_request);
}

TEST(GitReferences, NamesThatGitRefusesAreRefused) {
  GitTestRepository repository;
  for (const char* name : {"", "-x", "a..b", "a b", "a~", "HEAD", "x.lock", "a\nb", "/a", "a/"}) {
    EXPECT_EQ(error_of([&] { repository.references->check_target(name); }).code(), Errc::bad_request) << name;
  }
  repository.references->check_target("feature/one");
}

TEST(GitReferences, ABranchThatIsCheckedOutIsNoTarget) {
  support::TemporaryDirectory directory;
  const std::string work = directory.path() + "/work";
  run("git init -q -b main " + work + " && cd " + work + " && git commit -q --allow-empty -m x && git branch free && "
      "git worktree add -q " + directory.path() + "/linked -b linked");
  GitRepositoryPool pool(work + "/.git");
  const GitReferences references(pool);
  EXPECT_EQ(error_of([&] { references.check_target("main"); }).code(), Errc::wrong_state);
  EXPECT_EQ(error_of([&] { references.check_target("linked"); }).code(), Errc::wrong_state);
  references.check_target("free");
}

TEST(GitReferences, ABranchMovesThroughSeveralCommitsAtOnceAndItsReflogHasThemAll) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a}), c = commits.make("c", {b});
  EXPECT_TRUE(commits.references().move_through("main", std::nullopt, {{a, "one"}, {b, "two"}}));
  EXPECT_FALSE(commits.references().move_through("main", a, {{b, "two"}, {c, "three"}}));
  EXPECT_TRUE(commits.references().move_through("main", b, {{c, "three"}}));
  EXPECT_EQ(commits.repository.git("rev-parse main"), c.hex());
  EXPECT_EQ(commits.repository.git("reflog show --format=%gs main"), "three\ntwo\none");
  EXPECT_TRUE(commits.references().reflog_has("main", a));
}

TEST(GitReferences, TwoProcessesNeverLoseEachOthersCommit) {
  GitTestRepository repository;
  constexpr int kProcesses = 3;
  const auto each = static_cast<int>(support::gate_or_campaign(5, 15));
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      GitRepositoryPool pool(repository.path);
      const GitObjectStore store(pool, repository.path + "/escrow/cache");
      GitReferences references(pool);
      GitQuarantine quarantine(pool, store, repository.quarantine_path("q" + std::to_string(p)),
                               repository.path + "/escrow/gc.lock");
      for (int i = 0; i < each;) {
        const auto head = references.head("main");
        const auto parents = head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{};
        const ObjectId commit =
            GitTestRepository::put_file(quarantine, "f", std::to_string(p) + "/" + std::to_string(i), parents);
        const auto published = quarantine.publish(commit);
        if (references.compare_and_swap("main", head, commit, "race")) ++i;
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(repository.git("rev-list --count main"), std::to_string(kProcesses * each));
  EXPECT_EQ(repository.git("fsck --strict --full --no-dangling"), "");
}

// It loses the branch to every quick one that comes between its look and its move; without turns, to hundreds.
TEST(GitReferences, ASlowCommitterIsServedBesideQuickOnes) {
  GitTestRepository repository;
  std::atomic<bool> is_over = false;
  std::atomic<int> quick = 0, asking = 0;
  const auto commit = [&](GitReferences& references, GitQuarantine& quarantine, const std::string& what,
                          const std::function<void()>& before_its_move) {
    ++asking;
    const auto turn = references.take_turn("main");
    --asking;
    const auto head = references.head("main");
    const auto parents = head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{};
    const ObjectId made = GitTestRepository::put_file(quarantine, "f", what, parents);
    const auto published = quarantine.publish(made);
    before_its_move();
    return references.compare_and_swap("main", head, made, "race");
  };
  const auto committer = [&](const std::string& name, const auto& work) {
    GitRepositoryPool pool(repository.path);
    const GitObjectStore store(pool, repository.path + "/escrow/cache");
    GitReferences references(pool);
    GitQuarantine quarantine(pool, store, repository.quarantine_path(name), repository.path + "/escrow/gc.lock");
    work(references, quarantine);
  };
  std::vector<std::thread> others;
  for (int p = 0; p < 3; ++p) {
    others.emplace_back(committer, "quick" + std::to_string(p), [&, p](GitReferences& references, GitQuarantine& mine) {
      for (int i = 0; !is_over; ++i)
        if (commit(references, mine, std::to_string(p) + "/" + std::to_string(i), [] {})) ++quick;
    });
  }
  EXPECT_TRUE(support::eventually([&] { return quick >= 10; }));
  committer("slow", [&](GitReferences& references, GitQuarantine& mine) {
    for (int i = 0; i < 5; ++i) {
      // Until all the others wait for it, or go ahead: each may yet have to count what it did before.
      const auto is_slow = [&] {
        EXPECT_TRUE(support::eventually([&, before = quick.load()] { return asking == 3 || quick > before + 3; }));
      };
      EXPECT_TRUE(commit(references, mine, "slow " + std::to_string(i), is_slow)) << i;
    }
  });
  is_over = true;
  for (std::thread& other : others) other.join();
}

TEST(GitReferences, APushAndACompareAndSwapNeverLoseEachOthersCommit) {
  Commits commits;
  const ObjectId first = commits.make("first");
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, first, "first"));
  const std::string clone = commits.repository.scratch("clone");
  run("git clone -q " + commits.repository.path + " " + clone);
  constexpr int kEach = 15;
  std::thread pusher([&] {
    run("cd " + clone + " && for i in $(seq " + std::to_string(kEach) + "); do until git pull -q --rebase && "
        "git commit -q --allow-empty -m push$i && git push -q; do git reset -q --hard @{u}; done; done 2>/dev/null");
  });
  for (int i = 0; i < kEach;) {
    const auto head = commits.references().head("main");
    const ObjectId commit = commits.make("swap " + std::to_string(i), {*head});
    if (commits.references().compare_and_swap("main", head, commit, "swap")) ++i;
  }
  pusher.join();
  EXPECT_EQ(commits.repository.git("rev-list --count main"), std::to_string(1 + 2 * kEach));
}

TEST(GitReferences, PinsAreHiddenResultsCanBeFetchedAndBothProtectFromGc) {
  Commits commits;
  const ObjectId base = commits.make("base"), result = commits.make("result"), main = commits.make("main");
  const SessionId session = SessionId::generate();
  commits.references().compare_and_swap("main", std::nullopt, main, "main");
  commits.references().pin_base(session, base);
  commits.references().pin_base(session, base);
  commits.references().keep_result(session, result);
  commits.keep.clear();
  commits.quarantine.reset();
  commits.repository.git("gc -q --prune=now");
  EXPECT_EQ(commits.references().result(session), result);
  EXPECT_EQ(commits.repository.git("log --format=%H refs/sessions/" + session.text()), result.hex());
  EXPECT_EQ(commits.repository.git("cat-file -t " + base.hex()), "commit");
  const std::string remote = run("git ls-remote " + commits.repository.path);
  EXPECT_EQ(remote.find("refs/escrow/"), std::string::npos) << remote;
  const std::string clone = commits.repository.scratch("clone");
  run("git clone -q --bare file://" + commits.repository.path + " " + clone);
  EXPECT_NE(shell("git -C " + clone + " cat-file -e " + result.hex()).status, 0);
  run("git -C " + clone + " fetch -q file://" + commits.repository.path + " refs/sessions/" + session.text());
  run("git -C " + clone + " cat-file -e " + result.hex());
}

TEST(GitReferences, UnpinningDropsEveryPinOfThatSessionOnly) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b");
  const SessionId mine = SessionId::generate(), other = SessionId::generate();
  commits.references().pin_base(mine, a);
  commits.references().pin_base(mine, b);
  commits.references().pin_base(other, a);
  commits.repository.git("pack-refs --all");
  commits.references().unpin_base(mine);
  commits.references().unpin_base(mine);
  EXPECT_EQ(commits.repository.git("for-each-ref --format='%(refname)' refs/escrow"),
            "refs/escrow/base/" + other.text() + "/" + a.hex());
  commits.references().drop_result(mine);
  EXPECT_EQ(commits.references().result(mine), std::nullopt);
}

TEST(GitReferences, AFreshPinIsAReferenceLikeAnyOther) {
  Commits commits;
  const ObjectId base = commits.make("base");
  const SessionId session = SessionId::generate();
  EXPECT_FALSE(commits.references().is_pinned(session, base));
  commits.references().pin_fresh(session, "main", base);
  EXPECT_TRUE(commits.references().is_pinned(session, base));
  EXPECT_EQ(commits.repository.git("rev-parse refs/escrow/base/" + session.text() + "/" + base.hex()), base.hex());
  commits.repository.git("pack-refs --all");
  EXPECT_TRUE(commits.references().is_pinned(session, base));
  commits.references().unpin_base(session);
  EXPECT_FALSE(commits.references().is_pinned(session, base));
}

// Nothing is written, and nothing waited for: the file of the branch is on disk.
TEST(GitReferences, AFreshPinIsAnotherNameOfTheBranchUntilThatMoves) {
  Commits commits;
  const ObjectId base = commits.make("base"), next = commits.make("next", {base});
  const SessionId first = SessionId::generate(), second = SessionId::generate();
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, base, "first"));
  commits.references().pin_fresh(first, "main", base);
  const auto pin = [&](const SessionId& session) { return "refs/escrow/base/" + session.text() + "/" + base.hex(); };
  EXPECT_EQ(std::filesystem::hard_link_count(commits.repository.path + "/" + pin(first)), 2u);
  ASSERT_TRUE(commits.references().compare_and_swap("main", base, next, "second"));
  commits.references().pin_fresh(second, "main", base);
  for (const SessionId& session : {first, second})
    EXPECT_EQ(commits.repository.git("rev-parse " + pin(session)), base.hex());
  commits.repository.git("update-ref refs/heads/main " + base.hex());
  commits.references().unpin_base(first);
  EXPECT_EQ(commits.repository.git("for-each-ref --format='%(refname)'"), pin(second) + "\nrefs/heads/main");
}

TEST(GitReferences, APinIsWrittenOverTheLockFileOfAKilledProcess) {
  Commits commits;
  const ObjectId base = commits.make("base");
  const SessionId session = SessionId::generate();
  const std::string pin = "refs/escrow/base/" + session.text() + "/" + base.hex();
  std::filesystem::create_directories(commits.repository.path + "/refs/escrow/base/" + session.text());
  run("touch " + commits.repository.path + "/" + pin + ".lock");
  commits.references().pin_fresh(session, "main", base);
  EXPECT_EQ(commits.repository.git("rev-parse " + pin), base.hex());
  EXPECT_FALSE(std::filesystem::exists(commits.repository.path + "/" + pin + ".lock"));
}

TEST(GitReferences, ACommitThatIsNotThereIsNotPinned) {
  Commits commits;
  const SessionId session = SessionId::generate();
  const ObjectId missing = *ObjectId::from_hex("1234567890123456789012345678901234567890");
  EXPECT_THROW(commits.references().pin_fresh(session, "main", missing), session::Error);
  EXPECT_FALSE(commits.references().is_pinned(session, missing));
}

TEST(GitReferences, PinsThatCannotBeListedAreNotTakenForGone) {
  Commits commits;
  const SessionId session = SessionId::generate();
  const std::string pins = commits.repository.path + "/refs/escrow/base/" + session.text();
  std::filesystem::create_directories(commits.repository.path + "/refs/escrow/base");
  std::filesystem::create_symlink(pins, pins);  // ELOOP
  EXPECT_THROW(commits.references().unpin_base(session), session::Error);
}

// Else each listing of the references, of which a commit makes some, reads a directory for every session that ever was.
TEST(GitReferences, AnUnpinnedSessionLeavesNoDirectory) {
  Commits commits;
  const SessionId session = SessionId::generate();
  commits.references().pin_base(session, commits.make("a"));
  commits.references().unpin_base(session);
  const std::string pins = commits.repository.path + "/refs/escrow/base";
  EXPECT_TRUE(!std::filesystem::exists(pins) || std::filesystem::is_empty(pins));
}

TEST(GitReferences, TheDefaultBranchMayBeUnbornButNotDetached) {
  Commits commits;
  EXPECT_EQ(commits.references().default_branch(), "main");
  const ObjectId a = commits.make("a");
  commits.references().compare_and_swap("main", std::nullopt, a, "a");
  commits.repository.git("update-ref --no-deref HEAD " + a.hex());
  EXPECT_EQ(error_of([&] { commits.references().default_branch(); }).code(), Errc::no_branch);
}

TEST(GitReferences, ADamagedBranchIsNamed) {
  Commits commits;
  std::ofstream(commits.repository.path + "/refs/heads/main") << "not an id\n";
  const auto error = error_of([&] { commits.references().head("main"); });
  EXPECT_EQ(error.code(), Errc::damaged_repository);
  EXPECT_NE(std::string(error.what()).find("refs/heads/main"), std::string::npos) << error.what();
}

TEST(GitReferences, AHiddenResultIsShownToNoFetchUntilItIsDropped) {
  Commits commits;
  const ObjectId first = commits.make("first");
  const SessionId hidden = SessionId::generate(), other = SessionId::generate(), third = SessionId::generate();
  const auto shown = [&] { return run("git ls-remote " + commits.repository.path + " 'refs/sessions/*' | cut -f 2"); };
  const auto hides = [&] {
    return run("git -C " + commits.repository.path + " config --get-all uploadpack.hideRefs || true");
  };
  const std::string config = commits.repository.path + "/config", before = run("cat " + config);
  for (const SessionId& session : {hidden, hidden, third}) commits.references().hide_result(session);
  for (const SessionId& session : {hidden, other, third}) commits.references().keep_result(session, first);
  EXPECT_EQ(shown(), "refs/sessions/" + other.text());
  EXPECT_EQ(commits.references().result(hidden), first);
  // Lines that git adds to the configuration meanwhile stay.
  commits.repository.git("config note.text kept");
  commits.references().drop_result(hidden);
  EXPECT_EQ(hides(), "refs/sessions/" + third.text());
  commits.references().drop_result(third);
  commits.references().drop_result(other);
  EXPECT_EQ(hides(), "");
  EXPECT_EQ(commits.repository.git("config note.text"), "kept");
  commits.repository.git("config --remove-section note");
  EXPECT_EQ(run("cat " + config), before);
}

// A result goes also while another process holds the lock of the configuration.
TEST(GitReferences, AResultIsDroppedWhileTheConfigurationIsLocked) {
  Commits commits;
  const SessionId session = SessionId::generate();
  commits.references().hide_result(session);
  commits.references().keep_result(session, commits.make("first"));
  std::ofstream(commits.repository.path + "/config.lock").close();
  commits.references().drop_result(session);
  EXPECT_EQ(commits.references().result(session), std::nullopt);
}

// Each of these goes on while git packs all the references there are.
TEST(GitReferences, NothingIsLostBesideAGitThatPacksAllTheTime) {
  Commits commits;
  const ObjectId first = commits.make("first");
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, first, "first"));
  std::atomic<bool> is_over = false;
  std::thread packing([&] {
    while (!is_over) shell("git -C " + commits.repository.path + " pack-refs --all");
  });
  constexpr int kEach = 60;
  std::thread sessions([&] {
    for (int i = 0; i < kEach; ++i) {
      const SessionId session = SessionId::generate();
      commits.references().pin_fresh(session, "main", first);
      commits.references().keep_result(session, first);
      shell("git -C " + commits.repository.path + " pack-refs --all");
      commits.references().unpin_base(session);
      commits.references().drop_result(session);
    }
  });
  ObjectId head = first;
  for (int i = 0; i < kEach; ++i) {
    const ObjectId next = commits.make(std::to_string(i), {head});
    EXPECT_TRUE(commits.references().compare_and_swap("main", head, next, "next")) << i;
    head = next;
  }
  sessions.join();
  is_over = true;
  packing.join();
  EXPECT_EQ(commits.repository.git("rev-list --count main"), std::to_string(1 + kEach));
  EXPECT_EQ(commits.repository.git("for-each-ref refs/sessions"), "");
  // A pin may stay where git was packing for longer than anybody waits for it.
  EXPECT_LE(commits.references().pinned().size(), 1u);
}

}  // namespace
}  // namespace escrow::storage
