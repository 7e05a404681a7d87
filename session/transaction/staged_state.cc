// The parts of a session that is open.
#include "session/transaction/staged_state.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "session/base/error.h"
#include "session/base/file_mode.h"
#include "session/base/link_target.h"
#include "session/transaction/savepoint_rules.h"
#include "session/trees/different_trees.h"
#include "session/trees/git_file_rules.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

bool is_file(GitMode mode) {
  return mode == GitMode::regular || mode == GitMode::group_writable || mode == GitMode::executable;
}

class Sending {
 public:
  // `base`: of the mount's root.
  Sending(Overlay& overlay, const ObjectReader& objects, TreeRoot base, StagedParts& to)
      : overlay_(overlay), objects_(objects), base_(std::move(base)), to_(to) {}

  void all() {
    attributes_of_root();
    directory(kRootNode, "", base_, 0);
  }

 private:

  // `base`: what the base has at this path.
  void directory(NodeId node, const std::string& path, const TreeRoot& base, int depth) {
    check_tree_depth(depth);
    std::map<std::string, TreeEntry> before;
    for (TreeEntry& entry : read_tree_or_empty(objects_, base)) before.emplace(entry.name, std::move(entry));
    std::vector<std::pair<std::string, NodeId>> names;
    overlay_.list(node, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name != "." && entry.name != "..") names.emplace_back(entry.name, entry.node);
      return true;
    });
    std::sort(names.begin(), names.end());
    for (const auto& [name, entry] : before)
      if (!std::binary_search(names.begin(), names.end(), std::pair(name, NodeId{}),
                              [](const auto& one, const auto& other) { return one.first < other.first; }))
        to_.removed(join_path(path, name));
    for (const auto& [name, child] : names) {
      const auto entry = before.find(name);
      send(child, name, join_path(path, name), entry == before.end() ? nullptr : &entry->second, depth);
    }
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(Errc::result_too_large, "cannot export the session: " + why + "; commit it instead");
  }

  void attributes_of_root() {
    if (!overlay_.origin(kRootNode).is_staged) return;
    to_.name(described(kRootNode, "", overlay_.attributes(kRootNode)));
  }

  // nullopt: it was not in the base when it was first seen.
  std::optional<std::string> first_path(NodeId node) {
    if (node == kRootNode) return "";
    const std::optional<Overlay::BaseBlock> block = overlay_.base_block_with(node);
    if (!block) return std::nullopt;
    const std::optional<std::string> above = first_path(block->directory);
    return above ? std::optional(join_path(*above, overlay_.base_name(node))) : std::nullopt;
  }

  // Where the base has this blob: at the path itself, or where the file was before it was moved.
  std::optional<std::string> base_path(NodeId node, const std::string& path, const ObjectId& blob) {
    if (blob.is_null()) return std::nullopt;
    for (const std::optional<std::string>& one : {std::optional(path), first_path(node)}) {
      if (!one) continue;
      const std::optional<TreeEntry> entry = entry_at(objects_, base_, RepoPath::parse(*one, "path"));
      if (entry && is_file(entry->mode) && entry->id == blob) return one;
    }
    return std::nullopt;
  }

  void send(NodeId node, const std::string& name, const std::string& path, const TreeEntry* before, int depth) {
    if (++visited_ > kMostListedPaths)
      refuse("more than " + std::to_string(kMostListedPaths) + " names would have to be looked at");
    const Overlay::Origin origin = overlay_.origin(node);
    const bool is_as_before = before != nullptr && before->mode == origin.mode && before->id == origin.id;
    if (!origin.is_staged && is_as_before) return;
    const Attributes attributes = overlay_.attributes(node);
    const std::uint32_t type = attributes.mode & kTypeMask;
    const bool is_submodule = origin.mode == GitMode::gitlink;
    const bool goes_on =
        before != nullptr && !is_submodule &&
        ((type == kDirectoryType && before->mode == GitMode::tree) || (type == kRegularType && is_file(before->mode)));
    if (is_submodule && is_as_before) return;  // nothing of it can be staged
    if (git_refuses_name(name)) return to_.left_out(path);
    const std::string* const earlier = earlier_name(node, attributes, path);
    if (before != nullptr && (!goes_on || earlier != nullptr)) to_.removed(path);
    if (earlier != nullptr) return to_.name({.path = path, .same_as = *earlier});
    if (is_submodule) return to_.name({.path = path, .submodule = origin.id});
    StagedName sent = described(node, path, attributes);
    if (type == kRegularType) {
      sent.base_path = base_path(node, path, origin.id);
      sent.size_bytes = sent.base_path ? 0 : attributes.size_bytes;
    } else if (type == kSymlinkType) {
      sent.target = overlay_.read_link(node);
      if (!is_link_target(sent.target))
        throw Error(Errc::input_output, "cannot export the session: the symbolic link " + quote_path(path) +
                                            " has a target that no system call takes; remove the link");
    }
    to_.name(sent);
    if (type == kRegularType && !sent.base_path) send_bytes(node, sent.size_bytes);
    // Directories below one that was moved are sent with all that is in them.
    if (type == kDirectoryType && !goes_on && !origin.id.is_null() &&
        !moved_.of({std::nullopt, origin.id}).can_be_listed())
      refuse("it has moved " + quote_path(path) + ", in which too much is: " + listing_bounds());
    if (type == kDirectoryType) directory(node, path, goes_on ? TreeRoot(before->id) : std::nullopt, depth + 1);
  }

  // Null: this is the first one.
  const std::string* earlier_name(NodeId node, const Attributes& attributes, const std::string& path) {
    if ((attributes.mode & kTypeMask) == kDirectoryType || attributes.links < 2) return nullptr;
    const auto [known, is_new] = linked_.try_emplace(node, path);
    return is_new ? nullptr : &known->second;
  }

  StagedName described(NodeId node, const std::string& path, const Attributes& attributes) {
    StagedName name{.path = path, .mode = attributes.mode, .uid = attributes.uid, .gid = attributes.gid,
                    .rdev = attributes.rdev, .accessed = attributes.accessed, .modified = attributes.modified};
    for (const std::string& xattr : overlay_.xattr_names(node)) {
      if (xattr == kOwnGitMark || xattr == kGitMaker) continue;  // of one that was moved
      if (auto value = overlay_.xattr(node, xattr)) name.xattrs.emplace_back(xattr, *std::move(value));
    }
    return name;
  }

  void send_bytes(NodeId node, std::uint64_t size) {
    std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(size, kPieceBytes)));
    for (std::uint64_t at = 0; at < size;) {
      const auto data = overlay_.seek(node, at, SeekTarget::data);
      if (!data || *data >= size) return;
      const std::uint64_t end = std::min(size, overlay_.seek(node, *data, SeekTarget::hole).value_or(size));
      for (at = *data; at < end;) {
        const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), end - at));
        const std::size_t got = overlay_.read(node, at, std::span(piece).first(most));
        if (got == 0) return;
        to_.bytes(at, std::span(piece).first(got));
        at += got;
      }
    }
  }

  Overlay& overlay_;
  const ObjectReader& objects_;
  const TreeRoot base_;
  StagedParts& to_;
  DifferentTrees moved_{objects_, WholeTrees::by_file};
  std::size_t visited_ = 0;
  std::unordered_map<NodeId, std::string> linked_;  // the first name of each file with several
};

}  // namespace

KeptToExport::KeptToExport(Session& session, const std::function<void()>& is_cut)
    : session_(session),
      record_(session.record()),
      savepoint_(new_savepoint_name("export-", session.savepoints())) {
  if (record_.options.isolation != Isolation::snapshot)
    throw Error(Errc::wrong_state, "cannot export session " + record_.id.text() +
                                       ": it is serializable, and what it has read is known here only");
  if (const auto lacking = session.overlay().incomplete_files(); !lacking.empty())
    throw Error(Errc::data_lost, "cannot export session " + record_.id.text() + ": what programs stored in " +
                                     quote_path(lacking.front()) + (lacking.size() > 1 ? " and others" : "") +
                                     " is lost; write the file again, remove or discard it, then export again");
  session.create_savepoint(savepoint_, is_cut);
  overlay_ = session.overlay().at_savepoint(savepoint_);
}

KeptToExport::~KeptToExport() {
  overlay_.reset();
  try {
    session_.drop_savepoint(savepoint_);
  } catch (const std::exception&) {
    // The session has ended meanwhile, and its savepoints with it; or the disk fails, and it goes with the session.
  }
}

void send_staged_state(Overlay& overlay, const SessionRecord& record, const ObjectReader& objects, StagedParts& to) {
  to.begin(record);
  const TreeRoot base = tree_of_commit(objects, record.base);
  Sending(overlay, objects, tree_of(entry_at(objects, base, record.options.prefix)), to).all();
  to.end();
}

}  // namespace escrow::session
