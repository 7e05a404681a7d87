// The part of ServiceRuns that looks and changes nothing: one run, lists, output.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "api/problem.h"
#include "daemon/host/cancel_mark.h"
#include "daemon/process/file_descriptor.h"
#include "daemon/process/output_capture.h"
#include "daemon/service/runs/service_runs.h"
#include "daemon/service/sessions/session_walk.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::Errc;
using session::Error;
using session::SessionId;

namespace {

constexpr std::size_t kRunsAtOnce = 256;  // read from the store

api::RunResource::Stream stream_at(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return {};
  return {.bytes = static_cast<std::uint64_t>(about.st_size),
          .is_truncated = (about.st_mode & 0777) == kTruncatedOutputMode};
}

std::string read_at(int descriptor, std::uint64_t offset, std::size_t most) {
  std::string bytes(most, '\0');
  std::size_t length = 0;
  while (length < most) {
    const ssize_t got = ::pread(descriptor, bytes.data() + length, most - length,
                                static_cast<off_t>(offset + length));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Errc::input_output, std::string("cannot read the output: ") + std::strerror(errno));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  bytes.resize(length);
  return bytes;
}

}  // namespace

api::RunResource ServiceRuns::resource(const Caller& caller, const Found& found) {
  const Run& run = found.run;
  const std::string directory = directory_of(run.id);
  std::optional<api::SessionResource> session;
  try {
    if (found.record) session = sessions_.get(caller, run.id.text());
  } catch (const Error&) {
    // It was forgotten this moment.
  }
  return {.id = run.id.text(),
          .has_ended = has_ended(found),
          .is_cancelled = is_marked_cancelled(directory),
          .command = run.command,
          .user = run.user,
          .uid = run.uid,
          .gid = run.gid,
          .mountpoint = run.mountpoint,
          .timeout_ms = run.timeout_ms,
          .memory_bytes = run.memory_bytes,
          .millicpus = run.millicpus,
          .max_processes = run.max_processes,
          .confined = run.confined,
          .network = run.network,
          .created = run.created,
          .streams = {stream_at(directory + "/" + kOutputNames[0]), stream_at(directory + "/" + kOutputNames[1])},
          .output = {},
          .session = std::move(session)};
}

api::RunResource ServiceRuns::get(const Caller& caller, const std::string& id) {
  return resource(caller, see(caller, id));
}

bool ServiceRuns::has_ended(const Caller& caller, const std::string& id) { return has_ended(see(caller, id)); }

bool ServiceRuns::is_wanted(const Caller& caller, const Filter& filter, const Run& run) {
  const ServiceSessions::Filter& common = filter.common;
  if (!caller.may_see_of(run.owner) || (common.repository && run.repository != *common.repository)) return false;
  if (!common.external_id && common.labels.empty()) return true;
  const auto facts = facts_.session(run.id);
  if (!facts || (common.external_id && facts->external_id != *common.external_id)) return false;
  return std::includes(facts->labels.begin(), facts->labels.end(), common.labels.begin(), common.labels.end());
}

ServiceRuns::Page ServiceRuns::list(const Caller& caller, const Filter& filter) {
  const ServiceSessions::Filter& common = filter.common;
  const bool sees_all = caller.is_operator || caller.is_reviewer;
  const std::optional<std::string> owner = sees_all ? common.principal : caller.principal;
  Page page;
  if (common.principal && common.principal != owner) return page;
  storage::RunStore::Position at;
  if (!common.after.empty()) {
    const storage::SessionPosition position = list_position_from(common.after);
    at = {.created = position.created, .id = position.id};
  }
  std::string last;
  for (std::size_t looked_at = 0;; looked_at += kRunsAtOnce) {
    if (looked_at >= ServiceSessions::kMostLookedAt) {
      page.next = list_position(at.created, *SessionId::parse(at.id));
      return page;
    }
    const std::vector<Run> some = store_.list_after(at, owner, filter.has_ended == false, kRunsAtOnce);
    for (const Run& run : some) {
      if (!is_wanted(caller, filter, run)) continue;
      const Found found = find(run);
      if (!may_see(caller, found)) continue;
      if (filter.has_ended && has_ended(found) != *filter.has_ended) continue;
      if (page.runs.size() == common.limit) {
        page.next = last;
        return page;
      }
      page.runs.push_back(resource(caller, found));
      last = list_position(run.created, run.id);
    }
    if (some.size() < kRunsAtOnce) return page;
    at = {.created = some.back().created, .id = some.back().id.text()};
  }
}

std::vector<std::string> ServiceRuns::running(const Caller& caller) {
  std::vector<std::string> ids;
  for (const Run& run : store_.unended_of(caller.principal)) {
    if (!has_ended(find(run))) ids.push_back(run.id.text());
  }
  return ids;
}

ServiceRuns::Output ServiceRuns::output(const Caller& caller, const std::string& id, const std::string& stream,
                                        std::uint64_t offset, std::size_t most) {
  const Found found = see(caller, id);
  const bool has_ended_before = has_ended(found);
  const std::string path = directory_of(found.run.id) + "/" + stream;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  // A command that was never started has no output.
  if (!file && errno == ENOENT)
    return {.bytes = {}, .next = 0, .is_complete = has_ended_before, .is_truncated = false};
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0)
    throw storage::system_error(errno, "read the output of run " + found.run.id.text());
  const auto size = static_cast<std::uint64_t>(about.st_size);
  if (offset > size) {
    throw Problem(ProblemCode::invalid_value, "the output has " + std::to_string(size) + " bytes so far",
                  {{"field", "offset"}});
  }
  const bool is_truncated = (about.st_mode & 0777) == kTruncatedOutputMode;
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(most, size - offset));
  Output output{.bytes = read_at(file.get(), offset, length),
                .next = 0, .is_complete = false, .is_truncated = is_truncated};
  output.next = offset + output.bytes.size();
  output.is_complete = (has_ended_before || is_truncated) && output.next == size;
  return output;
}

}  // namespace escrow::daemon
