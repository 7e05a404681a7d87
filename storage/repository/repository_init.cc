#include "storage/repository/repository_init.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/base/error.h"
#include "storage/bucket/bucket.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"
#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"
#include "storage/git/git_repository_pool.h"
#include "storage/git/head_file.h"
#include "storage/git/reference_lock.h"
#include "storage/git/shared_permissions.h"
#include "storage/repository/repository.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;

// More files than this are synced with all others of their file system at once.
constexpr std::size_t kMostSyncs = 1000;

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

// What git's init makes, and what it leaves out here: templates of hooks. Nothing else is in a directory whose
// initialisation was cut short, and no object is.
constexpr std::array<std::string_view, 6> kParts = {"HEAD", "config", "hooks", "info", "objects", "refs"};
constexpr std::array<std::string_view, 8> kDirectories = {"hooks", "info",       "objects",  "objects/info",
                                                          "objects/pack", "refs", "refs/heads", "refs/tags"};
// Whether init made the repository (true) or adopted it (false). An older init that adopted one set no such key.
constexpr char kMade[] = "escrow.madeByInit";
constexpr char kFirstConfig[] = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
                                "[escrow]\n\tmadeByInit = true\n";

bool was_cut_short(const std::string& path) {
  for (const std::string& name : names_in(path)) {
    const std::string part = name.substr(0, name.find(".new."));  // write_file_durably()
    if (std::find(kParts.begin(), kParts.end(), part) == kParts.end()) return false;
  }
  bool has_object = false;
  for_each_below(path + "/objects", [&](const std::string&, const struct stat& status) {
    has_object = has_object || !S_ISDIR(status.st_mode);
  });
  return !has_object;
}

void make_directory(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) throw system_error(errno, "make the directory " + path);
}

// With the directories above it; the names of those that are new are on disk when it returns. One whose name cannot be
// put there is removed: the next attempt would take it for one that was there before, and sync nothing.
void make_directories(const std::string& path) {
  std::vector<std::string> missing;
  for (std::string at = path; at != "/" && at != "." && !is_there(at); at = parent_of(at))
    missing.push_back(at);
  for (auto made = missing.rbegin(); made != missing.rend(); ++made) {
    make_directory(*made, 0777);
    try {
      sync_directory(parent_of(*made));
    } catch (...) {
      ::rmdir(made->c_str());
      throw;
    }
  }
}

// HEAD comes last: by it git knows a repository. Each part is on disk before the next one is made.
void create_bare(const std::string& path, const std::string& branch) {
  if (is_there(path) && !is_directory(path)) {
    throw Error(Errc::bad_request, "cannot create a repository at " + path + ": a file is there");
  }
  if (is_directory(path) && !was_cut_short(path)) {
    throw Error(Errc::bad_request, "cannot create a repository at " + path + ": the directory is not empty and is "
                                   "not a git repository; name a new or an empty directory");
  }
  make_directories(path);
  for (const std::string_view directory : kDirectories) make_directory(path + "/" + std::string(directory), 0777);
  for (const std::string_view directory : kDirectories) sync_directory(path + "/" + std::string(directory));
  write_file_durably(path + "/config", kFirstConfig, 0666);
  // core.sharedRepository may be set for all repositories of a user.
  const SharedPermissions permissions = SharedPermissions::of(path);
  for (const char* part : {"", "/config"}) permissions.apply(path + part, path);
  for (const std::string_view directory : kDirectories) permissions.apply(path + "/" + std::string(directory));
  write_file_durably(path + "/HEAD", "ref: refs/heads/" + branch + "\n", 0666);
  permissions.apply(path + "/HEAD");
  std::error_code ignored;
  for (const std::string& name : names_in(path))
    if (name.find(".new.") != std::string::npos) fs::remove(path + "/" + name, ignored);
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

// nullopt: it is not there.
std::optional<std::string> value_of(git_config* config, const char* name) {
  git_buf value = GIT_BUF_INIT;
  const int code = git_config_get_string_buf(&value, config, name);
  std::optional<std::string> found;
  if (code == 0) found.emplace(value.ptr, value.size);
  git_buf_dispose(&value);
  if (code != GIT_ENOTFOUND) check_git(code, std::string("reading ") + name);
  return found;
}

constexpr char kBigFiles[] = "core.bigfilethreshold", kBigFilesValue[] = "8m";
constexpr const char* kChecks[] = {"receive.fsckObjects", "transfer.fsckObjects"};

// An older Escrow has no key for it.
bool was_made_by_init(git_config* config, const std::string& git_directory) {
  return value_of(config, kMade) == "true" || has_recorded_default_branch(git_directory);
}

// An older Escrow set kBigFiles and kChecks in every checkout that it adopted. (Whether it made a bare repository
// cannot be told.)
bool may_have_settings_of_older(git_config* config, const std::string& git_directory) {
  return !value_of(config, kMade) && value_of(config, "core.bare") != "true" &&
         !has_recorded_default_branch(git_directory);
}

void take_back(git_config* config, const char* name, const std::string& value) {
  const int code = git_config_delete_multivar(config, name, ("^" + value + "$").c_str());
  if (code != GIT_ENOTFOUND) check_git(code, std::string("removing ") + name);
}

enum class Keys { of_made, of_adopted, to_take_back };

void set_keys(const std::string& path, Keys keys) {
  const GitConfig config = open_config(path);
  git_config* const raw = config.get();
  const auto set = [&](const char* name, const char* value) {
    check_git(git_config_set_string(raw, name, value), std::string("setting ") + name, Errc::access_denied);
  };
  if (keys == Keys::of_made) {
    set("core.logAllRefUpdates", "true");
    set(kBigFiles, kBigFilesValue);
    // A push of what git fsck refuses is refused too, unless somebody has decided otherwise.
    for (const char* check : kChecks)
      if (!value_of(raw, check)) set(check, "true");
  } else if (keys == Keys::to_take_back) {
    take_back(raw, kBigFiles, kBigFilesValue);
    for (const char* check : kChecks) take_back(raw, check, "true");
  }
  if (keys != Keys::of_made) set(kMade, "false");
  // Clones take neither pins nor results (git-clone(1): branches and tags); a result can be fetched by its name, and a
  // push changes neither.
  add_to_multivar(raw, "transfer.hideRefs", "refs/escrow");
  add_to_multivar(raw, "receive.hideRefs", "refs/sessions");
}

std::string content_of(const std::string& path) {
  std::string content;
  for_each_line(path, [&](std::string_view line) { content.append(line) += '\n'; });
  return content;
}

// A repository that init adopts is its user's: it gets what hides Escrow's own references, and no other setting.
// libgit2 changes a copy: it leaves its lock file when it is killed, and waits for no disk.
void set_configuration(const std::string& git_directory, Keys keys) {
  const std::string path = git_directory + "/config", copy = git_directory + "/escrow/config.copy";
  ReferenceLock lock(git_directory, "config");
  struct stat status {};
  const unsigned mode = ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0666;
  std::error_code ignored;
  fs::remove(copy + ".lock", ignored);
  put_file(copy, copy + ".new", content_of(path), mode);
  set_keys(copy, keys);
  lock.prepare(content_of(copy), mode);
  lock.land();
  fs::remove(copy, ignored);
}

// An empty file is what SQLite, or a power loss, leaves of one that was lost.
bool has_catalog(const std::string& state) {
  struct stat status {};
  return ::lstat((state + "/catalog.db").c_str(), &status) == 0 && status.st_size > 0;
}

void make_state(const std::string& git_directory) {
  const std::string state = git_directory + "/escrow";
  make_directory(state, 0755);
  make_directory(state + "/sessions", 0755);
  make_directory(state + "/cache", 0755);
  const std::string lock = state + "/gc.lock";
  open_or_throw(AT_FDCWD, lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644, "make " + lock);
  const SqliteSessionCatalog catalog(state + "/catalog.db");
}

// Of a repository that has Escrow's state.
bool is_catalog_to_be_made(const std::string& state, Repository::Catalog catalog) {
  const bool begin_anew = catalog == Repository::Catalog::begin_anew;
  if (!begin_anew && !names_in(state + "/sessions").empty()) check_catalog_is_there(state);
  if (!has_catalog(state)) return true;
  if (!begin_anew) return false;
  throw Error(Errc::bad_request, "the catalog of sessions, " + state + "/catalog.db, is there; --new-catalog is for a "
                                 "repository that has lost it");
}

void sync_file(const std::string& path) {
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDONLY, 0, "sync " + path);
  if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + path);
}

// Whatever made it: an adopted repository may be as young as this. Objects are not ours to wait for.
void sync_repository(const std::string& git_directory) {
  std::vector<std::string> paths;
  for (const char* part : {"/HEAD", "/config", "/packed-refs", "/info", "/objects", "/objects/info", "/objects/pack"})
    if (is_there(git_directory + part)) paths.push_back(git_directory + part);
  for (const char* part : {"/refs", "/escrow"}) {
    paths.push_back(git_directory + part);
    for_each_below(git_directory + part, [&paths](const std::string& path, const struct stat& status) {
      if (S_ISDIR(status.st_mode) || S_ISREG(status.st_mode)) paths.push_back(path);
    });
  }
  paths.push_back(git_directory);
  paths.push_back(parent_of(git_directory));
  if (paths.size() <= kMostSyncs) {
    for (const std::string& path : paths) sync_file(path);
    return;
  }
  const UniqueFd fd = open_or_throw(AT_FDCWD, git_directory.c_str(), O_RDONLY, 0, "sync " + git_directory);
  if (::syncfs(fd.get()) != 0) throw system_error(errno, "sync " + git_directory);
}

}  // namespace

void check_state_version(const std::string& git_directory) {
  const std::string path = git_directory + "/escrow/version";
  if (!is_there(path)) {
    throw Error(Errc::no_repository, "the repository " + git_directory +
                                         " has no Escrow state; run: escrow --repo " + git_directory + " init");
  }
  const std::string line = first_line_of(path);
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

void check_catalog_is_there(const std::string& state) {
  if (has_catalog(state)) return;
  throw Error(Errc::damaged_repository,
              "the catalog of sessions, " + state + "/catalog.db, is missing; nothing was touched, and what sessions "
              "have staged is still in " + state + "/sessions: restore the catalog, or begin a new one with `escrow "
              "init --new-catalog`, which sets all sessions aside until the catalog that knows them is back");
}

// What this machine keeps of it is made when it is first opened here.
std::unique_ptr<Bucket> open_bucket(const std::string& place, Repository::Catalog catalog) {
  auto bucket = std::make_unique<Bucket>(parse_bucket_name(place));
  const UniqueFd turn = lock_file(bucket->directory() + "/setup.lock", LockKind::exclusive);
  if (catalog == Repository::Catalog::begin_anew || !is_there(bucket->git_directory() + "/escrow/version"))
    Repository::init(bucket->git_directory(), bucket->default_branch(), catalog);
  bucket->join_cache();
  return bucket;
}

bool Repository::init(const std::string& path, const std::string& branch, Catalog catalog) {
  start_libgit2();
  if (names_bucket(path)) {
    check_branch_name(branch);
    const bool created = Bucket(parse_bucket_name(path)).create(branch);
    if (catalog == Catalog::begin_anew) open_bucket(path, catalog);
    return created;
  }
  refuse_control_characters(path, "path of the repository");
  check_branch_name(branch);
  std::optional<std::string> found = find_git_directory(path);
  const bool create = !found;
  if (create) {
    create_bare(path, branch);
    found = find_git_directory(path);
    if (!found) throw Error(Errc::damaged_repository, "the repository just made at " + path + " cannot be found");
  }
  mend_head(*found, branch);
  open_git_repository(*found);
  const GitConfig config = open_config(*found + "/config");
  if (is_there(*found + "/escrow/version")) {
    check_state_version(*found);
    if (may_have_settings_of_older(config.get(), *found)) set_configuration(*found, Keys::to_take_back);
    if (!is_catalog_to_be_made(*found + "/escrow", catalog)) return false;
    make_state(*found);
    sync_repository(*found);
    return false;
  }
  make_state(*found);
  set_configuration(*found, was_made_by_init(config.get(), *found) ? Keys::of_made : Keys::of_adopted);
  if (create) record_default_branch(*found, branch);
  sync_repository(*found);
  // Last: its presence says that the rest is there, on disk.
  write_file_durably(*found + "/escrow/version", std::to_string(kStateVersion) + "\n", 0644);
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
