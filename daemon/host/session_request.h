// The options of a session. The command line, `mount -o`, volume options, escrowd's API and the host process of a run
// all write and read this one struct, by one table of its fields (session_request_fields()): a new field is a member
// here, a line of the table, and the place where it acts.
//
// Plain values; all functions are pure but for reading policy files. Errors: what is wrong with a value is
// Error{bad_request} that names the option, from JSON api::Problem{invalid_value} that names the field.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/json_document.h"
#include "api/request_fields.h"
#include "api/router.h"
#include "daemon/host/mount_entry_spec.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

// Policies as JSON documents, each checked. As text they are named by their files.
struct PolicyDocuments {
  std::vector<std::string> documents;
};

struct SessionRequest {
  // ---- The commit.
  std::string branch;       // empty: the repository's default branch
  std::string path_prefix;  // below the repository's root
  std::string committer;    // a principal; empty: who asks
  std::string issuer;       // a principal; empty: who asks
  std::string image, trigger, trigger_id, message;
  bool require_approval = false;
  std::chrono::seconds approval_expires{0};  // 0: as the branch's rule says, else never
  std::vector<std::string> excludes;         // patterns of what is left out
  bool include_ignored = false;              // what git would not add is committed, too
  // ---- The view.
  std::optional<std::uint32_t> uid, gid;  // nullopt: of who asks
  std::string umask = "022";              // octal
  bool read_only = false;
  std::string git;  // inside: "off", "squash" or "keep"; empty: as the kind of session has it (session_git.h)
  std::string lfs;  // "on" or "off": pointers of Git LFS are shown as they are; empty: on
  std::string symlinks;  // "any" or "contained"; empty: as the kind of session has it
  PolicyDocuments policies;
  bool keep_on_failure = false;
  std::string isolation = "snapshot";  // or "serializable"
  std::uint64_t limit_staged_bytes = 0, limit_files = 0;  // 0: none
  MountEntries mounts;       // beside the repository
  // Whose rights hold on the host directories of `mounts`: "UID:GID:GROUP,GROUP"; empty: this process's.
  std::string mount_rights;
  // ---- Its mounts.
  std::string xattr = "off";      // or "user"
  std::string io = "auto";        // or "cached", "writeback", "passthrough"
  std::string opens = "auto";     // or "none" or "daemon"
  std::string io_uring = "auto";  // or "off"
};

// A service proves who asks, so documents of its API have no `asker`.
enum class RequestPart { commit, asker, view, mount };

struct SessionRequestField {
  using Member =
      std::variant<std::string SessionRequest::*, bool SessionRequest::*,
                   std::optional<std::uint32_t> SessionRequest::*, std::uint64_t SessionRequest::*,
                   std::chrono::seconds SessionRequest::*,
                   std::vector<std::string> SessionRequest::*, PolicyDocuments SessionRequest::*,
                   MountEntries SessionRequest::*>;

  RequestPart part;
  std::string_view name;      // path_prefix: also --path-prefix
  // Where it stands in JSON: "trigger.id" is the member id of the object trigger. Empty: it is another notation of a
  // field that stands there.
  std::string_view document;
  Member member;
  std::string_view value{};   // what its value is called in help texts; empty: the choices say it
  std::string_view help{};    // of the option; empty: the command line has none, or one of the command's own
  std::vector<std::string_view> choices{};  // of a text; empty: any
  std::uint64_t most = 4096;                // bytes of a text; or the largest number
  std::string_view variable{};              // of the environment, that gives the option's value; empty: none
  // Of a text: throws Error{bad_request} whose message calls it `what`.
  void (*check)(const std::string& text, std::string_view what) = nullptr;
};

const std::vector<SessionRequestField>& session_request_fields();
// "--path-prefix"
std::string option_name(const SessionRequestField& field);

// Sets the field called `name` from text; false: there is none. "7d" is a duration, "true", "false" and nothing are
// flags, a policy is the name of a file; lists get one more. `what` begins messages: "the mount option".
bool set_request_field(SessionRequest& request, std::string_view name, std::string_view text, std::string_view what);
void set_request_field(SessionRequest& request, const SessionRequestField& field, std::string_view text,
                       const std::string& what);

// Takes the fields of these parts from a JSON object; a missing field keeps its value.
void read_session_request(api::RequestFields& fields, SessionRequest& request,
                          std::initializer_list<RequestPart> parts);
// Adds those that say something.
void write_session_request(api::JsonObject& object, const SessionRequest& request,
                           std::initializer_list<RequestPart> parts);

// The part of the commit as the query of an import has it, without empty fields. The first of a pair is the name, as in
// JSON where that is not nested.
std::vector<std::pair<std::string, std::string>> query_of(const SessionRequest& request);
// Takes them. Throws api::Problem{invalid_value}.
void read_session_request(api::Query& query, SessionRequest& request);

// The part of its mounts as `mount -o` takes it, without what is the default.
std::string mount_options_of(const SessionRequest& request);

// The session manager's options for the request. `source` is "sandbox", "manual" or "import". The committer is this
// process unless the request names one. Throws also for a branch that cannot be committed to.
session::SessionOptions session_options(const SessionRequest& request, const session::ReferenceStore& references,
                                        const std::string& source);

// "022" and the like; throws Error{bad_request} naming `what`.
std::uint32_t parse_umask(const std::string& text, std::string_view what);

// Of a run, for PYTHONPATH: each below the mount, without a colon, which separates them. Throws Error{bad_request} that
// begins with `what`.
std::vector<std::string> parse_python_path(const std::vector<std::string>& paths, std::string_view what);

}  // namespace escrow::daemon
