#include "daemon/service/runs/run_directories.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "daemon/host/run_conclusion.h"
#include "session/base/error.h"

namespace escrow::daemon {

namespace {

namespace fs = std::filesystem;
using session::SessionId;

// Nothing is concluded from a name that is missing: where a listing fails, the rest waits.
std::vector<SessionId> runs_in(const std::string& directory) {
  std::vector<SessionId> ids;
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed))
    if (const std::optional<SessionId> id = SessionId::parse(at->path().filename().string())) ids.push_back(*id);
  return ids;
}

bool has_process(const std::string& directory) {
  try {
    return is_conclusion_promised(directory);
  } catch (const session::Error&) {
    return true;  // for all that can be seen
  }
}

void move_to(const std::string& from, const std::string& to) {
  ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
}

// Newest first, by the last file that was made in them.
void remove_beyond(const std::string& orphans, std::size_t kept) {
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  for (const SessionId& id : runs_in(orphans)) {
    struct stat status {};
    const std::string path = orphans + "/" + id.text();
    if (::lstat(path.c_str(), &status) == 0) by_age.emplace_back(-status.st_mtim.tv_sec, path);
  }
  std::sort(by_age.begin(), by_age.end());
  std::error_code left;
  for (std::size_t at = kept; at < by_age.size(); ++at) fs::remove_all(by_age[at].second, left);
}

}  // namespace

void sort_run_directories(const std::string& state_directory, const std::function<bool(const SessionId&)>& is_known,
                          std::size_t kept) {
  const std::string runs = state_directory + "/runs/", orphans = state_directory + "/orphans/";
  for (const SessionId& id : runs_in(orphans))
    if (is_known(id)) move_to(orphans + id.text(), runs + id.text());
  for (const SessionId& id : runs_in(runs)) {
    if (is_known(id) || has_process(runs + id.text())) continue;
    ::mkdir(orphans.c_str(), 0700);
    move_to(runs + id.text(), orphans + id.text());
  }
  remove_beyond(orphans, kept);
}

}  // namespace escrow::daemon
