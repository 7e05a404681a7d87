#include <algorithm>
#include <filesystem>
#include <fstream>

#include "session/base/log.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::ObjectId;

struct Scene {
  support::TemporaryDirectory directory;
  std::string at(const std::string& name) const { return directory.path() + "/" + name; }
};

ObjectId commit_file(GitTestRepository& repository, const std::string& branch, const std::string& content) {
  const auto quarantine = repository.quarantine();
  const auto head = repository.references->head(branch);
  const auto parents = head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{};
  const ObjectId commit = GitTestRepository::put_file(*quarantine, "f", content, parents);
  const auto published = quarantine->publish(commit);
  EXPECT_TRUE(repository.references->compare_and_swap(branch, head, commit, "test"));
  return commit;
}

TEST(Repository, InitMakesABareRepositoryThatGitAccepts) {
  Scene scene;
  EXPECT_TRUE(Repository::init(scene.at("deep/er/r.git"), "trunk"));
  EXPECT_FALSE(Repository::init(scene.at("deep/er/r.git"), "other"));
  const std::string git = "git -C " + scene.at("deep/er/r.git") + " ";
  EXPECT_EQ(run(git + "symbolic-ref HEAD"), "refs/heads/trunk");
  EXPECT_EQ(run(git + "rev-parse --is-bare-repository"), "true");
  EXPECT_EQ(run(git + "config core.bigFileThreshold"), "8m");
  EXPECT_EQ(run(git + "config core.logAllRefUpdates"), "true");
  EXPECT_EQ(run(git + "config --get-all transfer.hideRefs"), "refs/escrow");
  EXPECT_EQ(run(git + "config --get-all receive.hideRefs"), "refs/sessions");
  EXPECT_EQ(run(git + "config receive.fsckObjects"), "true");
  EXPECT_EQ(run(git + "config transfer.fsckObjects"), "true");
  const auto repository = Repository::open(scene.at("deep/er/r.git"), silent);
  EXPECT_EQ(repository->references().default_branch(), "trunk");
  EXPECT_EQ(repository->state_directory(), repository->git_directory() + "/escrow");
  EXPECT_TRUE(repository->catalog().list().empty());
}

TEST(Repository, AnExistingRepositoryIsAdoptedAsItIs) {
  Scene scene;
  run("git init -q -b main " + scene.at("w") + " && cd " + scene.at("w") + " && echo hi > f && git add f && git commit "
      "-q -m x && git config transfer.hideRefs refs/secret && git config user.name kept && git config "
      "receive.fsckObjects false");
  const std::string head = run("git -C " + scene.at("w") + " rev-parse main");
  EXPECT_FALSE(Repository::init(scene.at("w"), "ignored"));
  const auto repository = Repository::open(scene.at("w"), silent);
  EXPECT_EQ(repository->git_directory(), fs::canonical(scene.at("w/.git")));
  EXPECT_EQ(repository->references().head("main")->hex(), head);
  EXPECT_EQ(run("git -C " + scene.at("w") + " config --get-all transfer.hideRefs"),
            "refs/secret\nrefs/escrow");
  EXPECT_EQ(run("git -C " + scene.at("w") + " status --porcelain"), "");
  EXPECT_EQ(error_of([&] { repository->references().check_target("main"); }).code(), Errc::wrong_state);
  run("git -C " + scene.at("w") + " worktree add -q " + scene.at("linked"));
  EXPECT_EQ(Repository::open(scene.at("linked"), silent)->git_directory(), repository->git_directory());
}

// A fetch of flask or redis would fail, and `git status` over large files take seconds.
TEST(Repository, AnAdoptedRepositoryKeepsItsSettings) {
  Scene scene;
  for (const char* kind : {"", "--bare "}) {
    const std::string path = scene.at(*kind == 0 ? "w" : "b.git");
    const std::string keys = "git -C " + path + " config --local --list | grep -v '^escrow[.]' | sort";
    const std::string set = "git -C " + path + " config ";
    run("git init -q -b main " + std::string(kind) + path + " && " + set + "receive.fsckObjects false && " + set +
        "transfer.fsckObjects true && " + set + "core.bigFileThreshold 8m");
    const std::string before = run(keys);
    Repository::init(path, "main");
    const std::string hidden = "\nreceive.hiderefs=refs/sessions\ntransfer.hiderefs=refs/escrow";
    EXPECT_EQ(run(keys + " | grep -v hiderefs"), before);
    EXPECT_EQ("\n" + run(keys + " | grep hiderefs"), hidden);
  }
}

TEST(Repository, SettingsThatAnOlderInitMadeInACheckoutAreTakenBack) {
  Scene scene;
  const std::string path = scene.at("w"), keys = "git -C " + path + " config --local --list | sort";
  const std::string config = "git -C " + path + " config ", add = config + "--add ";
  run("git init -q -b main " + path);
  Repository::init(path, "main");
  const std::string before = run(keys);
  // Twice: somebody has merged files. An older init left no note of what it did.
  for (int time = 0; time < 2; ++time)
    run(add + "core.bigFileThreshold 8m && " + add + "transfer.fsckObjects true");
  run(config + "--unset escrow.madeByInit");
  EXPECT_FALSE(Repository::init(path, "main"));
  EXPECT_EQ(run(keys), before);
  run(config + "--unset escrow.madeByInit && " + add + "core.bigFileThreshold 16m && " + add +
      "transfer.fsckObjects false && " + add + "receive.fsckObjects true");
  Repository::init(path, "main");
  EXPECT_EQ(run(config + "core.bigFileThreshold") + run(config + "transfer.fsckObjects"), "16mfalse");
  EXPECT_EQ(run(config + "receive.fsckObjects || echo none"), "none");
}

TEST(Repository, SettingsThatAUserMakesInAnAdoptedCheckoutStay) {
  Scene scene;
  const std::string path = scene.at("w"), keys = "git -C " + path + " config --local --list | sort";
  run("git init -q -b main " + path);
  Repository::init(path, "main");
  run("git -C " + path + " config core.bigFileThreshold 8m && git -C " + path + " config transfer.fsckObjects true");
  const std::string theirs = run(keys);
  Repository::init(path, "main");
  EXPECT_EQ(run(keys), theirs);
}

TEST(Repository, DiscoverGoesUpwards) {
  Scene scene;
  run("git init -q " + scene.at("w") + " && mkdir -p " + scene.at("w/a/b"));
  EXPECT_EQ(Repository::discover(scene.at("w/a/b")), fs::canonical(scene.at("w/.git")).string());
  EXPECT_EQ(Repository::discover(scene.at(".")), std::nullopt);
}

TEST(Repository, WhatCannotBeOpenedIsRefusedInASentenceThatSaysWhatToDo) {
  Scene scene;
  const auto refusal = [&](const std::string& name) {
    return error_of([&] { Repository::open(scene.at(name), silent); });
  };
  EXPECT_EQ(refusal("absent").code(), Errc::no_repository);
  fs::create_directory(scene.at("plain"));
  EXPECT_EQ(refusal("plain").code(), Errc::no_repository);
  run("git init -q --bare " + scene.at("git"));
  EXPECT_EQ(refusal("git").code(), Errc::no_repository);
  EXPECT_NE(std::string(refusal("git").what()).find("init"), std::string::npos);
  Repository::init(scene.at("git"), "main");
  std::ofstream(scene.at("git/HEAD")) << "nonsense\n";
  EXPECT_EQ(refusal("git").code(), Errc::damaged_repository);
  std::ofstream(scene.at("git/HEAD")) << "ref: refs/heads/main\n";
  std::ofstream(scene.at("git/escrow/version")) << "99\n";
  EXPECT_EQ(refusal("git").code(), Errc::newer_state);
  std::ofstream(scene.at("git/escrow/version")) << "x\n";
  EXPECT_EQ(refusal("git").code(), Errc::damaged_repository);
  std::ofstream(scene.at("git/escrow/version")) << "1\n";
  fs::remove_all(scene.at("git/objects"));
  EXPECT_EQ(refusal("git").code(), Errc::damaged_repository);
}

// As a power loss leaves it that comes before git, or an Escrow before this one, has reached the disk.
TEST(Repository, AHeadThatSaysNothingIsMendedWhereTheBranchesMakeItObvious) {
  for (const char* content : {"", "nonsense\n", "\0\0\0\0"}) {
    GitTestRepository scene;
    const std::string head = scene.path + "/HEAD";
    const auto damage = [&] { std::ofstream(head, std::ios::trunc) << content; };
    damage();
    EXPECT_EQ(Repository::open(scene.path, silent)->references().default_branch(), "main") << "no branch yet";
    commit_file(scene, "main", "one");
    commit_file(scene, "other", "two");
    damage();
    EXPECT_EQ(Repository::open(scene.path, silent)->references().default_branch(), "main") << "what init recorded";
    fs::remove(scene.path + "/escrow/default-branch");
    damage();
    const auto error = error_of([&] { Repository::open(scene.path, silent); });
    EXPECT_EQ(error.code(), Errc::damaged_repository) << "it may have been either";
    EXPECT_NE(std::string(error.what()).find("refs/heads/BRANCH"), std::string::npos) << error.what();
    fs::remove(scene.path + "/refs/heads/main");
    EXPECT_EQ(Repository::open(scene.path, silent)->references().default_branch(), "other") << "the only one";
    EXPECT_EQ(scene.git("symbolic-ref HEAD"), "refs/heads/other");
    EXPECT_EQ(scene.git("fsck --strict --full --no-dangling"), "");
    fs::remove(head);
    Repository::init(scene.path, "third");
    EXPECT_EQ(Repository::open(scene.path, silent)->references().default_branch(), "other") << "missing";
  }
}

TEST(Repository, ExtensionsThatLibgit2CannotReadAreRefusedByName) {
  Scene scene;
  run("git init -q --bare --object-format=sha256 " + scene.at("sha256"));
  run("git init -q --bare " + scene.at("partial") + " && git -C " + scene.at("partial") +
      " config extensions.partialClone origin && git -C " + scene.at("partial") +
      " config core.repositoryformatversion 1");
  run("git init -q --bare " + scene.at("reftable") + " && git -C " + scene.at("reftable") +
      " config core.repositoryformatversion 1 && git -C " + scene.at("reftable") +
      " config extensions.refStorage reftable");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"sha256", "objectFormat=sha256"}, {"partial", "partialclone=origin"}, {"reftable", "refstorage=reftable"}};
  for (const auto& [name, extension] : cases) {
    const auto error = error_of([&, &name = name] { Repository::init(scene.at(name), "main"); });
    EXPECT_EQ(error.code(), Errc::unsupported_repository) << error.what();
    EXPECT_NE(std::string(error.what()).find(extension), std::string::npos) << error.what();
    EXPECT_FALSE(fs::exists(scene.at(name) + "/escrow"));
  }
}

TEST(Repository, AnotherUsersRepositoryIsRefusedWithTheCommandThatTrustsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  Scene scene;
  Repository::init(scene.at("r.git"), "main");
  run("chown -R 12345:12345 " + scene.at("r.git"));
  const auto error = error_of([&] { Repository::open(scene.at("r.git"), silent); });
  EXPECT_EQ(error.code(), Errc::unsupported_repository);
  EXPECT_NE(std::string(error.what()).find("safe.directory " + fs::canonical(scene.at("r.git")).string()),
            std::string::npos) << error.what();
}

TEST(Repository, InitRefusesNamesAndPlacesThatCannotWork) {
  Scene scene;
  EXPECT_EQ(error_of([&] { Repository::init(scene.at("a\nb"), "main"); }).code(), Errc::bad_request);
  EXPECT_EQ(error_of([&] { Repository::init(scene.at("r"), "ma\x01in"); }).code(), Errc::bad_request);
  EXPECT_EQ(error_of([&] { Repository::init(scene.at("r"), "a..b"); }).code(), Errc::bad_request);
  std::ofstream(scene.at("file")) << "x";
  EXPECT_EQ(error_of([&] { Repository::init(scene.at("file"), "main"); }).code(), Errc::bad_request);
  fs::create_directory(scene.at("full"));
  std::ofstream(scene.at("full/x")) << "x";
  EXPECT_EQ(error_of([&] { Repository::init(scene.at("full"), "main"); }).code(), Errc::bad_request);
  EXPECT_EQ(run("ls " + scene.at("full")), "x");
}

TEST(Repository, WhatASessionThatIsRemovedPublishedInVainGoesWithGc) {
  GitTestRepository scene;
  commit_file(scene, "main", "one");
  const auto id = session::SessionId::generate();
  ObjectId commit;
  {
    const auto repository = Repository::open(scene.path, silent);
    const auto held = repository->directories().create(id);
    commit = GitTestRepository::put_file(held->quarantine(), "f", "in vain");
    held->quarantine().publish(commit);
  }
  const auto repository = Repository::open(scene.path, silent);
  scene.git("config gc.pruneExpire now");
  repository->gc(git_program(scene.path));
  EXPECT_TRUE(repository->objects().contains(commit));
  repository->directories().try_open(id)->remove();
  repository->gc(git_program(scene.path));
  EXPECT_FALSE(repository->objects().contains(commit));
}

TEST(Repository, GcPacksWhatIsReachableAndDropsTheRest) {
  GitTestRepository scene;
  ObjectId head;
  for (int i = 0; i < 8; ++i) head = commit_file(scene, "main", "content " + std::to_string(i));
  const std::string dangling = run("printf nobody | git -C " + scene.path + " hash-object -w --stdin");
  run("cd " + scene.path + " && git update-ref refs/tags/t $(echo tagged | git hash-object -w --stdin)");
  scene.git("config gc.pruneExpire now");
  const auto repository = Repository::open(scene.path, silent);
  const GcReport report = repository->gc(git_program(scene.path));
  EXPECT_EQ(report.packs_before, 8u);
  EXPECT_EQ(report.packs_after, 1u);
  EXPECT_EQ(report.objects_after, 8u * 3 + 1);
  EXPECT_EQ(report.objects_before, report.objects_after + 1);
  EXPECT_NE(shell("git -C " + scene.path + " cat-file -e " + dangling).status, 0);
  EXPECT_EQ(scene.git("fsck --strict --full"), "");
  EXPECT_EQ(scene.git("show refs/tags/t"), "tagged");
  EXPECT_EQ(run("find " + scene.path + "/objects -name '*.keep'"), "");
  EXPECT_EQ(repository->gc(git_program(scene.path)).packs_after, 1u);
  EXPECT_EQ(content_of(*scene.store->open_blob(scene.store->read_tree(scene.store->read_commit(head).tree)[0].id)),
            "content 7");
}

TEST(Repository, GcKeepsDeltasReflogsIndexesAndKeptPacks) {
  Scene scene;
  const std::string work = scene.at("w");
  run("git init -q -b main " + work + " && cd " + work + " && seq 20000 > f && git add f && git commit -q -m 1 && "
      "for i in 1 2 3 4 5; do echo $i >> f; git commit -q -a -m $i; done; git gc -q; "
      "echo reflog > g; git add g; git commit -q -m lost; git reset -q --hard HEAD~; "
      "seq 100 > kept; git hash-object -w kept | git pack-objects -q .git/objects/pack/pack; rm kept; "
      "touch $(ls -t .git/objects/pack/*.pack | head -1 | sed s/pack$/keep/); echo staged > s; git add s");
  const std::string lost = run("git -C " + work + " rev-parse HEAD@{1}");
  Repository::init(work, "main");
  const auto repository = Repository::open(work, silent);
  const GcReport report = repository->gc(git_program(work + "/.git"));
  EXPECT_LT(report.bytes_after, 120'000u) << "deltas were kept as they are";
  EXPECT_EQ(report.packs_after, 2u);
  EXPECT_EQ(run("git -C " + work + " fsck --strict --full --no-dangling"), "");
  EXPECT_EQ(run("git -C " + work + " show " + lost + ":g"), "reflog");
  EXPECT_EQ(run("git -C " + work + " show :s"), "staged");
  EXPECT_EQ(run("git -C " + work + " show main:f | tail -1"), "5");
  EXPECT_TRUE(repository->verify(nullptr).empty());
}

TEST(Repository, GcRefusesADamagedRepositoryAndRemovesNothing) {
  GitTestRepository scene;
  commit_file(scene, "main", "one");
  commit_file(scene, "main", "two");
  run("cd " + scene.path + "/objects/pack && f=$(ls *.pack | head -1) && chmod u+w $f && printf XXXX | dd of=$f bs=1 "
      "seek=30 conv=notrunc status=none");
  const std::string before = run("ls " + scene.path + "/objects/pack");
  const auto repository = Repository::open(scene.path, silent);
  const Errc code = error_of([&] { repository->gc(git_program(scene.path)); }).code();
  EXPECT_TRUE(code == Errc::damaged_repository || code == Errc::input_output);
  EXPECT_EQ(run("ls " + scene.path + "/objects/pack | grep -v keep"), before);
}

TEST(Repository, GcGivesUpPacksThatACrashLeftProtected) {
  GitTestRepository scene;
  commit_file(scene, "main", "one");
  run("cd " + scene.path + "/objects/pack && f=$(ls *.pack) && "
      "echo 'escrow is publishing this pack' > ${f%.pack}.keep");
  const auto repository = Repository::open(scene.path, silent);
  repository->gc(git_program(scene.path));
  EXPECT_EQ(run("find " + scene.path + "/objects -name '*.keep'"), "");
  EXPECT_EQ(scene.git("fsck --strict --full"), "");
}

TEST(Repository, VerifyFindsNothingWrongWithASoundRepository) {
  GitTestRepository scene;
  commit_file(scene, "main", noise(9 << 20, 1));
  std::uint64_t done = 0, total = 0;
  const auto repository = Repository::open(scene.path, silent);
  const auto problems = repository->verify([&](std::uint64_t d, std::uint64_t t) { done = d, total = t; });
  for (const Problem& problem : problems) ADD_FAILURE() << problem.where << ": " << problem.what;
  EXPECT_EQ(done, 3u);
  EXPECT_EQ(total, 3u);
}

TEST(Repository, APinThatNobodyOwnsIsNamedByVerifyAndDroppedByGc) {
  GitTestRepository scene;
  const ObjectId head = commit_file(scene, "main", "one");
  const auto repository = Repository::open(scene.path, silent);
  const auto nobody = session::SessionId::generate(), packed = session::SessionId::generate(),
             opening = session::SessionId::generate();
  scene.references->pin_base(packed, head);
  scene.git("pack-refs --all --prune");
  scene.references->pin_base(nobody, head);
  const auto held = repository->directories().create(opening);
  repository->references().pin_fresh(opening, "main", head);
  std::vector<std::string> named;
  for (const Problem& problem : repository->verify(nullptr)) {
    named.push_back(problem.where);
    EXPECT_NE(problem.what.find("escrow gc"), std::string::npos) << problem.what;
  }
  std::vector<std::string> expected{"session " + nobody.text(), "session " + packed.text()};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(named, expected);
  repository->gc(git_program(scene.path));
  EXPECT_EQ(scene.git("for-each-ref --format='%(refname)' refs/escrow"),
            "refs/escrow/base/" + opening.text() + "/" + head.hex());
  EXPECT_TRUE(repository->verify(nullptr).empty());
}

TEST(Repository, VerifyNamesDamagedAndMissingObjects) {
  GitTestRepository scene;
  run("cd " + scene.path + " && git update-ref refs/tags/a $(echo a | git hash-object -w --stdin) && git update-ref "
      "refs/tags/b $(echo b | git hash-object -w --stdin)");
  const std::string a = scene.git("rev-parse refs/tags/a"), b = scene.git("rev-parse refs/tags/b");
  const auto path = [&](const std::string& id) {
    return scene.path + "/objects/" + id.substr(0, 2) + "/" + id.substr(2);
  };
  run("chmod u+w " + path(a) + " && cp " + path(b) + " " + path(a) + " && rm -f " + path(b));
  const auto problems = Repository::open(scene.path, silent)->verify(nullptr);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].where, "object " + a);
  EXPECT_EQ(problems[1].where, "object " + b);
  EXPECT_NE(problems[1].what.find("refs/tags/b"), std::string::npos);
}

TEST(Repository, AHeadThatCannotBeReadIsNotMended) {
  GitTestRepository scene;
  run("cd " + scene.path + " && rm HEAD && ln -s HEAD HEAD");  // ELOOP, as EMFILE or EIO elsewhere
  EXPECT_THROW(Repository::open(scene.path, silent), session::Error);
  EXPECT_EQ(run("readlink " + scene.path + "/HEAD"), "HEAD");
  EXPECT_THROW(Repository::init(scene.path, "main"), session::Error);
  EXPECT_EQ(run("readlink " + scene.path + "/HEAD"), "HEAD");
}

TEST(Repository, VerifyPassesOverWhatIsLeftOfASessionThatHasEnded) {
  GitTestRepository scene;
  const auto repository = Repository::open(scene.path, silent);
  session::SessionRecord record{session::SessionId::generate()};
  record.options.branch = "main";
  const std::string directory = repository->directories().path_of(record.id);
  const auto problems = [&] { return repository->verify(nullptr).size(); };
  // Clean-up was cut short when the log was gone and the database, which has nothing without it, was not.
  repository->directories().create(record.id).reset();
  std::ofstream(directory + "/session.db") << std::string(4096, '\0');
  EXPECT_EQ(problems(), 0u) << "its opening was cut short";
  repository->catalog().insert(record);
  EXPECT_EQ(problems(), 1u) << "an open session needs it";
  record.state = session::State::rolled_back;
  repository->catalog().transition(session::State::open, record, "test", "test");
  EXPECT_EQ(problems(), 0u);
}

}  // namespace
}  // namespace escrow::storage
