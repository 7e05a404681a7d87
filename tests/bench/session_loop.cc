// What a session costs in a process that runs already: opened and mounted, one file written, committed; again and
// again. Prints the medians.
//
//   bench_sessions REPOSITORY MOUNTPOINT COUNT     {"open": SECONDS, "commit": SECONDS}
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "daemon/host/repository_context.h"
#include "daemon/host/session_host.h"

namespace {

using namespace escrow;
using Clock = std::chrono::steady_clock;

constexpr unsigned kWarmUp = 3;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Cost {
  double open, commit;
};

Cost one_session(daemon::RepositoryContext& context, const std::string& mountpoint, unsigned turn) {
  session::SessionOptions options;
  options.branch = context.repository().references().default_branch();
  options.audit.committer = options.audit.issuer = "user:bench";
  options.audit.source = "bench";
  options.uid = ::geteuid();
  options.gid = ::getegid();
  daemon::SessionHost::Options hosting;
  hosting.mount.mountpoint = mountpoint;
  const auto opening = Clock::now();
  daemon::SessionHost host(context.sessions().open(options, false, session::SessionId::generate()), hosting,
                           context.repository(), context.log());
  const double open = seconds_since(opening);
  std::ofstream(mountpoint + "/changed") << "turn " << turn << "\n";
  const auto committing = Clock::now();
  host.seal_and_unmount();
  const session::CommitOutcome outcome =
      host.finish_commit({.message = "bench", .exit_code = 0, .who = "user:bench"});
  const double commit = seconds_since(committing);
  if (!std::holds_alternative<session::Committed>(outcome)) throw std::runtime_error("the session was not committed");
  context.tidy();  // as every host does, after it has reported
  return {open, commit};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: bench_sessions REPOSITORY MOUNTPOINT COUNT");
    daemon::GlobalOptions options;
    options.repository = argv[1];
    daemon::RepositoryContext context(options);
    const auto count = static_cast<unsigned>(std::stoul(argv[3]));
    std::vector<double> opened, committed;
    for (unsigned turn = 0; turn < kWarmUp + count; ++turn) {
      const Cost cost = one_session(context, argv[2], turn);
      if (turn < kWarmUp) continue;
      opened.push_back(cost.open);
      committed.push_back(cost.commit);
    }
    std::printf("{\"open\": %.6f, \"commit\": %.6f}\n", median(opened), median(committed));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sessions: %s\n", error.what());
    return 1;
  }
}
