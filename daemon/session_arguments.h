// The options that every command which opens a session shares: branch, prefix, audit, ownership.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/object_store.h"
#include "session/session_record.h"

namespace CLI {
class App;
}

namespace escrow::daemon {

struct SessionArguments {
  std::string branch;  // empty: the repository's default branch
  std::string path_prefix;
  std::string committer;  // empty: the user of this process
  std::string issuer;     // empty: the user of this process
  std::string image, trigger, trigger_id;
  std::optional<std::uint32_t> uid, gid;  // nullopt: of this process
  std::string umask = "022";              // octal
  bool read_only = false;
  bool require_approval = false;
  std::string approval_expires;  // empty: as the branch's rule says, else never
  // Of the mount, not of the session.
  std::string xattr = "off";   // or "user"
  std::string symlinks;        // "any", "contained"; empty: any, but contained for a confined command
  std::string io = "auto";     // or "cached" or "passthrough"
  std::string opens = "auto";  // or "none" or "daemon"
  std::string io_uring = "auto";  // or "off"
  std::vector<std::string> excludes;
  std::vector<std::string> policies;  // files
  std::string trace;                  // a file, or "-": standard error; empty: none
};

// --branch --path-prefix --committer --issuer --image --trigger --trigger-id --require-approval --approval-expires
void add_audit_options(CLI::App& command, SessionArguments& arguments);
// --uid --gid --umask --read-only --symlinks --xattr --io --opens --io-uring --exclude --policy --trace
void add_view_options(CLI::App& command, SessionArguments& arguments);

// Checks every value and reads the policies. `source` is "sandbox", "manual" or "import". Throws Error{bad_request}.
session::SessionOptions session_options(const SessionArguments& arguments, const session::ReferenceStore& references,
                                        const std::string& source);

// "022" and the like; throws Error{bad_request} naming `what`.
std::uint32_t parse_umask(const std::string& text, const std::string& what);

}  // namespace escrow::daemon
