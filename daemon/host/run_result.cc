#include "daemon/host/run_result.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/duration.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::OmissionKind;
using session::Reason;
using session::State;

constexpr std::size_t kNamesShown = 5;

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// "a, b, c and 4 more"
template <typename List, typename PathOf>
std::string first_names(const List& list, PathOf path_of, std::size_t most = kNamesShown) {
  std::string text;
  for (std::size_t at = 0; at < list.size() && at < most; ++at) {
    text += (at == 0 ? "" : ", ") + session::quote_path(path_of(list[at]));
  }
  if (list.size() > most) text += " and " + std::to_string(list.size() - most) + " more";
  return text;
}

// The attributes that ask for a conversion.
std::string attributes_of(OmissionKind kind) {
  if (kind == OmissionKind::unconverted_text) return "text or eol";
  if (kind == OmissionKind::unconverted_encoding) return "working-tree-encoding";
  return kind == OmissionKind::unconverted_ident ? "ident" : "filter";
}

std::string what_ended_it(const session::SessionRecord& record, const RunSummary& run) {
  switch (run.end.cause) {
    case EndCause::exited:
      return "the command exited with status " + std::to_string(run.end.status);
    case EndCause::signalled:
      return "the command was killed by " + signal_name(run.end.signal_number);
    case EndCause::cancelled:
      return "the run was cancelled by " + signal_name(run.end.signal_number);
    case EndCause::oom:
      return "the command used more memory than it may";
    case EndCause::timed_out:
      return "the command ran longer than " + (run.timeout ? session::format_duration(*run.timeout) : "it may");
    case EndCause::not_found:
    case EndCause::could_not_run:
    case EndCause::failed:
    case EndCause::lost:
      return run.end.message;
  }
  return session::name_of(record.reason);
}

std::string committed_sentence(const session::SessionRecord& record, const RunSummary& run) {
  const session::ChangeCounts& counts = run.result.counts;
  std::string text;
  if (record.commit) {
    text = " was committed to " + record.options.branch + " as " + record.commit->hex().substr(0, 12) + ": " +
           std::to_string(counts.added) + " added, " + std::to_string(counts.modified) + " modified, " +
           std::to_string(counts.deleted) + " deleted";
  } else {
    text = " changed nothing, so there is no commit";
  }
  const std::vector<session::Omission>& omitted = run.result.omitted;
  const auto count_if = [&](const auto& is_one) {
    return static_cast<std::size_t>(
        std::count_if(omitted.begin(), omitted.end(), [&](const auto& one) { return is_one(one.kind); }));
  };
  const std::size_t ignored = count_if([](OmissionKind kind) { return kind == OmissionKind::ignored; });
  if (const std::size_t left_out = omitted.size() - ignored - count_if(session::is_conversion); left_out > 0) {
    text += " (" + counted(left_out, "thing that git cannot hold or that was excluded is", "things that git cannot "
                           "hold or that were excluded are") + " not in it)";
  }
  if (ignored > 0)
    text += " (" + counted(ignored, "path that git ignores is", "paths that git ignores are") + " not in it)";
  return text;
}

std::string conflicts_sentence(const RunSummary& run) {
  const std::vector<session::Conflict>& conflicts = run.result.conflicts;
  return counted(conflicts.size(), "path conflicts", "paths conflict") + " with what others committed to " +
         run.result.record->options.branch + " meanwhile: " +
         first_names(conflicts, [](const session::Conflict& conflict) { return conflict.path; });
}

std::string with_directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

bool is_regular_or_absent(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

[[noreturn]] void cannot_write(const std::string& path) {
  throw Error(Errc::unavailable, "the result could not be written to " + session::quote_path(path) + ": " +
                                     std::strerror(errno));
}

void write_all(int fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path);
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

std::optional<Reason> rollback_reason(const CommandEnd& end) {
  switch (end.cause) {
    case EndCause::exited:
      return end.status == 0 ? std::nullopt : std::optional(Reason::exit_status);
    case EndCause::signalled:
      return Reason::signal;
    case EndCause::cancelled:
      return Reason::cancelled;
    case EndCause::timed_out:
      return Reason::timed_out;
    case EndCause::oom:
      return Reason::oom;
    case EndCause::not_found:
    case EndCause::could_not_run:
      return Reason::not_started;
    case EndCause::failed:
      return Reason::not_started;
    case EndCause::lost:
      return Reason::host_lost;
  }
  return Reason::not_started;
}

std::optional<int> recorded_status(const CommandEnd& end) {
  if (end.cause == EndCause::not_found) return kExitNotFound;
  if (end.cause == EndCause::could_not_run) return kExitCannotRun;
  return end.command_status;
}

int exit_code_of_run(const session::SessionRecord& record, const CommandEnd& end) {
  if (record.state == State::committed) return kExitSuccess;
  if (record.state == State::commit_failed || record.reason == Reason::conflict) return kExitConflict;
  if (record.state == State::awaiting_approval) return kExitAwaitsApproval;
  if (record.state != State::rolled_back) return kExitEscrowFailed;
  switch (end.cause) {
    case EndCause::exited:
      return end.status == 0 ? kExitEscrowFailed : end.status;
    case EndCause::signalled:
    case EndCause::cancelled:
      return 128 + end.signal_number;
    case EndCause::timed_out:
      return kExitTimeout;
    case EndCause::oom:
      return end.command_status.value_or(0) == 0 ? kExitEscrowFailed : *end.command_status;
    case EndCause::not_found:
      return kExitNotFound;
    case EndCause::could_not_run:
      return kExitCannotRun;
    case EndCause::failed:
    case EndCause::lost:
      return kExitEscrowFailed;
  }
  return kExitEscrowFailed;
}

std::string summary_of(const RunSummary& run) {
  const session::SessionRecord& record = *run.result.record;
  const std::string name = "session " + record.id.text();
  const std::string kept = "; its result is kept as refs/sessions/" + record.id.text();
  const std::string resumed_with = "; `escrow resume " + record.id.text() + "` opens a session with it on the new head";
  switch (record.state) {
    case State::committed:
      return name + committed_sentence(record, run);
    case State::commit_failed:
      return name + " was not committed: " + conflicts_sentence(run) + kept + resumed_with;
    case State::awaiting_approval:
      return name + " (" + human_counts(run.result.counts) + ") " +
             awaiting_words(record.id, *record.result, record.expires);
    case State::rolled_back:
      if (record.reason == Reason::conflict) return name + " was rolled back: " + conflicts_sentence(run);
      return name + " was rolled back: " + (run.result.error.empty() ? what_ended_it(record, run) : run.result.error) +
             (record.options.keep_on_failure || run.end.keep_result ? kept : "");
    case State::open:
      if (record.last_error.empty()) {
        return name + " is still open, and the next escrow command rolls it back: " + run.result.error;
      }
      [[fallthrough]];
    case State::committing:
      return name + " is " + session::name_of(record.state) + " with all that was written: " + run.result.error +
             "; when that is mended, `escrow commit " + record.id.text() + "` or `escrow rollback " +
             record.id.text() + "` ends it";
  }
  return name;
}

std::string omissions_sentence(const std::vector<session::Omission>& omitted, bool is_verbose) {
  std::map<OmissionKind, std::vector<std::string>> by_kind;
  for (const session::Omission& omission : omitted) by_kind[omission.kind].push_back(omission.path);
  std::string left_out, unconverted;
  for (const auto& [kind, paths] : by_kind) {
    if (kind == OmissionKind::ignored && !is_verbose) continue;  // the summary counts them
    std::string name = session::name_of(kind);
    std::replace(name.begin(), name.end(), '_', ' ');
    std::string& text = session::is_conversion(kind) ? unconverted : left_out;
    const std::size_t most = is_verbose ? paths.size() : kNamesShown;
    text += (text.empty() ? "" : "; ") +
            (session::is_conversion(kind) ? attributes_of(kind) : std::to_string(paths.size()) + " " + name) + " (" +
            first_names(paths, [](const std::string& path) { return path; }, most) + ")";
  }
  if (!left_out.empty()) left_out = "left out of the commit: " + left_out;
  if (unconverted.empty()) return left_out;
  return (left_out.empty() ? "" : left_out + "; ") +
         "committed as they are, where .gitattributes has git convert files at check-in: " + unconverted;
}

void check_result_path(const std::string& path) {
  struct stat status;
  const std::string directory = with_directory_of(path);
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw Error(Errc::bad_request, "--result " + session::quote_path(path) + " is a directory; name a file");
  }
  if (!is_regular_or_absent(path)) return;
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return;
  throw Error(Errc::bad_request, "--result " + session::quote_path(path) + " cannot be written: " +
                                     session::quote_path(directory) + ": " + std::strerror(errno));
}

void write_result(const std::string& path, const api::RunResult& result) {
  const std::string text = api::to_json(result) + "\n";
  if (!is_regular_or_absent(path)) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) cannot_write(path);
    return write_all(file.get(), text, path);
  }
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".new";
  const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) cannot_write(path);
  try {
    write_all(file.get(), text, path);
    if (::fsync(file.get()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) cannot_write(path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace escrow::daemon
