#include "daemon/host/file_verbs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::RepoPath;

namespace {

// Below the session's root: what its file system knows.
RepoPath below_prefix(const session::Session& session, const std::string& path) {
  const RepoPath whole = RepoPath::parse(path, "the path");
  const RepoPath prefix = session.record().options.prefix;
  if (!prefix.contains(whole)) {
    throw Error(Errc::not_found, "'" + session::quote_path(path) + "' is outside of the session's prefix '" +
                                     session::quote_path(prefix.text()) + "'");
  }
  return RepoPath::parse(whole.text().substr(prefix.text().size()), "the path");
}

[[noreturn]] void refuse_busy(const session::Session& session) {
  throw Error(Errc::busy, "another request on session " + session.id().text() + " is under way; try again");
}

// While a commit is on its way programs in the mount wait for it; a request is told.
void refuse_during_commit(session::Session& session) {
  if (session.gate().holds_calls_back()) refuse_busy(session);
}

constexpr char kReadingContent[] = "read the content that was received";

SessionFiles::Content content_of(const api::WriteFileRequest& request) {
  struct stat about {};
  if (request.content >= 0 && ::fstat(request.content, &about) != 0)
    throw storage::system_error(errno, kReadingContent);
  if (request.content < 0 || !S_ISREG(about.st_mode))
    throw Error(Errc::bad_request, "the request has no content beside it");
  const auto read = [file = request.content](std::uint64_t offset, std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = ::pread(file, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw storage::system_error(errno, kReadingContent);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  };
  return {.size_bytes = static_cast<std::uint64_t>(about.st_size), .read = read, .executable = request.executable};
}

api::FileAnswer answer(SessionFiles::Part part) {
  return {.bytes = std::move(part.bytes),
          .mode = part.mode,
          .size_bytes = part.size_bytes,
          .version = std::move(part.version),
          .is_new = false};
}

}  // namespace

api::Answer ask_files(SessionFiles files, session::Session& session, const api::ReadFileRequest& request) {
  return answer(files.read(below_prefix(session, request.path), request.offset, request.most_bytes));
}

api::Answer ask_files(SessionFiles files, session::Session& session, const api::WriteFileRequest& request) {
  const RepoPath path = below_prefix(session, request.path);
  const session::SessionOptions options = session.record().options;
  refuse_during_commit(session);
  const bool is_new = files.write(path, content_of(request),
                                  {.uid = options.uid, .gid = options.gid, .umask = options.umask});
  api::FileAnswer now = answer(files.describe(path));
  now.is_new = is_new;
  return now;
}

api::Answer write_whole(SessionFiles files, session::Session& session, const api::WriteFileRequest& request,
                        FileWriteTurns& turns) {
  const std::shared_ptr<void> turn = turns.try_take();
  if (!turn) refuse_busy(session);
  return ask_files(std::move(files), session, request);
}

api::Answer ask_files(SessionFiles files, session::Session& session, const api::RemoveFileRequest& request) {
  const RepoPath path = below_prefix(session, request.path);
  refuse_during_commit(session);
  api::FileAnswer before = answer(files.describe(path));
  files.remove(path);
  return before;
}

api::Answer ask_files(SessionFiles files, session::Session& session, const api::ListFilesRequest& request) {
  const RepoPath directory = request.path.empty() ? RepoPath() : below_prefix(session, request.path);
  return files.list(directory, request.after, request.most_entries);
}

api::ChangesAnswer with_sizes(const session::ObjectReader& objects, std::vector<session::PathChange> changes) {
  const auto size_of = [&](const std::optional<session::TreeEntry>& entry) -> std::optional<std::uint64_t> {
    if (!entry || entry->mode == session::GitMode::gitlink) return std::nullopt;
    return objects.blob_size(entry->id);
  };
  api::ChangesAnswer sized;
  for (session::PathChange& change : changes) {
    const auto before = size_of(change.before), after = size_of(change.after);
    sized.changes.push_back({.change = std::move(change), .size_before = before, .size_after = after});
  }
  return sized;
}

api::ChangesAnswer changes_of(session::Session& session) {
  session::Preview preview = session.preview();
  api::ChangesAnswer answer = with_sizes(session.quarantine(), std::move(preview.changes));
  answer.omitted = std::move(preview.omitted);
  return answer;
}

}  // namespace escrow::daemon
