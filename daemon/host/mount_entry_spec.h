// One entry of a session's mount table, as options, documents of the API and the table of a session say it.
//
// As text it is docker's notation: path=P,source=host:DIR,mode=read-write, with the aliases that docker has. As JSON:
// {"path": P, "source": "host:/DIR", "mode": "read-write"}, and {"path": P, "source": "inject", "files":
// {NAME: base64}, "executable": [NAME]} for files that are sent. Both have write_bytes_limit and entries_limit. Pure
// functions but for the working directory, from which a directory as text begins. Throw Error{bad_request} that begins
// with `what`, the option or the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/repo_path.h"
#include "session/decorators/limited_entry.h"

namespace escrow::daemon {

struct MountEntrySpec {
  // snapshot: a copy of a host directory or file, made when the entry is added. files: the same of what was sent.
  // cache: what the last session that was committed left of it (storage/caches).
  // revision: what a branch, tag or commit of the repository has, as files; read when the entry is added.
  enum class Source { host_directory, scratch, snapshot, files, revision, cache };
  struct File {
    std::string content;
    bool is_executable = false;
  };
  session::RepoPath path;  // below the mount's root
  Source source = Source::host_directory;
  std::string directory;  // absolute; of a host directory and a snapshot, of which it can be a file
  std::string cache;      // its name
  std::string revision{};           // as git names it, below refs/heads and refs/tags, or a commit's whole id
  session::RepoPath prefix{};       // of the revision: the directory that is shown
  std::map<std::string, File> files{};  // by path below the entry; empty once they are kept with the session
  bool read_only = true;
  session::EntryLimits limits{};
  // Of a copy or a scratch directory that is kept (kept_mounts.h): the directory below the session's, and whether what
  // is in it is a single file.
  std::string content{};
  bool is_file = false;
  std::string rights{};  // whose hold on its host directory (kept_mounts.h); empty: this process's own

  bool is_volatile() const { return source == Source::host_directory; }
  bool is_copy() const {
    return source == Source::snapshot || source == Source::files || source == Source::revision;
  }
  std::string source_text() const;  // "host:/DIR"
  std::string mode_text() const;    // "read-only", "read-write" or "overlay"
};

// The entries of a request. None lies in or at another, and no cache is there twice.
struct MountEntries {
  std::vector<MountEntrySpec> specs;
};

// Throws Error{bad_request}: `what` is the option or the entry, `why` what is wrong with it.
[[noreturn]] void refuse_entry(std::string_view what, const std::string& why);

MountEntrySpec parse_mount_entry(std::string_view text, std::string_view what);
MountEntrySpec parse_injection(std::string_view text, std::string_view what);  // "PATH=DIR|FILE[,mode=overlay]"
MountEntrySpec parse_cache(std::string_view text, std::string_view what);      // "PATH[=NAME]"
// `document` is one object. Its directory is absolute.
MountEntrySpec mount_entry_of_document(const std::string& document, const std::string& what);
std::string document_of(const MountEntrySpec& spec);
// A file with a JSON array of such objects, or one. Throws for one that cannot be read, too.
std::vector<MountEntrySpec> read_mount_table(const std::string& file, const std::string& what);

void check_mount_entries(const std::vector<MountEntrySpec>& specs, std::string_view what);

}  // namespace escrow::daemon
