// Random operations against the overlay and against a real directory of the kernel's: every answer and every state
// must agree, across restarts of the overlay over its real journal and staging files. ESCROW_TEST_SEED chooses the run
// (seed.h), ESCROW_MODEL_STEPS lengthens it. A savepoint is a copy of the directory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "session/base/error.h"
#include "session/overlay/overlay.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::session {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  // Not by istreambuf_iterator, which without optimisation is most of what the model computes.
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

// What a tree shows, one line per path: type, permission bits, link count of files, content.
using Picture = std::map<std::string, std::string>;

class Model : public testing::Test {
 protected:
  Model() {
    directory_ = top_ / "real";
    fs::create_directories(directory_ / "d0/d1");
    std::map<std::string, std::string> files{{"f0", "base"}, {"f1", std::string(300000, 'b')}, {"d0/f0", "inner"},
                                             {"d0/d1/f1", "deep"}, {"d0/f2", ""}};
    for (const auto& [path, text] : files) std::ofstream(directory_ / path, std::ios::binary) << text;
    options_.base_tree = objects_.put_files(files);
    options_.uid = getuid();
    options_.gid = getgid();
    umask(022);
    open();
  }

  void open() {
    overlay_.reset();
    journal_.reset();
    staging_.reset();
    fs::create_directories(top_ / "session/staging");
    staging_ = std::make_unique<storage::TieredStagingArea>((top_ / "session/staging").string());
    journal_ = std::make_unique<storage::SqliteSessionJournal>((top_ / "session").string());
    overlay_ = std::make_unique<Overlay>(options_, objects_, *staging_, *journal_, clock_, log_);
  }

  std::size_t pick(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  std::string name() { return (pick(2) ? "f" : "d") + std::to_string(pick(3)); }
  std::string path() {
    std::string result = name();
    for (std::size_t depth = pick(4); depth > 0; --depth) result = "d" + std::to_string(pick(3)) + "/" + result;
    return result;
  }

  // The directory and last component of `path` in the overlay; throws as the kernel's path walk would.
  std::pair<NodeId, std::string> walk(const std::string& text) {
    NodeId at = kRootNode;
    std::size_t begin = 0;
    for (std::size_t slash; (slash = text.find('/', begin)) != std::string::npos; begin = slash + 1) {
      const auto found = overlay_->lookup(at, text.substr(begin, slash - begin));
      if (!found || S_ISLNK(found->mode)) throw Error(Errc::not_found, "no directory, or a dangling link to one");
      if (!S_ISDIR(found->mode)) throw Error(Errc::not_a_directory, "not a directory");
      at = found->node;
    }
    return {at, text.substr(begin)};
  }
  Attributes existing(const std::string& text) {
    const auto [directory, last] = walk(text);
    const auto found = overlay_->lookup(directory, last);
    if (!found) throw Error(Errc::not_found, "no file");
    return *found;
  }

  int outcome(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      switch (error.code()) {
        case Errc::not_found: return ENOENT;
        case Errc::exists: return EEXIST;
        case Errc::not_a_directory: return ENOTDIR;
        case Errc::is_a_directory: return EISDIR;
        case Errc::not_empty: return ENOTEMPTY;
        case Errc::invalid_argument: return EINVAL;
        case Errc::not_permitted: return EPERM;
        default: return EIO;
      }
    }
    return 0;
  }
  static int system_outcome(int result) { return result < 0 ? errno : 0; }

  // One random step on both sides; its description.
  std::string step() {
    const std::string a = path(), b = path();
    const fs::path real_a = directory_ / a, real_b = directory_ / b;
    int ours = 0, theirs = 0;
    std::string what;
    switch (pick(12)) {
      case 0:
        what = "create " + a;
        theirs = system_outcome(mknod(real_a.c_str(), S_IFREG | 0644, 0));
        ours = outcome([&] { make(a, S_IFREG | 0644); });
        break;
      case 1:
        what = "mkdir " + a;
        theirs = system_outcome(mkdir(real_a.c_str(), 0755));
        ours = outcome([&] { make(a, S_IFDIR | 0755); });
        break;
      case 2:
        what = "unlink " + a;
        theirs = system_outcome(unlink(real_a.c_str()));
        ours = outcome([&] {
          const auto [directory, last] = walk(a);
          overlay_->unlink(directory, last);
        });
        break;
      case 3:
        what = "rmdir " + a;
        theirs = system_outcome(rmdir(real_a.c_str()));
        ours = outcome([&] {
          const auto [directory, last] = walk(a);
          overlay_->remove_directory(directory, last);
        });
        break;
      case 4:
      case 5: {
        const auto mode = static_cast<unsigned>(pick(3));
        what = "rename " + std::to_string(mode) + " " + a + " " + b;
        theirs = system_outcome(renameat2(AT_FDCWD, real_a.c_str(), AT_FDCWD, real_b.c_str(), mode));
        ours = outcome([&] { rename(a, b, static_cast<RenameMode>(mode)); });
        // Which of two refusals comes first is the kernel's own trap check.
        if (theirs == EINVAL || theirs == ENOTEMPTY) theirs = ours == 0 ? theirs : ours;
        break;
      }
      case 6:
        what = "link " + a + " " + b;
        theirs = system_outcome(link(real_a.c_str(), real_b.c_str()));
        ours = outcome([&] {
          const auto [directory, last] = walk(b);
          const NodeId node = existing(a).node;
          overlay_->link(node, directory, last);
        });
        if (theirs != 0 && ours != 0) theirs = ours;  // which of two refusals comes first is the kernel's path walk
        break;
      case 7:
        what = "symlink " + a;
        theirs = system_outcome(symlink("target", real_a.c_str()));
        ours = outcome([&] {
          const auto [directory, last] = walk(a);
          overlay_->make_symlink(directory, last, "target", caller());
        });
        break;
      case 8:
        what = "chmod " + a;
        theirs = is_link(real_a) ? ELOOP : system_outcome(chmod(real_a.c_str(), 0700));
        ours = ELOOP;
        if (theirs != ELOOP) ours = outcome([&] { overlay_->change_attributes(existing(a).node, {.mode = 0700}); });
        break;
      case 9: what = resize(a, ours, theirs); break;
      default: what = write(a, ours, theirs); break;
    }
    EXPECT_EQ(ours, theirs) << what << ": the overlay says " << strerror(ours) << ", the kernel " << strerror(theirs);
    return what;
  }

  Caller caller() const { return {getuid(), getgid()}; }
  static bool is_link(const fs::path& path) { return fs::is_symlink(fs::symlink_status(path)); }
  void make(const std::string& text, std::uint32_t mode) {
    const auto [directory, last] = walk(text);
    overlay_->make_node(directory, last, mode, 0, caller());
  }
  void rename(const std::string& a, const std::string& b, RenameMode mode) {
    const auto [from, name] = walk(a);
    const auto [to, new_name] = walk(b);
    overlay_->rename(from, name, to, new_name, mode);
  }
  std::string resize(const std::string& a, int& ours, int& theirs) {
    const std::uint64_t size = pick(2) ? pick(10) : pick(600000);
    const fs::path real = directory_ / a;
    if (!fs::is_regular_file(fs::symlink_status(real))) return "truncate nothing";
    theirs = system_outcome(truncate(real.c_str(), static_cast<off_t>(size)));
    ours = outcome([&] { overlay_->change_attributes(existing(a).node, {.size_bytes = size}); });
    return "truncate " + a + " " + std::to_string(size);
  }
  std::string write(const std::string& a, int& ours, int& theirs) {
    const std::uint64_t offset = pick(3) ? pick(20) : pick(largest_offset_);
    const std::string text(1 + pick(pick(4) ? 30 : 200000), static_cast<char>('A' + pick(26)));
    const fs::path real = directory_ / a;
    if (!fs::is_regular_file(fs::symlink_status(real))) return "write nothing";
    const int fd = ::open(real.c_str(), O_WRONLY);
    theirs = pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset)) < 0 ? errno : 0;
    close(fd);
    bool is_raw = false;
    ours = outcome([&] {
      const NodeId node = existing(a).node;
      is_raw = pick(3) == 0 && write_raw(node, offset, text);
      if (!is_raw) overlay_->write(node, offset, std::as_bytes(std::span(text)), WriteOrigin::call);
    });
    return (is_raw ? "raw write " : "write ") + a + " " + std::to_string(text.size()) + "@" + std::to_string(offset);
  }

  // As the kernel does where a mount passes files through. False: this file's bytes are not all in one staging file.
  bool write_raw(NodeId node, std::uint64_t offset, const std::string& text) {
    constexpr OpenIntent kIntent{.write = true, .raw = true};
    const auto raw = overlay_->open(node, kIntent);
    if (!raw) return false;
    const int fd = ::open(("/proc/self/fd/" + std::to_string(raw->descriptor())).c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(static_cast<ssize_t>(text.size()), pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset)));
    EXPECT_EQ(overlay_->still_written().has_value(), overlay_->attributes(node).links > 0);
    close(fd);
    overlay_->close(node, kIntent);
    EXPECT_EQ(overlay_->still_written(), std::nullopt);
    return true;
  }

  static std::string line(std::uint32_t mode, std::uint64_t links, const std::string& content) {
    const std::string type = S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "file " + std::to_string(links);
    const std::uint32_t permissions = S_ISLNK(mode) ? 0777 : mode & 07777;
    return type + " " + std::to_string(permissions) + " " + std::to_string(content.size()) + " " +
           std::to_string(std::hash<std::string>{}(content));
  }
  Picture real_picture() {
    Picture picture;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      struct stat attributes {};
      lstat(entry.path().c_str(), &attributes);
      const std::string content = S_ISREG(attributes.st_mode)   ? read_file(entry.path())
                                  : S_ISLNK(attributes.st_mode) ? fs::read_symlink(entry.path()).string()
                                                                : "";
      picture[fs::relative(entry.path(), directory_).string()] = line(attributes.st_mode, attributes.st_nlink, content);
    }
    return picture;
  }
  void add_picture(NodeId directory, const std::string& prefix, Picture& picture) {
    overlay_->list(directory, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name == "." || entry.name == "..") return true;
      const std::string at = prefix + std::string(entry.name);
      const Attributes attributes = overlay_->attributes(entry.node);
      std::string content;
      if (S_ISREG(attributes.mode)) {
        content.resize(attributes.size_bytes);
        content.resize(overlay_->read(entry.node, 0, std::as_writable_bytes(std::span(content))));
      } else if (S_ISLNK(attributes.mode)) {
        content = overlay_->read_link(entry.node);
      }
      EXPECT_EQ(overlay_->lookup(directory, entry.name)->node, entry.node);
      picture[at] = line(attributes.mode, attributes.links, content);
      if (S_ISDIR(attributes.mode)) add_picture(entry.node, at + "/", picture);
      return true;
    });
  }
  Picture our_picture() {
    Picture picture;
    add_picture(kRootNode, "", picture);
    return picture;
  }
  // ---- savepoints

  fs::path copy_of(const std::string& savepoint) const { return top_ / ("savepoint-" + savepoint); }
  static void copy(const fs::path& from, const fs::path& to) {
    fs::remove_all(to);
    const std::string command = "cp -a '" + from.string() + "' '" + to.string() + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void create_savepoint(const std::string& name) {
    overlay_->create_savepoint(name, "");
    overlay_->flush(true);
    copy(directory_, copy_of(name));
    saved_.push_back(name);
  }
  // What the host's process would find after a kill: the journal and the staging files as they are.
  void kill() {
    overlay_->flush(false);
    overlay_->abandon();
    open();
  }
  std::string savepoint_step() {
    const std::size_t chosen = pick(6);
    if (chosen == 0) {
      kill();
      return "kill";
    }
    if (chosen <= 2 || saved_.empty()) {
      if (saved_.size() >= 6) return "no further savepoint";
      const std::string name = "s" + std::to_string(++named_);
      create_savepoint(name);
      return "savepoint " + name;
    }
    const std::size_t at = pick(saved_.size());
    const std::string name = saved_[at];
    if (chosen == 3) {
      overlay_->drop_savepoint(name);
      fs::remove_all(copy_of(name));
      saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(at));
      return "drop " + name;
    }
    const bool is_undoable = pick(2) == 0;
    if (is_undoable) create_savepoint("before-" + name + "-" + std::to_string(++named_));
    overlay_->restore_savepoint(name);
    copy(copy_of(name), directory_);
    return "restore " + name;
  }
  // What a savepoint shows is what it showed, whatever was done since.
  void look_at_a_savepoint() {
    if (saved_.empty()) return;
    const std::string name = saved_[pick(saved_.size())];
    const std::unique_ptr<Overlay> then = overlay_->at_savepoint(name);
    support::FakeQuarantine quarantine(objects_);
    EXPECT_EQ(then->build_tree(quarantine, {}).tree, real_tree(copy_of(name))) << name;
  }

  // The tree that the real directory's files make.
  std::optional<ObjectId> real_tree(const fs::path& directory) {
    Tree tree;
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      if (entry.is_symlink()) {
        tree.push_back({name, GitMode::symlink, objects_.put_blob(fs::read_symlink(entry.path()).string())});
      } else if (entry.is_directory()) {
        if (const auto below = real_tree(entry.path())) tree.push_back({name, GitMode::tree, *below});
      } else {
        struct stat attributes {};
        stat(entry.path().c_str(), &attributes);
        tree.push_back({name, attributes.st_mode & 0100 ? GitMode::executable : GitMode::regular,
                        objects_.put_blob(read_file(entry.path()))});
      }
    }
    if (tree.empty()) return std::nullopt;
    std::sort(tree.begin(), tree.end(), tree_order_less);
    return objects_.put_tree(tree);
  }

  std::mt19937_64 random_;
  std::size_t largest_offset_ = 500000;
  std::vector<std::string> saved_;
  int named_ = 0;
  support::TemporaryDirectory scratch_;
  const fs::path top_ = scratch_.path();
  fs::path directory_;
  support::FakeObjectStore objects_;
  SystemClock clock_;
  NullLog log_;
  Overlay::Options options_;
  std::unique_ptr<storage::TieredStagingArea> staging_;
  std::unique_ptr<storage::SqliteSessionJournal> journal_;
  std::unique_ptr<Overlay> overlay_;
};

TEST_F(Model, RandomOperationsAgreeWithARealDirectory) {
  const std::uint64_t seed = support::seed_of_this_run();
  const char* asked = std::getenv("ESCROW_MODEL_STEPS");
  const int steps = asked ? std::atoi(asked) : 5000;
  random_.seed(seed);
  std::string history;
  for (int i = 0; i < steps; ++i) {
    history += step() + "\n";
    if (i % 500 == 250) {
      open();
      history += "restart\n";
    }
    if (i % 50 == 0 || HasFailure()) {
      EXPECT_EQ(our_picture(), real_picture());
      support::FakeQuarantine quarantine(objects_);
      EXPECT_EQ(overlay_->build_tree(quarantine, {}).tree, real_tree(directory_));
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", the last steps were:\n"
                               << history.substr(history.size() > 600 ? history.size() - 600 : 0);
    if (history.size() > 10000) history.erase(0, 5000);
  }
}

class SavepointModel : public Model, public testing::WithParamInterface<int> {};

TEST_P(SavepointModel, SavepointsAgreeWithCopiesOfARealDirectory) {
  random_.seed(static_cast<std::uint64_t>(GetParam()));
  largest_offset_ = 1'600'000;  // beyond what is copied whole
  std::string history;
  for (int i = 0; i < 300; ++i) {
    const bool is_savepoint = pick(25) == 0;
    history += (is_savepoint ? savepoint_step() : step()) + "\n";
    if (is_savepoint || HasFailure()) {
      EXPECT_EQ(our_picture(), real_picture());
      look_at_a_savepoint();
    }
    ASSERT_FALSE(HasFailure()) << "seed " << GetParam() << ", the last steps were:\n"
                               << history.substr(history.size() > 1500 ? history.size() - 1500 : 0);
  }
  // What nothing refers to any more is gone.
  for (const std::string& name : saved_) overlay_->drop_savepoint(name);
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.is_directory() && !entry.is_symlink()) {
      fs::remove_all(entry.path());
      overlay_->replace(entry.path().filename().string(), std::nullopt);
    } else {
      const auto [directory, last] = walk(entry.path().filename().string());
      overlay_->unlink(directory, last);
      fs::remove(entry.path());
    }
  }
  overlay_->flush(true);
  overlay_->flush(true);
  open();
  EXPECT_EQ(our_picture(), real_picture());
  EXPECT_EQ(staging_->list().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SavepointModel, testing::Range(1, 5));

}  // namespace
}  // namespace escrow::session
