#include "daemon/host/session_git.h"

#include <string_view>
#include <utility>

#include "daemon/host/commits_inside.h"
#include "daemon/host/kept_mounts.h"
#include "session/base/error.h"
#include "storage/bucket/bucket_name.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kLargestMessage_bytes = std::size_t{60} << 10;

// What a commit message may hold (check_commit_message()).
std::string plain(std::string_view message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\r') continue;
    text += (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f ? ' ' : c;
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

constexpr char kNotedGit[] = "/git";
constexpr char kKeepsCommits[] = "keep\n";  // before the objects, whose path begins with a slash

// Why there can be no .git; nothing: there can.
std::string why_not(const session::SessionOptions& options, const std::string& place) {
  const char* hides = nullptr;
  if (!options.prefix.text().empty()) hides = "--path-prefix";
  if (!options.policies.empty()) hides = "--policy";
  if (hides != nullptr) {
    return std::string("--git and ") + hides + " exclude each other: git's objects know no paths, so they would show "
           "what " + hides + " hides; leave one of them out";
  }
  if (!storage::names_bucket(place)) return {};
  return "--git needs the repository's objects on this machine, and they are in a bucket; leave it out";
}

}  // namespace

std::optional<GitTerms> git_terms(const std::string& asked, bool by_default, const session::SessionOptions& options,
                                  const storage::Repository& repository, const std::string& place) {
  const bool is_limited = options.limits.staged_bytes != 0 || options.limits.files != 0;
  // Reads through git's objects are not noted.
  const bool is_noted = options.isolation == session::Isolation::serializable;
  if (asked == "off" || (asked.empty() && (!by_default || is_limited || is_noted || options.read_only)))
    return std::nullopt;
  const std::string why = why_not(options, place);
  if (!why.empty() && asked.empty()) return std::nullopt;
  if (!why.empty()) throw Error(Errc::bad_request, why);
  return GitTerms{.objects = objects_directory(repository), .keeps_commits = asked == "keep"};
}

std::string objects_directory(const storage::Repository& repository) { return repository.git_directory() + "/objects"; }

void note_git_terms(const std::string& session_directory, const GitTerms& terms) {
  const std::string file = session_directory + kNotedGit;
  storage::put_file(file, file + ".new", (terms.keeps_commits ? kKeepsCommits : "") + terms.objects, 0600);
}

std::optional<GitTerms> noted_git_terms(const std::string& session_directory) {
  std::optional<std::string> text = storage::read_if_there(session_directory + kNotedGit);
  if (!text) return std::nullopt;
  const bool keeps_commits = text->starts_with(kKeepsCommits);
  if (keeps_commits) text->erase(0, sizeof kKeepsCommits - 1);
  return GitTerms{.objects = *text, .keeps_commits = keeps_commits};
}

session::CommitRequest with_commits_inside(session::Session& session, session::CommitRequest given) {
  session::CommitsInside inside;
  try {
    inside = commits_inside(session);
  } catch (const Error& error) {
    inside.why_not = error.what();  // whether the session can be committed is not decided here
  }
  for (session::CommitsInside::One& one : inside.commits) one.message = plain(one.message);
  const bool is_said = !given.message.empty() || !session.record().message.empty();
  const std::optional<GitTerms> terms = noted_git_terms(session.directory());
  if (terms && terms->keeps_commits) {
    given.inside = [&session, inside, rest = given.message]() mutable {
      inside.rest_message = rest.empty() ? session.record().message : rest;
      for (const MountEntrySpec& entry : kept_mounts(session.directory()).entries)
        inside.shadowed.push_back(entry.path);
      return inside;
    };
  }
  if (is_said) return given;
  for (const session::CommitsInside::One& one : inside.commits) {
    if (one.message.empty()) continue;
    if (given.message.size() + one.message.size() > kLargestMessage_bytes) break;
    given.message += (given.message.empty() ? "" : "\n\n") + one.message;
  }
  return given;
}

}  // namespace escrow::daemon
