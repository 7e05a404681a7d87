#include "storage/git/reference_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <git2.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/git_repository_pool.h"
#include "storage/git/packed_references.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::string_view kSymbolic = "ref:";
constexpr int kMostSymbolic = 5;  // as git (SYMREF_MAXDEPTH)
constexpr std::size_t kLongest = 4096;
constexpr std::size_t kIdLength = 40;
constexpr int kMostPasses = 100;
constexpr char kPacked[] = "packed-refs";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

struct LooseFile {
  enum class Kind { none, directory, file };
  Kind kind = Kind::none;
  std::string text = {};  // without blanks at its end
};

// git also takes a link to "refs/..." for a symbolic reference, whether or not that leads to a file.
LooseFile dangling_link(const std::string& path) {
  std::string target(kLongest, '\0');
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size < 0) return {};
  target.resize(static_cast<std::size_t>(size));
  return {LooseFile::Kind::file, (target.starts_with("refs/") ? std::string(kSymbolic) : "") + target};
}

LooseFile read_loose(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return dangling_link(path);
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) throw system_error(errno, "read " + path);
  if (S_ISDIR(status.st_mode)) return {LooseFile::Kind::directory};
  LooseFile file{LooseFile::Kind::file, std::string(kLongest, '\0')};
  const ssize_t size = S_ISREG(status.st_mode) ? ::read(fd.get(), file.text.data(), file.text.size()) : 0;
  if (size < 0) throw system_error(errno, "read " + path);
  file.text.resize(static_cast<std::size_t>(size));
  while (!file.text.empty() && is_blank(file.text.back())) file.text.pop_back();
  return file;
}

// The name in a symbolic reference; nullopt: it is none.
std::optional<std::string> target_in(std::string_view text) {
  if (!text.starts_with(kSymbolic)) return std::nullopt;
  text.remove_prefix(kSymbolic.size());
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return std::string(text);
}

std::optional<ObjectId> id_in(std::string_view text) {
  if (text.size() > kIdLength && !is_blank(text[kIdLength])) return std::nullopt;
  return ObjectId::from_hex(text.substr(0, kIdLength));
}

Error no_reference(const std::string& git_directory, const std::string& name, const std::string& text) {
  return Error(Errc::damaged_repository,
               "the reference " + git_directory + "/" + name + " is damaged: it should name a commit, and says '" +
                   text.substr(0, 80) + "'; its reflog, logs/" + name + ", says where it was");
}

struct Found {
  std::string name;                 // of the last in the chain
  std::optional<std::string> text;  // nullopt: it has no file
};

Found follow(const std::string& git_directory, std::string name) {
  for (int depth = 0; depth <= kMostSymbolic; ++depth) {
    LooseFile file = read_loose(git_directory + "/" + name);
    if (file.kind != LooseFile::Kind::file) return {std::move(name), std::nullopt};
    std::optional<std::string> target = target_in(file.text);
    if (!target) return {std::move(name), std::move(file.text)};
    const std::string from = std::exchange(name, std::move(*target));
    if (!name.starts_with("refs/") || name.find("..") != std::string::npos)
      throw Error(Errc::damaged_repository, "the symbolic reference " + git_directory + "/" + from +
                                                " points out of refs/; mend it with git symbolic-ref");
  }
  throw Error(Errc::damaged_repository, "the symbolic reference " + git_directory + "/" + name +
                                            " points to itself; mend it with git symbolic-ref");
}

bool is_valid_name(const std::string& name) {
  int valid = 0;
  return git_reference_name_is_valid(&valid, name.c_str()) == 0 && valid != 0;
}

// One reading of a directory and of packed-refs.
class Reading {
 public:
  Reading(const std::string& git_directory, const std::string& directory)
      : git_directory_(git_directory), directory_(directory) {
    start_libgit2();
    for (int passes = 0; !pass(); ++passes) {
      if (passes == kMostPasses)
        throw Error(Errc::busy, "references in " + git_directory_ + "/" + directory_ +
                                    " came and went all the time while they were read; try again");
    }
  }

  // By name. What an earlier pass found stays.
  std::map<std::string, Reference> found;
  std::map<std::string, Error> damaged;

 private:
  // False: something vanished that neither packed-refs nor an earlier pass has.
  bool pass() {
    damaged.clear();
    vanished_.clear();
    loose_.clear();
    read_below(directory_);
    try {
      PackedReferences(git_directory_).visit_below(directory_, [this](const std::string& name, const ObjectId& id) {
        if (!loose_.contains(name)) take(name, {name, id, ""});
      });
    } catch (const Error& error) {
      if (error.code() != Errc::damaged_repository) throw;
      damaged.insert_or_assign(kPacked, error);
    }
    return std::all_of(vanished_.begin(), vanished_.end(), [this](const std::string& name) { return is_found(name); });
  }

  // With a slash at its end. As in git, a hidden file or a lock file is no reference.
  void read_below(const std::string& directory) {
    for (const std::string& entry : names_in(git_directory_ + "/" + directory)) {
      if (entry.starts_with('.') || entry.ends_with(".lock")) continue;
      const std::string name = directory + entry;
      const LooseFile file = read_loose(git_directory_ + "/" + name);
      if (file.kind == LooseFile::Kind::none) vanished_.push_back(name);
      if (file.kind == LooseFile::Kind::directory) read_directory(name);
      if (file.kind == LooseFile::Kind::file) take_loose(name, file.text);
    }
  }

  void read_directory(const std::string& name) {
    const std::size_t before = loose_.size();
    read_below(name + "/");
    if (loose_.size() == before && !is_directory(git_directory_ + "/" + name)) vanished_.push_back(name);
  }

  void take_loose(const std::string& name, const std::string& text) {
    loose_.insert(name);
    if (!is_valid_name(name)) {
      damaged.insert_or_assign(name, Error(Errc::damaged_repository,
                                           "the file " + git_directory_ + "/" + name + " has a name that git refuses "
                                           "for a reference (see git check-ref-format); rename or remove it"));
    } else if (std::optional<std::string> target = target_in(text); target && is_valid_name(*target)) {
      take(name, {name, std::nullopt, std::move(*target)});
    } else if (const std::optional<ObjectId> id = id_in(text); id && !id->is_null()) {
      take(name, {name, id, ""});
    } else {
      damaged.insert_or_assign(name, no_reference(git_directory_, name, text));
    }
  }

  void take(const std::string& name, Reference reference) { found.insert_or_assign(name, std::move(reference)); }

  bool is_found(const std::string& name) const {
    const std::string below = name + "/";
    const auto first = found.lower_bound(below);
    return found.contains(name) || (first != found.end() && first->first.starts_with(below));
  }

  const std::string git_directory_, directory_;
  std::set<std::string> loose_;        // in this pass
  std::vector<std::string> vanished_;  // between its directory's listing and the look at it
};

}  // namespace

std::string resolve_reference(const std::string& git_directory, const std::string& name) {
  return follow(git_directory, name).name;
}

std::optional<ObjectId> read_reference(const std::string& git_directory, const std::string& name) {
  const Found found = follow(git_directory, name);
  if (!found.text) return PackedReferences(git_directory).find(found.name);
  if (const auto id = id_in(*found.text)) return id;
  throw no_reference(git_directory, found.name, *found.text);
}

std::vector<Reference> read_references(const std::string& git_directory, const std::string& directory,
                                       const TakeDamaged& damaged) {
  Reading reading(git_directory, directory);
  for (const auto& [name, error] : reading.damaged) {
    if (!damaged) throw error;
    damaged(name, error);
  }
  std::vector<Reference> all;
  all.reserve(reading.found.size());
  for (auto& [name, reference] : reading.found)
    if (!reading.damaged.contains(name)) all.push_back(std::move(reference));
  return all;
}

std::vector<Reference> all_references(const std::string& git_directory, const TakeDamaged& damaged) {
  std::vector<Reference> all = read_references(git_directory, "refs/", damaged);
  for (const std::string& tree : names_in(git_directory + "/worktrees")) {
    const std::string own = "worktrees/" + tree + "/";
    const TakeDamaged named = [&damaged, &own](const std::string& name, const Error& error) {
      if (!damaged) throw error;
      damaged(own + name, error);
    };
    for (Reference& reference : read_references(git_directory + "/worktrees/" + tree, "refs/", named)) {
      reference.name.insert(0, own);
      all.push_back(std::move(reference));
    }
  }
  return all;
}

std::vector<std::string> references_below(const std::string& git_directory, const std::string& directory) {
  const Reading reading(git_directory, directory);
  std::set<std::string> names;
  for (const auto& [name, reference] : reading.found) names.insert(name);
  for (const auto& [name, error] : reading.damaged) {
    if (name == kPacked) throw error;
    names.insert(name);
  }
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
