#include "storage/git/git_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "storage/disk/file_lookup.h"
#include "storage/git/git_error.h"
#include "storage/git/git_repository_pool.h"
#include "storage/git/head_file.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;

std::string clean(const fs::path& path) {
  std::error_code ignored;
  fs::path whole = fs::weakly_canonical(path, ignored);
  if (whole.empty()) whole = fs::absolute(path);
  std::string text = whole.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool belongs_to_us(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

// Three of git's four marks: enough to call a directory a repository that has lost one.
bool looks_like_git_directory(const fs::path& path) {
  const int marks = is_there(path / "HEAD") + is_directory(path / "objects") + is_directory(path / "refs") +
                    is_there(path / "config");
  return marks >= 3 || (is_there(path / "HEAD") && is_there(path / "commondir"));
}

// A linked work tree's git directory names the one that holds objects and references.
std::string common_directory(const fs::path& git_directory) {
  if (!is_there(git_directory / "commondir")) return clean(git_directory);
  const fs::path common = first_line_of(git_directory / "commondir");
  return clean(common.is_absolute() ? common : git_directory / common);
}

// The extensions this libgit2 reads, lower case.
std::vector<std::string> known_extensions() {
  git_strarray names{};
  check_git(git_libgit2_opts(GIT_OPT_GET_EXTENSIONS, &names), "asking libgit2 for its extensions");
  std::vector<std::string> known(names.strings, names.strings + names.count);
  git_strarray_dispose(&names);
  known.push_back("noop");
  return known;
}

[[noreturn]] void refuse_extension(const std::string& git_directory, const std::string& name,
                                   const std::string& value) {
  throw Error(Errc::unsupported_repository,
              "the repository " + git_directory + " uses the git extension " + name + "=" + value +
                  ", which Escrow cannot read; it reads repositories with SHA-1 ids and ordinary references, as a "
                  "plain git init --bare makes them");
}

void refuse_extensions(const std::string& git_directory, git_config* config) {
  const std::vector<std::string> known = known_extensions();
  git_config_iterator* raw = nullptr;
  // Not by a pattern: libgit2 1.5 leaks 20 KB for each entry that does not match (git_regexp_match).
  check_git(git_config_iterator_new(&raw, config), "reading " + git_directory + "/config");
  GitConfigIterator iterator(raw);
  git_config_entry* entry = nullptr;
  while (git_config_next(&entry, iterator.get()) == 0) {
    constexpr std::string_view kSection = "extensions.";
    if (!std::string_view(entry->name).starts_with(kSection)) continue;
    const std::string name = entry->name + kSection.size();
    const std::string value = entry->value == nullptr ? "true" : entry->value;
    const bool readable = std::find(known.begin(), known.end(), name) != known.end();
    if (name == "objectformat" ? value != "sha1" || !readable : !readable) {
      refuse_extension(git_directory, name == "objectformat" ? "objectFormat" : name, value);
    }
  }
}

void check_config(const std::string& git_directory) {
  const std::string path = git_directory + "/config";
  if (!is_there(path)) return;  // as git: every key has its default
  const GitConfig config = open_config(path);
  refuse_extensions(git_directory, config.get());
  std::int64_t version = 0;
  if (git_config_get_int64(&version, config.get(), "core.repositoryformatversion") == 0 && version > 1) {
    throw Error(Errc::unsupported_repository, "the repository " + git_directory + " has format version " +
                                                  std::to_string(version) + ", and Escrow reads versions 0 and 1");
  }
}

void check_layout(const std::string& git_directory) {
  const auto damaged = [&](const std::string& what) {
    throw Error(Errc::damaged_repository, "the repository " + git_directory + " is damaged: " + what +
                                              "; restore it from a clone or a backup");
  };
  if (!is_there(git_directory + "/HEAD")) damaged("HEAD is missing");
  if (!is_directory(git_directory + "/objects")) damaged("the directory objects is missing");
  if (!is_directory(git_directory + "/refs")) damaged("the directory refs is missing");
  if (!is_head_sound(git_directory)) damaged("HEAD names neither a branch nor a commit");
}

}  // namespace

GitConfig open_config(const std::string& path) {
  start_libgit2();
  git_config* raw = nullptr;
  const int code = git_config_open_ondisk(&raw, path.c_str());
  GitConfig config(raw);
  if (code == 0) return config;
  // libgit2 also finds nothing where it cannot look; that is no damage.
  if (code == GIT_ENOTFOUND)
    throw Error(Errc::input_output, "cannot read " + path + ": libgit2 does not find it; try again");
  throw_git_error(code, "reading " + path, Errc::damaged_repository);
}

std::optional<std::string> find_git_directory(const std::string& path) {
  const fs::path given = path.empty() ? fs::path(".") : fs::path(path);
  const fs::path inner = given / ".git";
  if (is_directory(inner)) return common_directory(inner);
  if (is_there(inner)) {
    if (::access(inner.c_str(), R_OK) != 0) {
      const int error = errno;
      throw Error(error == EACCES ? Errc::access_denied : Errc::input_output,
                  "cannot read " + inner.string() + ": " + std::strerror(error));
    }
    const std::string line = first_line_of(inner);
    if (!line.starts_with("gitdir: ")) {
      throw Error(Errc::damaged_repository, "the file " + inner.string() + " does not name a git directory");
    }
    const fs::path target = line.substr(8);
    return common_directory(target.is_absolute() ? target : given / target);
  }
  if (looks_like_git_directory(given)) return common_directory(given);
  return std::nullopt;
}

GitRepository open_git_repository(const std::string& git_directory) {
  start_libgit2();
  if (!is_directory(git_directory)) {
    throw Error(Errc::no_repository, "there is no git repository at " + git_directory);
  }
  check_layout(git_directory);
  check_config(git_directory);
  git_repository* raw = nullptr;
  const int code = git_repository_open_ext(&raw, git_directory.c_str(), GIT_REPOSITORY_OPEN_NO_SEARCH, nullptr);
  GitRepository repository(raw);
  // libgit2 1.5 says "not found" instead where the user has no git configuration at all.
  if (code == GIT_EOWNER || (code == GIT_ENOTFOUND && !belongs_to_us(git_directory))) {
    throw Error(Errc::unsupported_repository, "the repository " + git_directory +
                                                  " belongs to another user; if you trust it, run: git config --global "
                                                  "--add safe.directory " + git_directory);
  }
  // Also where it could not look: what it looks for was there a moment ago.
  if (code == GIT_ENOTFOUND) {
    throw Error(Errc::input_output, "cannot open the repository " + git_directory +
                                        ": libgit2 finds none there, though HEAD, objects and refs are there; try "
                                        "again, and see what git says of it");
  }
  check_git(code, "opening the repository " + git_directory);
  return repository;
}

}  // namespace escrow::storage
