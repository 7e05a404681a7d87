#include "storage/git/reference_files.h"

#include <fcntl.h>

#include <cerrno>
#include <set>
#include <utility>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/packed_references.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::string_view kSymbolic = "ref: ";
constexpr int kMostSymbolic = 5;  // as git (SYMREF_MAXDEPTH)
constexpr std::size_t kLongest = 4096;

// nullopt: there is no such file, or a directory in its place.
std::optional<std::string> loose(const std::string& git_directory, const std::string& name) {
  const std::string path = git_directory + "/" + name;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!fd) throw system_error(errno, "read " + path);
  std::string text(kLongest, '\0');
  const ssize_t size = ::read(fd.get(), text.data(), text.size());
  if (size < 0 && errno == EISDIR) return std::nullopt;
  if (size < 0) throw system_error(errno, "read " + path);
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r')) text.pop_back();
  return text;
}

struct Found {
  std::string name;                // of the last in the chain
  std::optional<std::string> hex;  // nullopt: it has no file
};

Found follow(const std::string& git_directory, std::string name) {
  for (int depth = 0; depth <= kMostSymbolic; ++depth) {
    std::optional<std::string> text = loose(git_directory, name);
    if (!text || !text->starts_with(kSymbolic)) return {std::move(name), std::move(text)};
    const std::string from = std::exchange(name, text->substr(kSymbolic.size()));
    if (!name.starts_with("refs/") || name.find("..") != std::string::npos)
      throw Error(Errc::damaged_repository, "the symbolic reference " + git_directory + "/" + from +
                                                " points out of refs/; mend it with git symbolic-ref");
  }
  throw Error(Errc::damaged_repository, "the symbolic reference " + git_directory + "/" + name +
                                            " points to itself; mend it with git symbolic-ref");
}

}  // namespace

std::string resolve_reference(const std::string& git_directory, const std::string& name) {
  return follow(git_directory, name).name;
}

std::optional<ObjectId> read_reference(const std::string& git_directory, const std::string& name) {
  const Found found = follow(git_directory, name);
  if (!found.hex) return PackedReferences(git_directory).find(found.name);
  if (const auto id = ObjectId::from_hex(*found.hex)) return id;
  throw Error(Errc::damaged_repository,
              "the reference " + git_directory + "/" + found.name + " is damaged: it should name a commit, and says '" +
                  found.hex->substr(0, 80) + "'; its reflog, logs/" + found.name + ", says where it was");
}

std::vector<std::string> references_below(const std::string& git_directory, const std::string& directory) {
  std::set<std::string> names;
  std::string top = git_directory + "/" + directory;
  while (top.ends_with('/')) top.pop_back();
  // Loose ones first: one that is packed meanwhile is found there.
  for_each_below(top, [&](const std::string& path, const struct stat& status) {
    if (!S_ISDIR(status.st_mode) && !path.ends_with(".lock")) names.insert(path.substr(git_directory.size() + 1));
  });
  PackedReferences(git_directory).visit_below(directory, [&](const std::string& name, const ObjectId&) {
    names.insert(name);
  });
  return {names.begin(), names.end()};
}

void sync_removed_references(const std::string& git_directory) {
  for (const char* directory : {"/refs/sessions", "/refs/escrow/base", ""}) {  // the last has packed-refs
    std::string path = git_directory + directory;
    while (!is_directory(path)) path = parent_of(path);  // git removes a directory that is empty
    sync_directory(path);
  }
}

}  // namespace escrow::storage
