#include "daemon/cli/session_argument.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

bool may_begin_an_id(std::string_view word) {
  constexpr std::size_t kLeast = 4;  // as git abbreviates at least
  return word.size() >= kLeast && word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool names_a_file(const std::string& word) {
  struct stat about {};
  return ::lstat(word.c_str(), &about) == 0;
}

std::optional<session::SessionId> named_by(SessionSource& source, const std::string& word) {
  const bool is_whole = session::SessionId::parse(word).has_value();
  if (!is_whole && (!may_begin_an_id(word) || names_a_file(word))) return std::nullopt;
  try {
    return source.resolve(word);
  } catch (const Error& error) {
    if (error.code() != Errc::no_session) throw;
    return std::nullopt;
  }
}

}  // namespace

void add_session(CLI::App& command, std::string& session) {
  command.add_option("SESSION", session,
                     "The session, or a unique prefix of its id (default: the one whose mount this is)");
}

session::SessionId the_session(SessionSource& source, const std::string& text) {
  if (!text.empty()) return source.resolve(text);
  if (const std::optional<SessionHere> here = session_here()) return source.resolve(here->id);
  if (const char* own = std::getenv("ESCROW_SESSION"); own != nullptr && *own != '\0') return source.resolve(own);
  throw Error(Errc::bad_request,
              "no session is named, and the current directory is in no session's mount; give SESSION "
              "(`escrow sessions` lists them)");
}

void leave_the_mount() {
  // Where that fails the mount is busy, and this process is named.
  [[maybe_unused]] const int left = ::chdir("/");
}

SessionPaths session_and_paths(SessionSource& source, const std::vector<std::string>& words) {
  const std::optional<SessionHere> here = session_here();
  if (!here) {
    std::vector<std::string> paths(words.begin() + (words.empty() ? 0 : 1), words.end());
    return {.session = the_session(source, words.empty() ? "" : words.front()), .paths = std::move(paths)};
  }
  if (!words.empty()) {
    if (std::optional<session::SessionId> named = named_by(source, words.front())) {
      return {.session = *std::move(named), .paths = {words.begin() + 1, words.end()}};
    }
  }
  SessionPaths found{.session = source.resolve(here->id), .paths = {}};
  for (const std::string& word : words) found.paths.push_back(path_in_mount(*here, word));
  return found;
}

std::string path_in_mount(const SessionHere& here, const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path root(here.mountpoint);
  const fs::path whole = (root / here.directory / path).lexically_normal();
  std::string inside = whole.lexically_relative(root).string();
  while (inside.ends_with('/')) inside.pop_back();
  if (inside == ".." || inside.starts_with("../")) {
    throw Error(Errc::bad_request, "'" + session::quote_path(path) + "' is outside of the mount of session " + here.id +
                                       ", which is at " + session::quote_path(here.mountpoint));
  }
  return inside;
}

}  // namespace escrow::daemon
