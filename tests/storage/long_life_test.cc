// A process that stays while others commit, fold and collect: what it holds of their packs has a bound.
#include <dirent.h>

#include <filesystem>

#include "session/base/log.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::GitMode;
using session::ObjectId;

std::size_t descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

struct Maps {
  std::size_t all = 0, removed = 0;
};

Maps maps_of_packs() {
  Maps maps;
  std::ifstream in("/proc/self/maps");
  for (std::string line; std::getline(in, line);) {
    if (line.find("/objects/pack/") == std::string::npos) continue;
    ++maps.all;
    maps.removed += line.ends_with("(deleted)") ? 1 : 0;
  }
  return maps;
}

std::size_t resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// As a mount does that takes in what others commit: it reads the head, its tree and a file.
TEST(LongLife, WhatOthersRemovedIsClosedOverFiveHundredForeignCommits) {
  GitTestRepository repository;
  const auto mount = Repository::open(repository.path, silent);
  const auto other = Repository::open(repository.path, silent);
  std::size_t most_descriptors = 0, most_maps = 0, most_removed = 0, resident_early = 0;
  session::Tree tree;
  for (int i = 0; i < 500; ++i) {
    const auto held = repository.quarantine("q");
    const auto head = other->references().head("main");
    char name[16];
    std::snprintf(name, sizeof name, "f%03d", i);
    tree.push_back({name, GitMode::regular, held->put_blob(MemoryBytes("content " + std::to_string(i)))});
    const auto commit = held->put_commit(GitTestRepository::commit_of(
        held->put_tree(tree), head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{}));
    {
      const auto published = held->publish(commit);
      ASSERT_TRUE(other->references().compare_and_swap("main", head, commit, "test"));
    }
    held->discard();
    if (i % 60 == 59) other->fold_packs();
    if (i % 200 == 199) other->gc(git_program(repository.path));
    const auto seen = mount->objects().read_commit(*mount->references().head("main"));
    const session::Tree shown = mount->objects().read_tree(seen.tree);
    ASSERT_EQ(shown.size(), static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(content_of(*mount->objects().open_blob(shown.back().id)), "content " + std::to_string(i));
    most_descriptors = std::max(most_descriptors, descriptors());
    most_maps = std::max(most_maps, maps_of_packs().all);
    if (i % 60 == 0) most_removed = std::max(most_removed, maps_of_packs().removed);
    if (i == 150) resident_early = resident_kib();
  }
  std::printf("at most %zu descriptors, %zu maps of packs, %zu of them removed; %zu KiB resident, %zu early on\n",
              most_descriptors, most_maps, most_removed, resident_kib(), resident_early);
  // Three handles here may each have the packs that lie between two foldings open.
  EXPECT_LT(most_descriptors, 300u);
  EXPECT_LT(most_maps, 500u);
  EXPECT_LT(most_removed, 60u);
  EXPECT_LT(resident_kib(), resident_early + (16u << 10));
}

}  // namespace
}  // namespace escrow::storage
