// Objects of a result that waits for a reviewer: in the repository for as long as it waits, and gc's when it is
// rejected, but for what others came to need; and the rules of branches, with git's own configuration file.
#include <algorithm>

#include "session/base/log.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/git/branch_rules.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/sample_record.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::GitMode;
using session::ObjectId;
using session::SessionId;

class Sealed : public testing::Test {
 protected:
  // A commit of `file` on the branch, made by git.
  ObjectId push(const std::string& name, const std::string& content) {
    const std::string work = repository_.scratch("work");
    run("rm -rf " + work + " && git clone -q " + repository_.path + " " + work + " && cd " + work +
        " && git checkout -q -B main && printf '" + content + "' > " + name + " && git add . && git commit -qm pushed" +
        " && git push -q origin main");
    return *ObjectId::from_hex(repository_.git("rev-parse main"));
  }
  // What Session::commit does with a result that is to wait: the base with one file more.
  ObjectId seal_file(const ObjectId& base, const std::string& name, const std::string& content) {
    const auto held = quarantine();
    session::Tree tree = repository_.store->read_tree(repository_.store->read_commit(base).tree);
    tree.push_back({name, GitMode::regular, held->put_blob(MemoryBytes(content))});
    std::sort(tree.begin(), tree.end(), session::tree_order_less);
    const ObjectId result = held->put_commit(GitTestRepository::commit_of(held->put_tree(tree), {base}));
    const auto published = held->publish(result);
    repository_.references->keep_result(id_, result);
    return result;
  }
  // Where Repository::gc() looks for sessions whose fate is open.
  std::unique_ptr<GitQuarantine> quarantine() {
    const std::string directory = repository_.path + "/escrow/sessions/" + id_.text() + "/objects";
    return std::make_unique<GitQuarantine>(*repository_.pool, *repository_.store, directory,
                                           repository_.path + "/escrow/gc.lock");
  }
  // What rejecting does, in a process that knows only what is on disk.
  void take_back() {
    repository_.references->drop_result(id_);
    quarantine()->discard();
  }
  // With no grace for what is young.
  void gc() {
    session::NullLog log;
    repository_.git("config gc.pruneExpire now");
    Repository::open(repository_.path, log)->gc(git_program(repository_.path));
  }
  std::string files(const std::string& pattern) const {
    return run("find " + repository_.path + "/objects -type f -name '" + pattern + "' | sort");
  }
  bool has(const ObjectId& id) const {
    return shell("git -C " + repository_.path + " cat-file -e " + id.hex()).status == 0;
  }
  static ObjectId id_of(const std::string& content) {
    return *ObjectId::from_hex(run("printf '" + content + "' | git hash-object --stdin"));
  }
  GitTestRepository repository_;
  const SessionId id_ = SessionId::generate();
};

// A pack that git could see is never removed but by gc: a push may rely on it that nobody here knows of.
TEST_F(Sealed, ARejectedResultIsLeftToGc) {
  const ObjectId base = push("a", "1");
  const ObjectId result = seal_file(base, "b", "secret");
  EXPECT_EQ(repository_.git("show " + result.hex() + ":b"), "secret");
  run("touch -d '20 days ago' " + repository_.path + "/objects/pack/*");  // it has waited
  take_back();
  EXPECT_EQ(files("*.keep"), "");
  session::NullLog log;
  Repository::open(repository_.path, log)->gc(git_program(repository_.path));
  EXPECT_TRUE(has(result)) << "two weeks of grace, from the rejection on";
  gc();
  EXPECT_FALSE(has(result));
  EXPECT_FALSE(has(id_of("secret")));
  EXPECT_EQ(repository_.git("fsck --strict --full"), "");
}

TEST_F(Sealed, AKeepFileThatCannotBeRemovedAtFirstGoesWithTheNextAttempt) {
  const ObjectId base = push("a", "1");
  seal_file(base, "b", "secret");
  const std::string keep = run("ls " + repository_.path + "/objects/pack/*.keep");
  run("rm " + keep + " && mkdir " + keep);  // no unlink(2) removes it
  EXPECT_THROW(take_back(), session::Error);
  run("rmdir " + keep + " && touch " + keep);
  take_back();
  EXPECT_EQ(files("*.keep"), "");
  gc();
  EXPECT_FALSE(has(id_of("secret")));
}

TEST_F(Sealed, AResultSurvivesEveryGcWhileItWaitsAndGoesAllTheSameAfterwards) {
  const ObjectId base = push("a", "1");
  const ObjectId result = seal_file(base, "b", "secret");
  repository_.git("gc -q --prune=now");
  gc();
  repository_.git("repack -q -a -d");
  EXPECT_EQ(repository_.git("show " + result.hex() + ":b"), "secret");
  take_back();
  gc();
  EXPECT_FALSE(has(id_of("secret")));
  EXPECT_EQ(repository_.git("fsck --strict --full"), "");
}

// A power loss may bring back a reference that was removed when its session had ended.
TEST_F(Sealed, AResultThatItsSessionDoesNotKeepIsDroppedByGc) {
  const ObjectId result = seal_file(push("a", "1"), "b", "approved");
  gc();  // makes the catalog
  SqliteSessionCatalog catalog(repository_.path + "/escrow/catalog.db");
  repository_.references->keep_result(id_, result);
  session::SessionRecord record = support::sample_record(id_);
  record.base.reset();
  record.state = session::State::committing;
  catalog.insert(record);
  gc();
  EXPECT_EQ(repository_.references->result(id_), result);
  record.state = session::State::committed;
  catalog.transition(session::State::committing, record, "who", "why");
  gc();
  EXPECT_EQ(repository_.references->result(id_), std::nullopt);
}

TEST_F(Sealed, AGcThatCannotReadWhatIsNeededRemovesNothing) {
  const ObjectId base = push("a", "1");
  const ObjectId result = seal_file(base, "b", "secret");
  gc();  // what may go is gone
  const std::string before = files("*");
  const std::string published = "escrow/sessions/" + id_.text() + "/objects/published";
  for (const std::string& name : {published, std::string("logs"), std::string("escrow/sessions")}) {
    const std::string path = repository_.path + "/" + name;
    run("mv " + path + " " + path + ".away && ln -s $(basename " + path + ") " + path);  // ELOOP
    EXPECT_THROW(gc(), session::Error) << name;
    EXPECT_EQ(files("*"), before) << name;
    run("rm " + path + " && mv " + path + ".away " + path);
  }
  gc();
  EXPECT_EQ(repository_.git("show " + result.hex() + ":b"), "secret");
}

TEST_F(Sealed, WhatOthersPushedMeanwhileStaysWhenTheResultIsRejected) {
  const ObjectId base = push("a", "1");
  const ObjectId result = seal_file(base, "b", "both wrote this");
  // Git finds the objects of the waiting result here, and stores nothing of its own.
  const std::string tree = repository_.git("rev-parse " + result.hex() + "^{tree}");
  const std::string theirs = run("git -C " + repository_.path + " commit-tree -p main -m theirs " + tree);
  repository_.git("update-ref refs/heads/main " + theirs);
  take_back();
  gc();
  EXPECT_EQ(repository_.git("show main:b"), "both wrote this");
  EXPECT_EQ(repository_.git("fsck --strict --full --no-dangling"), "");
}

TEST_F(Sealed, WhatOnlyAReflogOrATagOfATreeNeedsStaysToo) {
  const ObjectId base = push("a", "1");
  for (const bool tag : {false, true}) {
    const std::string content = tag ? "tagged" : "in the reflog";
    const ObjectId result = seal_file(base, "b", content);
    const std::string tree = repository_.git("rev-parse " + result.hex() + "^{tree}");
    if (tag) {
      repository_.git("tag of-a-tree " + tree);
    } else {
      const std::string theirs = run("git -C " + repository_.path + " commit-tree -p main -m theirs " + tree);
      repository_.git("update-ref refs/heads/main " + theirs);
      repository_.git("update-ref refs/heads/main " + base.hex());
    }
    take_back();
    gc();
    EXPECT_TRUE(has(id_of(content))) << content;
    EXPECT_EQ(repository_.git("fsck --strict --full --no-dangling"), "");
  }
}

TEST_F(Sealed, WhatTheRepositoryHadBeforeStaysEvenWhenAGcLeftItToTheWaitingPack) {
  const ObjectId base = push("a", "moved");
  // The same content under another name: borrowed from the repository, and copied beside the result.
  const ObjectId result = seal_file(base, "b", "moved");
  repository_.git("gc -q --prune=now");
  take_back();
  gc();
  EXPECT_FALSE(has(result));
  EXPECT_EQ(repository_.git("show main:a"), "moved");
  EXPECT_EQ(repository_.git("fsck --strict --full --no-dangling"), "");
}

TEST_F(Sealed, AnApprovedResultKeepsItsObjectsAndLosesItsKeepFiles) {
  const ObjectId base = push("a", "1");
  const ObjectId result = seal_file(base, "b", "approved");
  const auto held = quarantine();
  const ObjectId commit = held->put_commit(
      GitTestRepository::commit_of(repository_.store->read_commit(result).tree, {base}));
  {
    const auto published = held->publish(commit);
    ASSERT_TRUE(repository_.references->compare_and_swap("main", base, commit, "test"));
  }
  take_back();
  EXPECT_EQ(repository_.git("show main:b"), "approved");
  EXPECT_EQ(files("*.keep"), "");
  EXPECT_EQ(repository_.git("fsck --strict --full --no-dangling"), "");
}

class BranchRules : public testing::Test {
 protected:
  session::BranchRule rule(const std::string& branch) { return repository_.references->rule_of(branch); }
  void config(const std::string& arguments) { repository_.git("config " + arguments); }

  GitTestRepository repository_;
};

TEST_F(BranchRules, ARepositoryAsksForNothingUnlessItSaysSo) {
  EXPECT_FALSE(rule("main").require_approval);
  EXPECT_EQ(rule("main").approval_expires_s, 0);
  EXPECT_FALSE(rule("main").merges_text);
  EXPECT_EQ(read_audit_retention(repository_.path), std::chrono::hours(90 * 24));
}

TEST_F(BranchRules, ABranchHasItsOwnValueBeforeEverybodys) {
  config("escrow.requireApproval true");
  config("escrow.approvalExpires 7d");
  config("escrow.scratch.requireApproval false");
  config("escrow.release/v1.2.approvalExpires 12h");
  config("escrow.auditRetention 30d");
  EXPECT_TRUE(rule("main").require_approval);
  EXPECT_EQ(rule("main").approval_expires_s, 7 * 86400);
  EXPECT_FALSE(rule("scratch").require_approval);
  EXPECT_TRUE(rule("release/v1.2").require_approval);
  EXPECT_EQ(rule("release/v1.2").approval_expires_s, 12 * 3600);
  EXPECT_EQ(read_audit_retention(repository_.path), std::chrono::hours(30 * 24));
  config("escrow.merge text");
  config("escrow.release/v1.2.merge path");
  EXPECT_TRUE(rule("main").merges_text);
  EXPECT_FALSE(rule("release/v1.2").merges_text);
}

TEST_F(BranchRules, AKeyWithoutAValueIsTrueAsGitHasIt) {
  run("printf '[escrow \"main\"]\\n\\trequireApproval\\n' >> " + repository_.path + "/config");
  EXPECT_TRUE(rule("main").require_approval);
  EXPECT_FALSE(rule("Main").require_approval) << "names of branches are case-sensitive, keys are not";
}

TEST_F(BranchRules, AValueThatCannotBeReadIsRefusedByKeyAndValue) {
  config("escrow.main.requireApproval perhaps");
  config("escrow.empty.requireApproval ''");
  config("escrow.other.approvalExpires soon");
  config("escrow.auditRetention -3d");
  const auto check = [](const session::Error& error, const std::string& key, const std::string& value) {
    EXPECT_EQ(error.code(), Errc::bad_request);
    const std::string said = error.what();
    EXPECT_NE(said.find(key), std::string::npos) << said;
    EXPECT_NE(said.find("'" + value + "'"), std::string::npos) << said;
  };
  check(error_of([&] { rule("main"); }), "escrow.main.requireApproval", "perhaps");
  check(error_of([&] { rule("empty"); }), "escrow.empty.requireApproval", "");
  check(error_of([&] { rule("other"); }), "escrow.other.approvalExpires", "soon");
  check(error_of([&] { read_audit_retention(repository_.path); }), "escrow.auditRetention", "-3d");
}

}  // namespace
}  // namespace escrow::storage
