// Every call of a file system under random policies, on a real mount: what is denied answers EACCES in that very call
// and changes nothing, what is allowed is done as in a plain directory. In every way opens and bytes can travel under a
// policy, as root and as an ordinary user. The expectation comes from an evaluator that shares no code with the policy.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "session/base/error.h"
#include "session/decorators/policed_file_system.h"
#include "session/decorators/write_gate.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/mount/policy_player.h"
#include "tests/mount/scene.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

using session::Action;
using session::NodeId;

constexpr int kRounds = 6, kCalls = 260;

struct Way {
  const char* name;
  fuse::Data data;
  bool io_uring;
  unsigned uid;
};
constexpr Way kWays[] = {
    {"CachedAsRoot", fuse::Data::cached, true, 0},
    {"CachedAsAUser", fuse::Data::cached, true, kNobody},
    {"PassthroughAsRoot", fuse::Data::passthrough, true, 0},
    {"PassthroughAsAUser", fuse::Data::passthrough, true, kNobody},
};
constexpr Way kWaysWithoutIoUring[] = {
    {"CachedAsRoot", fuse::Data::cached, false, 0},
    {"CachedAsAUser", fuse::Data::cached, false, kNobody},
    {"PassthroughAsRoot", fuse::Data::passthrough, false, 0},
    {"PassthroughAsAUser", fuse::Data::passthrough, false, kNobody},
};

// Else GoogleTest, and so ctest, would call each by the addresses in it, which differ from run to run.
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class NoDenials final : public session::DenialSink {
 public:
  void denied(const session::Denial&) noexcept override {}
};

// As SessionHost puts it together.
class PolicedMount {
 public:
  PolicedMount(const Way& way, const std::vector<session::PolicyDocument>& documents,
               const std::map<std::string, std::string>& base)
      : policy_(documents),
        staging_(state_.path() + "/staging"),
        journal_(state_.path()),
        overlay_(overlay_options(way, objects_.put_files(base)), objects_, staging_, journal_, clock_, log_),
        gate_(overlay_, session::WriteGate::Position::open),
        policed_(gate_, overlay_, "", policy_, denials_),
        mount_(policed_, mount_options(way), log_) {}

  const std::string& path() const { return mountpoint_.path(); }
  fuse::IoMode io() const { return mount_.io(); }
  // By kind of message; FORGET comes when the kernel likes.
  std::map<std::string, std::uint64_t> messages() const {
    std::map<std::string, std::uint64_t> counts;
    for (const auto& operation : mount_.counts())
      if (operation.name != "forget") counts[operation.name] = operation.count;
    return counts;
  }

  // Every name with its type and, of regular files, its bytes: past the kernel and the policy.
  std::string everything() { return everything_in(session::kRootNode, ""); }

 private:
  static session::Overlay::Options overlay_options(const Way& way, const session::ObjectId& tree) {
    session::Overlay::Options options;
    options.uid = options.gid = way.uid;
    options.umask = 0;
    options.base_tree = tree;
    return options;
  }
  // As choose_io() of daemon/host decides.
  fuse::IoMode io_mode(const Way& way) const {
    const bool asks_at_opens = way.data == fuse::Data::passthrough || policy_.can_deny_on_seen_file(Action::read) ||
                               policy_.can_deny_on_seen_file(Action::write);
    const bool asks_at_listings =
        policy_.can_deny_on_seen_directory(Action::list) || !policy_.allowed("", true).has(Action::list);
    const auto opens = [](bool ask) { return ask ? fuse::Opens::daemon : fuse::Opens::none; };
    return {opens(asks_at_opens), way.data, opens(asks_at_listings)};
  }
  fuse::MountOptions mount_options(const Way& way) {
    fuse::MountOptions options;
    options.mountpoint = mountpoint_.path();
    options.source = "escrow:test";
    options.allow_other = true;
    options.xattrs = true;
    options.io_uring = way.io_uring && io_uring_wanted();
    options.io = io_mode(way);
    options.cache_listings = !policy_.can_deny_on_seen_directory(Action::list);
    options.cache_links = !policy_.can_deny_on_seen_file(Action::read);
    return options;
  }
  std::string everything_in(NodeId directory, const std::string& below) {
    std::map<std::string, NodeId> entries;
    overlay_.list(directory, 0, [&](const session::FileSystem::Entry& entry) {
      if (entry.name != "." && entry.name != "..") entries.emplace(entry.name, entry.node);
      return true;
    });
    std::string text;
    for (const auto& [name, node] : entries) {
      const session::Attributes attributes = overlay_.attributes(node);
      const std::string path = below.empty() ? name : below + "/" + name;
      text += path + " " + std::to_string(attributes.mode & S_IFMT);
      if (S_ISREG(attributes.mode)) {
        std::string bytes(attributes.size_bytes, '\0');
        bytes.resize(overlay_.read(node, 0, std::as_writable_bytes(std::span(bytes))));
        text += " " + bytes;
      }
      text += "\n";
      if (S_ISDIR(attributes.mode)) text += everything_in(node, path);
    }
    return text;
  }

  TemporaryDirectory state_, mountpoint_;
  session::SystemClock clock_;
  session::NullLog log_;
  NoDenials denials_;
  FakeObjectStore objects_;
  const session::AccessPolicy policy_;
  storage::TieredStagingArea staging_;
  storage::SqliteSessionJournal journal_;
  session::Overlay overlay_;
  session::WriteGate gate_;
  session::PolicedFileSystem policed_;
  fuse::Mount mount_;
};

std::string everything_in_twin(const std::string& root) {
  std::map<std::string, std::string> lines;
  std::vector<std::string> order;
  const std::function<void(const std::string&)> visit = [&](const std::string& below) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root + "/" + below))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string path = below.empty() ? name : below + "/" + name;
      struct stat values {};
      lstat((root + "/" + path).c_str(), &values);
      std::string line = path + " " + std::to_string(values.st_mode & S_IFMT);
      if (S_ISREG(values.st_mode)) {
        std::ifstream file(root + "/" + path, std::ios::binary);
        std::ostringstream bytes;
        bytes << file.rdbuf();
        line += " " + bytes.str();
      }
      order.push_back(line + "\n");
      if (S_ISDIR(values.st_mode)) visit(path);
    }
  };
  visit("");
  std::string text;
  for (const std::string& line : order) text += line;
  return text;
}

// Under which much is allowed and much denied, so that no run tells nothing.
std::vector<session::PolicyDocument> telling_policy() {
  return {{true,
           {{false, {Action::read}, {"*.key"}},
            {false, {Action::write, Action::metadata}, {"/a/**"}},
            {false, {Action::remove, Action::rename}, {"y.txt"}},
            {false, {Action::create}, {"/b/c/"}},
            {false, {Action::list}, {"c/b"}},
            {false, session::Actions::all(), {"/b/b", "a/c/**"}}}}};
}

std::map<std::string, std::string> random_base(std::mt19937_64& random) {
  std::map<std::string, std::string> base{
      {"a/b/x.key", "key"}, {"a/y.txt", "text"}, {"b/c/y.txt", "more"}, {"c/a", "c"}};
  const auto name = [&] { return kPolicyNames[random() % kPolicyNames.size()]; };
  for (int i = 0; i < 4; ++i) {
    const std::string path = "c/b/" + name();
    base[path] = path;
  }
  return base;
}

// The twin of the base, with the modes the mount shows.
void make_twin(const std::string& root, const std::map<std::string, std::string>& base, unsigned uid) {
  for (const auto& [path, bytes] : base) {
    std::filesystem::create_directories(std::filesystem::path(root + "/" + path).parent_path());
    std::ofstream(root + "/" + path, std::ios::binary) << bytes;
  }
  const auto hand_over = [&](const std::string& path, mode_t mode) {
    ASSERT_EQ(0, chmod(path.c_str(), mode));
    ASSERT_EQ(0, chown(path.c_str(), uid, uid));
  };
  hand_over(root, 0777);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    hand_over(entry.path(), entry.is_directory() ? 0777 : 0666);
}

// Counts in lines "what\tnumber", then the failure.
std::string play(const Way& way, const std::string& mount, const std::string& twin, const SlowPolicy& policy,
                 std::uint64_t seed) {
  umask(0);
  if (way.uid != 0 && (setgroups(0, nullptr) != 0 || setgid(way.uid) != 0 || setuid(way.uid) != 0))
    return "\ncannot become another user";
  PolicyPlayer player(mount, twin, policy, seed);
  player.play(kCalls);
  std::string text;
  for (const auto& [what, count] : player.counts()) text += what + "\t" + std::to_string(count) + "\n";
  return text + "\n" + player.failure();
}

std::string in_child_of_matrix(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "\npipe failed";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string text = body();
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t size = write(ends[1], text.data() + done, text.size() - done);
      if (size <= 0) break;
      done += static_cast<std::size_t>(size);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? text : text + "\nthe player died with status " + std::to_string(status);
}

class PolicyMatrix : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { ESCROW_NEEDS_FUSE(); }

  void round(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto documents = rounds_ == 0      ? telling_policy()
                           : rounds_ % 2 == 0 ? random_hiding_policies(random)
                                              : random_policies(random);
    ++rounds_;
    const SlowPolicy slow(documents);
    const auto base = random_base(random);
    const TemporaryDirectory twin;
    make_twin(twin.path(), base, GetParam().uid);
    PolicedMount mount(GetParam(), documents, base);
    unasked_ += mount.io().opens == fuse::Opens::none;
    const std::string told =
        in_child_of_matrix([&] { return play(GetParam(), mount.path(), twin.path(), slow, random()); });
    std::istringstream lines(told);
    std::string line;
    while (std::getline(lines, line) && !line.empty()) {
      const std::size_t tab = line.find('\t');
      counts_[line.substr(0, tab)] += std::stoi(line.substr(tab + 1));
    }
    const std::string failure(std::istreambuf_iterator<char>(lines), {});
    const std::string where = "seed " + std::to_string(seed) + " under\n" + describe(documents);
    ASSERT_EQ("", failure) << where;
    ASSERT_EQ(everything_in_twin(twin.path()), mount.everything()) << where;
  }

  std::map<std::string, int> counts_;
  int rounds_ = 0, unasked_ = 0;
};

TEST_P(PolicyMatrix, EveryCallIsDecidedAsTheSlowEvaluatorSays) {
  const std::uint64_t seed = support::seed_of_this_run();
  try {
    for (std::uint64_t i = 0; i < kRounds && !HasFatalFailure(); ++i) round(seed + i);
  } catch (const session::Error& error) {
    // A kernel before 6.9. Where the tests are judged it must be there.
    const bool passes_through = GetParam().data == fuse::Data::passthrough;
    if (!passes_through || error.code() != session::Errc::unavailable || fuse_required()) throw;
    GTEST_SKIP() << error.what();
  }
  if (std::getenv("ESCROW_TEST_COUNTS") != nullptr)
    for (const auto& [what, count] : counts_) std::printf("%6d %s\n", count, what.c_str());
  int allowed = 0, denied = 0;
  for (const auto& [what, count] : counts_) (what.ends_with(" denied") ? denied : allowed) += count;
  EXPECT_GT(allowed, 40);
  EXPECT_GT(denied, 40);
  if (GetParam().data == fuse::Data::cached) { EXPECT_GT(unasked_, 0) << "no session went without opens"; }
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// What the kernel was told before the move must not answer after it.
TEST_P(PolicyMatrix, WhatAMovedDirectoryShowsIsDecidedWhereItIs) {
  const std::vector<session::PolicyDocument> documents = {
      {true, {{false, {Action::list}, {"/there/listed"}}, {false, {Action::read}, {"/there/link"}}}}};
  PolicedMount mount(GetParam(), documents, {{"here/listed", "1"}, {"here/shown", "2"}});
  const std::string here = mount.path() + "/here", there = mount.path() + "/there";
  ASSERT_EQ(0, symlink("shown", (here + "/link").c_str())) << errno;
  const auto target_of = [](const std::string& link) {
    char target[16] = {};
    return readlink(link.c_str(), target, sizeof target - 1) < 0 ? std::string(std::strerror(errno)) : target;
  };
  const std::set<std::string> all = {"link", "listed", "shown"};
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(all, names_in(here));
    ASSERT_EQ("shown", target_of(here + "/link"));
  }
  std::filesystem::rename(here, there);
  EXPECT_EQ((std::set<std::string>{"link", "shown"}), names_in(there));
  EXPECT_EQ(std::strerror(EACCES), target_of(there + "/link"));
}

// Beside other work the kernel asks again for something that it has let go of, now and then. The least of several runs
// is what it has to ask.
using Messages = std::map<std::string, std::uint64_t>;
Messages least_of_runs(const std::function<Messages()>& run) {
  Messages least = run();
  for (int again = 0; again < 2; ++again) {
    const Messages more = run();
    for (auto& [operation, count] : least) count = std::min(count, more.contains(operation) ? more.at(operation) : 0);
  }
  std::erase_if(least, [](const auto& one) { return one.second == 0; });
  return least;
}

// The numbers of messages of real programs, under documents and under none.
TEST_P(PolicyMatrix, APolicyThatDeniesNoOpenOfWhatCanBeSeenCostsNoMessage) {
  if (GetParam().data != fuse::Data::cached || GetParam().uid != 0) return;
  std::map<std::string, std::string> base;
  for (int i = 0; i < 60; ++i)
    base["d" + std::to_string(i % 4) + "/f" + std::to_string(i)] = "text " + std::to_string(i);
  const auto once_under = [&](const std::vector<session::PolicyDocument>& documents) {
    PolicedMount mount(GetParam(), documents, base);
    const std::string program = "cd " + mount.path() +
                                " && for i in 1 2; do tar -cf - . | cat > /dev/null && grep -r 'text 3' . > /dev/null "
                                "&& cat d1/f1 d1/f5 > /dev/null; done && cp d2/f2 d2/new && ls -lR > /dev/null";
    EXPECT_EQ(0, std::system(program.c_str()));
    return mount.messages();
  };
  const auto messages_under = [&](const std::vector<session::PolicyDocument>& documents) {
    return least_of_runs([&] { return once_under(documents); });
  };
  const auto without = messages_under({});
  EXPECT_EQ(1u, without.at("open")) << "the one that learns that there are none";
  EXPECT_EQ(1u, without.at("opendir"));
  EXPECT_EQ(without, messages_under({{true,
                                      {{false, session::Actions::all(), {"secrets", "*.key", "/d0/x/**"}},
                                       {false, {Action::remove, Action::rename, Action::metadata}, {"/d1"}},
                                       {false, {Action::create}, {"d0/**"}}}}}));
  // Only what asks for nothing else: a directory that can be seen and not listed.
  auto listed = messages_under({{true, {{false, session::Actions::all(), {"secrets/"}}}}});
  EXPECT_EQ(without.at("open"), listed.at("open"));
  EXPECT_GT(listed.at("opendir"), without.at("opendir"));
  // And where reading is denied, but no listing.
  listed = messages_under({{true, {{false, {Action::read}, {"*.key"}}}}});
  EXPECT_GT(listed.at("open"), without.at("open"));
  EXPECT_EQ(without.at("opendir"), listed.at("opendir"));
  EXPECT_EQ(without.at("readdirplus"), listed.at("readdirplus"));
}

std::string name_of(const testing::TestParamInfo<Way>& way) { return way.param.name; }
INSTANTIATE_TEST_SUITE_P(Every, PolicyMatrix, testing::ValuesIn(kWays), name_of);
INSTANTIATE_TEST_SUITE_P(WithoutIoUring, PolicyMatrix, testing::ValuesIn(kWaysWithoutIoUring), name_of);

}  // namespace
}  // namespace escrow::support
