#include "daemon/host/session_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "session/base/error.h"

namespace escrow::daemon {

using session::Attributes;
using session::Errc;
using session::Error;
using session::NodeId;
using session::OpenIntent;
using session::RepoPath;

namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;

std::string quoted(const RepoPath& path) { return "'" + session::quote_path(path.text()) + "'"; }

[[noreturn]] void refuse_missing(const RepoPath& path) {
  throw Error(Errc::not_found, "the session has no file " + quoted(path));
}

std::uint32_t git_mode(const Attributes& attributes) {
  if (S_ISLNK(attributes.mode)) return 0120000;
  if (S_ISDIR(attributes.mode)) return 0040000;
  return (attributes.mode & S_IXUSR) != 0 ? 0100755 : 0100644;
}

std::string version_of(const Attributes& attributes) {
  const auto text = [](const session::Timestamp& time) {
    return std::to_string(time.seconds) + "." + std::to_string(time.nanoseconds);
  };
  return std::to_string(attributes.node.value) + " " + std::to_string(attributes.size_bytes) + " " +
         text(attributes.modified) + " " + text(attributes.changed);
}

// open(2) to close(2).
class Opened {
 public:
  Opened(session::FileSystem& files, NodeId node, OpenIntent intent) : files_(files), node_(node), intent_(intent) {
    files_.open(node_, intent_);
  }
  ~Opened() {
    try {
      files_.close(node_, intent_);
    } catch (const Error&) {
      // Closing reports nothing that writing has not.
    }
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  session::FileSystem& files_;
  const NodeId node_;
  const OpenIntent intent_;
};

// A program that has the session mounted would run what is written there.
void refuse_git(const RepoPath& path) {
  for (const std::string_view name : path.components()) {
    if (!session::git_refuses_name(name)) continue;
    throw Error(Errc::access_denied, "cannot change " + quoted(path) + ": '" + session::quote_path(name) +
                                         "' is a name of git's own, which no commit has; run git in the session");
  }
}

}  // namespace

SessionFiles::Place SessionFiles::place_of(const RepoPath& path, const Owner* owner) {
  Place place{.directory = session::kRootNode, .name = {}};
  for (const std::string_view component : path.components()) {
    if (!place.name.empty()) {
      std::optional<Attributes> found = find(place);
      if (!found && owner == nullptr) refuse_missing(path);
      if (!found) {
        found = files_.make_node(place.directory, place.name, S_IFDIR | (0777u & ~owner->umask), 0,
                                 {.uid = owner->uid, .gid = owner->gid});
        forget(place);
      }
      if (!S_ISDIR(found->mode)) {
        if (owner == nullptr) refuse_missing(path);
        throw Error(Errc::not_a_directory, "cannot write " + quoted(path) + ": '" + session::quote_path(place.name) +
                                               "' on its way is no directory");
      }
      place.directory = found->node;
    }
    place.name = component;
  }
  if (place.name.empty()) throw Error(Errc::is_a_directory, "the root of the session is a directory");
  return place;
}

std::optional<Attributes> SessionFiles::find(const Place& place) { return files_.lookup(place.directory, place.name); }

void SessionFiles::forget(const Place& place) {
  if (mount_ != nullptr && mount_->is_mounted()) mount_->invalidate({{place.directory, place.name}});
}

SessionFiles::Part SessionFiles::describe(const RepoPath& path) {
  const std::optional<Attributes> found = find(place_of(path, nullptr));
  if (!found) refuse_missing(path);
  return {.bytes = {}, .mode = git_mode(*found), .size_bytes = found->size_bytes, .version = version_of(*found)};
}

SessionFiles::Part SessionFiles::read(const RepoPath& path, std::uint64_t offset, std::size_t most_bytes) {
  const std::optional<Attributes> found = find(place_of(path, nullptr));
  if (!found) refuse_missing(path);
  Part part{.bytes = {}, .mode = git_mode(*found), .size_bytes = found->size_bytes, .version = version_of(*found)};
  if (S_ISDIR(found->mode)) throw Error(Errc::is_a_directory, quoted(path) + " is a directory");
  if (S_ISLNK(found->mode)) {
    part.bytes = files_.read_link(found->node);
    part.size_bytes = part.bytes.size();
    part.bytes = part.bytes.substr(std::min<std::uint64_t>(offset, part.bytes.size()), most_bytes);
    return part;
  }
  if (!S_ISREG(found->mode)) throw Error(Errc::not_supported, quoted(path) + " is a device, a fifo or a socket");
  const Opened opened(files_, found->node, {.read = true});
  part.bytes.resize(std::min<std::uint64_t>(most_bytes, part.size_bytes - std::min(offset, part.size_bytes)));
  part.bytes.resize(files_.read(found->node, offset, std::as_writable_bytes(std::span(part.bytes))));
  return part;
}

session::NodeId SessionFiles::directory_at(const RepoPath& path) {
  if (path.is_root()) return session::kRootNode;
  const std::optional<Attributes> found = find(place_of(path, nullptr));
  if (!found) refuse_missing(path);
  if (!S_ISDIR(found->mode)) throw Error(Errc::not_a_directory, quoted(path) + " is no directory");
  return found->node;
}

api::ListingAnswer SessionFiles::list(const RepoPath& path, const std::string& after, std::size_t most) {
  const NodeId directory = directory_at(path);
  const Opened opened(files_, directory, {.list = true});
  // One more than is asked for: whether there are any behind them.
  std::set<std::string> names;
  files_.list(directory, 0, [&](const session::FileSystem::Entry& entry) {
    const bool is_wanted = entry.name != "." && entry.name != ".." && (after.empty() || entry.name > after);
    if (is_wanted && (names.size() <= most || entry.name < *names.rbegin())) names.emplace(entry.name);
    if (names.size() > most + 1) names.erase(std::prev(names.end()));
    return true;
  });
  api::ListingAnswer answer{.entries = {}, .is_whole = names.size() <= most};
  if (!answer.is_whole) names.erase(std::prev(names.end()));
  for (const std::string& name : names) {
    // What was removed meanwhile is not listed.
    const std::optional<Attributes> found = files_.own_lookup(directory, name);
    if (!found) continue;
    const bool is_of_git = S_ISREG(found->mode) || S_ISDIR(found->mode) || S_ISLNK(found->mode);
    answer.entries.push_back({.name = name,
                              .mode = is_of_git ? git_mode(*found) : 0,
                              .size_bytes = S_ISDIR(found->mode) ? 0 : found->size_bytes});
  }
  return answer;
}

void SessionFiles::put(NodeId node, const Content& content, bool is_new) {
  const Opened opened(files_, node, {.write = true, .permitted = is_new});
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPieceBytes, content.size_bytes));
  for (std::uint64_t at = 0; at < content.size_bytes;) {
    const std::span<std::byte> wanted(piece.data(), std::min<std::uint64_t>(piece.size(), content.size_bytes - at));
    const std::size_t count = content.read(at, wanted);
    if (count == 0) throw Error(Errc::input_output, "the content that was received ends early");
    files_.write(node, at, wanted.first(count), session::WriteOrigin::call);
    at += count;
  }
  session::AttributeChange change;
  change.size_bytes = content.size_bytes;
  change.by_descriptor = true;
  files_.change_attributes(node, change);
}

// A policy may let one create what it does not let one delete.
bool SessionFiles::try_unlink(const Place& place) {
  try {
    files_.unlink(place.directory, place.name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool SessionFiles::write(const RepoPath& path, const Content& content, const Owner& owner) {
  refuse_git(path);
  const session::StagingArea::FreeSpace space = files_.free_space();
  if (space.blocks_available * space.block_size < content.size_bytes) {
    throw Error(Errc::no_space, "there is no space left to stage " + std::to_string(content.size_bytes) +
                                    " bytes; nothing was changed");
  }
  // The kernel keeps the size of a file that it writes back, whatever it is told.
  if (mount_ != nullptr && mount_->is_mounted() && mount_->io().data == fuse::Data::writeback) {
    throw Error(Errc::wrong_state, "cannot write " + quoted(path) + ": the session is mounted with --io writeback, "
                                   "where only programs in the mount can change files; unmount it and try again");
  }
  const Place place = place_of(path, &owner);
  std::optional<Attributes> found = find(place);
  const bool is_new = !found;
  if (found && S_ISDIR(found->mode)) throw Error(Errc::is_a_directory, quoted(path) + " is a directory");
  if (found && !S_ISREG(found->mode)) {
    throw Error(Errc::not_supported, quoted(path) + " is a link or a special file; delete it first");
  }
  if (!found) {
    const std::uint32_t mode = (content.executable.value_or(false) ? 0777u : 0666u) & ~owner.umask;
    found = files_.make_node(place.directory, place.name, S_IFREG | mode, 0, {.uid = owner.uid, .gid = owner.gid});
  }
  try {
    put(found->node, content, is_new);
    if (!is_new && content.executable && *content.executable != ((found->mode & S_IXUSR) != 0)) {
      session::AttributeChange change;
      change.mode = *content.executable ? (found->mode & 07777u) | (0111u & ~owner.umask) : found->mode & 07666u;
      files_.change_attributes(found->node, change);
    }
    files_.sync_file(found->node);
  } catch (const Error& error) {
    const bool is_as_before = is_new && try_unlink(place);
    forget(place);
    if (is_as_before || error.code() == Errc::access_denied || error.code() == Errc::read_only) throw;
    throw Error(error.code(), std::string(error.what()) + "; " + quoted(path) + " may have a part of the new content");
  }
  forget(place);
  if (mount_ != nullptr && mount_->is_mounted()) mount_->invalidate_file(found->node);
  return is_new;
}

void SessionFiles::remove(const RepoPath& path) {
  refuse_git(path);
  const Place place = place_of(path, nullptr);
  const std::optional<Attributes> found = find(place);
  if (!found) {
    // An earlier request may have removed it, and failed when that was to be on disk.
    files_.sync_directory(place.directory);
    refuse_missing(path);
  }
  if (S_ISDIR(found->mode)) {
    files_.remove_directory(place.directory, place.name);
  } else {
    files_.unlink(place.directory, place.name);
  }
  forget(place);
  files_.sync_directory(place.directory);
}

}  // namespace escrow::daemon
