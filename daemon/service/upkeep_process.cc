#include "daemon/service/upkeep_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "daemon/console/text_output.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/repository_upkeep.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/program_output.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMostSaid_bytes = std::size_t{512} << 10;  // half of what the other side reads
constexpr std::size_t kMostOfOne_bytes = 4096;                   // of a text
constexpr std::size_t kRest_bytes = 256;                         // of JSON: around the findings, and for the rest
// Exit statuses: a code that is thrown, as the other side, the same program, knows it. None of exit_status.h's.
constexpr int kFirstCode = 64;

// Not within a character of UTF-8, which would be another kind of text.
void cut(std::string& text) {
  if (text.size() <= kMostOfOne_bytes) return;
  std::size_t end = kMostOfOne_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text = text.substr(0, end) + "... (" + std::to_string(text.size()) + " bytes)";
}

// What it ended with; before that it may have warned.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string answer_of(std::string_view verb, const std::string& repository,
                      std::optional<std::uint64_t> keep_sessions_s) {
  GlobalOptions options;
  options.repository = repository;
  RepositoryContext context(options);
  if (verb == kGcVerb) return api::to_json(collect_garbage(context, keep_sessions_s));
  return verified_json(verify(context.repository(), {}), kMostSaid_bytes);
}

}  // namespace

std::string verified_json(std::vector<api::Finding> findings, std::size_t most_bytes) {
  const std::size_t around_bytes = api::to_json(std::vector<api::Finding>{}).size();
  std::size_t bytes = kRest_bytes, kept = 0;
  for (; kept < findings.size(); ++kept) {
    cut(findings[kept].where);
    cut(findings[kept].what);
    bytes += api::to_json({findings[kept]}).size() - around_bytes;
    if (bytes > most_bytes) break;
  }
  if (const std::size_t more = findings.size() - kept; more != 0) {
    findings.resize(kept);
    findings.push_back({.where = "repository", .what = "has " + std::to_string(more) + " further problems"});
  }
  return api::to_json(findings);
}

int run_upkeep(std::string_view verb, const std::string& repository, std::optional<std::uint64_t> keep_sessions_s) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Nobody reads any more whose death, before this moment, went unnoticed.
  pollfd reader{STDOUT_FILENO, 0, 0};
  if (::poll(&reader, 1, 0) > 0) return kExitEscrowFailed;
  try {
    print(answer_of(verb, repository, keep_sessions_s));
    return kExitSuccess;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kFirstCode + static_cast<int>(error.code());
  }
}

std::string upkeep_apart(std::string_view verb, const std::string& repository, const ShutdownDeadline& stopping,
                         std::optional<std::uint64_t> keep_sessions_s) {
  std::vector<std::string> command = {"/proc/self/exe", std::string(verb), repository};
  if (keep_sessions_s) command.push_back(std::to_string(*keep_sessions_s));
  ProgramOutput said = run_program(command, {.until = stopping.fd()});
  if (said.status == kExitSuccess) return std::move(said.out);
  stopping.check(verb == kGcVerb ? "gc" : "verify");
  const std::string what =
      verb == kGcVerb ? "the repository could not be cleaned up: " : "the repository could not be verified: ";
  const int code = said.status - kFirstCode;
  if (code >= 0 && code <= static_cast<int>(Errc::unavailable)) {
    throw Error(static_cast<Errc>(code), what + last_line(said.err));
  }
  const std::string why =
      said.err.empty() ? "its process ended with status " + std::to_string(said.status) : last_line(said.err);
  throw Error(Errc::unavailable, what + why + "; nothing is lost, try again");
}

}  // namespace escrow::daemon
