// A session that is made of the parts of another one.
#include <algorithm>
#include <array>

#include "session/base/error.h"
#include "session/base/file_mode.h"
#include "session/base/link_target.h"
#include "session/base/path_prefix.h"
#include "session/transaction/apply_changes.h"
#include "session/transaction/commit.h"
#include "session/transaction/opening.h"
#include "session/transaction/session_tree.h"
#include "session/transaction/staged_state.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

// Of <sys/stat.h>: those above, then pipes, sockets and devices.
constexpr std::array<std::uint32_t, 7> kTypes{kDirectoryType, kRegularType, kSymlinkType, 0010000, 0140000,
                                              0020000,        0060000};
constexpr std::string_view kUserXattrs = "user.";
constexpr std::size_t kLongestXattr = 255;            // XATTR_NAME_MAX
constexpr std::size_t kLargestXattr = 65536;          // XATTR_SIZE_MAX
constexpr std::uint32_t kNobody = 0xffffffff;         // chown(2): it stays who it is
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 62;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::bad_request, "the exported session cannot be: " + quote_path(path) + " " + why);
}

// What the parts say of the session, for the new one, which is a person's.
SessionRecord record_of(const SessionRecord& given, const std::string& branch, const std::string& who) {
  SessionRecord record{SessionId::generate()};
  record.options = given.options;
  if (!branch.empty()) record.options.branch = branch;
  record.options.audit = {.committer = who, .issuer = who, .source = "manual"};
  record.options.read_only = record.options.ephemeral = record.options.keep_on_failure = false;
  record.options.command.clear();
  record.base = given.base;
  record.unresolved = given.unresolved;
  record.message = given.message;
  return record;
}

class Applying final : public StagedParts {
 public:
  // Of the session that is made. `base`: of the mount's root.
  struct Place {
    Overlay& overlay;
    TreeRoot base;
  };
  using Begin = std::function<Place(const SessionRecord&)>;
  Applying(const ObjectReader& objects, Begin begin) : objects_(objects), begin_(std::move(begin)) {}

  void begin(const SessionRecord& record) override {
    const Place place = begin_(record);
    overlay_ = &place.overlay;
    base_ = place.base;
  }

  void removed(const std::string& path) override {
    close_file();
    check(path);
    if (seen_.contains(path)) refuse(path, "is removed after it was named");
    if (!node_at(*overlay_, path)) refuse(path, "is removed, and the base does not have it");
    overlay_->replace(path, std::nullopt);
  }

  void name(const StagedName& name) override {
    close_file();
    check(name);
    if (!seen_.insert(name.path).second) refuse(name.path, "is there twice");
    if (!name.path.empty()) parent_of(name.path);
    if (name.submodule) {
      if (node_at(*overlay_, name.path)) refuse(name.path, "takes the place of what was not removed");
      overlay_->replace(name.path, TreeEntry{last_name(name.path), GitMode::gitlink, *name.submodule});
    } else if (!name.same_as.empty()) {
      link(name);
    } else {
      make(name);
    }
  }

  void bytes(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!file_) refuse(path_, "has bytes, and is no file with bytes of its own");
    if (offset < written_ || offset > size_ || bytes.size() > size_ - offset)
      refuse(path_, "has bytes out of their order, or past its end");
    overlay_->write(*file_, offset, bytes, WriteOrigin::call);
    written_ = offset + bytes.size();
  }

  void left_out(const std::string&) override { close_file(); }

  void end() override {
    close_file();
    overlay_->sync_files(files_);
    // A new entry has moved the directory's time.
    for (const auto& [node, change] : times_) overlay_->change_attributes(node, change);
    is_whole_ = true;
  }

  bool is_whole() const { return is_whole_; }

 private:
  static std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  static void check(const std::string& path) {
    if (path.empty() || RepoPath::parse(path, "a path of the exported session").text() != path)
      refuse(path, "is no path of a session");
    std::string_view rest = path;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find('/'));
      if (git_refuses_name(one)) refuse(path, "has a name that git refuses");
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    }
  }

  // What no program could have made in a mount.
  static void check(const StagedName& name) {
    if (!name.path.empty()) check(name.path);
    const std::uint32_t type = name.mode & kTypeMask;
    if (name.path.empty() && (name.submodule || !name.same_as.empty() || type != kDirectoryType))
      refuse(name.path, "is the root, and no directory");
    if (name.submodule) {
      if (name.submodule->is_null()) refuse(name.path, "is a submodule without a commit");
      return;
    }
    if (!name.same_as.empty()) return;
    if (name.uid == kNobody || name.gid == kNobody) refuse(name.path, "has an impossible owner");
    if (std::ranges::find(kTypes, type) == kTypes.end() || (name.mode & ~(kTypeMask | kPermissionMask)) != 0)
      refuse(name.path, "has an impossible mode");
    const bool has_target = is_link_target(name.target);
    if ((type == kSymlinkType) != has_target || (type != kSymlinkType && !name.target.empty()))
      refuse(name.path, "has an impossible target");
    if (name.size_bytes > kLargestFile) refuse(name.path, "has an impossible size");
    for (const auto& [xattr, value] : name.xattrs)
      if (!xattr.starts_with(kUserXattrs) || xattr.size() == kUserXattrs.size() || xattr.size() > kLongestXattr ||
          xattr.find('\0') != std::string::npos || value.size() > kLargestXattr)
        refuse(name.path, "has an attribute that no program can set");
  }

  NodeId parent_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const auto parent = node_at(*overlay_, slash == std::string::npos ? "" : path.substr(0, slash));
    if (!parent) refuse(path, "is in a directory that is not there");
    const bool is_directory = (overlay_->attributes(*parent).mode & kTypeMask) == kDirectoryType;
    if (!is_directory || overlay_->origin(*parent).mode == GitMode::gitlink)
      refuse(path, "is in what is no directory of the session");
    return *parent;
  }

  void link(const StagedName& name) {
    const auto node = node_at(*overlay_, name.same_as);
    if (!node || !seen_.contains(name.same_as)) refuse(name.path, "is a link to a file that is not there");
    if (node_at(*overlay_, name.path)) refuse(name.path, "is a link, and takes the place of a file");
    overlay_->link(*node, parent_of(name.path), last_name(name.path));
  }

  NodeId take_from_base(const StagedName& name) {
    check(*name.base_path);
    const std::optional<TreeEntry> entry = entry_at(objects_, base_, RepoPath::parse(*name.base_path, "path"));
    if (!entry || entry->mode == GitMode::tree || entry->mode == GitMode::symlink || entry->mode == GitMode::gitlink)
      refuse(name.path, "has bytes that the base has not");
    overlay_->replace(name.path, TreeEntry{last_name(name.path), entry->mode, entry->id});
    return *node_at(*overlay_, name.path);
  }

  void make(const StagedName& name) {
    const std::uint32_t type = name.mode & kTypeMask;
    std::optional<NodeId> node = node_at(*overlay_, name.path);
    const bool is_there = node.has_value();
    const bool goes_on = is_there && (overlay_->attributes(*node).mode & kTypeMask) == type &&
                         (type == kDirectoryType || type == kRegularType);
    if (is_there && !goes_on) refuse(name.path, "takes the place of what was not removed");
    const Caller owner{name.uid, name.gid};
    if (name.base_path) {
      if (type != kRegularType) refuse(name.path, "is no file, and has bytes of the base");
      if (!is_there || *name.base_path != name.path) node = take_from_base(name);
    } else if (!is_there) {
      const NodeId parent = parent_of(name.path);
      node = type == kSymlinkType
                 ? overlay_->make_symlink(parent, last_name(name.path), name.target, owner).node
                 : overlay_->make_node(parent, last_name(name.path), name.mode, name.rdev, owner).node;
    }
    AttributeChange change;
    if (type != kSymlinkType) change.mode = name.mode & kPermissionMask;
    change.uid = name.uid;
    change.gid = name.gid;
    if (type == kRegularType && !name.base_path) change.size_bytes = 0;
    overlay_->change_attributes(*node, change);
    for (const std::string& xattr : overlay_->xattr_names(*node)) overlay_->remove_xattr(*node, xattr);
    for (const auto& [xattr, value] : name.xattrs) overlay_->set_xattr(*node, xattr, value, XattrMode::create);
    AttributeChange times;
    times.accessed = name.accessed;
    times.modified = name.modified;
    path_ = name.path;
    if (type == kRegularType && !name.base_path) {
      file_ = node;
      size_ = name.size_bytes;
      file_times_ = times;
    } else if (type == kDirectoryType) {
      times_.emplace_back(*node, times);
    } else {
      overlay_->change_attributes(*node, times);
    }
  }

  // The file that was named last has all its bytes.
  void close_file() {
    if (!file_) return;
    if (written_ < size_) {
      AttributeChange longer;
      longer.size_bytes = size_;
      overlay_->change_attributes(*file_, longer);
    }
    overlay_->change_attributes(*file_, file_times_);
    files_.push_back(*file_);
    file_.reset();
    written_ = size_ = 0;
  }

  const ObjectReader& objects_;
  const Begin begin_;
  Overlay* overlay_ = nullptr;
  TreeRoot base_;
  std::set<std::string> seen_;
  std::vector<std::pair<NodeId, AttributeChange>> times_;  // of directories
  std::string path_;
  std::optional<NodeId> file_;  // the file that bytes are of
  std::vector<NodeId> files_;   // those that have all their bytes
  AttributeChange file_times_;
  std::uint64_t size_ = 0, written_ = 0;
  bool is_whole_ = false;
};

void require_base(const Services& services, const SessionRecord& record) {
  if (record.base) {
    try {
      services.objects.read_commit(*record.base);
    } catch (const Error&) {
      throw Error(Errc::not_found,
                  "the session cannot be opened here: this repository does not have its base, commit " +
                                       record.base->hex() + "; fetch it, and try again");
    }
  }
  const std::optional<ObjectId> head = services.references.head(record.options.branch);
  if (record.base && !head)
    throw Error(Errc::no_branch, "the session cannot be opened here: there is no branch '" + record.options.branch +
                                     "' in the repository; name another one with --branch");
}

}  // namespace

std::unique_ptr<Session> open_from_staged_state(const Services& services, const std::string& branch,
                                                const std::string& who,
                                                const std::function<void(StagedParts& to)>& feed,
                                                const PrepareFor& prepare) {
  check_principal(who, "the committer");
  std::optional<SessionRecord> record;
  std::unique_ptr<SessionDirectory> held;
  std::unique_ptr<Overlay> overlay;
  Applying applying(services.objects, [&](const SessionRecord& given) -> Applying::Place {
    record = record_of(given, branch, who);
    check_path_prefix(record->options.prefix, "the path prefix of the exported session");
    services.references.check_target(record->options.branch);
    strengthen(record->options, services.references.rule_of(record->options.branch));
    record->created = record->changed = services.clock.now();
    require_base(services, *record);
    const Overlay::Options options = overlay_options(services, *record);
    // As SessionManager::open() does it: the row last, so that whatever is left before it has a directory that
    // recovery finds.
    held = services.directories.create(record->id);
    if (record->base) services.references.pin_base(record->id, *record->base);
    overlay = std::make_unique<Overlay>(options, services.objects, held->staging(), held->journal(), services.clock,
                                        services.log);
    const TreeRoot base = tree_of_commit(services.objects, record->base);
    return {*overlay, tree_of(entry_at(services.objects, base, record->options.prefix))};
  });
  try {
    feed(applying);
    if (!applying.is_whole())
      throw Error(Errc::bad_request, "the exported session ends before its last part: it was cut short");
    overlay->flush(true);
    overlay.reset();
    if (prepare) prepare(held->path(), record->options);
    record_open(services, *record, *held);
  } catch (...) {
    if (overlay) overlay->abandon();
    overlay.reset();
    if (held) clean_up(services, record->id, *held, false);
    throw;
  }
  return std::make_unique<Session>(services, *std::move(record), std::move(held));
}

}  // namespace escrow::session
