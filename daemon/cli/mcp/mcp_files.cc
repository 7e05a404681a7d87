// The tools that read and write the files of a session.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "api/json_document.h"
#include "api/text_bytes.h"
#include "daemon/cli/mcp/mcp_sessions.h"
#include "daemon/host/policy_files.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/trees/tree_walk.h"

namespace escrow::daemon {

using api::JsonObject;
using api::McpAnswer;
using api::RequestFields;
using session::Errc;
using session::Error;
using session::SessionRecord;

namespace {

constexpr std::uint64_t kUsualReadBytes = 16'000, kMostReadBytes = 200'000;
constexpr std::uint64_t kUsualEntries = 200, kMostEntries = 1000;

const char* kind_of_entry(std::uint32_t mode) {
  switch (mode) {
    case 0040000:
      return "directory";
    case 0120000:
      return "symlink";
    case 0160000:
      return "submodule";
    case 0100755:
      return "executable";
    case 0100644:
      return "file";
    default:
      return "other";
  }
}

// A file of this process's own, which goes beside a request.
FileDescriptor file_with(const std::string& content) {
  FileDescriptor file(::memfd_create("content", MFD_CLOEXEC));
  if (file.get() < 0) throw Error(Errc::unavailable, std::string("memfd_create: ") + std::strerror(errno));
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t count = ::write(file.get(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(Errc::no_space, std::string("cannot hold the content: ") + std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
  return file;
}

// As the session's base has it.
api::FileAnswer read_base(McpSessions& sessions, const SessionRecord& record, const std::string& path,
                          std::uint64_t offset, std::uint64_t limit) {
  if (const auto policy = compile_policies(record.options.policies);
      policy && !policy->allowed(path, false).has(session::Action::read)) {
    throw Error(Errc::access_denied, "the policy does not allow to read '" + session::quote_path(path) + "' (" +
                                         session::AccessPolicy::describe(
                                             policy->decide(path, false, session::Action::read)) + ")");
  }
  const session::ObjectReader& objects = sessions.context().repository().objects();
  const session::TreeRoot tree = session::tree_of_commit(objects, record.base);
  const auto entry = session::entry_at(objects, tree, session::RepoPath::parse(path, "the argument path"));
  if (!entry || entry->mode == session::GitMode::gitlink || entry->mode == session::GitMode::tree) {
    throw Error(Errc::not_found, "the session's base has no file '" + session::quote_path(path) + "'");
  }
  const auto source = objects.open_blob(entry->id);
  api::FileAnswer answer{.bytes = {}, .mode = static_cast<std::uint32_t>(entry->mode), .size_bytes = source->size()};
  answer.bytes.resize(std::min<std::uint64_t>(limit, answer.size_bytes - std::min(offset, answer.size_bytes)));
  answer.bytes.resize(source->read(offset, std::as_writable_bytes(std::span(answer.bytes))));
  return answer;
}

}  // namespace

McpAnswer mcp_list_files(const McpSettings& settings, RequestFields& fields) {
  const std::string path = fields.text("path").value_or("");
  api::ListFilesRequest request{.path = {}, .after = fields.text("after").value_or(""), .most_entries = 0};
  request.most_entries = fields.number("limit", 1, kMostEntries).value_or(kUsualEntries);
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  request.path = path_in_repository(record, path);
  const api::ListingAnswer listing = sessions.access(record).files(request);
  std::vector<JsonObject> entries;
  for (const api::ListingAnswer::Entry& entry : listing.entries) {
    entries.emplace_back();
    entries.back().text("name", entry.name).text("kind", kind_of_entry(entry.mode));
    if (entry.mode != 0040000) entries.back().number("size_bytes", entry.size_bytes);
  }
  JsonObject document;
  document.text("path", path).objects("entries", std::move(entries));
  if (!listing.is_whole && !listing.entries.empty()) document.text("next_after", listing.entries.back().name);
  return {.document = document.text(), .texts = {}};
}

McpAnswer mcp_read_file(const McpSettings& settings, RequestFields& fields) {
  const std::string path = fields.required_text("path"), side = fields.text("side").value_or("session");
  if (side != "session" && side != "base") fields.refuse("side", "is session or base");
  const std::uint64_t offset = fields.number("offset", 0, UINT64_MAX / 2).value_or(0);
  const std::uint64_t limit = fields.number("limit", 1, kMostReadBytes).value_or(kUsualReadBytes);
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  const std::string whole = path_in_repository(record, path);
  api::FileAnswer file = side == "base"
                             ? read_base(sessions, record, whole, offset, limit)
                             : sessions.access(record).file(
                                   api::ReadFileRequest{.path = whole, .offset = offset, .most_bytes = limit});
  JsonObject document;
  document.text("path", path).text("kind", kind_of_entry(file.mode)).number("size_bytes", file.size_bytes);
  document.number("offset", offset);
  const bool is_text = api::cut_to_text(file.bytes, offset + file.bytes.size() >= file.size_bytes);
  if (offset + file.bytes.size() < file.size_bytes) document.number("next_offset", offset + file.bytes.size());
  document.text("encoding", is_text ? "utf-8" : "base64");
  return {.document = document.text(), .texts = {is_text ? std::move(file.bytes) : api::base64_of(file.bytes)}};
}

McpAnswer mcp_write_file(const McpSettings& settings, RequestFields& fields) {
  const std::string path = fields.required_text("path");
  const std::optional<std::string> content = fields.text("content");
  if (!content) fields.refuse("content", "is missing: what the file is to hold; \"\" empties it");
  const std::optional<bool> executable = fields.flag("executable");
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  const FileDescriptor file = file_with(*content);
  const api::FileAnswer now = sessions.access(record).file(api::WriteFileRequest{
      .path = path_in_repository(record, path), .executable = executable, .content = file.get()});
  return {.document = JsonObject()
                          .text("path", path)
                          .text("kind", kind_of_entry(now.mode))
                          .number("size_bytes", now.size_bytes)
                          .flag("is_new", now.is_new)
                          .text(),
          .texts = {}};
}

McpAnswer mcp_delete_file(const McpSettings& settings, RequestFields& fields) {
  const std::string path = fields.required_text("path");
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  const api::FileAnswer was =
      sessions.access(record).file(api::RemoveFileRequest{.path = path_in_repository(record, path)});
  return {.document = JsonObject().text("path", path).text("deleted", kind_of_entry(was.mode)).text(), .texts = {}};
}

}  // namespace escrow::daemon
