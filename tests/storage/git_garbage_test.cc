// gc beside everybody else: what it keeps, for how long, and that nobody waits for it; and the folding of small packs.
#include <chrono>
#include <filesystem>
#include <future>

#include "session/base/log.h"
#include "storage/objects/fold_packs.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/sample_record.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using session::Errc;
using session::ObjectId;

class Garbage : public testing::Test {
 protected:
  GcReport gc() { return Repository::open(repository_.path, silent)->gc(git_program(repository_.path)); }
  // While git repacks, `meanwhile` happens.
  GcReport gc(const std::function<void()>& meanwhile) {
    const GitProgram git = git_program(repository_.path);
    return Repository::open(repository_.path, silent)->gc([&](const std::vector<std::string>& arguments) {
      if (arguments.front() == "repack") meanwhile();
      return git(arguments);
    });
  }
  ObjectId commit(const std::string& name, const std::string& content) {
    const auto held = repository_.quarantine("q-" + name);
    const auto head = repository_.references->head("main");
    const auto made = GitTestRepository::put_file(*held, name, content,
                                                  head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{});
    const auto published = held->publish(made);
    EXPECT_TRUE(repository_.references->compare_and_swap("main", head, made, "test"));
    return made;
  }
  ObjectId publish_in_vain(const std::string& name, const std::string& content) {
    const auto held = repository_.quarantine("vain");
    const ObjectId made =
        GitTestRepository::put_file(*held, name, content, {*repository_.references->head("main")});
    held->publish(made);
    return made;
  }
  std::string put_loose(const std::string& content) {
    return run("printf '" + content + "' | git -C " + repository_.path + " hash-object -w --stdin");
  }
  bool has(const std::string& id) const {
    return shell("git -C " + repository_.path + " cat-file -e " + id).status == 0;
  }
  static void expect_held_back(const GcReport& report, const session::SessionId& id, std::int64_t since_s,
                               bool is_aside) {
    ASSERT_TRUE(report.held_back);
    EXPECT_EQ(report.held_back->session, id);
    EXPECT_EQ(report.held_back->since_s, since_s);
    EXPECT_EQ(report.held_back->is_aside, is_aside);
  }
  void expect_sound() {
    EXPECT_EQ(repository_.git("fsck --strict --full --no-dangling --no-progress"), "");
    for (const Problem& problem : Repository::open(repository_.path, silent)->verify(nullptr))
      ADD_FAILURE() << problem.where << ": " << problem.what;
  }
  std::string packs(const std::string& pattern) const {
    return run("cd " + repository_.path + "/objects && find . -name '" + pattern + "' | sort");
  }
  // Pushes to main from a clone; the push stops in `hook` until finish_push().
  void start_push(const std::string& hook, const std::string& content = "pushed") {
    work_ = repository_.scratch("work");
    run("cd " + repository_.scratch("") + " && rm -rf work reached go && git clone -q " + repository_.path + " work && "
        "cd work && echo " + content + " > pushed && git add . && git commit -qm pushed");
    const std::string program = repository_.path + "/hooks/" + hook;
    std::ofstream(program) << "#!/bin/sh\ntouch " << repository_.scratch("reached") << "\nwhile ! test -e "
                           << repository_.scratch("go") << "; do sleep 0.05; done\n";
    fs::permissions(program, fs::perms(0755));
    push_ = std::async(std::launch::async, [this] { return shell("git -C " + work_ + " push -q origin HEAD:main"); });
    while (!fs::exists(repository_.scratch("reached")) && push_.wait_for(20ms) == std::future_status::timeout) {
    }
  }
  void finish_push(const std::string& content = "pushed") {
    std::ofstream(repository_.scratch("go")) << "";
    const Shell pushed = push_.get();
    EXPECT_EQ(pushed.status, 0) << pushed.output;
    EXPECT_EQ(repository_.git("show main:pushed"), content);
    for (const char* hook : {"pre-receive", "update"}) fs::remove(repository_.path + "/hooks/" + hook);
  }

  GitTestRepository repository_;
  std::string work_;
  std::future<Shell> push_;
};

TEST_F(Garbage, WhatNothingReachesStaysForTwoWeeksUnlessTheConfigurationSaysOtherwise) {
  commit("f", "one");
  const std::string young = put_loose("young"), old = put_loose("old");
  run("touch -d '15 days ago' " + repository_.path + "/objects/" + old.substr(0, 2) + "/" + old.substr(2));
  const std::string packed = put_loose("packed");
  run("cd " + repository_.path + " && echo " + packed + " | git pack-objects -q objects/pack/pack && "
      "git prune-packed && touch -d '13 days ago' objects/pack/*");
  gc();
  EXPECT_TRUE(has(young) && has(packed));
  EXPECT_FALSE(has(old));
  // Packed meanwhile, each has the age it had.
  repository_.git("config gc.pruneExpire 12.days.ago");
  gc();
  EXPECT_TRUE(has(young));
  EXPECT_FALSE(has(packed));
  repository_.git("config gc.pruneExpire never");
  gc();
  EXPECT_TRUE(has(young));
  repository_.git("config gc.pruneExpire now");
  gc();
  EXPECT_FALSE(has(young));
  EXPECT_EQ(packs("*.pack").size(), packs("pack-*.idx").size() + 1);
  repository_.git("config gc.pruneExpire whenever");
  const auto error = error_of([&] { gc(); });
  EXPECT_EQ(error.code(), Errc::unsupported_repository);
  EXPECT_NE(std::string(error.what()).find("whenever"), std::string::npos) << error.what();
  repository_.git("config gc.pruneExpire now");
  expect_sound();
}

TEST_F(Garbage, APushWhoseObjectsAreOnTheirWayIsLeftAlone) {
  commit("f", "one");
  repository_.git("config gc.pruneExpire now");
  start_push("pre-receive");
  EXPECT_NE(packs("tmp_objdir*") + packs("incoming*"), "");
  gc();
  EXPECT_NE(packs("tmp_objdir*") + packs("incoming*"), "");
  finish_push();
  expect_sound();
}

TEST_F(Garbage, APushWhoseObjectsAreThereAndWhoseReferenceIsNotIsLeftAlone) {
  commit("f", "one");
  start_push("update");
  gc();
  finish_push();
  expect_sound();
}

TEST_F(Garbage, NobodyWaitsForIt) {
  commit("f", "one");
  std::future<ObjectId> done;
  gc([&] {
    // Published, moved and settled by another thread while git is at work.
    done = std::async(std::launch::async, [&] { return commit("g", "meanwhile"); });
    EXPECT_EQ(done.wait_for(30s), std::future_status::ready) << "the commit waits for gc";
    // As is folding: it lets gc go first instead.
    EXPECT_EQ(Repository::open(repository_.path, silent)->fold_packs(), 0u);
  });
  done.get();
  EXPECT_EQ(repository_.git("show main:g"), "meanwhile");
  expect_sound();
}

TEST_F(Garbage, WhatIsPublishedMeanwhileStaysWhateverTheExpiry) {
  commit("f", "one");
  repository_.git("config gc.pruneExpire now");
  const auto held = repository_.quarantine();
  const auto head = *repository_.references->head("main");
  ObjectId made;
  std::unique_ptr<session::Quarantine::Published> published;
  gc([&] {
    made = GitTestRepository::put_file(*held, "g", "meanwhile", {head});
    published = held->publish(made);
  });
  gc();
  ASSERT_TRUE(repository_.references->compare_and_swap("main", head, made, "test"));
  published.reset();
  EXPECT_EQ(repository_.git("show main:g"), "meanwhile");
  expect_sound();
}

TEST_F(Garbage, DerivedFilesAreThereAgainAndRight) {
  for (int i = 0; i < 5; ++i) commit("f" + std::to_string(i), "content");
  repository_.git("repack -q -a -d -b");
  for (int i = 5; i < 9; ++i) commit("f" + std::to_string(i), "content");
  repository_.git("multi-pack-index write --bitmap --no-progress");
  repository_.git("commit-graph write --reachable --split --no-progress");
  gc();
  EXPECT_NE(packs("multi-pack-index"), "");
  EXPECT_NE(packs("multi-pack-index-*.bitmap"), "");
  EXPECT_NE(packs("commit-graph"), "");
  repository_.git("multi-pack-index verify --no-progress");
  repository_.git("commit-graph verify --no-progress");
  const std::string check = "git -C " + repository_.path + " rev-list --test-bitmap main 2>&1 | tail -1";
  EXPECT_EQ(run(check), "OK!");
  expect_sound();
}

// With a pack that a session keeps git writes no bitmap of one pack.
TEST_F(Garbage, ABitmapStaysBesideAPackOfAnOpenSession) {
  for (int i = 0; i < 5; ++i) commit("f" + std::to_string(i), "content");
  repository_.git("repack -q -a -d -b");
  gc();
  EXPECT_NE(packs("pack-*.bitmap"), "");
  const auto held = repository_.quarantine();
  const auto published =
      held->publish(GitTestRepository::put_file(*held, "g", "waits", {*repository_.references->head("main")}));
  EXPECT_NE(packs("*.keep"), "");
  gc();
  EXPECT_NE(packs("*.bitmap"), "");
  const std::string check = "git -C " + repository_.path + " rev-list --test-bitmap main 2>&1 | tail -1";
  EXPECT_EQ(run(check), "OK!");
  expect_sound();
}

// git-receive-pack(1) stores nothing that it finds in the repository, and moves its reference later.
TEST_F(Garbage, APushThatFoundWhatARejectedResultBroughtIsWhole) {
  commit("f", "one");
  for (const char* hook : {"pre-receive", "update"}) {
    const std::string content = std::string("pushed through ") + hook;
    publish_in_vain("pushed", content + "\n");
    run("touch -d '20 days ago' " + repository_.path + "/objects/pack/*");  // it has waited for long
    start_push(hook, content);
    repository_.quarantine("vain")->discard();
    gc();
    finish_push(content);
    expect_sound();
  }
}

// The git inside it borrows what the repository has, and sets its time anew (git-gc(1), "NOTES").
TEST_F(Garbage, WhatAnOpenSessionMayHaveFoundHereStays) {
  commit("f", "one");
  repository_.git("config gc.pruneExpire now");
  const auto repository = Repository::open(repository_.path, silent);
  session::SessionRecord record = support::sample_record(session::SessionId::generate());
  record.base = repository_.references->head("main");
  record.created = session::SystemClock().now();
  repository->catalog().insert(record);
  const std::string older = put_loose("older"), found = put_loose("found");
  run("touch -d '2 minutes ago' " + repository_.path + "/objects/" + older.substr(0, 2) + "/" + older.substr(2));
  expect_held_back(gc(), record.id, record.created.seconds, false);
  EXPECT_FALSE(has(older));
  EXPECT_TRUE(has(found));
  repository_.git("config gc.pruneExpire 1.day.ago");
  EXPECT_FALSE(gc().held_back) << "it is younger than what goes";
  repository_.git("config gc.pruneExpire never");
  EXPECT_FALSE(gc().held_back);
  repository_.git("config gc.pruneExpire now");
  record.state = session::State::rolled_back;
  repository->catalog().transition(session::State::open, record, "test", "test");
  EXPECT_FALSE(gc().held_back);
  EXPECT_FALSE(has(found));
  expect_sound();
}

TEST_F(Garbage, WhatASessionThatWasSetAsideMayHaveFoundHereStays) {
  commit("f", "one");
  repository_.git("config gc.pruneExpire now");
  const auto repository = Repository::open(repository_.path, silent);
  const auto id = session::SessionId::generate();
  const auto held = repository->directories().create(id);
  held->opened();
  const std::string aside = held->set_aside();
  const std::string found = put_loose("found");
  session::SessionRecord younger = support::sample_record(session::SessionId::generate());
  younger.base = repository_.references->head("main");
  younger.created = {session::SystemClock().now().seconds + 60, 0};
  repository->catalog().insert(younger);
  expect_held_back(gc(), id, std::stoll(run("stat -c %Y " + aside + "/lock")), true);
  EXPECT_TRUE(has(found));
  younger.state = session::State::rolled_back;
  repository->catalog().transition(session::State::open, younger, "test", "test");
  run("rm -r " + aside);
  gc();
  EXPECT_FALSE(has(found));
}

TEST_F(Garbage, DerivedFilesAreRightWhenWhatTheyNamedIsGone) {
  for (int i = 0; i < 3; ++i) commit("f" + std::to_string(i), "content");
  const ObjectId named = publish_in_vain("v", "named by both");
  repository_.git("update-ref refs/sessions/x " + named.hex());
  repository_.git("multi-pack-index write --no-progress");
  repository_.git("commit-graph write --reachable --no-progress");
  repository_.git("update-ref -d refs/sessions/x");
  repository_.quarantine("vain")->discard();
  EXPECT_TRUE(has(named.hex()));
  repository_.git("config gc.pruneExpire now");
  gc();
  EXPECT_FALSE(has(named.hex()));
  repository_.git("multi-pack-index verify --no-progress");
  repository_.git("commit-graph verify --no-progress");
  expect_sound();
}

TEST_F(Garbage, AnAbandonedPackIsGivenUpAndOneOfAnOpenSessionIsNot) {
  const auto id = session::SessionId::generate();
  commit("f", "one");
  const auto repository = Repository::open(repository_.path, silent);
  const auto held = repository->directories().create(id);
  const auto made = GitTestRepository::put_file(held->quarantine(), "g", "open",
                                                {*repository_.references->head("main")});
  held->quarantine().publish(made);
  run("cd " + repository_.path + "/objects/pack && ls *.pack | while read f; do test -e ${f%.pack}.keep || "
      "echo 'escrow is publishing this pack' > ${f%.pack}.keep; done");
  repository_.git("config gc.pruneExpire now");
  gc();
  EXPECT_EQ(run("find " + repository_.path + "/objects -name '*.keep' | wc -l"), "1");
  EXPECT_TRUE(has(made.hex()));
  expect_sound();
}

// git would end with "could not find pack" from then on.
TEST_F(Garbage, WhatAKilledGitLeftOfAPackGoesAndIsNotWaitedForLong) {
  commit("f", "one");
  const std::string directory = repository_.path + "/objects/pack/";
  run("cd " + directory + " && cp $(ls *.pack) pack-0123456789012345678901234567890123456789.pack && "
      "touch tmp_pack_new tmp_pack_old .tmp-1-pack-old.pack .tmp-$(sh -c 'echo $$')-pack-dead.pack && "
      "touch -d '2 days ago' tmp_pack_old .tmp-1-pack-old.pack");
  gc();
  EXPECT_EQ(packs("pack-01234567*"), "");
  EXPECT_EQ(packs("*old*"), "");
  EXPECT_EQ(packs("*tmp*"), "./pack/tmp_pack_new");
  expect_sound();
}

TEST_F(Garbage, LocksThatAKilledGitLeftOfDerivedFilesDoNotStopIt) {
  commit("a", "1");
  commit("b", "2");
  repository_.git("multi-pack-index write");
  const std::string objects = repository_.path + "/objects";
  for (const char* lock : {"/info/commit-graph.lock", "/pack/multi-pack-index.lock"}) {
    commit(lock[1] == 'i' ? "c" : "d", lock);  // else nothing is written anew
    run("mkdir -p " + objects + "/info && touch -d '1 minute ago' " + objects + lock);
    gc();
    EXPECT_FALSE(fs::exists(objects + lock));
  }
  expect_sound();
}

TEST_F(Garbage, APackThatAKilledSessionPublishedInPartDoesNotStopIt) {
  commit("f", "one");
  const auto id = session::SessionId::generate();
  const auto repository = Repository::open(repository_.path, silent);
  const auto held = repository->directories().create(id);
  const auto made = GitTestRepository::put_file(held->quarantine(), "g", "open",
                                                {*repository_.references->head("main")});
  held->quarantine().publish(made);
  run("cd " + repository_.path + "/objects/pack && f=$(ls *.keep) && rm ${f%.keep}.idx");
  gc();
  EXPECT_EQ(packs("*.keep"), "");
  EXPECT_FALSE(has(made.hex()));
  held->quarantine().publish(made);
  ASSERT_TRUE(repository_.references->compare_and_swap("main", repository_.references->head("main"), made, "test"));
  held->quarantine().discard();
  EXPECT_EQ(repository_.git("show main:g"), "open");
  expect_sound();
}

TEST_F(Garbage, FoldingKeepsEveryObjectItsAgeAndWhatGitDerived) {
  for (int i = 0; i < 4; ++i) commit("indexed" + std::to_string(i), "content " + std::to_string(i));
  repository_.git("multi-pack-index write --no-progress");
  repository_.git("commit-graph write --reachable --no-progress");
  const std::string lost = put_loose("nobody needs this");
  run("cd " + repository_.path + " && echo " + lost + " | git pack-objects -q objects/pack/pack && git prune-packed && "
      "touch -d '1 day ago' objects/pack/*");
  for (int i = 0; i < 55; ++i) commit("f" + std::to_string(i), "content " + std::to_string(i));
  const auto repository = Repository::open(repository_.path, silent);
  EXPECT_GE(repository->fold_packs(), 56u);
  EXPECT_EQ(run("ls " + repository_.path + "/objects/pack/*.pack | wc -l"), "5") << "four indexed ones and a new one";
  EXPECT_TRUE(has(lost));
  EXPECT_EQ(repository_.git("show main:f54"), "content 54");
  repository_.git("multi-pack-index verify --no-progress");
  repository_.git("commit-graph verify --no-progress");
  EXPECT_EQ(run("ls " + repository_.path + "/escrow | grep tmp_ || true"), "");
  EXPECT_EQ(repository->fold_packs(), 0u);
  expect_sound();
}

TEST_F(Garbage, WhatGitSaysOfTheMachineIsNoDamage) {
  commit("f", "one");
  struct Said {
    std::string words;
    Errc code;
  };
  const Said all[] = {
      {"renaming pack to '/x' failed: Disk quota exceeded", Errc::quota_exceeded},
      {"write error: No space left on device", Errc::no_space},
      {"write error: Out of diskspace", Errc::no_space},
      {"unable to create '/x': Too many open files", Errc::unavailable},
      {"cannot mkstemp: Read-only file system", Errc::unavailable},
      {"failed to read object: Input/output error", Errc::unavailable},
      {"bad tree object", Errc::damaged_repository},
  };
  const auto repository = Repository::open(repository_.path, silent);
  for (const Said& said : all) {
    const auto error = error_of([&] {
      repository->gc([&](const std::vector<std::string>& arguments) {
        if (arguments.front() != "repack") return git_program(repository_.path)(arguments);
        return GitOutput{128, "", "fatal: " + said.words + "\n"};
      });
    });
    EXPECT_EQ(error.code(), said.code) << error.what();
    EXPECT_NE(std::string(error.what()).find(said.words), std::string::npos) << error.what();
  }
}

TEST_F(Garbage, WithoutGitItSaysSoAndLeavesEverythingAsItIs) {
  commit("f", "one");
  const auto error = error_of([&] {
    const auto repository = Repository::open(repository_.path, silent);
    repository->gc([](const auto&) { return GitOutput{127, "", "git is not installed"}; });
  });
  EXPECT_EQ(error.code(), Errc::unavailable);
  EXPECT_NE(std::string(error.what()).find("install it"), std::string::npos) << error.what();
  expect_sound();
}

}  // namespace
}  // namespace escrow::storage
