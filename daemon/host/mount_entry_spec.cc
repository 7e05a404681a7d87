#include "daemon/host/mount_entry_spec.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/request_fields.h"
#include "daemon/host/config.h"
#include "session/base/error.h"
#include "session/decorators/mount_table.h"
#include "storage/caches/caches.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using Source = MountEntrySpec::Source;

void refuse_entry(std::string_view what, const std::string& why) {
  throw Error(Errc::bad_request, std::string(what) + " " + why);
}

namespace {

constexpr char kForm[] =
    "an entry is path=P,source=host:DIR[,mode=read-write|overlay], path=P,source=inject:DIR, "
    "path=P,source=rev:BRANCH|COMMIT[:DIR], path=P,source=scratch or path=P,source=cache:NAME";
constexpr std::string_view kHost = "host:", kInject = "inject:", kCache = "cache:", kRevision = "rev:",
                           kSentFiles = "inject";
constexpr std::uint64_t kMostLimit = std::uint64_t{1} << 60;
constexpr char kNotTheRoot[] = "has the root for its path, where the repository is; name a path below it";

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
    } else if (key == "write_bytes_limit") {
      set_limit(limits.write_bytes, key, value);
    } else if (key == "entries_limit") {
      set_limit(limits.entries, key, value);
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
  session::EntryLimits limits;

 private:
  void set_limit(std::uint64_t& limit, const std::string& key, const std::optional<std::string>& value) {
    const std::string text = value.value_or("");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (error != std::errc() || end != text.data() + text.size() || limit == 0 || limit > kMostLimit)
      refuse_entry(what_, "has " + key + "=" + text + ", which is no whole number from 1 to 2^60");
  }

  void set(std::optional<std::string>& word, const char* meaning, const std::string& key,
           const std::optional<std::string>& value) {
    if (!value || value->empty()) refuse_entry(what_, "has " + key + " without a value; " + kForm);
    if (word) refuse_entry(what_, std::string("says its ") + meaning + " twice");
    word = *value;
  }

  const std::string_view what_;
};

// Of a document it is one absolute path: whoever reads it may be another process, elsewhere.
std::string directory_of(const std::string& given, bool is_document, std::string_view what) {
  if (given.find('\0') != std::string::npos) refuse_entry(what, "has a NUL byte");
  if (is_document && !given.starts_with('/'))
    refuse_entry(what, "has the directory '" + session::quote_path(given) + "', which is not absolute");
  return is_document ? given : absolute_path(given);
}

// "main" or "main:lib": no name of a branch has a colon.
void set_revision(MountEntrySpec& spec, const std::string& text, std::string_view what) {
  const std::size_t colon = text.find(':');
  spec.source = Source::revision;
  spec.revision = text.substr(0, colon);
  if (spec.revision.empty()) refuse_entry(what, std::string("names no branch and no commit; ") + kForm);
  if (colon != std::string::npos) spec.prefix = session::RepoPath::parse(text.substr(colon + 1), what);
}

void set_source(MountEntrySpec& spec, const Words& words, bool is_document, std::string_view what) {
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
  if (!is_bind && is_document && source == kSentFiles) {
    spec.source = MountEntrySpec::Source::files;
    return;
  }
  if (!is_bind && source.starts_with(kRevision)) return set_revision(spec, source.substr(kRevision.size()), what);
  const bool is_injected = !is_bind && source.starts_with(kInject);
  if (!is_bind && !is_injected && !source.starts_with(kHost))
    refuse_entry(what, "has the source '" + source +
                           "', which is none of host:DIR, inject:DIR, rev:BRANCH, cache:NAME and scratch");
  if (is_injected) spec.source = MountEntrySpec::Source::snapshot;
  spec.directory = is_injected                 ? source.substr(kInject.size())
                   : source.starts_with(kHost) ? source.substr(kHost.size())
                                               : source;
  if (spec.directory.empty()) refuse_entry(what, "names no directory in '" + source + "'; " + kForm);
  spec.directory = directory_of(spec.directory, is_document, what);
}

void set_mode(MountEntrySpec& spec, const std::string& mode, std::string_view what) {
  const bool is_cache = spec.source == MountEntrySpec::Source::cache;
  if (is_cache && (mode == "overlay" || mode == "read-write")) {
    spec.read_only = false;
  } else if (mode == "overlay") {
    if (spec.source == MountEntrySpec::Source::scratch)
      refuse_entry(what, "has mode=overlay of a scratch directory, which has nothing below");
    if (!spec.is_copy()) spec.source = MountEntrySpec::Source::snapshot;
    spec.read_only = false;
  } else if (mode == "read-write") {
    if (spec.is_copy())
      refuse_entry(what, "has mode=read-write of what is injected; mode=overlay makes it writable for this session");
    spec.read_only = false;
  } else if (mode == "read-only") {
    spec.read_only = true;
  } else {
    refuse_entry(what, "has mode=" + mode + "; it is read-only, read-write or overlay");
  }
}

MountEntrySpec spec_of(const Words& words, bool is_document, std::string_view what) {
  if (!words.path) refuse_entry(what, std::string("has no path; ") + kForm);
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(*words.path, what);
  if (spec.path.is_root()) refuse_entry(what, kNotTheRoot);
  set_source(spec, words, is_document, what);
  spec.read_only = spec.source != Source::scratch && spec.source != Source::cache;
  if (words.mode) set_mode(spec, *words.mode, what);
  spec.limits = words.limits;
  if (spec.limits.any() && spec.read_only) refuse_entry(what, "has a limit of what is written, and is read-only");
  return spec;
}

// A program in the mount would run what is there.
void refuse_git_name(const session::RepoPath& path, std::string_view what) {
  for (const std::string_view name : path.components())
    if (session::git_refuses_name(name))
      refuse_entry(what, "has '" + session::quote_path(path.text()) + "', and '" + session::quote_path(name) +
                             "' is a name of git's own");
}

void read_files(api::RequestFields& fields, MountEntrySpec& spec, std::string_view what) {
  for (auto& [name, content] : fields.bytes_map("files")) {
    const session::RepoPath path = session::RepoPath::parse(name, what);
    if (path.is_root()) refuse_entry(what, "has a file without a name");
    refuse_git_name(path, what);
    spec.files[path.text()].content = std::move(content);
  }
  for (const std::string& name : fields.texts("executable").value_or(std::vector<std::string>())) {
    const auto found = spec.files.find(name);
    if (found == spec.files.end())
      refuse_entry(what, "calls '" + session::quote_path(name) + "' executable, which is none of its files");
    found->second.is_executable = true;
  }
  if (!spec.files.empty() && spec.source != Source::files)
    refuse_entry(what, "has files, and a source that is not inject");
  for (const auto& [name, file] : spec.files) {
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
      if (spec.files.contains(name.substr(0, at)))
        refuse_entry(what, "has '" + session::quote_path(name.substr(0, at)) + "' as a file and as a directory");
    }
  }
}

}  // namespace

std::string MountEntrySpec::source_text() const {
  switch (source) {
    case Source::host_directory:
      return std::string(kHost) + directory;
    case Source::snapshot:
      return std::string(kInject) + directory;
    case Source::files:
      return std::string(kSentFiles);
    case Source::revision:
      return std::string(kRevision) + revision + (prefix.is_root() ? "" : ":" + prefix.text());
    case Source::cache:
      return std::string(kCache) + cache;
    case Source::scratch:
      break;
  }
  return "scratch";
}

std::string MountEntrySpec::mode_text() const {
  if (read_only) return "read-only";
  return is_copy() || source == Source::cache ? "overlay" : "read-write";
}

MountEntrySpec parse_mount_entry(std::string_view text, std::string_view what) {
  Words words(what);
  for (const std::string& field : split_fields(text, what)) words.add(field);
  return spec_of(words, false, what);
}

MountEntrySpec parse_injection(std::string_view text, std::string_view what) {
  constexpr std::string_view kOverlay = ",mode=overlay";
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    refuse_entry(what, "'" + std::string(text) + "' is not of the form PATH=DIR or PATH=FILE");
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(text.substr(0, equals), what);
  if (spec.path.is_root()) refuse_entry(what, kNotTheRoot);
  spec.source = Source::snapshot;
  std::string_view directory = text.substr(equals + 1);
  spec.read_only = !directory.ends_with(kOverlay);
  if (!spec.read_only) directory.remove_suffix(kOverlay.size());
  if (directory.empty()) refuse_entry(what, "'" + std::string(text) + "' names no directory and no file");
  spec.directory = directory_of(std::string(directory), false, what);
  return spec;
}

// "build" is the cache "build" at build; the name can be given as PATH=NAME.
MountEntrySpec parse_cache(std::string_view text, std::string_view what) {
  const std::size_t equals = text.find('=');
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(text.substr(0, equals), what);
  if (spec.path.is_root()) refuse_entry(what, kNotTheRoot);
  spec.source = Source::cache;
  spec.cache = equals == std::string_view::npos ? spec.path.text() : text.substr(equals + 1);
  spec.read_only = false;
  storage::Caches::check_name(spec.cache, what);
  return spec;
}

MountEntrySpec mount_entry_of_document(const std::string& document, const std::string& what) try {
  api::RequestFields fields(document, what);
  Words words(what);
  words.path = fields.text("path");
  words.source = fields.text("source");
  words.mode = fields.text("mode");
  words.limits.write_bytes = fields.number("write_bytes_limit", 1, kMostLimit).value_or(0);
  words.limits.entries = fields.number("entries_limit", 1, kMostLimit).value_or(0);
  if (!words.source) refuse_entry(what, "has no source");
  MountEntrySpec spec = spec_of(words, true, what);
  read_files(fields, spec, what);
  fields.refuse_others();
  return spec;
} catch (const api::Problem& problem) {
  throw Error(Errc::bad_request, problem.what());
}

std::string document_of(const MountEntrySpec& spec) {
  api::JsonObject object;
  object.text("path", spec.path.text()).text("source", spec.source_text()).text("mode", spec.mode_text());
  if (spec.limits.write_bytes != 0) object.number("write_bytes_limit", spec.limits.write_bytes);
  if (spec.limits.entries != 0) object.number("entries_limit", spec.limits.entries);
  if (spec.files.empty()) return object.text();
  std::map<std::string, std::string> files;
  std::vector<std::string> executable;
  for (const auto& [name, file] : spec.files) {
    files[name] = file.content;
    if (file.is_executable) executable.push_back(name);
  }
  object.bytes_map("files", files);
  if (!executable.empty()) object.texts("executable", executable);
  return object.text();
}

std::vector<MountEntrySpec> read_mount_table(const std::string& file, const std::string& what) {
  std::optional<std::string> text;
  try {
    text = storage::read_if_there(file);
  } catch (const Error& error) {
    refuse_entry(what, "'" + session::quote_path(file) + "': " + error.what());
  }
  if (!text) refuse_entry(what, "'" + session::quote_path(file) + "' is not there");
  std::vector<MountEntrySpec> specs;
  try {
    api::RequestFields fields("{\"mounts\":" + *text + "}", what + " '" + session::quote_path(file) + "'");
    for (const std::string& document : fields.documents("mounts"))
      specs.push_back(mount_entry_of_document(document, what + " '" + session::quote_path(file) + "'"));
    fields.refuse_others();
  } catch (const api::Problem& problem) {
    throw Error(Errc::bad_request, problem.what());
  }
  return specs;
}

void check_mount_entries(const std::vector<MountEntrySpec>& specs, std::string_view what) {
  std::set<std::string> caches;
  std::vector<session::RepoPath> paths;
  for (const MountEntrySpec& spec : specs) {
    paths.push_back(spec.path);
    refuse_git_name(spec.path, what);
    if (spec.source != Source::cache || caches.insert(spec.cache).second) continue;
    refuse_entry(what, "has the cache '" + session::quote_path(spec.cache) +
                           "' at two paths; give one of them another name with PATH=NAME");
  }
  session::MountTable::check_paths(paths);
}

}  // namespace escrow::daemon
