#include "storage/repository_init.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "session/error.h"
#include "storage/durable_file.h"
#include "storage/git_directory.h"
#include "storage/git_error.h"
#include "storage/git_repository_pool.h"
#include "storage/repository.h"
#include "storage/sqlite_session_catalog.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;

void refuse_control_characters(const std::string& text, const char* what) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
    throw Error(Errc::bad_request, std::string("the ") + what +
                                       " holds a control character; use a name without any");
  }
}

void check_branch_name(const std::string& branch) {
  refuse_control_characters(branch, "name of the branch");
  int valid = 0;
  const std::string name = "refs/heads/" + branch;
  check_git(git_reference_name_is_valid(&valid, name.c_str()), "checking the name of a branch", Errc::bad_request);
  if (valid == 0 || branch.empty() || branch.front() == '-' || branch == "HEAD") {
    throw Error(Errc::bad_request, "'" + branch + "' is not a name that git accepts for a branch");
  }
}

void create_bare(const std::string& path, const std::string& branch) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    throw Error(Errc::bad_request, "cannot create a repository at " + path + ": a file is there");
  }
  if (fs::is_directory(path, error) && !fs::is_empty(path, error)) {
    throw Error(Errc::bad_request, "cannot create a repository at " + path + ": the directory is not empty and is "
                                   "not a git repository; name a new or an empty directory");
  }
  git_repository_init_options options = GIT_REPOSITORY_INIT_OPTIONS_INIT;
  options.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKDIR | GIT_REPOSITORY_INIT_MKPATH;
  options.initial_head = branch.c_str();
  git_repository* raw = nullptr;
  const int code = git_repository_init_ext(&raw, path.c_str(), &options);
  const GitRepository repository(raw);
  check_git(code, "creating a repository at " + path, Errc::access_denied);
}

void add_to_multivar(git_config* config, const char* name, const std::string& value) {
  git_config_iterator* raw = nullptr;
  const int code = git_config_multivar_iterator_new(&raw, config, name, nullptr);
  if (code == 0) {
    const GitConfigIterator iterator(raw);
    for (git_config_entry* entry = nullptr; git_config_next(&entry, raw) == 0;) {
      if (entry->value == value) return;
    }
  }
  // "^$" matches no value: the new one is added.
  check_git(git_config_set_multivar(config, name, "^$", value.c_str()), std::string("setting ") + name);
}

// The repository's own configuration keeps what it says, but for what Escrow's promises rest on.
void set_configuration(const std::string& git_directory) {
  git_config* raw = nullptr;
  check_git(git_config_open_ondisk(&raw, (git_directory + "/config").c_str()), "reading " + git_directory + "/config");
  const GitConfig config(raw);
  const auto set = [&](const char* name, const char* value) {
    check_git(git_config_set_string(raw, name, value), std::string("setting ") + name, Errc::access_denied);
  };
  set("core.logAllRefUpdates", "true");
  set("core.bigFileThreshold", "8m");
  // Pins and results are not shown to clones; a result can still be fetched by its id.
  set("uploadpack.allowTipSHA1InWant", "true");
  add_to_multivar(raw, "transfer.hideRefs", "refs/escrow");
  add_to_multivar(raw, "transfer.hideRefs", "refs/sessions");
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) throw system_error(errno, "make the directory " + path);
}

void make_state(const std::string& git_directory) {
  const std::string state = git_directory + "/escrow";
  make_directory(state);
  make_directory(state + "/sessions");
  make_directory(state + "/cache");
  open_or_throw(AT_FDCWD, (state + "/gc.lock").c_str(), O_RDWR | O_CREAT, 0644, "make " + state + "/gc.lock");
  const SqliteSessionCatalog catalog(state + "/catalog.db");
  // Last: its presence says that the rest is there.
  write_file_durably(state + "/version", std::to_string(kStateVersion) + "\n", 0644);
  sync_directory(git_directory + "/refs");
  sync_directory(git_directory);
}

}  // namespace

void check_state_version(const std::string& git_directory) {
  const std::string path = git_directory + "/escrow/version";
  std::ifstream in(path);
  if (!in) {
    throw Error(Errc::no_repository, "the repository " + git_directory +
                                         " has no Escrow state; run: escrow --repo " + git_directory + " init");
  }
  std::string line;
  std::getline(in, line);
  std::int64_t version = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), version);
  if (parsed.ec != std::errc() || parsed.ptr != line.data() + line.size() || version < 1) {
    throw Error(Errc::damaged_repository, "the file " + path + " is damaged: it should hold the number " +
                                              std::to_string(kStateVersion) + "; restore it");
  }
  if (version > kStateVersion) {
    throw Error(Errc::newer_state, "the Escrow state in " + git_directory + " has version " + line +
                                       ", and this Escrow reads up to version " + std::to_string(kStateVersion) +
                                       "; use a newer Escrow");
  }
}

bool Repository::init(const std::string& path, const std::string& branch) {
  start_libgit2();
  refuse_control_characters(path, "path of the repository");
  check_branch_name(branch);
  std::optional<std::string> found = find_git_directory(path);
  const bool create = !found;
  if (create) {
    create_bare(path, branch);
    found = find_git_directory(path);
    if (!found) throw Error(Errc::damaged_repository, "the repository just made at " + path + " cannot be found");
  }
  open_git_repository(*found);
  std::error_code ignored;
  if (fs::exists(*found + "/escrow/version", ignored)) {
    check_state_version(*found);
    return false;
  }
  set_configuration(*found);
  make_state(*found);
  return create;
}

std::optional<std::string> Repository::discover(const std::string& directory) {
  start_libgit2();
  git_buf found = GIT_BUF_INIT;
  const int code = git_repository_discover(&found, directory.c_str(), 0, nullptr);
  const std::string path = code == 0 ? std::string(found.ptr, found.size) : std::string();
  git_buf_dispose(&found);
  if (code != 0) return std::nullopt;
  return find_git_directory(path);
}

}  // namespace escrow::storage
