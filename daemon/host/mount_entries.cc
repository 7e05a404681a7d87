#include "daemon/host/mount_entries.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "daemon/host/config.h"
#include "session/error.h"
#include "storage/durable_file.h"
#include "storage/host_directory.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using Source = MountEntrySpec::Source;

namespace {

constexpr char kForm[] = "an entry is path=P,source=host:DIR[,mode=read-write] or path=P,source=scratch";
constexpr std::string_view kHost = "host:";
constexpr char kNotedName[] = "/mounts";

[[noreturn]] void refuse(std::string_view what, const std::string& why) {
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
  if (is_quoted) refuse(what, "'" + std::string(text) + "' has a quotation mark that nothing closes");
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
        refuse(what_, "has " + field + "; " + key + " is true or false");
      const bool is_set = !value || *value == "true" || *value == "1";
      set(mode, "mode", key, std::string((key == "rw") == is_set ? "read-write" : "read-only"));
    } else {
      refuse(what_, "has the word '" + field + "', which is unknown; " + kForm);
    }
  }

  std::optional<std::string> path, source, type, mode;

 private:
  void set(std::optional<std::string>& word, const char* meaning, const std::string& key,
           const std::optional<std::string>& value) {
    if (!value || value->empty()) refuse(what_, "has " + key + " without a value; " + kForm);
    if (word) refuse(what_, std::string("says its ") + meaning + " twice");
    word = *value;
  }

  const std::string_view what_;
};

void set_source(MountEntrySpec& spec, const Words& words, std::string_view what) {
  const std::string type = words.type.value_or("");
  if (!type.empty() && type != "bind" && type != "tmpfs" && type != "scratch")
    refuse(what, "has type=" + type + "; it is bind for a host directory or scratch");
  const bool is_bind = type == "bind";
  if (!is_bind && !type.empty() && words.source && *words.source != "scratch")
    refuse(what, "has a source beside type=" + type + ", which needs none");
  if (is_bind && !words.source) refuse(what, std::string("has no source; ") + kForm);
  if (type.empty() && !words.source) refuse(what, std::string("has no source; ") + kForm);
  const std::string source = words.source.value_or("scratch");
  if (!is_bind && source == "scratch") {
    spec.source = Source::scratch;
    return;
  }
  if (!is_bind && !source.starts_with(kHost))
    refuse(what, "has the source '" + source + "', which is neither host:DIR nor scratch");
  spec.directory = source.starts_with(kHost) ? source.substr(kHost.size()) : source;
  if (spec.directory.empty()) refuse(what, std::string("names no directory after host:; ") + kForm);
  if (spec.directory.find('\0') != std::string::npos) refuse(what, "has a NUL byte");
  spec.directory = absolute_path(spec.directory);
}

bool is_at_or_below(const std::string& path, const std::string& directory) {
  if (!path.starts_with(directory)) return false;
  return path.size() == directory.size() || directory.ends_with('/') || path[directory.size()] == '/';
}

std::string scratch_path(const session::Session& session, std::size_t entry) {
  return session.directory() + "/scratch." + std::to_string(entry);
}

std::shared_ptr<session::EntryFileSystem> make_scratch(const session::Session& session, std::size_t entry) {
  const std::string path = scratch_path(session, entry);
  const session::SessionOptions options = session.record().options;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw storage::system_error(errno, "create a scratch directory of the session");
  if (::geteuid() == 0 && ::lchown(path.c_str(), options.uid, options.gid) != 0)
    throw storage::system_error(errno, "give a scratch directory to the session's user");
  if (::chmod(path.c_str(), 0777 & ~options.umask) != 0)
    throw storage::system_error(errno, "set the mode of a scratch directory");
  return std::make_shared<storage::HostDirectory>(
      path, storage::HostDirectory::Options{.is_volatile = false, .durable = false}, "--mount");
}

}  // namespace

MountEntrySpec parse_mount_entry(std::string_view text, std::string_view what) {
  Words words(what);
  for (const std::string& field : split_fields(text, what)) words.add(field);
  if (!words.path) refuse(what, std::string("has no path; ") + kForm);
  MountEntrySpec spec;
  spec.path = session::RepoPath::parse(*words.path, what);
  if (spec.path.is_root()) refuse(what, "has the root for its path, where the repository is; name a path below it");
  set_source(spec, words, what);
  spec.read_only = spec.source == Source::host_directory;
  if (!words.mode) return spec;
  if (*words.mode != "read-only" && *words.mode != "read-write")
    refuse(what, "has mode=" + *words.mode + "; it is read-only or read-write");
  spec.read_only = *words.mode == "read-only";
  return spec;
}

std::vector<MountEntrySpec> parse_mount_entries(const std::vector<std::string>& texts) {
  std::vector<MountEntrySpec> specs;
  std::vector<session::RepoPath> paths;
  for (const std::string& text : texts) {
    specs.push_back(parse_mount_entry(text, "--mount"));
    paths.push_back(specs.back().path);
  }
  session::MountTable::check_paths(paths);
  return specs;
}

std::vector<MountEntry> open_mount_entries(const std::vector<MountEntrySpec>& specs, const std::string& git_directory) {
  std::vector<MountEntry> entries;
  for (const MountEntrySpec& spec : specs) {
    MountEntry entry{spec, nullptr};
    if (spec.source == Source::host_directory) {
      const std::string what = "--mount " + session::quote_path(spec.path.text());
      auto files = std::make_shared<storage::HostDirectory>(spec.directory, storage::HostDirectory::Options{}, what);
      const std::string real = files->host_path();
      if (is_at_or_below(real, git_directory) || is_at_or_below(git_directory, real)) {
        refuse(what, "cannot show '" + session::quote_path(spec.directory) + "': the repository '" +
                         session::quote_path(git_directory) +
                         "' is there, and past its policies nobody is to reach it; choose a directory beside it");
      }
      entry.files = std::move(files);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::unique_ptr<session::MountTable> make_mount_table(const std::vector<MountEntry>& entries,
                                                      session::FileSystem& repository, session::Session& session) {
  if (entries.empty()) return nullptr;
  std::vector<session::MountTable::Entry> table;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    const MountEntrySpec& spec = entries[at].spec;
    table.push_back({spec.path, entries[at].files ? entries[at].files : make_scratch(session, at), spec.read_only,
                     spec.is_volatile()});
  }
  const session::SessionRecord record = session.record();
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
    const bool is_host = spec.source == Source::host_directory;
    views.push_back({.path = spec.path.text(),
                     .source = is_host ? "host:" + spec.directory : "scratch",
                     .mode = spec.read_only ? "read-only" : "read-write",
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
