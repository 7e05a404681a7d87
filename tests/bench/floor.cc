// The benchmark's floor: Escrow's mount over files that are only in memory, so that what is measured is the kernel and
// the messages, and nothing of the overlay. What is slower than native here no file system in user space can make good.
//
//   bench_floor MOUNTPOINT     serves until it is unmounted
//
// Knows what the workloads need: files, directories, symbolic links. One lock; no times, no permissions.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "fuse/mount.h"
#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"

namespace {

using namespace escrow::session;

class MemoryFiles final : public FileSystem {
 public:
  MemoryFiles() { nodes_.lock()->map[kRootNode.value].mode = S_IFDIR | 0755; }

  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override {
    auto nodes = nodes_.lock();
    const Names& names = nodes->at(directory).names;
    const auto found = names.find(name);
    if (found == names.end()) return std::nullopt;
    return describe(found->second, nodes->at(found->second));
  }
  Attributes attributes(NodeId id) override {
    auto nodes = nodes_.lock();
    return describe(id, nodes->at(id));
  }
  Attributes change_attributes(NodeId id, const AttributeChange& change) override {
    auto nodes = nodes_.lock();
    Node& node = nodes->at(id);
    if (change.mode) node.mode = (node.mode & S_IFMT) | *change.mode;
    if (change.size_bytes) node.bytes.resize(*change.size_bytes);
    return describe(id, node);
  }
  std::string read_link(NodeId id) override { return nodes_.lock()->at(id).bytes; }
  Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t,
                       const Caller&) override {
    return add(directory, name, (mode & S_IFMT) == 0 ? mode | S_IFREG : mode, {});
  }
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target, const Caller&) override {
    return add(directory, name, S_IFLNK | 0777, target);
  }
  Attributes link(NodeId, NodeId, std::string_view) override { throw Error(Errc::not_supported, "no links"); }
  void unlink(NodeId directory, std::string_view name) override {
    auto nodes = nodes_.lock();
    Names& names = nodes->at(directory).names;
    const auto found = names.find(name);
    if (found == names.end()) throw Error(Errc::not_found, "no such name");
    if (!nodes->at(found->second).names.empty()) throw Error(Errc::not_empty, "it is not empty");
    nodes->map.erase(found->second.value);
    names.erase(found);
  }
  void remove_directory(NodeId directory, std::string_view name) override { unlink(directory, name); }
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode) override {
    auto nodes = nodes_.lock();
    const auto moved = nodes->at(directory).names.extract(std::string(name));
    if (moved.empty()) throw Error(Errc::not_found, "no such name");
    nodes->at(new_directory).names[std::string(new_name)] = moved.mapped();
  }
  std::unique_ptr<RawFile> open(NodeId, OpenIntent) override { return nullptr; }
  void close(NodeId, OpenIntent) override {}
  std::size_t read(NodeId id, std::uint64_t offset, std::span<std::byte> out) override {
    auto nodes = nodes_.lock();
    const std::string& bytes = nodes->at(id).bytes;
    if (offset >= bytes.size()) return 0;
    const std::size_t count = std::min<std::size_t>(out.size(), bytes.size() - offset);
    std::memcpy(out.data(), bytes.data() + offset, count);
    return count;
  }
  void write(NodeId id, std::uint64_t offset, std::span<const std::byte> data, WriteOrigin) override {
    auto nodes = nodes_.lock();
    std::string& bytes = nodes->at(id).bytes;
    if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
    std::memcpy(bytes.data() + offset, data.data(), data.size());
  }
  void allocate(NodeId, AllocateMode, std::uint64_t, std::uint64_t) override {
    throw Error(Errc::not_supported, "no allocation");
  }
  std::optional<std::uint64_t> seek(NodeId, std::uint64_t, SeekTarget) override { return std::nullopt; }
  void sync_file(NodeId) override {}
  void sync_directory(NodeId) override {}
  void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override {
    std::vector<std::pair<std::string, NodeId>> entries = {{".", directory}, {"..", directory}};
    std::vector<std::uint32_t> modes(2, S_IFDIR);
    {
      auto nodes = nodes_.lock();
      for (const auto& [name, id] : nodes->at(directory).names) {
        entries.emplace_back(name, id);
        modes.push_back(nodes->at(id).mode);
      }
    }
    for (std::size_t i = cookie; i < entries.size(); ++i) {
      if (!visit({entries[i].first, i + 1, entries[i].second, modes[i]})) return;
    }
  }
  std::optional<std::string> xattr(NodeId, std::string_view) override { return std::nullopt; }
  std::vector<std::string> xattr_names(NodeId) override { return {}; }
  void set_xattr(NodeId, std::string_view, std::string_view, XattrMode) override {}
  void remove_xattr(NodeId, std::string_view) override {}
  StagingArea::FreeSpace free_space() override { return {}; }
  void retain(NodeId) override {}
  void release(NodeId) override {}

 private:
  using Names = std::map<std::string, NodeId, std::less<>>;
  struct Node {
    std::uint32_t mode = 0;
    std::string bytes;  // or the target
    Names names;
  };
  struct Nodes {
    std::unordered_map<std::uint64_t, Node> map;
    std::uint64_t next = 2;
    Node& at(NodeId id) {
      const auto found = map.find(id.value);
      if (found == map.end()) throw Error(Errc::not_found, "no such node");
      return found->second;
    }
  };

  static Attributes describe(NodeId id, const Node& node) {
    Attributes attributes{.node = id, .mode = node.mode};
    attributes.size_bytes = node.bytes.size();
    return attributes;
  }
  Attributes add(NodeId directory, std::string_view name, std::uint32_t mode, std::string_view bytes) {
    auto nodes = nodes_.lock();
    const NodeId id{nodes->next++};
    if (!nodes->at(directory).names.emplace(name, id).second) throw Error(Errc::exists, "the name exists");
    Node& node = nodes->map[id.value];
    node.mode = mode;
    node.bytes = bytes;
    return describe(id, node);
  }

  Synchronized<Nodes> nodes_;
};

class NoLog final : public Log {
 public:
  void write(LogLevel, const std::string&) override {}
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  MemoryFiles files;
  NoLog log;
  std::atomic<bool> ended = false;
  escrow::fuse::MountOptions options;
  options.mountpoint = arguments[1];
  options.source = "floor";
  options.allow_other = true;
  try {
    const escrow::fuse::Mount mount(files, options, log, [&ended] {
      ended = true;
      ended.notify_all();
    });
    std::puts("ready");
    std::fflush(stdout);
    ended.wait(false);
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_floor: %s\n", error.what());
    return 1;
  }
}
