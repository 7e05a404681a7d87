// Session records for tests, and records as text, so that a failed comparison shows them.
#pragma once

#include <sstream>
#include <string>

#include "session/interfaces/session_record.h"

namespace escrow::support {

// Every field set.
inline session::SessionRecord sample_record(const session::SessionId& id) {
  session::ObjectId::Bytes bytes;
  bytes.fill(0x5a);
  session::SessionRecord record{.id = id, .options = {}, .base = session::ObjectId(bytes), .commit = {},
                                .swap_from = {}, .swap_to = {}, .exit_code = -7, .message = "say\nwhat\xff",
                                .mountpoint = "/mnt/\xff", .last_error = "the disk was full",
                                .conflicts = {"a/b\nc", "\xfe"}, .result = session::ObjectId(bytes),
                                .expires = session::Timestamp{300, 7}, .reviewer = "user:bob",
                                .review_comment = "fine",
                                .counts = session::ChangeCounts{3, 2, 1}, .created = {100, 5},
                                .changed = {200, 999'999'999}};
  record.options.branch = "main";
  record.options.prefix = session::RepoPath::parse("data/r\xffw", "prefix");
  record.options.audit = {"user:alice", "agent:bot", "sandbox", "debian:12", "cron", "42"};
  record.options.uid = 4'294'967'294u;
  record.options.gid = 1000;
  record.options.umask = 027;
  record.options.read_only = true;
  record.options.ephemeral = true;
  record.options.keep_on_failure = true;
  record.options.audit.author_name = "Alice \xff";
  record.options.audit.author_email = "alice@example.org";
  record.options.excludes = {"*.tmp", "!keep.tmp"};
  record.options.include_ignored = true;
  record.options.policies = {R"({"default": "allow"})", R"({"default": "deny"})"};
  record.options.contained_symlinks = true;
  record.options.shows_lfs_pointers = true;
  record.options.require_approval = true;
  record.options.approval_expires_s = 3600;
  record.options.command = {"sh", "-c", "echo \xff"};
  const session::Version there{0100644, session::ObjectId(bytes)};
  record.unresolved = {{"a/b\nc", there, {}, {0100755, session::ObjectId(bytes)}}, {"\xfe", {}, there, there}};
  record.updating_keeps = true;
  record.resumes = session::SessionId::parse("0123456789abcdef");
  record.parent = session::SessionId::parse("fedcba9876543210");
  record.base_time = session::Timestamp{50, 999'999'999};
  return record;
}

inline std::string describe(const session::SessionRecord& record) {
  std::ostringstream out;
  const session::SessionOptions& options = record.options;
  const session::Audit& audit = options.audit;
  out << record.id.text() << ' ' << session::name_of(record.state) << ' ' << session::name_of(record.reason) << " on "
      << options.branch << " below '" << options.prefix.text() << "' for " << audit.committer << ", " << audit.issuer
      << ", " << audit.source << ", " << audit.image << ", " << audit.trigger << ", " << audit.trigger_id << " as "
      << options.uid << ':' << options.gid << " umask " << options.umask << ' ' << options.read_only
      << options.ephemeral << options.keep_on_failure << " excludes";
  for (const std::string& pattern : options.excludes) out << " '" << pattern << "'";
  for (const std::string& policy : options.policies) out << " policy '" << policy << "'";
  for (const std::string& argument : options.command) out << " argument '" << argument << "'";
  out << " by " << audit.author_name << " <" << audit.author_email << ">";
  out << ' ' << options.include_ignored << options.contained_symlinks << options.shows_lfs_pointers
      << options.require_approval << " for " << options.approval_expires_s;
  if (record.expires) out << " expires " << record.expires->seconds << '.' << record.expires->nanoseconds;
  if (record.counts)
    out << " counts " << record.counts->added << ',' << record.counts->modified << ',' << record.counts->deleted;
  out << " reviewed by '" << record.reviewer << "' saying '" << record.review_comment << "'";
  for (const auto& object : {record.base, record.commit, record.swap_from, record.swap_to, record.result})
    out << ' ' << (object ? object->hex() : "-");
  out << " exit " << (record.exit_code ? std::to_string(*record.exit_code) : "-") << " message '" << record.message
      << "' at '" << record.mountpoint << "' error '" << record.last_error << "' conflicts";
  for (const std::string& path : record.conflicts) out << " '" << path << "'";
  for (const std::string& text : session::texts_of(record.unresolved)) out << " unresolved '" << text << "'";
  out << " resumes " << (record.resumes ? record.resumes->text() : "-");
  if (record.parent) out << " fork of " << record.parent->text();
  if (record.base_time) out << " of " << record.base_time->seconds << '.' << record.base_time->nanoseconds;
  out << " created " << record.created.seconds << '.' << record.created.nanoseconds << " changed "
      << record.changed.seconds << '.' << record.changed.nanoseconds;
  return out.str();
}

}  // namespace escrow::support
