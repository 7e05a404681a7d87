#include "storage/git/work_tree_index.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "session/base/error.h"
#include "session/trees/different_trees.h"
#include "session/trees/git_file_rules.h"
#include "storage/git/object_format.h"

namespace escrow::storage {
namespace {

using session::Attributes;
using session::GitMode;
using session::NodeId;
using session::ObjectId;
using session::Tree;
using session::TreeEntry;

constexpr std::size_t kDeepestTree = 2048;
constexpr std::size_t kLongestNameInFlags = 0xfff;

void put_u32(std::string& out, std::uint64_t value) {
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>((value >> shift) & 0xff);
}

void put_id(std::string& out, const ObjectId& id) {
  out.append(reinterpret_cast<const char*>(id.bytes().data()), ObjectId::kSize);
}

// Git knows two modes of a file.
GitMode mode_in_index(GitMode mode) { return mode == GitMode::group_writable ? GitMode::regular : mode; }

class IndexWriter {
 public:
  IndexWriter(const session::ObjectReader& objects, const WorkTree& shown, session::Timestamp written)
      : objects_(objects), shown_(shown), written_(written) {}

  WorkTreeIndex make() {
    const std::optional<ObjectId>& tree = shown_.tree;
    session::require_listable(objects_, session::WholeTrees::by_git, {std::nullopt, tree},
                              "the session has too many files for an index of git");
    const std::string trees = tree ? add_tree({"", GitMode::tree, *tree}, "", session::kRootNode, 0).cached : "";
    std::string index = "DIRC";
    put_u32(index, 2);
    put_u32(index, count_);
    index += entries_;
    if (!trees.empty()) {
      index += "TREE";
      put_u32(index, trees.size());
      index += trees;
    }
    Sha1 hash;
    hash.update(index);
    put_id(index, hash.finish());
    return {std::move(index), is_too_early_};
  }

 private:
  struct Added {
    std::string cached;     // of the tree and those below it, as the extension TREE has them
    std::uint64_t entries;  // of the index
    bool is_whole;          // every entry of the tree is in the index
  };

  // `directory`: no node where the work tree has none.
  Added add_tree(const TreeEntry& tree, const std::string& prefix, NodeId directory, std::size_t depth) {
    if (depth > kDeepestTree)
      throw session::Error(session::Errc::input_output, "the tree is nested too deeply for an index of git");
    std::string below;
    std::uint64_t entries = 0, trees = 0;
    bool is_whole = true;
    for (const TreeEntry& entry : objects_.read_tree(tree.id)) {
      if (session::git_refuses_entry(entry)) {
        is_whole = false;
        continue;
      }
      const bool is_looked_at = directory && entry.mode != GitMode::gitlink;
      const std::optional<Attributes> shown = is_looked_at ? shown_.shown(directory, entry) : std::nullopt;
      if (entry.mode == GitMode::tree) {
        const NodeId node = shown ? shown->node : NodeId{};
        const Added added = add_tree(entry, prefix + entry.name + "/", node, depth + 1);
        below += added.cached;
        entries += added.entries;
        trees += 1;
        is_whole = is_whole && added.is_whole;
      } else {
        add_file(entry, prefix + entry.name, shown);
        entries += 1;
      }
    }
    std::string cached = tree.name + '\0' + (is_whole ? std::to_string(entries) : "-1") + ' ' + std::to_string(trees) +
                         '\n';
    if (is_whole) put_id(cached, tree.id);
    return {cached + below, entries, is_whole};
  }

  // Without `shown` git looks for itself.
  void add_file(const TreeEntry& entry, const std::string& path, const std::optional<Attributes>& shown) {
    if (shown) look_for_lfs(entry, *shown);
    const Attributes recorded = shown.value_or(Attributes{});
    const std::size_t start = entries_.size();
    put_time(recorded.changed);
    put_time(recorded.modified);
    put_u32(entries_, 0);  // device: git compares none
    put_u32(entries_, recorded.node.value);
    put_u32(entries_, static_cast<std::uint32_t>(mode_in_index(entry.mode)));
    put_u32(entries_, recorded.uid);
    put_u32(entries_, recorded.gid);
    put_u32(entries_, recorded.size_bytes);
    put_id(entries_, entry.id);
    const std::size_t flags = std::min(path.size(), kLongestNameInFlags);
    entries_ += static_cast<char>(flags >> 8);
    entries_ += static_cast<char>(flags & 0xff);
    entries_ += path;
    do {
      entries_ += '\0';
    } while ((entries_.size() - start) % 8 != 0);
    count_ += 1;
  }

  void put_time(session::Timestamp time) {
    put_u32(entries_, static_cast<std::uint64_t>(time.seconds));
    put_u32(entries_, time.nanoseconds);
  }

  void look_for_lfs(const TreeEntry& entry, const Attributes& shown) {
    if (!shown_.has_lfs_files || entry.mode == GitMode::symlink || shown.modified.seconds < written_.seconds) return;
    is_too_early_ = is_too_early_ || shown.size_bytes != objects_.blob_size(entry.id);
  }

  const session::ObjectReader& objects_;
  const WorkTree& shown_;
  const session::Timestamp written_;
  bool is_too_early_ = false;
  std::string entries_;
  std::uint64_t count_ = 0;
};

}  // namespace

WorkTreeIndex work_tree_index(const session::ObjectReader& objects, const WorkTree& work_tree,
                              session::Timestamp written) {
  return IndexWriter(objects, work_tree, written).make();
}

}  // namespace escrow::storage
