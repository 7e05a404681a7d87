// The part of ServiceSessions that reads and writes the files of a session.
#include <algorithm>
#include <map>
#include <utility>

#include "api/problem.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/policy_files.h"
#include "daemon/host/session_access.h"
#include "daemon/service/sessions/service_sessions.h"
#include "session/transaction/commit.h"
#include "session/trees/tree_walk.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::Errc;
using session::Error;
using session::GitMode;
using session::RepoPath;
using session::SessionRecord;
using session::State;

namespace {

constexpr std::size_t kMaxWriters = 10'000;

std::string quoted(const RepoPath& path) { return "'" + session::quote_path(path.text()) + "'"; }

// Of what is in a tree the session's policies say the same as of what is in its overlay.
void check_may(session::Action action, const SessionRecord& record, const RepoPath& path,
               session::SessionCatalog& catalog, const session::Timestamp& now) {
  const bool is_list = action == session::Action::list;
  const auto policy = compile_policies(record.options.policies);
  if (!policy || policy->allowed(path.text(), is_list).has(action)) return;
  const std::string rule = session::AccessPolicy::describe(policy->decide(path.text(), is_list, action));
  const char* operation = is_list ? "opendir" : "open";
  catalog.add_denials(record.id, {{operation, path.text(), rule, 1, now, now}});
  throw session::Denied({operation, session::name_of(action), path.text(), rule},
                        std::string("the policy does not allow to ") + session::name_of(action) + " it");
}

}  // namespace

RepoPath ServiceSessions::inside(const Found& found, const std::string& text) const {
  try {
    const RepoPath path = RepoPath::parse(text, "the path");
    if (path.text() != text || path.is_root()) throw Error(Errc::bad_request, "it is not in its one form");
    if (found.record.options.prefix.contains(path)) return path;
  } catch (const Error& error) {
    throw Problem(ProblemCode::not_found, "'" + session::quote_path(text) + "' names no file: " + error.what());
  }
  throw Problem(ProblemCode::not_found, "'" + session::quote_path(text) + "' is outside of the session's prefix '" +
                                            session::quote_path(found.record.options.prefix.text()) + "'");
}

template <typename Ask>
auto ServiceSessions::ask_for_file(const Found& found, const Caller& caller, Ask ask) {
  try {
    // Of a mounted session any number of requests are served at once.
    std::optional<SessionTryLock> turn;
    if (!hosts_.find(found.record.id)) turn.emplace(*this, found.record.id);
    SessionAccess access(*found.repository.context, found.record.id.text(), caller.principal);
    return ask(access);
  } catch (const Error& error) {
    const bool is_late = error.code() == Errc::wrong_state;
    if (!is_late && (error.code() != Errc::read_only || found.record.options.read_only)) throw;
    // The gate closes before the state says so.
    const SessionRecord now = record_of(found);
    if (now.state != State::open) refuse_finished(now, "write into");
    if (is_late) throw;
    refuse_busy(now.id);
  }
}

ServiceSessions::FilePart ServiceSessions::read_committed(const Found& found, const RepoPath& path, Side side,
                                                          std::uint64_t offset, std::size_t most_bytes) {
  storage::Repository& repository = found.repository.context->repository();
  const session::ObjectReader& objects = repository.objects();
  const SessionRecord record = record_of(found);
  check_may(session::Action::read, record, path, repository.catalog(), clock_.now());
  session::TreeRoot tree;
  if (record.state == State::awaiting_approval) {
    const session::SessionResult sealed = session::sealed_result(objects, record);
    tree = side == Side::base ? sealed.base_tree : sealed.tree;
  } else {
    tree = session::tree_of_commit(objects, record.base);
  }
  const std::optional<session::TreeEntry> entry = session::entry_at(objects, tree, path);
  if (!entry) throw Error(Errc::not_found, "there is no file " + quoted(path) + " on this side");
  if (entry->mode == GitMode::tree) throw Error(Errc::is_a_directory, quoted(path) + " is a directory");
  if (entry->mode == GitMode::gitlink) throw Error(Errc::not_supported, quoted(path) + " is a submodule");
  const auto source = objects.open_blob(entry->id);
  FilePart part{.bytes = {},
                .mode = static_cast<std::uint32_t>(entry->mode),
                .size_bytes = source->size(),
                .version = entry->id.hex(),
                .is_new = false};
  part.bytes.resize(std::min<std::uint64_t>(most_bytes, part.size_bytes - std::min(offset, part.size_bytes)));
  part.bytes.resize(source->read(offset, std::as_writable_bytes(std::span(part.bytes))));
  return part;
}

ServiceSessions::FilePart ServiceSessions::read_file(const Caller& caller, const std::string& id,
                                                     const std::string& path_text, Side side, std::uint64_t offset,
                                                     std::size_t most_bytes) {
  const Found found = see(caller, id);
  const RepoPath path = inside(found, path_text);
  const SessionRecord record = settled(found);
  if (session::is_final(record.state)) refuse_finished(record, "look into");
  if (side == Side::base || record.state == State::awaiting_approval) {
    return read_committed(found, path, side, offset, most_bytes);
  }
  return ask_for_file(found, caller, [&](SessionAccess& access) {
    return access.file(api::ReadFileRequest{.path = path.text(), .offset = offset, .most_bytes = most_bytes});
  });
}

api::ListingAnswer ServiceSessions::list_committed(const Found& found, const api::ListFilesRequest& request) {
  storage::Repository& repository = found.repository.context->repository();
  const session::ObjectReader& objects = repository.objects();
  const SessionRecord record = record_of(found);
  const auto policy = compile_policies(record.options.policies);
  const auto shows = [&](const std::string& path, bool is_directory) {
    return !policy || policy->allowed(path, is_directory).has(session::Action::list);
  };
  const RepoPath directory = request.path.empty() ? record.options.prefix : RepoPath::parse(request.path, "the path");
  check_may(session::Action::list, record, directory, repository.catalog(), clock_.now());
  const auto entry = session::entry_at(objects, session::sealed_result(objects, record).tree, directory);
  if (!entry && directory != record.options.prefix) {
    throw Error(Errc::not_found, "the session has no directory " + quoted(directory));
  }
  if (entry && entry->mode != GitMode::tree) {
    throw Error(Errc::not_a_directory, quoted(directory) + " is no directory");
  }
  api::ListingAnswer answer;
  std::map<std::string, session::TreeEntry> entries;
  for (session::TreeEntry& one : session::read_tree_or_empty(objects, session::tree_of(entry))) {
    if (request.after.empty() || one.name > request.after) entries.emplace(one.name, one);
  }
  for (const auto& [name, one] : entries) {
    const bool is_directory = one.mode == GitMode::tree || one.mode == GitMode::gitlink;
    if (!shows(directory.is_root() ? name : directory.text() + "/" + name, is_directory)) continue;
    if (answer.entries.size() == request.most_entries) {
      answer.is_whole = false;
      break;
    }
    answer.entries.push_back({.name = name,
                              .mode = static_cast<std::uint32_t>(one.mode),
                              .size_bytes = is_directory ? 0 : objects.blob_size(one.id)});
  }
  return answer;
}

api::ListingAnswer ServiceSessions::list_files(const Caller& caller, const std::string& id,
                                               const api::ListFilesRequest& request) {
  const Found found = see(caller, id);
  if (!request.path.empty()) inside(found, request.path);
  const SessionRecord record = settled(found);
  if (session::is_final(record.state)) refuse_finished(record, "look into");
  if (record.state == State::awaiting_approval) return list_committed(found, request);
  return ask_for_file(found, caller, [&](SessionAccess& access) { return access.files(request); });
}

api::FileAnswer ServiceSessions::change_file(const Found& found, const Caller& caller, const api::Request& change) {
  const SessionRecord record = settled(found);
  if (record.state != State::open) refuse_finished(record, "write into");
  // On disk before anything is changed: whoever is to review it is none of those.
  const std::string writer = found.record.id.text() + " " + caller.principal;
  if (!writers_.lock()->contains(writer)) {
    remark(found, caller, "wrote files over the API");
    auto writers = writers_.lock();
    if (writers->size() >= kMaxWriters) writers->clear();
    writers->insert(writer);
  }
  return ask_for_file(found, caller, [&](SessionAccess& access) { return access.file(change); });
}

void ServiceSessions::check_write(const Caller& caller, const std::string& id, const std::string& path_text,
                                  std::optional<std::uint64_t> length) {
  const Found found = may_end(caller, id);
  inside(found, path_text);
  // One that is being committed may be open again soon.
  if (found.record.state != State::open && found.record.state != State::committing)
    refuse_finished(found.record, "write into");
  const std::uint64_t most = found.record.options.limits.staged_bytes;
  if (!length || most == 0 || *length <= most) return;
  // Files in an entry of the mount table are not staged, and do not count.
  const std::string directory = found.repository.context->repository().directories().path_of(found.record.id);
  if (!kept_mounts(directory).entries.empty()) return;
  throw Error(Errc::quota_exceeded, "the content has " + std::to_string(*length) +
                                        " bytes, and the session may stage " + std::to_string(most) +
                                        "; open a session with a higher limit");
}

ServiceSessions::Written ServiceSessions::write_file(const Caller& caller, const std::string& id,
                                                     const std::string& path_text, int content,
                                                     std::optional<bool> executable) {
  const Found found = may_end(caller, id);
  const RepoPath path = inside(found, path_text);
  const api::FileAnswer now = change_file(
      found, caller, api::WriteFileRequest{.path = path.text(), .executable = executable, .content = content});
  return {.file = {.path = path.text(), .mode = now.mode, .size_bytes = now.size_bytes}, .is_new = now.is_new};
}

api::FileResource ServiceSessions::remove_file(const Caller& caller, const std::string& id,
                                               const std::string& path_text) {
  const Found found = may_end(caller, id);
  const RepoPath path = inside(found, path_text);
  const api::FileAnswer before = change_file(found, caller, api::RemoveFileRequest{.path = path.text()});
  return {.path = path.text(), .mode = before.mode, .size_bytes = before.size_bytes};
}

}  // namespace escrow::daemon
