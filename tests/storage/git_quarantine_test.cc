#include <filesystem>
#include <random>
#include <thread>

#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::GitMode;
using session::ObjectId;
using session::Tree;

std::size_t count_files(const std::string& directory, const std::string& extension) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) count += entry.path().extension() == extension;
  return count;
}

TEST(GitQuarantine, ObjectsHaveTheIdsThatGitGivesThem) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const auto blob = quarantine->put_blob(MemoryBytes("hello\n"));
  EXPECT_EQ(blob.hex(), run("printf 'hello\\n' | git hash-object --stdin"));
  EXPECT_EQ(quarantine->put_blob(MemoryBytes("")).hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(quarantine->put_tree({}).hex(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
}

TEST(GitQuarantine, WhatWasPutIsReadBackAndInvisibleToTheRepository) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const auto blob = quarantine->put_blob(MemoryBytes("secret"));
  const Tree tree{{"a", GitMode::executable, blob}, {"b", GitMode::group_writable, blob}};
  const auto tree_id = quarantine->put_tree(tree);
  auto commit = GitTestRepository::commit_of(tree_id);
  commit.author.offset_minutes = -210;
  const auto commit_id = quarantine->put_commit(commit);
  EXPECT_EQ(content_of(*quarantine->open_blob(blob)), "secret");
  EXPECT_EQ(quarantine->blob_size(blob), 6u);
  EXPECT_EQ(quarantine->read_tree(tree_id), tree);
  const session::Commit read = quarantine->read_commit(commit_id);
  EXPECT_EQ(read.tree, tree_id);
  EXPECT_EQ(read.author.name, "Ann");
  EXPECT_EQ(read.author.email, "ann@example.com");
  EXPECT_EQ(read.author.offset_minutes, -210);
  EXPECT_EQ(read.author.time_s, 1700000000);
  EXPECT_EQ(read.message, "a commit\n");
  EXPECT_TRUE(quarantine->contains(blob));
  EXPECT_FALSE(repository.store->contains(blob));
  EXPECT_EQ(shell("git -C " + repository.path + " cat-file -e " + blob.hex()).status, 1);
}

TEST(GitQuarantine, PublishingMakesOnePackThatGitFindsSound) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  Tree tree;
  for (int i = 0; i < 300; ++i) {
    char name[16];
    std::snprintf(name, sizeof name, "f%03d", i);
    tree.push_back({name, GitMode::regular, quarantine->put_blob(MemoryBytes("content " + std::to_string(i)))});
  }
  const auto sub_tree = quarantine->put_tree(tree);
  const auto root = quarantine->put_tree({{"dir", GitMode::tree, sub_tree}});
  const auto left_out = quarantine->put_blob(MemoryBytes("not reachable"));
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(root));
  {
    const auto published = quarantine->publish(commit);
    EXPECT_EQ(count_files(repository.path + "/objects/pack", ".keep"), 1u);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  EXPECT_EQ(count_files(repository.path + "/objects/pack", ".keep"), 0u);
  EXPECT_EQ(count_files(repository.path + "/objects/pack", ".pack"), 1u);
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
  EXPECT_EQ(repository.git("show main:dir/f123"), "content 123");
  run("cd " + repository.path + " && git verify-pack objects/pack/*.idx");
  run("cp " + repository.path + "/objects/pack/*.pack " + repository.scratch("copy.pack") +
      " && git index-pack --strict " + repository.scratch("copy.pack") + " && cmp " + repository.path +
      "/objects/pack/*.idx " + repository.scratch("copy.idx"));
  EXPECT_FALSE(repository.store->contains(left_out));
  EXPECT_TRUE(repository.store->contains(commit));
}

TEST(GitQuarantine, ObjectsTheRepositoryHasAreNotWrittenAgain) {
  GitTestRepository repository;
  const auto first = repository.quarantine("first");
  const auto commit = GitTestRepository::put_file(*first, "f", "the same");
  first->publish(commit);
  const auto second = repository.quarantine("second");
  EXPECT_EQ(GitTestRepository::put_file(*second, "f", "the same"), commit);
  EXPECT_FALSE(second->holds(commit));
  EXPECT_EQ(content_of(*second->open_blob(second->put_blob(MemoryBytes("the same")))), "the same");
}

std::string loose_path(const GitTestRepository& repository, const std::string& id) {
  return repository.path + "/objects/" + id.substr(0, 2) + "/" + id.substr(2);
}

// Also what is large becomes a loose object.
constexpr std::string_view kHash = "-c core.bigFileThreshold=1g hash-object -w ";

TEST(GitQuarantine, AnObjectThatIsDamagedInTheRepositoryIsStoredAnew) {
  GitTestRepository repository;
  const std::string empty = run("printf 'cut short' | git -C " + repository.path + " hash-object -w --stdin");
  std::filesystem::permissions(loose_path(repository, empty), fs::perms::owner_all);
  std::ofstream(loose_path(repository, empty), std::ios::trunc);
  const std::string large = noise(9 << 20, 4);
  std::ofstream(repository.scratch("large"), std::ios::binary) << large;
  const std::string spoilt = repository.git(std::string(kHash) + repository.scratch("large"));
  run("chmod u+w " + loose_path(repository, spoilt) + " && printf X | dd of=" + loose_path(repository, spoilt) +
      " bs=1 seek=5000000 conv=notrunc status=none");
  const auto quarantine = repository.quarantine();
  const session::Tree tree = {{"l", GitMode::regular, quarantine->put_blob(MemoryBytes(large))},
                              {"s", GitMode::regular, quarantine->put_blob(MemoryBytes("cut short"))}};
  EXPECT_EQ(tree[1].id.hex(), empty);
  EXPECT_EQ(tree[0].id.hex(), spoilt);
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(quarantine->put_tree(tree)));
  {
    const auto published = quarantine->publish(commit);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  fs::remove(loose_path(repository, empty));
  fs::remove(loose_path(repository, spoilt));
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
  EXPECT_EQ(repository.git("show main:s"), "cut short");
}

// As two contents with one SHA-1 look like: libgit2 does not compare what it reads with the name it has.
TEST(GitQuarantine, BytesAreNeverReplacedByOthersOfTheSameId) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const std::string large = noise(9 << 20, 4);
  for (const std::string& mine : {std::string("mine"), large}) {
    std::ofstream(repository.scratch("mine"), std::ios::binary) << mine;
    const std::string id = run("git hash-object " + repository.scratch("mine"));
    std::string theirs = mine;
    theirs.back() ^= 1;
    std::ofstream(repository.scratch("theirs"), std::ios::binary) << theirs;
    const std::string other = repository.git(std::string(kHash) + repository.scratch("theirs"));
    run("mkdir -p $(dirname " + loose_path(repository, id) + ") && mv " + loose_path(repository, other) + " " +
        loose_path(repository, id));
    git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 0);
    if (mine.size() < 100) {
      const auto error = error_of([&] { quarantine->put_blob(MemoryBytes(mine)); });
      EXPECT_EQ(error.code(), Errc::input_output);
      EXPECT_NE(std::string(error.what()).find(id), std::string::npos) << error.what();
    } else {
      // Read by ourselves, it is compared with its name: damaged, and not borrowed.
      EXPECT_EQ(quarantine->put_blob(MemoryBytes(mine)).hex(), id);
      EXPECT_TRUE(quarantine->holds(*ObjectId::from_hex(id)));
      EXPECT_EQ(content_of(*quarantine->open_blob(*ObjectId::from_hex(id))), mine);
    }
    git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 1);
  }
}

TEST(GitQuarantine, WhatWasBorrowedSurvivesAGcThatDropsItBeforeThePublish) {
  GitTestRepository repository;
  const std::string dangling = run("printf dangling | git -C " + repository.path + " hash-object -w --stdin");
  const auto quarantine = repository.quarantine();
  const auto commit = GitTestRepository::put_file(*quarantine, "f", "dangling");
  repository.git("gc -q --prune=now");
  ASSERT_EQ(shell("git -C " + repository.path + " cat-file -e " + dangling).status, 1);
  {
    const auto published = quarantine->publish(commit);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  EXPECT_EQ(repository.git("show main:f"), "dangling");
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
}

TEST(GitQuarantine, WhatWasBorrowedFromAPackSurvivesTheRemovalOfThatPack) {
  GitTestRepository repository;
  const auto first = repository.quarantine("first");
  const auto unlucky = GitTestRepository::put_file(*first, "f", "shared");
  first->publish(unlucky);
  const auto second = repository.quarantine("second");
  const auto commit = GitTestRepository::put_file(*second, "g", "shared");
  first->discard();
  repository.git("gc -q --prune=now");
  ASSERT_EQ(count_files(repository.path + "/objects/pack", ".pack"), 0u);
  {
    const auto published = second->publish(commit);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  EXPECT_EQ(repository.git("show main:g"), "shared");
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
}

TEST(GitQuarantine, AGcBetweenPublishingAndMovingTheBranchLosesNothing) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const auto commit = GitTestRepository::put_file(*quarantine, "f", "kept");
  {
    const auto published = quarantine->publish(commit);
    repository.git("gc -q --prune=now");
    repository.git("repack -adq");
    repository.git("prune --expire=now");
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  repository.git("gc -q --prune=now");
  EXPECT_EQ(repository.git("show main:f"), "kept");
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
}

TEST(GitQuarantine, ADiscardedSessionLeavesNoByteInTheRepository) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const std::string before = run("find " + repository.path + " -type f | sort");
  GitTestRepository::put_file(*quarantine, "needle-name", noise(100, 1));
  quarantine->discard();
  EXPECT_EQ(run("find " + repository.path + " -type f | sort"), before);
  EXPECT_EQ(run("find " + repository.scratch("") + " -path '*/q/*' -type f"), "");
}

TEST(GitQuarantine, WhatASessionPublishedInVainIsGarbageWhenItIsDiscarded) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const auto commit = GitTestRepository::put_file(*quarantine, "f", "in vain");
  quarantine->publish(commit);
  EXPECT_TRUE(repository.store->contains(commit));
  quarantine->discard();
  EXPECT_TRUE(repository.store->contains(commit)) << "somebody may have come to rely on it";
  repository.git("gc -q --prune=now");
  EXPECT_EQ(run("find " + repository.path + "/objects/pack -type f"), "");
}

TEST(GitQuarantine, AnotherProcessDiscardsWhatACrashedOnePublished) {
  GitTestRepository repository;
  const auto commit = GitTestRepository::put_file(*repository.quarantine(), "f", "crashed");
  {
    const auto crashed = repository.quarantine();
    GitTestRepository::put_file(*crashed, "f", "crashed");
    crashed->publish(commit);
  }
  const auto reopened = repository.quarantine();
  EXPECT_TRUE(reopened->contains(commit));
  repository.git("gc -q --prune=now");
  EXPECT_TRUE(reopened->contains(commit)) << "it stays for the recovery to decide about";
  reopened->discard();
  repository.git("gc -q --prune=now");
  EXPECT_EQ(run("find " + repository.path + "/objects/pack -type f"), "");
}

TEST(GitQuarantine, PublishingForAnotherHeadAddsOnlyWhatIsNew) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const std::string big = noise(1 << 20, 7);
  const auto first = GitTestRepository::put_file(*quarantine, "f", big);
  const auto lost = quarantine->publish(first);
  const std::uint64_t once = std::stoull(run("du -sb " + repository.path + "/objects/pack | cut -f1"));
  const auto tree = quarantine->read_commit(first).tree;
  auto again = GitTestRepository::commit_of(tree);
  again.message = "on another head";
  const auto second = quarantine->put_commit(again);
  {
    const auto published = quarantine->publish(second);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, second, "test"));
  }
  EXPECT_LT(std::stoull(run("du -sb " + repository.path + "/objects/pack | cut -f1")), once + 10000);
  quarantine->discard();
  EXPECT_EQ(repository.git("fsck --strict --full --no-dangling"), "");
  EXPECT_EQ(repository.git("cat-file -s main:f"), std::to_string(big.size()));
}

TEST(GitQuarantine, AFileThatWentBackToTheParentsContentIsNotPublishedAgain) {
  GitTestRepository repository;
  const auto base = repository.quarantine("base");
  const std::string big = noise(1 << 20, 3);
  const auto parent = GitTestRepository::put_file(*base, "f", big);
  {
    const auto published = base->publish(parent);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, parent, "test"));
  }
  const auto quarantine = repository.quarantine();
  const auto blob = quarantine->put_blob(MemoryBytes(big));
  const auto small = quarantine->put_blob(MemoryBytes("new"));
  const auto tree = quarantine->put_tree({{"f", GitMode::regular, blob}, {"g", GitMode::regular, small}});
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(tree, {parent}));
  const auto published = quarantine->publish(commit);
  EXPECT_LT(std::stoull(run("du -sb " + repository.path + "/objects/pack | cut -f1")), (1u << 20) + 20000);
}

TEST(GitQuarantine, LargeBlobsStreamThroughAndGitReadsThem) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const std::string rough = noise(20 << 20, 5);
  const std::string smooth(20 << 20, 'x');
  const auto rough_id = quarantine->put_blob(MemoryBytes(rough));
  const auto smooth_id = quarantine->put_blob(MemoryBytes(smooth));
  EXPECT_EQ(content_of(*quarantine->open_blob(rough_id)), rough);
  const auto tree = quarantine->put_tree({{"r", GitMode::regular, rough_id}, {"s", GitMode::regular, smooth_id}});
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(tree));
  {
    const auto published = quarantine->publish(commit);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  quarantine->discard();
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
  EXPECT_EQ(repository.git("rev-parse main:r"), run("git -C " + repository.path + " cat-file blob main:r | git "
                                                    "hash-object --stdin"));
  EXPECT_EQ(content_of(*repository.store->open_blob(rough_id)), rough);
  EXPECT_EQ(content_of(*repository.store->open_blob(smooth_id)), smooth);
}

TEST(GitQuarantine, AHugeBlobBecomesAPackOfItsOwn) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const std::string huge = noise(130 << 20, 9);
  const auto commit = GitTestRepository::put_file(*quarantine, "huge", huge);
  {
    const auto published = quarantine->publish(commit);
    EXPECT_EQ(count_files(repository.path + "/objects/pack", ".pack"), 2u);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  quarantine->discard();
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
  EXPECT_EQ(repository.git("cat-file -s main:huge"), std::to_string(huge.size()));
}

// More than are kept in memory: some go to a file meanwhile.
TEST(GitQuarantine, ManyThreadsPutAtOnce) {
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  constexpr int kThreads = 4, kEach = 500;
  const auto content = [](int t, int i) {
    std::mt19937 random(static_cast<unsigned>(t * kEach + i));
    std::string bytes = std::to_string(t) + "/" + std::to_string(i) + " ";
    for (int count = 0; count < 500; ++count) bytes += static_cast<char>(random());
    return bytes;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        quarantine->put_blob(MemoryBytes(content(t % 2, i)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Tree tree;
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < kEach; ++i) {
      const auto id = quarantine->put_blob(MemoryBytes(content(t, i)));
      EXPECT_EQ(content_of(*quarantine->open_blob(id)), content(t, i));
      tree.push_back({std::to_string(t) + "-" + std::to_string(i), GitMode::regular, id});
    }
  }
  std::sort(tree.begin(), tree.end(), session::tree_order_less);
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(quarantine->put_tree(tree)));
  {
    const auto published = quarantine->publish(commit);
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }
  EXPECT_TRUE(fs::exists(repository.quarantine_path() + "/incoming.pack"));
  EXPECT_EQ(repository.git("fsck --strict --full"), "");
}

TEST(GitQuarantine, AFileThatShrinksWhileItIsReadIsAnError) {
  class Shrinking final : public session::ByteSource {
   public:
    std::uint64_t size() const override { return 100; }
    std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
      return offset >= 50 ? 0 : std::min<std::size_t>(out.size(), 50 - offset);
    }
  };
  GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  EXPECT_EQ(error_of([&] { quarantine->put_blob(Shrinking()); }).code(), Errc::input_output);
  EXPECT_EQ(error_of([&] { quarantine->put_lfs_file(Shrinking()); }).code(), Errc::input_output);
}

}  // namespace
}  // namespace escrow::storage
