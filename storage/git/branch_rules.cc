#include "storage/git/branch_rules.h"

#include <array>
#include <optional>

#include "session/base/duration.h"
#include "session/base/error.h"
#include "session/trees/ignore_patterns.h"
#include "storage/disk/durable_file.h"
#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"
#include "storage/git/git_handle.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr std::uint64_t kDefaultCacheLimit_bytes = std::uint64_t{10} << 30;

class Configuration {
 public:
  explicit Configuration(const std::string& git_directory)
      : path_(git_directory + "/config"), config_(open_config(path_)) {}

  // The branch's own value before everyone's. nullopt: neither is there.
  std::optional<std::string> text(const std::string& branch, const std::string& key, std::string& found) const {
    for (const std::string& section : {"escrow." + branch + ".", std::string("escrow.")}) {
      if (section == "escrow..") continue;
      git_config_entry* raw = nullptr;
      const int code = git_config_get_entry(&raw, config_.get(), (section + key).c_str());
      const GitConfigEntry entry(raw);
      if (code == GIT_ENOTFOUND) continue;
      check_git(code, "reading " + section + key + " in " + path_);
      found = section + key;
      // A key without a value means "true" to git.
      return raw->value == nullptr ? "true" : raw->value;
    }
    return std::nullopt;
  }

  bool flag(const std::string& branch, const std::string& key) const {
    std::string name;
    const std::optional<std::string> value = text(branch, key, name);
    int parsed = 0;
    // To git nothing means false: a template without its value would turn off what another line has turned on.
    const bool is_one = !value || (!value->empty() && git_config_parse_bool(&parsed, value->c_str()) == 0);
    if (!is_one) refuse(name, *value, "it must be true or false");
    return value && parsed != 0;
  }

  // The first of the choices where none was made.
  std::string choice(const std::string& branch, const std::string& key,
                     const std::array<const char*, 2>& choices) const {
    std::string name;
    const std::string value = text(branch, key, name).value_or(choices[0]);
    for (const char* one : choices)
      if (value == one) return value;
    refuse(name, value, std::string("it must be ") + choices[0] + " or " + choices[1]);
  }

  std::optional<std::chrono::seconds> duration(const std::string& branch, const std::string& key) const {
    std::string name;
    const std::optional<std::string> value = text(branch, key, name);
    if (!value) return std::nullopt;
    try {
      return std::chrono::ceil<std::chrono::seconds>(session::parse_duration(*value, name));
    } catch (const Error&) {
      refuse(name, *value, "it must be a length of time such as 12h or 7d");
    }
  }

  // With git's suffixes: k, m, g.
  std::optional<std::uint64_t> bytes(const std::string& key) const {
    std::string name;
    const std::optional<std::string> value = text("", key, name);
    std::int64_t parsed = 0;
    if (value && (git_config_parse_int64(&parsed, value->c_str()) != 0 || parsed < 0))
      refuse(name, *value, "it must be a number of bytes such as 20g");
    return value ? std::optional(static_cast<std::uint64_t>(parsed)) : std::nullopt;
  }

  // What git would not add.
  bool ignores(const std::string& branch) const {
    std::string name;
    const std::optional<std::string> value = text(branch, "ignore", name);
    if (value && *value != "git" && *value != "none") refuse(name, *value, "it must be git or none");
    return value != "none";
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& why) const {
    throw Error(Errc::bad_request,
                name + " in " + path_ + " is '" + value + "': " + why + "; mend it with git config");
  }

  const std::string path_;
  GitConfig config_;
};

// Empty: there is none.
std::string text_if_there(const std::string& path) {
  std::string text = read_if_there(path, session::kLargestIgnoreFile_bytes + 1).value_or("");
  if (text.size() > session::kLargestIgnoreFile_bytes)
    throw Error(Errc::bad_request, path + " has more than the 1 MiB that is read; make it smaller");
  return text;
}

}  // namespace

session::BranchRule read_branch_rule(const std::string& git_directory, const std::string& branch) {
  const Configuration configuration(git_directory);
  session::BranchRule rule;
  rule.require_approval = configuration.flag(branch, "requireApproval");
  const auto expires = configuration.duration(branch, "approvalExpires");
  if (expires) rule.approval_expires_s = expires->count();
  rule.ignore.is_on = configuration.ignores(branch);
  if (rule.ignore.is_on) rule.ignore.exclude_file = text_if_there(git_directory + "/info/exclude");
  rule.attributes_file = text_if_there(git_directory + "/info/attributes");
  rule.stores_raw = configuration.choice(branch, "filters", {"refuse", "raw"}) == "raw";
  rule.merges_text = configuration.choice(branch, "merge", {"path", "text"}) == "text";
  return rule;
}

std::chrono::seconds read_audit_retention(const std::string& git_directory) {
  return Configuration(git_directory).duration("", "auditRetention").value_or(kDefaultAuditRetention);
}

std::uint64_t read_cache_limit(const std::string& git_directory) {
  return Configuration(git_directory).bytes("cacheLimit").value_or(kDefaultCacheLimit_bytes);
}

}  // namespace escrow::storage
