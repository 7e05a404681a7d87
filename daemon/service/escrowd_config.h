// What the administrator says about escrowd: a JSON file, the environment, and flags, each over the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/jwt.h"
#include "daemon/process/containment.h"
#include "session/base/repo_path.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

// The Docker volume plugin (volume_plugin.h).
struct VolumePluginConfig {
  std::string socket = "/run/docker/plugins/escrow.sock";
  std::vector<std::string> runtimes = {"unix:///run/docker.sock", "unix:///run/podman/podman.sock"};
  std::uint64_t lost_after_ms = 60'000;  // after which a container of which nobody knows how it ended is given up
  friend bool operator==(const VolumePluginConfig&, const VolumePluginConfig&) = default;
};

// What a principal who is no operator may have; nullopt: as much as it asks for.
struct Quota {
  std::optional<std::uint64_t> sessions;      // open at once, those of runs too
  std::optional<std::uint64_t> runs;          // at once
  std::optional<std::uint64_t> staged_bytes;  // of a session
  std::optional<std::uint64_t> files;         // that a session makes
};

// Whose JSON Web Tokens are taken, and for which principals they stand.
struct JwtIssuer {
  // The first rule of which all claims fit decides.
  struct Rule {
    std::map<std::string, std::string> claims;  // name -> glob (session/base/glob.h)
    std::string principal;                      // "agent:{sub}": with the claim in its place
  };
  std::string issuer, audience;                // as a token's `iss` and `aud` have them
  std::string keys_file;                       // a JWK set
  std::shared_ptr<const api::JwtKeys> keys;    // as the file had them when the configuration was read
  std::vector<Rule> rules;
};

// Whom the service tells of events by itself (webhooks.h).
struct Webhook {
  std::string url;                          // https://NAME[:PORT]/PATH, or http:// on this machine
  std::string secret;                       // what its file had when the configuration was read
  std::vector<std::string> events = {"*"};  // globs of types
  std::uint64_t give_up_after_s = 86'400;   // of one event
};

// How long what has ended is remembered.
struct Retention {
  // Sessions that have ended, by gc; nullopt: as long as each repository's escrow.auditRetention says.
  std::optional<std::uint64_t> sessions_s;
  std::uint64_t events = 10'000;              // the newest ones
  std::optional<std::uint64_t> events_s;      // and of those none that is older; nullopt: however old they are
  std::uint64_t idempotency_keys_s = 86'400;
  std::uint64_t tokens_s = 90 * 86'400;       // that expired or were revoked
};

inline constexpr std::uint64_t kUsualGcEvery_s = 86'400;

inline constexpr const char* kEverybody = "*";  // in `quotas` and `grants`; as a grant's repository: each

enum class GrantedVerb { read, open, commit, review };

// Where a principal may do what.
struct Grant {
  std::string repository;
  std::optional<std::vector<std::string>> branches;  // globs (session/base/glob.h); nullopt: all
  session::RepoPath prefix;                          // and what is below it
  std::vector<GrantedVerb> verbs;
};

struct EscrowdConfig {
  std::string socket = "/run/escrowd/escrowd.sock";
  std::string socket_group;                    // empty: this process's group
  std::string listen;                          // ADDRESS:PORT; empty: no TCP
  std::string tls_certificate, tls_key;        // PEM files; empty: without TLS, on a loopback address only
  std::map<std::string, std::vector<std::string>> tokens;  // principal -> the hashes of the tokens it may come with
  std::vector<JwtIssuer> jwt_issuers;
  std::map<std::string, std::string> accounts;  // principal over TCP -> "user:NAME", as whom it works on this machine
  std::string state_directory = "/var/lib/escrowd";
  std::vector<std::string> repository_roots;   // below which repositories may be registered
  std::vector<std::string> mount_roots;        // below which sessions may be mounted
  std::vector<std::string> source_roots;       // below which callers may name directories to be imported
  std::map<std::string, std::string> repositories;  // name -> path, registered at the start
  std::vector<std::string> operators;          // principals, "user:NAME" (caller.h)
  std::vector<std::string> reviewers;
  std::map<std::string, std::vector<std::string>> run_as;  // principal -> the committers it may name; as users
                                                              // of this machine they may run its commands, too
  // By principal; nullopt: everybody who may connect may open sessions everywhere.
  std::optional<std::map<std::string, std::vector<Grant>>> grants;
  std::map<std::string, Quota> quotas;         // by principal; "*": of everybody who has no own
  std::vector<std::string> host_network;       // principals whose runs may use the machine's network; operators' may
  std::size_t max_runs = 32;                   // of a principal, at once
  // Of a run: what it has that asks for nothing, and the most that it may ask for; but operators'. nullopt: any.
  std::uint64_t max_processes = kDefaultProcesses;  // at once, threads included
  std::optional<std::uint64_t> max_memory_bytes, max_millicpus;
  std::map<std::string, Webhook> webhooks;  // by name
  Retention retention;
  std::map<std::string, std::uint64_t> gc_every_s;  // by repository; "*": of those without an own; 0: never
  std::size_t keep_runs = 1000;                // of a principal that have ended; the oldest ones are freed
  std::uint64_t max_output_bytes = std::uint64_t{1} << 20;  // kept of each stream of a run
  bool four_eyes = false;                      // a reviewer had no part in what is reviewed (service_reviews.cc)
  std::size_t max_body_bytes = std::size_t{1} << 20;
  std::uint64_t max_content_bytes = std::uint64_t{1} << 30;  // of a PUT or an archive
  std::size_t max_connections = 2048;
  std::uint64_t idle_timeout_ms = 60'000;
  std::uint64_t request_timeout_ms = 30'000;
  std::uint64_t stop_grace_ms = 30'000;        // after SIGTERM, for gc, verify, imports, walks of trees
  std::optional<VolumePluginConfig> volume_plugin;  // nullopt: there is none
  bool verbose = false;
};

// The configuration as it is now: a reload replaces it whole. Thread-safe.
class LiveConfig {
 public:
  explicit LiveConfig(EscrowdConfig config) : now_(std::make_shared<const EscrowdConfig>(std::move(config))) {}

  std::shared_ptr<const EscrowdConfig> now() const { return *now_.lock(); }
  // For one expression.
  std::shared_ptr<const EscrowdConfig> operator->() const { return now(); }
  void replace(EscrowdConfig config) { *now_.lock() = std::make_shared<const EscrowdConfig>(std::move(config)); }

 private:
  mutable session::Synchronized<std::shared_ptr<const EscrowdConfig>> now_;  // self-locking
};

struct EscrowdInvocation {
  EscrowdConfig config;
  bool check_only = false;  // --check-config
  bool reload = false;      // "reload": of the service that runs
};

// nullopt: what was asked for (--help, --version, --make-token) is printed already, or the command line is wrong and
// `exit_status` says so. Throws Error{bad_request} naming the file and the member that is wrong.
std::optional<EscrowdInvocation> parse_escrowd_arguments(int argc, char** argv, int& exit_status);

// A repository's name is part of URLs and of log lines.
bool is_repository_name(const std::string& name);
inline constexpr const char* kRepositoryNames = "1 to 64 letters, digits, '-', '_' or '.', the first of them no '.'";

// The members that differ and that a service takes at its start alone.
std::vector<std::string> fixed_members_that_differ(const EscrowdConfig& one, const EscrowdConfig& other);

// Of a repository; 0: never.
std::uint64_t gc_every_s(const EscrowdConfig& config, const std::string& repository);

// That of the principal, or that of everybody.
Quota quota_of(const EscrowdConfig& config, const std::string& principal);

// Throws Error{bad_request} naming the member: a path that is not absolute, a principal that is none,
// a TCP address that would send tokens in the clear.
void check_config(const EscrowdConfig& config);

}  // namespace escrow::daemon
