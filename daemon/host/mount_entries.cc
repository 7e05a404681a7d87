#include "daemon/host/mount_entries.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "daemon/host/config.h"
#include "session/base/error.h"
#include "session/decorators/single_file.h"
#include "storage/disk/copy_tree.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/remove_tree.h"
#include "storage/host_files/host_directory.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr char kForm[] =
    "an entry is path=P,source=host:DIR[,mode=read-write|overlay], path=P,source=inject:DIR, path=P,source=scratch or "
    "path=P,source=cache:NAME";
constexpr std::string_view kHost = "host:", kInject = "inject:", kCache = "cache:";
constexpr char kNotTheRoot[] = "has the root for its path, where the repository is; name a path below it";
constexpr char kNotedName[] = "/mounts", kFileName[] = "file";

[[noreturn]] void refuse_entry(std::string_view what, const std::string& why) {
  throw Error(Errc::bad_request, std::string(what) + " " + why);
}

// "a,b" and, where a value has commas, "a,\"b=x,y\"" as in CSV.
std::vector<std::string> split_fields(std::string_view text, std::string_view what) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char one = text[at];
    if (one == '"' && is_quoted && at + 1 < text.size() && text[at + 1] == '"') {
      fields.back() += text[++at];
    } else if (one == '"') {
      is_quoted = !is_quoted;
    } else if (one == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += one;
    }
  }
  if (is_quoted) refuse_entry(what, "'" + std::string(text) + "' has a quotation mark that nothing closes");
  return fields;
}

// What the words of an entry say, each once.
class Words {
 public:
  explicit Words(std::string_view what) : what_(what) {}

  void add(const std::string& field) {
    const std::size_t equals = field.find('=');
    const std::string key = field.substr(0, equals);
    const std::optional<std::string> value =
        equals == std::string::npos ? std::nullopt : std::optional(field.substr(equals + 1));
    if (key == "path" || key == "target" || key == "destination" || key == "dst") {
      set(path, "path", key, value);
    } else if (key == "source" || key == "src") {
      set(source, "source", key, value);
    } else if (key == "type") {
      set(type, "type", key, value);
    } else if (key == "mode") {
      set(mode, "mode", key, value);
    } else if (key == "readonly" || key == "ro" || key == "rw") {
      if (value && *value != "true" && *value != "1" && *value != "false" && *value != "0")
        refuse_entry(what_, "has " + field + "; " + key + " is true or false");
      const bool is_set = !value || *value == "true" || *value == "1";
      set(mode, "mode", key, std::string((key == "rw") == is_set ? "read-write" : "read-only"));
    } else {
      refuse_entry(what_, "has the word '" + field + "', which is unknown; " + kForm);
    }
  }

  std::optional<std::string> path, source, type, mode;

 private:
  void set(std::optional<std::string>& word, const char* meaning, const std::string& key,
           const std::optional<std::string>& value) {
    if (!value || value->empty()) refuse_entry(what_, "has " + key + " without a value; " + kForm);
    if (word) refuse_entry(what_, std::string("says its ") + meaning + " twice");
    word = *value;
  }

  const std::string_view what_;
};

void set_source(MountEntrySpec& spec, const Words& words, std::string_view what) {
  const std::string type = words.type.value_or("");
  if (!type.empty() && type != "bind" && type != "tmpfs" && type != "scratch")
    refuse_entry(what, "has type=" + type + "; it is bind for a host directory or scratch");
  const bool is_bind = type == "bind";
  if (!is_bind && !type.empty() && words.source && *words.source != "scratch")
    refuse_entry(what, "has a source beside type=" + type + ", which needs none");
  if (is_bind && !words.source) refuse_entry(what, std::string("has no source; ") + kForm);
  if (type.empty() && !words.source) refuse_entry(what, std::string("has no source; ") + kForm);
  const std::string source = words.source.value_or("scratch");
  if (!is_bind && source == "scratch") {
    spec.source = MountEntrySpec::Source::scratch;
    return;
  }
  if (!is_bind && source.starts_with(kCache)) {
    spec.source = MountEntrySpec::Source::cache;
    spec.cache = source.substr(kCache.size());
    return storage::Caches::check_name(spec.cache, what);
  }
  const bool is_injected = !is_bind && source.starts_with(kInject);
  if (!is_bind && !is_injected && !source.starts_with(kHost))
    refuse_entry(what,
                 "has the source '" + source + "', which is none of host:DIR, inject:DIR, cache:NAME and scratch");
  if (is_injected) spec.source = MountEntrySpec::Source::snapshot;
  spec.directory = is_injected                 ? source.substr(kInject.size())
                   : source.starts_with(kHost) ? source.substr(kHost.size())
                                               : source;
  if (spec.directory.empty()) refuse_entry(what, "names no directory in '" + source + "'; " + kForm);
  if (spec.directory.find('\0') != std::string::npos) refuse_entry(what, "has a NUL byte");
  spec.directory = absolute_path(spec.directory);
}

void set_mode(MountEntrySpec& spec, const std::string& mode, std::string_view what) {
  const bool is_cache = spec.source == MountEntrySpec::Source::cache;
  if (is_cache && (mode == "overlay" || mode == "read-write")) {
    spec.read_only = false;
  } else if (mode == "overlay") {
    if (spec.source == MountEntrySpec::Source::scratch)
      refuse_entry(what, "has mode=overlay of a scratch directory, which has nothing below");
    spec.source = MountEntrySpec::Source::snapshot;
    spec.read_only = false;
  } else if (mode == "read-write") {
    if (spec.source == MountEntrySpec::Source::snapshot)
      refuse_entry(what, "has mode=read-write of what is injected; mode=overlay makes it writable for this session");
    spec.read_only = false;
  } else if (mode == "read-only") {
    spec.read_only = true;
  } else {
    refuse_entry(what, "has mode=" + mode + "; it is read-only, read-write or overlay");
  }
}

bool is_at_or_below(const std::string& path, const std::string& directory) {
  if (!path.starts_with(directory)) return false;
  return path.size() == directory.size() || directory.ends_with('/') || path[directory.size()] == '/';
}

// A directory in that of the session, for an entry and whoever uses the session.
std::string own_directory(const session::Session& session, const session::RepoPath& at, const char* kind) {
  const std::string path = session.directory() + "/" + kind + "." + std::to_string(std::hash<std::string>{}(at.text()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw storage::system_error(errno, std::string("create a ") + kind + " directory of the session");
  return path;
}

std::shared_ptr<session::EntryFileSystem> own_files(const std::string& path) {
  return std::make_shared<storage::HostDirectory>(
      path, storage::HostDirectory::Options{.is_volatile = false, .durable = false}, "--mount");
}

std::shared_ptr<session::EntryFileSystem> make_scratch(const session::Session& session, const session::RepoPath& at) {
  const std::string path = own_directory(session, at, "scratch");
  const session::SessionOptions options = session.record().options;
  if (::geteuid() == 0 && ::lchown(path.c_str(), options.uid, options.gid) != 0)
    throw storage::system_error(errno, "give a scratch directory to the session's user");
  if (::chmod(path.c_str(), 0777 & ~options.umask) != 0)
    throw storage::system_error(errno, "set the mode of a scratch directory");
  return own_files(path);
}

// As it is now. What an earlier mount of the session had is gone.
std::shared_ptr<session::EntryFileSystem> make_snapshot(const session::Session& session, const session::RepoPath& at,
                                                        const FileDescriptor& source) {
  const std::string path = own_directory(session, at, "injected");
  storage::remove_inside(path, {});
  const FileDescriptor to(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!to || ::fstat(source.get(), &about) != 0) throw storage::system_error(errno, "copy what is injected");
  if (S_ISDIR(about.st_mode)) {
    storage::copy_tree(source.get(), to.get());
    return own_files(path);
  }
  storage::copy_file(source.get(), to.get(), kFileName);
  return std::make_shared<session::SingleFile>(own_files(path), kFileName);
}

FileDescriptor open_source(const MountEntrySpec& spec, const std::string& what) {
  FileDescriptor source(::open(spec.directory.c_str(), O_PATH | O_CLOEXEC));
  struct stat about {};
  if (!source || ::fstat(source.get(), &about) != 0)
    refuse_entry(what, "cannot show '" + session::quote_path(spec.directory) + "': " + std::strerror(errno));
  if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
    refuse_entry(what,
                 "cannot show '" + session::quote_path(spec.directory) + "': it is neither a directory nor a file");
  return source;
}

std::string path_of_source(const FileDescriptor& source) {
  std::array<char, PATH_MAX> path;
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(source.get())).c_str(), path.data(), path.size());
  if (size < 0) throw storage::system_error(errno, "find the path of what is injected");
  return {path.data(), static_cast<std::size_t>(size)};
}

void refuse_repository(const MountEntrySpec& spec, const std::string& real, const std::string& git_directory,
                       const std::string& what) {
  if (!is_at_or_below(real, git_directory) && !is_at_or_below(git_directory, real)) return;
  refuse_entry(what, "cannot show '" + session::quote_path(spec.directory) + "': the repository '" +
                         session::quote_path(git_directory) +
                         "' is there, and past its policies nobody is to reach it; choose a directory beside it");
}

}  // namespace

MountEntrySpec parse_mount_entry(std::string_view text, std::string_view what) {
  Words words(what);
  for (const std::string& field : split_fields(text, what)) words.add(field);
  if (!words.path) refuse_entry(what, std::string("has no path; ") + kForm);
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(*words.path, what);
  if (spec.path.is_root()) refuse_entry(what, kNotTheRoot);
  set_source(spec, words, what);
  spec.read_only =
      spec.source != MountEntrySpec::Source::scratch && spec.source != MountEntrySpec::Source::cache;
  if (words.mode) set_mode(spec, *words.mode, what);
  return spec;
}

namespace {

MountEntrySpec parse_injection(const std::string& text) {
  constexpr std::string_view kWhat = "--inject", kOverlay = ",mode=overlay";
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    refuse_entry(kWhat, "'" + text + "' is not of the form PATH=DIR or PATH=FILE");
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(text.substr(0, equals), kWhat);
  if (spec.path.is_root()) refuse_entry(kWhat, kNotTheRoot);
  spec.source = MountEntrySpec::Source::snapshot;
  spec.directory = text.substr(equals + 1);
  spec.read_only = !spec.directory.ends_with(kOverlay);
  if (!spec.read_only) spec.directory.resize(spec.directory.size() - kOverlay.size());
  spec.directory = absolute_path(spec.directory);
  return spec;
}

// "build" is the cache "build" at build; the name can be given as PATH=NAME.
MountEntrySpec parse_cache(const std::string& text) {
  constexpr std::string_view kWhat = "--cache";
  const std::size_t equals = text.find('=');
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(text.substr(0, equals), kWhat);
  if (spec.path.is_root()) refuse_entry(kWhat, kNotTheRoot);
  spec.source = MountEntrySpec::Source::cache;
  spec.cache = equals == std::string::npos ? spec.path.text() : text.substr(equals + 1);
  spec.read_only = false;
  storage::Caches::check_name(spec.cache, kWhat);
  return spec;
}

void refuse_cache_twice(const std::vector<MountEntrySpec>& specs) {
  std::set<std::string> names;
  for (const MountEntrySpec& spec : specs) {
    if (spec.source != MountEntrySpec::Source::cache || names.insert(spec.cache).second) continue;
    refuse_entry("--cache", "has the cache '" + session::quote_path(spec.cache) +
                                "' at two paths; give one of them another name with PATH=NAME");
  }
}

}  // namespace

std::vector<MountEntrySpec> parse_mount_entries(const MountEntryTexts& texts) {
  std::vector<MountEntrySpec> specs;
  std::vector<session::RepoPath> paths;
  for (const std::string& text : texts.mounts) specs.push_back(parse_mount_entry(text, "--mount"));
  for (const std::string& text : texts.injections) specs.push_back(parse_injection(text));
  for (const std::string& text : texts.caches) specs.push_back(parse_cache(text));
  refuse_cache_twice(specs);
  for (const MountEntrySpec& spec : specs) paths.push_back(spec.path);
  session::MountTable::check_paths(paths);
  return specs;
}

std::vector<MountEntry> open_mount_entries(const std::vector<MountEntrySpec>& specs, const std::string& git_directory) {
  std::vector<MountEntry> entries;
  for (const MountEntrySpec& spec : specs) {
    MountEntry entry{.spec = spec};
    const std::string what = "--mount " + session::quote_path(spec.path.text());
    if (spec.source == MountEntrySpec::Source::host_directory) {
      auto files = std::make_shared<storage::HostDirectory>(spec.directory, storage::HostDirectory::Options{}, what);
      refuse_repository(spec, files->host_path(), git_directory, what);
      entry.files = std::move(files);
    } else if (spec.source == MountEntrySpec::Source::snapshot) {
      entry.source = std::make_shared<const FileDescriptor>(open_source(spec, what));
      refuse_repository(spec, path_of_source(*entry.source), git_directory, what);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

MountEntry objects_entry(const std::string& objects) {
  return {.spec = {.path = session::RepoPath::parse(kObjectsInMount, "--git"), .directory = objects},
          .files = std::make_shared<storage::HostDirectory>(objects, storage::HostDirectory::Options{}, "--git")};
}

std::vector<MountEntrySpec> specs_of_git(const std::optional<GitTerms>& git, const std::string& git_directory) {
  if (!git || !git->objects.empty()) return {};
  return {{.path = session::RepoPath::parse(kObjectsInMount, "--git"), .directory = git_directory + "/objects"}};
}

std::unique_ptr<session::MountTable> make_mount_table(const std::vector<MountEntry>& entries,
                                                      session::FileSystem& repository, session::Session& session,
                                                      const storage::Caches& caches) {
  if (entries.empty()) return nullptr;
  const session::SessionRecord record = session.record();
  std::vector<session::MountTable::Entry> table;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    const MountEntrySpec& spec = entries[at].spec;
    std::shared_ptr<session::EntryFileSystem> files = entries[at].files;
    if (spec.source == MountEntrySpec::Source::scratch) files = make_scratch(session, spec.path);
    if (spec.source == MountEntrySpec::Source::snapshot) files = make_snapshot(session, spec.path, *entries[at].source);
    if (spec.source == MountEntrySpec::Source::cache) {
      files = caches.open(session.directory(), spec.cache,
                          {record.options.uid, record.options.gid, static_cast<mode_t>(record.options.umask)});
    }
    table.push_back({spec.path, std::move(files), spec.read_only, spec.is_volatile()});
  }
  return std::make_unique<session::MountTable>(
      repository, [&session](session::NodeId node) { return session.overlay().names(node); }, session.gate(),
      std::move(table),
      session::MountTable::Owner{record.options.uid, record.options.gid, session::SystemClock().now()});
}

// Each value of each entry ends with NUL, which none of them has.
void note_mounts(const std::string& session_directory, const std::vector<api::MountEntryView>& mounts) {
  const std::string file = session_directory + kNotedName;
  if (mounts.empty()) {
    ::unlink(file.c_str());
    return;
  }
  std::string text;
  for (const api::MountEntryView& mount : mounts) {
    for (const std::string& value : {mount.path, mount.source, mount.mode, std::string(mount.hides ? "1" : ""),
                                     std::string(mount.outside_transaction ? "1" : "")})
      text += value + '\0';
  }
  storage::put_file(file, file + ".new", text, 0600);
}

std::vector<api::MountEntryView> noted_mounts(const std::string& session_directory) {
  const std::optional<std::string> text = storage::read_if_there(session_directory + kNotedName);
  std::vector<std::string> values;
  for (std::size_t at = 0; text && at < text->size();) {
    values.emplace_back(text->c_str() + at);
    at += values.back().size() + 1;
  }
  std::vector<api::MountEntryView> mounts;
  for (std::size_t at = 0; at + 5 <= values.size(); at += 5) {
    mounts.push_back({.path = values[at],
                      .source = values[at + 1],
                      .mode = values[at + 2],
                      .hides = !values[at + 3].empty(),
                      .outside_transaction = !values[at + 4].empty()});
  }
  return mounts;
}

std::vector<api::MountEntryView> views_of(const std::vector<MountEntry>& entries, session::MountTable* table) {
  std::vector<api::MountEntryView> views;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    const MountEntrySpec& spec = entries[at].spec;
    if (spec.path.text() == kObjectsInMount) continue;
    const bool is_host = spec.source == MountEntrySpec::Source::host_directory,
               is_copy = spec.source == MountEntrySpec::Source::snapshot,
               is_cache = spec.source == MountEntrySpec::Source::cache;
    views.push_back({.path = spec.path.text(),
                     .source = is_host    ? "host:" + spec.directory
                               : is_copy  ? "inject:" + spec.directory
                               : is_cache ? "cache:" + spec.cache
                                          : "scratch",
                     .mode = spec.read_only        ? "read-only"
                             : is_copy || is_cache ? "overlay"
                                                   : "read-write",
                     .hides = table != nullptr && table->hides(at),
                     .outside_transaction = is_host && !spec.read_only});
  }
  return views;
}

std::string outside_sentence(const std::vector<api::MountEntryView>& mounts) {
  std::string paths;
  for (const api::MountEntryView& mount : mounts)
    if (mount.outside_transaction) paths += (paths.empty() ? "" : ", ") + session::quote_path(mount.path);
  if (paths.empty()) return paths;
  return "outside of the session: what was written below " + paths +
         " is in the host's own directory and stays, whatever became of the session";
}

}  // namespace escrow::daemon
