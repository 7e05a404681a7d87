// mount_tree() over an entry of a mount table: see mounted_tree.h. It is a directory of this machine or, with
// ESCROW_TEST_CACHE=1, a cache whose published state is the base.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "session/decorators/mount_table.h"
#include "session/decorators/write_gate.h"
#include "storage/caches/caches.h"
#include "storage/host_files/host_directory.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

constexpr char kEntry[] = "on/the/way";

class MountedEntry final : public MountedTree {
 public:
  // What others may change needs opens that reach the daemon, as on the command line.
  explicit MountedEntry(const TreeOptions& options)
      : is_volatile_(options.io.opens == fuse::Opens::daemon && !is_cache()),
        files_(is_cache() ? cache_of(options.base) : directory_of(options.base)),
        overlay_({}, objects_, staging_, journal_, clock_, log_),
        gate_(overlay_, session::WriteGate::Position::open),
        table_(gate_, [this](session::NodeId node) { return overlay_.names(node); }, gate_,
               {{session::RepoPath::parse(kEntry, "test"), files_, false, is_volatile_}}, {}),
        path_(mountpoint_.path() + "/" + kEntry),
        mount_(table_, options_of(options), log_) {}

  const std::string& path() const override { return path_; }
  fuse::Mount& mount() override { return mount_; }
  std::vector<session::NodeId> files() override { return table_.held_files(); }
  int many_files() const override { return 200; }  // each call on one is several on the host
  std::string stored_bytes(const std::string& name) override {
    std::ifstream file(host_.path() + (is_cache() ? "/sessions/second/caches/c/tree/" : "/") + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static const std::string& filled(const std::string& directory, const std::map<std::string, std::string>& base) {
    for (const auto& [name, bytes] : base) {
      const std::filesystem::path file = directory + "/" + name;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary) << bytes;
    }
    return directory;
  }
  static bool is_cache() { return std::getenv("ESCROW_TEST_CACHE") != nullptr; }
  std::shared_ptr<session::EntryFileSystem> directory_of(const std::map<std::string, std::string>& base) const {
    return std::make_shared<storage::HostDirectory>(filled(host_.path(), base),
                                                    storage::HostDirectory::Options{is_volatile_, true}, "test");
  }
  std::shared_ptr<session::EntryFileSystem> cache_of(const std::map<std::string, std::string>& base) const {
    const std::string first = host_.path() + "/sessions/first", second = host_.path() + "/sessions/second";
    for (const std::string& session : {first, second}) std::filesystem::create_directories(session);
    const storage::Caches caches(host_.path());
    const storage::Caches::Owner owner{::geteuid(), ::getegid(), 022};
    constexpr storage::Caches::Place kPlace{};
    caches.open(first, "c", owner, kPlace, "tests");
    filled(first + "/caches/c/tree", base);
    std::ofstream(first + "/caches/c/changed") << "";
    caches.publish(first, std::uint64_t{1} << 40);
    return caches.open(second, "c", owner, kPlace, "tests");
  }
  fuse::MountOptions options_of(const TreeOptions& options) {
    fuse::MountOptions result;
    result.mountpoint = mountpoint_.path();
    result.source = "escrow:test";
    result.allow_other = options.allow_other;
    result.read_only = options.read_only;
    result.xattrs = options.xattrs;
    result.io_uring = io_uring_wanted();
    result.io = options.io;
    result.threads = options.threads;
    result.paths_of = [this](session::NodeId node) { return table_.names(node).paths; };
    result.is_volatile = [this](session::NodeId node) { return table_.is_volatile(node); };
    return result;
  }

  TemporaryDirectory host_, mountpoint_;
  const bool is_volatile_;
  std::shared_ptr<session::EntryFileSystem> files_;
  session::SystemClock clock_;
  session::NullLog log_;
  FakeObjectStore objects_;
  FakeStaging staging_;
  FakeJournal journal_;
  session::Overlay overlay_;
  session::WriteGate gate_;
  session::MountTable table_;
  const std::string path_;
  fuse::Mount mount_;
};

}  // namespace

std::unique_ptr<MountedTree> mount_tree(const TreeOptions& options) { return std::make_unique<MountedEntry>(options); }

}  // namespace escrow::support
