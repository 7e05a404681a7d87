// mount_tree() over a session's overlay with real staging files and a real journal: see mounted_tree.h.
#include <cstdio>
#include <cstring>

#include "session/decorators/write_gate.h"
#include "session/overlay/overlay.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

class StderrLog final : public session::Log {
 public:
  void write(session::LogLevel level, const std::string& message) override {
    if (level >= session::LogLevel::warning) std::fprintf(stderr, "log: %s\n", message.c_str());
  }
};

class MountedSession final : public MountedTree {
 public:
  explicit MountedSession(const TreeOptions& options)
      : staging_(state_.path() + "/staging"),
        journal_(state_.path()),
        overlay_(overlay_options(objects_, options), objects_, staging_, journal_, clock_, log_),
        gate_(overlay_, session::WriteGate::Position::open),
        mount_(gate_, mount_options(overlay_, mountpoint_.path(), options), log_) {}

  const std::string& path() const override { return mountpoint_.path(); }
  fuse::Mount& mount() override { return mount_; }
  std::vector<session::NodeId> files() override { return overlay_.held_files(); }

  std::string stored_bytes(const std::string& name) override {
    session::NodeId node = session::kRootNode;
    std::size_t start = 0;
    session::Attributes attributes;
    while (start <= name.size()) {
      const std::size_t end = std::min(name.find('/', start), name.size());
      const auto found = overlay_.lookup(node, name.substr(start, end - start));
      if (!found) return "";
      attributes = *found;
      node = found->node;
      start = end + 1;
    }
    std::string bytes(attributes.size_bytes, '\0');
    bytes.resize(overlay_.read(node, 0, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }

 private:
  static session::Overlay::Options overlay_options(FakeObjectStore& objects, const TreeOptions& options) {
    session::Overlay::Options result;
    result.base_time = {1'600'000'000, 0};
    if (!options.base.empty()) result.base_tree = objects.put_files(options.base);
    return result;
  }
  static fuse::MountOptions mount_options(session::Overlay& overlay, const std::string& mountpoint,
                                          const TreeOptions& options) {
    fuse::MountOptions result;
    result.mountpoint = mountpoint;
    result.source = "escrow:test";
    result.allow_other = options.allow_other;
    result.read_only = options.read_only;
    result.xattrs = options.xattrs;
    result.io_uring = io_uring_wanted();
    result.io = options.io;
    result.threads = options.threads;
    result.paths_of = [&overlay](session::NodeId node) { return overlay.names(node).paths; };
    return result;
  }

  TemporaryDirectory state_, mountpoint_;
  session::SystemClock clock_;
  StderrLog log_;
  FakeObjectStore objects_;
  storage::TieredStagingArea staging_;
  storage::SqliteSessionJournal journal_;
  session::Overlay overlay_;
  session::WriteGate gate_;
  fuse::Mount mount_;
};

}  // namespace

std::unique_ptr<MountedTree> mount_tree(const TreeOptions& options) {
  return std::make_unique<MountedSession>(options);
}

}  // namespace escrow::support
