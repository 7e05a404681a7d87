// Many threads use one session at once, as the threads of a mount and of the control socket do: every kind of call, on
// the same few names, while its verbs run and others commit to the branch. Afterwards the commit is exactly what the
// session showed. It is under ThreadSanitizer (deploy/tsan.sh) that this says most.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <random>
#include <thread>

#include "fuse/inode_table.h"
#include "session/base/clock.h"
#include "session/base/error.h"
#include "session/transaction/session_manager.h"
#include "session/trees/tree_walk.h"
#include "storage/repository/repository.h"
#include "tests/session/fake_services.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::session {
namespace {

using Files = std::map<std::string, std::string>;

// One client of the file system: random calls on shared names. Refusals are answers; anything else fails the test.
class Client {
 public:
  Client(FileSystem& files, fuse::InodeTable& inodes, unsigned seed) : files_(files), inodes_(inodes), random_(seed) {}

  void run(int calls) {
    for (int i = 0; i < calls; ++i) {
      try {
        call(directory());
      } catch (const Error& error) {
        EXPECT_NE(error.code(), Errc::input_output) << error.what();
        EXPECT_NE(error.code(), Errc::damaged_repository) << error.what();
      }
    }
    for (const NodeId node : held_) inodes_.forget(node, 1);
  }

 private:
  std::size_t pick(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  std::string name() { return "f" + std::to_string(pick(6)); }
  NodeId held(const std::optional<Attributes>& found) {
    if (!found) throw Error(Errc::not_found, "no such name");
    inodes_.looked_up(found->node);
    held_.push_back(found->node);
    if (held_.size() > 20) {
      inodes_.forget(held_.front(), 1);
      held_.pop_front();
    }
    return found->node;
  }
  NodeId directory() {
    NodeId at = held(files_.lookup(kRootNode, "d" + std::to_string(pick(3))));
    if (pick(3) == 0) at = held(files_.lookup(at, "inner"));
    return at;
  }
  NodeId file(NodeId in) { return held(files_.lookup(in, name())); }

  void call(NodeId in) {
    switch (pick(16)) {
      case 0:
      case 1: held(files_.make_node(in, name(), S_IFREG | 0644, 0, {})); break;
      case 2: held(files_.make_symlink(in, name(), "target " + name(), {})); break;
      case 3: held(files_.link(file(in), directory(), name())); break;
      case 4: files_.unlink(in, name()); break;
      case 5: rename(in); break;
      case 6: held(files_.make_node(in, "made" + std::to_string(pick(3)), S_IFDIR | 0755, 0, {})); break;
      case 7: files_.remove_directory(in, "made" + std::to_string(pick(3))); break;
      case 8: list(in); break;
      case 9: change(file(in)); break;
      case 10: files_.sync_file(file(in)); break;
      case 11: read(file(in)); break;
      case 12: files_.set_xattr(file(in), "user.a", name(), XattrMode::any); break;
      default: write(file(in)); break;
    }
  }
  void rename(NodeId in) {
    files_.rename(in, name(), directory(), name(), pick(2) ? RenameMode::replace : RenameMode::exchange);
  }
  void list(NodeId in) {
    files_.list(in, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name != ".." && entry.name != ".") files_.attributes(entry.node);
      return true;
    });
  }
  void change(NodeId node) {
    AttributeChange wanted;
    if (pick(2)) wanted.mode = pick(2) ? 0755 : 0644;
    else wanted.size_bytes = pick(100'000);
    files_.change_attributes(node, wanted);
  }
  void read(NodeId node) {
    std::vector<std::byte> bytes(70'000);
    files_.read(node, pick(2'000'000), bytes);
    files_.seek(node, 0, SeekTarget::hole);
    files_.xattr_names(node);
  }
  void write(NodeId node) {
    const std::vector<std::byte> bytes(pick(5'000) + 1, static_cast<std::byte>('a' + pick(26)));
    files_.write(node, pick(2'000'000), bytes, WriteOrigin::call);
  }

  FileSystem& files_;
  fuse::InodeTable& inodes_;
  std::mt19937 random_;
  std::deque<NodeId> held_;
};

class Crowd : public testing::Test {
 protected:
  Crowd() {
    storage::Repository::init(top_.path() + "/data.git", "main");
    repository_ = storage::Repository::open(top_.path() + "/data.git", log_);
  }
  SessionManager manager() {
    return SessionManager({repository_->objects(), repository_->references(), repository_->catalog(),
                           repository_->directories(), clock_, log_});
  }
  std::unique_ptr<Session> open() {
    SessionOptions options;
    options.branch = "main";
    options.audit = {"user:test", "user:test", "sandbox", "", "", ""};
    return manager().open(options, true);
  }
  static CommitOutcome commit(Session& session) {
    session.gate().move_to(WriteGate::Position::sealed);
    return session.commit({"", 0, Reason::success, true, "user:test"});
  }
  // A commit of others on the branch.
  void push(const std::string& directory, const Files& added) {
    const auto session = open();
    FileSystem& files = session->file_system();
    auto below = files.lookup(kRootNode, directory);
    if (!below) below = files.make_node(kRootNode, directory, S_IFDIR | 0755, 0, {});
    for (const auto& [name, text] : added) {
      const NodeId node = files.make_node(below->node, name, S_IFREG | 0644, 0, {}).node;
      files.write(node, 0, std::as_bytes(std::span(text)), WriteOrigin::call);
    }
    if (directory != "others") files.make_node(files.make_node(below->node, "inner", S_IFDIR | 0755, 0, {}).node, "f0",
                                               S_IFREG | 0644, 0, {});
    ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  }
  // What the host's verbs do meanwhile.
  void use_verbs(Session& session, fuse::InodeTable& inodes, const std::atomic<bool>& done) {
    for (int round = 0; !done || round < 2; ++round) {
      session.preview();
      session.overlay().flush(round % 2 == 0);
      session.overlay().held_files();
      session.overlay().usage();
      session.omitted();
      EXPECT_EQ(session.record().state, State::open);
      inodes.size();
      push("others", {{"round" + std::to_string(round), "pushed"}});
      EXPECT_TRUE(session.update().conflicts.empty());
      try {
        session.discard({RepoPath::parse("d1/f1", "path")});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_found) << error.what();
      }
    }
  }
  static Files shown(FileSystem& files, NodeId directory = kRootNode, const std::string& below = "") {
    Files result;
    files.list(directory, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name == "." || entry.name == "..") return true;
      const std::string path = join_path(below, std::string(entry.name));
      if (S_ISDIR(entry.mode)) {
        result.merge(shown(files, entry.node, path));
      } else if (S_ISLNK(entry.mode)) {
        result[path] = files.read_link(entry.node);
      } else {
        std::string& text = result[path];
        text.resize(files.attributes(entry.node).size_bytes);
        EXPECT_EQ(files.read(entry.node, 0, std::as_writable_bytes(std::span(text))), text.size());
      }
      return true;
    });
    return result;
  }

  support::TemporaryDirectory top_;
  support::MemoryLog log_;
  SystemClock clock_;
  std::unique_ptr<storage::Repository> repository_;
};

TEST_F(Crowd, ManyThreadsAndTheVerbsOfOneSessionLeaveExactlyWhatItShows) {
  for (const char* directory : {"d0", "d1", "d2"})
    push(directory, {{"f0", "zero"}, {"f1", std::string(3'000'000, '1')}, {"f2", std::string(200'000, '2')}});
  const auto seed = static_cast<unsigned>(support::seed_of_this_run());
  Files expected;
  {
    const auto session = open();
    fuse::InodeTable inodes(session->file_system());
    std::atomic<bool> done{false};
    std::thread verbs([&] { use_verbs(*session, inodes, done); });
    std::vector<std::thread> clients;
    for (unsigned i = 0; i < 4; ++i)
      clients.emplace_back([&, i] { Client(session->file_system(), inodes, seed + i).run(1500); });
    for (std::thread& client : clients) client.join();
    done = true;
    verbs.join();
    inodes.forget_all();
    session->gate().move_to(WriteGate::Position::sealed);
    expected = shown(session->file_system());
    ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  }
  const auto head = repository_->references().head("main");
  const Files committed = support::files_of(repository_->objects(), tree_of_commit(repository_->objects(), head));
  EXPECT_EQ(committed.size(), expected.size());
  for (const auto& [path, text] : expected)
    EXPECT_TRUE(committed.contains(path) && committed.at(path) == text) << path << " differs";
  for (const storage::Problem& problem : repository_->verify({}))
    ADD_FAILURE() << problem.where << ": " << problem.what;
}

}  // namespace
}  // namespace escrow::session
