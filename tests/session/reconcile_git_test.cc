// Reconciliation of random trees against `git merge-tree --write-tree`: real commits with a real merge base, rename
// detection off (also by contents that name their path: git 2.39 follows exact renames whatever merge.renames says),
// contents of one line (so that a file both sides changed is always a conflict).
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "session/trees/reconcile.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"
#include "tests/session/git_command.h"
#include "tests/support/seed.h"

namespace escrow::session {
namespace {

using support::Files;

// A content decides its mode, so that git never merges a mode change of one side with a content change of the other.
GitMode mode_of(const std::string& content) {
  switch (content.back() % 5) {
    case 0: return GitMode::executable;
    case 1: return GitMode::symlink;
    default: return GitMode::regular;
  }
}

const char* octal(GitMode mode) {
  if (mode == GitMode::executable) return "100755";
  return mode == GitMode::symlink ? "120000" : "100644";
}

class RandomTrees {
 public:
  explicit RandomTrees(unsigned seed) : random_(seed) {}

  Files base() {
    Files files{{"always", "0"}};
    for (unsigned n = random_() % 7; n > 0; --n) put(files, path(), content());
    return files;
  }
  Files changed(Files files) {
    for (unsigned n = random_() % 5; n > 0; --n) {
      if (random_() % 3 == 0) {
        remove(files, path());
      } else {
        put(files, path(), content());
      }
    }
    return files;
  }

 private:
  std::string path() {
    // Names next to each other in git's order, as "a", "a-b" and "a/x" are.
    static const std::vector<std::string> kNames{"a", "a-b", "a.c", "b"};
    std::string text = kNames[random_() % kNames.size()];
    while (random_() % 2 && text.size() < 8) text += "/" + kNames[random_() % kNames.size()];
    return text;
  }
  std::string content() { return " version " + std::to_string(random_() % 6); }
  void put(Files& files, const std::string& at, const std::string& text) {
    remove(files, at);
    for (std::size_t slash = at.find('/'); slash != std::string::npos; slash = at.find('/', slash + 1))
      files.erase(at.substr(0, slash));
    files[at] = at + text;
  }
  static void remove(Files& files, const std::string& at) {
    std::erase_if(files, [&at](const auto& file) { return file.first == at || file.first.starts_with(at + "/"); });
  }

  std::mt19937 random_;
};

std::string import_commit(const std::string& branch, const Files& files, const std::string& from) {
  std::string text = "commit refs/heads/" + branch + "\ncommitter a <a@b> 1700000000 +0000\ndata 1\nm\n";
  if (!from.empty()) text += "from refs/heads/" + from + "\n";
  text += "deleteall\n";
  for (const auto& [path, content] : files)
    text += std::string("M ") + octal(mode_of(content)) + " inline " + path + "\ndata " +
            std::to_string(content.size()) + "\n" + content + "\n";
  return text + "\n";
}

TreeRoot put_tree(support::FakeObjectStore& objects, const Files& files) {
  std::map<std::string, Files> below;
  Tree tree;
  for (const auto& [path, content] : files) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos) {
      tree.push_back({path, mode_of(content), objects.put_blob(content)});
    } else {
      below[path.substr(0, slash)][path.substr(slash + 1)] = content;
    }
  }
  for (const auto& [name, rest] : below) tree.push_back({name, GitMode::tree, *put_tree(objects, rest)});
  std::sort(tree.begin(), tree.end(), tree_order_less);
  return tree.empty() ? std::nullopt : TreeRoot(objects.put_tree(tree));
}

struct GitSays {
  bool clean = false;
  std::string tree;
  std::vector<std::string> conflicts;
};

// `git merge-tree -z --stdin --no-messages`: per merge a status, the tree, the conflicted names and an empty field,
// each ended by NUL.
class MergeTreeOutput {
 public:
  explicit MergeTreeOutput(const std::string& text) : text_(text) {}

  GitSays next() {
    GitSays says;
    says.clean = field() == "1";
    says.tree = field();
    for (std::string name = field(); !name.empty(); name = field()) says.conflicts.push_back(name);
    return says;
  }

 private:
  std::string field() {
    const std::size_t end = text_.find('\0', at_);
    if (end == std::string::npos) throw std::runtime_error("git merge-tree said less than expected");
    std::string value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return value;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

TEST(ReconcileAgainstGit, RandomTreesMergeAsGitMergesThem) {
  RandomTrees random(static_cast<unsigned>(support::seed_of_this_run()));
  constexpr int kCases = 1000;

  struct Case {
    Files base, ours, theirs;
  };
  std::vector<Case> cases;
  std::string stream, merges;
  for (int i = 0; i < kCases; ++i) {
    Case one;
    one.base = random.base();
    one.ours = random.changed(one.base);
    one.theirs = random.changed(one.base);
    const std::string n = std::to_string(i);
    stream += import_commit("b" + n, one.base, "") + import_commit("o" + n, one.ours, "b" + n) +
              import_commit("t" + n, one.theirs, "b" + n);
    merges += "o" + n + " t" + n + "\n";
    cases.push_back(std::move(one));
  }
  support::TemporaryDirectory directory;
  support::run_git(directory, "init -q --bare .");
  support::run_git(directory, "fast-import --quiet", stream);
  const std::string output = support::run_git(
      directory,
      "-c merge.renames=false -c merge.directoryRenames=false merge-tree -z --name-only --no-messages --stdin", merges,
      true);

  support::FakeObjectStore objects;
  MergeTreeOutput git(output);
  int clean = 0;
  for (const Case& one : cases) {
    const GitSays says = git.next();
    support::FakeQuarantine quarantine(objects);
    const auto merged = reconcile(quarantine, put_tree(objects, one.base), put_tree(objects, one.ours),
                                  put_tree(objects, one.theirs));
    std::ostringstream trace;
    for (const auto& [label, files] : {std::pair{"base", &one.base}, {"ours", &one.ours}, {"theirs", &one.theirs}}) {
      trace << label << ":";
      for (const auto& [path, content] : *files) trace << " " << path << "=" << content;
      trace << "\n";
    }
    ASSERT_EQ(std::holds_alternative<TreeRoot>(merged), says.clean) << trace.str();
    if (says.clean) {
      ++clean;
      const TreeRoot tree = std::get<TreeRoot>(merged);
      ASSERT_EQ(tree ? tree->hex() : quarantine.put_tree({}).hex(), says.tree) << trace.str();
      continue;
    }
    // Where a file and a directory collide, or a file and a symlink, git renames one and lists it as NAME~BRANCH.
    std::set<std::string> expected, found;
    for (const std::string& name : says.conflicts) expected.insert(name.substr(0, name.find('~')));
    for (const Conflict& conflict : std::get<Conflicts>(merged).paths) found.insert(conflict.path);
    ASSERT_EQ(found, expected) << trace.str();
  }
  EXPECT_GT(clean, kCases / 10);
  EXPECT_LT(clean, kCases * 9 / 10);
}

}  // namespace
}  // namespace escrow::session
