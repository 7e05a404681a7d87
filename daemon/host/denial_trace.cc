#include "daemon/host/denial_trace.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "api/json_document.h"
#include "daemon/process/output_capture.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

constexpr int kPatience_ms = 1000;

std::string line_of(const session::SessionRecord& record, const session::TracedDenial& traced) {
  api::JsonObject line;
  line.time("time", traced.time)
      .text("session", record.id.text())
      .text("principal", record.options.audit.committer);
  if (traced.denial.operation.empty()) {
    line.number("left_out", traced.count);
  } else {
    line.text("operation", traced.denial.operation)
        .text("action", traced.denial.action)
        .text("path", traced.denial.path)
        .text("rule", traced.denial.rule)
        .number("count", traced.count);
  }
  return line.text() + "\n";
}

}  // namespace

DenialTrace::DenialTrace(const std::string& file, std::uint64_t most_bytes)
    : most_bytes_(most_bytes), descriptor_(STDERR_FILENO) {
  if (file == "-") return;
  // A FIFO without a reader is refused, and one whose reader is slow loses lines.
  opened_.reset(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  if (!opened_) {
    throw session::Error(session::Errc::bad_request,
                         "cannot open the trace " + session::quote_path(file) + ": " + std::strerror(errno));
  }
  descriptor_ = opened_.get();
}

void DenialTrace::write(const session::SessionRecord& record, const std::vector<session::TracedDenial>& denials) {
  for (const session::TracedDenial& denial : denials) {
    const std::string line = line_of(record, denial);
    if (most_bytes_ != 0 && written_bytes_ + line.size() > most_bytes_) {
      written_bytes_ = most_bytes_;  // nothing comes after a gap
      ::fchmod(descriptor_, kTruncatedOutputMode);
      return;
    }
    if (!write_line(line)) return;
    written_bytes_ += line.size();
  }
}

void DenialTrace::write(const std::string& lines) { write_line(lines); }

// Standard error is shared with others: it is not made non-blocking, but asked first.
bool DenialTrace::write_line(std::string_view line) {
  while (!line.empty()) {
    pollfd ready{descriptor_, POLLOUT, 0};
    const int polled = ::poll(&ready, 1, kPatience_ms);
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0 || (ready.revents & POLLOUT) == 0) return false;
    const ssize_t count = ::write(descriptor_, line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    line.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace escrow::daemon
