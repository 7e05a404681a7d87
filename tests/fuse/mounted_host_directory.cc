// mount_tree() over a host directory: see tests/support/mounted_tree.h.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuse/host_file_system.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

class MountedHostDirectory final : public MountedTree {
 public:
  explicit MountedHostDirectory(const TreeOptions& options)
      : file_system_(filled(host_.path(), options.base)),
        mount_(file_system_, options_of(mountpoint_.path(), options), log_) {}

  const std::string& path() const override { return mountpoint_.path(); }
  fuse::Mount& mount() override { return mount_; }
  std::vector<session::NodeId> files() override { return file_system_.files(); }
  int many_files() const override { return 200; }  // a descriptor each, to the end
  std::string stored_bytes(const std::string& name) override {
    std::ifstream file(host_.path() + "/" + name, std::ios::binary);
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
  static fuse::MountOptions options_of(const std::string& mountpoint, const TreeOptions& options) {
    fuse::MountOptions result;
    result.mountpoint = mountpoint;
    result.source = "escrow:test";
    result.allow_other = options.allow_other;
    result.read_only = options.read_only;
    result.xattrs = options.xattrs;
    result.io_uring = io_uring_wanted();
    result.io = options.io;
    result.threads = options.threads;
    return result;
  }

  TemporaryDirectory host_, mountpoint_;
  HostFileSystem file_system_;
  session::NullLog log_;
  fuse::Mount mount_;
};

}  // namespace

std::unique_ptr<MountedTree> mount_tree(const TreeOptions& options) {
  return std::make_unique<MountedHostDirectory>(options);
}

}  // namespace escrow::support
