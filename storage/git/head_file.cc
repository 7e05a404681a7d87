#include "storage/git/head_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "session/base/error.h"
#include "session/base/ids.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/reference_files.h"
#include "storage/git/reference_lock.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr std::string_view kHeadsPrefix = "refs/heads/";

std::string record_in(const std::string& git_directory) { return git_directory + "/escrow/default-branch"; }

// "": it may have been any of several.
std::string obvious_branch(const std::string& git_directory, const std::string& fallback) {
  const std::string recorded = first_line_of(record_in(git_directory));
  const std::vector<std::string> branches = references_below(git_directory, std::string(kHeadsPrefix));
  const std::string& meant = recorded.empty() && branches.empty() ? fallback : recorded;
  const bool is_there =
      std::find(branches.begin(), branches.end(), std::string(kHeadsPrefix) + meant) != branches.end();
  if (!meant.empty() && (is_there || branches.empty())) return meant;
  return branches.size() == 1 ? branches.front().substr(kHeadsPrefix.size()) : "";
}

}  // namespace

bool is_head_sound(const std::string& git_directory) {
  const std::string head = first_line_of(git_directory + "/HEAD");
  const bool is_symbolic = head.starts_with("ref: refs/") && head.size() > 10;
  return is_symbolic || session::ObjectId::from_hex(head);
}

void record_default_branch(const std::string& git_directory, const std::string& branch) {
  write_file_durably(record_in(git_directory), branch + "\n", 0644);
}

bool has_recorded_default_branch(const std::string& git_directory) { return is_there(record_in(git_directory)); }

std::string mend_head(const std::string& git_directory, const std::string& fallback) {
  struct stat status {};
  const bool is_ours = ::stat(git_directory.c_str(), &status) == 0 && status.st_uid == ::geteuid();
  if (is_head_sound(git_directory) || !is_ours) return "";
  const std::string branch = obvious_branch(git_directory, fallback);
  if (branch.empty())
    throw Error(Errc::damaged_repository,
                "the repository " + git_directory + " is damaged: HEAD names neither a branch nor a commit, and it may "
                "have been any branch; write the one that is meant into it: echo 'ref: refs/heads/BRANCH' > " +
                git_directory + "/HEAD");
  ReferenceLock lock(git_directory, "HEAD", "ref: " + std::string(kHeadsPrefix) + branch + "\n");
  if (is_head_sound(git_directory)) return "";
  lock.land();
  sync_directory(git_directory);
  return "HEAD of " + git_directory + " named no branch (after a power loss it can be empty); it names " + branch +
         " again";
}

}  // namespace escrow::storage
