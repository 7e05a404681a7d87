// The fixture of tests of references: commits to move branches to, and a watch over the lock files that are in the way.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/storage/git_test_repository.h"
#include "tests/support/system_calls.h"

namespace escrow::storage {

// A published commit that no reference holds; packs stay because `keep` does.
struct Commits {
  GitTestRepository repository;
  std::unique_ptr<GitQuarantine> quarantine = repository.quarantine();
  std::vector<std::unique_ptr<session::Quarantine::Published>> keep;

  session::ObjectId make(const std::string& content, std::vector<session::ObjectId> parents = {}) {
    const session::ObjectId id = GitTestRepository::put_file(*quarantine, "f", content, std::move(parents));
    keep.push_back(quarantine->publish(id));
    return id;
  }
  GitReferences& references() { return *repository.references; }
};

// Fails the test when a change of a reference finds a lock file in its way: it would wait for that. For programs with
// system_calls.cc.
inline support::SystemCallWatcher finds_no_lock(const std::string& where) {
  return [where](const support::SystemCall& call) {
    if (call.name == "link" && call.path.ends_with(".lock")) {
      EXPECT_FALSE(std::filesystem::exists(call.path)) << where << ": " << call.path << " is waited for";
    }
    return 0;
  };
}

}  // namespace escrow::storage
