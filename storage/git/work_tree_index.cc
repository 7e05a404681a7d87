#include "storage/git/work_tree_index.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "session/base/error.h"
#include "session/trees/different_trees.h"
#include "session/trees/git_file_rules.h"
#include "session/trees/listed_times.h"
#include "storage/git/object_format.h"

namespace escrow::storage {
namespace {

using session::GitMode;
using session::ObjectId;
using session::Tree;
using session::TreeEntry;

constexpr std::size_t kDeepestTree = 2048;
constexpr std::size_t kLongestNameInFlags = 0xfff;
constexpr std::uint64_t kToBeRead = 0;  // the size of which git believes nothing (ce_smudge_racily_clean_entry())

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
    const std::string trees = tree ? add_tree({"", GitMode::tree, *tree}, "", shown_.times, 0).cached : "";
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

  Added add_tree(const TreeEntry& tree, const std::string& prefix, const session::TimesBelow& times,
                 std::size_t depth) {
    if (depth > kDeepestTree)
      throw session::Error(session::Errc::input_output, "the tree is nested too deeply for an index of git");
    std::string below;
    std::uint64_t entries = 0, trees = 0;
    bool is_whole = true;
    const Tree listed = objects_.read_tree(tree.id);
    const session::ListedTimes listed_times(listed, times, shown_.newer);
    for (std::size_t index = 0; index < listed.size(); ++index) {
      const TreeEntry& entry = listed[index];
      if (session::git_refuses_entry(entry)) {
        is_whole = false;
      } else if (entry.mode == GitMode::tree) {
        Added added = add_tree(entry, prefix + entry.name + "/", listed_times.below(index, entry.name), depth + 1);
        below += added.cached;
        entries += added.entries;
        trees += 1;
        is_whole = is_whole && added.is_whole;
      } else {
        add_file(entry, prefix + entry.name, listed_times.modified(index));
        entries += 1;
      }
    }
    std::string cached = tree.name + '\0' + (is_whole ? std::to_string(entries) : "-1") + ' ' + std::to_string(trees) +
                         '\n';
    if (is_whole) put_id(cached, tree.id);
    return {cached + below, entries, is_whole};
  }

  void add_file(const TreeEntry& entry, const std::string& path, session::Timestamp modified) {
    const bool has_bytes = entry.mode != GitMode::gitlink;
    const std::size_t start = entries_.size();
    put_u32(entries_, 0);  // change time: seconds, nanoseconds
    put_u32(entries_, 0);
    put_u32(entries_, has_bytes ? static_cast<std::uint64_t>(modified.seconds) : 0);
    put_u32(entries_, has_bytes ? modified.nanoseconds : 0);
    for (int unknown = 0; unknown < 2; ++unknown) put_u32(entries_, 0);  // device, inode
    put_u32(entries_, static_cast<std::uint32_t>(mode_in_index(entry.mode)));
    for (int unknown = 0; unknown < 2; ++unknown) put_u32(entries_, 0);  // user, group
    put_u32(entries_, has_bytes ? recorded_size(entry, path, modified) : 0);
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

  std::uint64_t recorded_size(const TreeEntry& entry, const std::string& path, session::Timestamp modified) {
    if (std::binary_search(shown_.changed.begin(), shown_.changed.end(), path)) return kToBeRead;
    const bool is_as_its_blob = entry.mode == GitMode::symlink || shown_.files == nullptr;
    const std::uint64_t size_bytes = (is_as_its_blob ? objects_ : *shown_.files).blob_size(entry.id);
    if (!is_as_its_blob && modified.seconds >= written_.seconds && size_bytes != objects_.blob_size(entry.id))
      is_too_early_ = true;
    return size_bytes;
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
