#include "daemon/host/repository_context.h"

#include <filesystem>

#include "daemon/console/text_output.h"
#include "daemon/host/checked_out_references.h"
#include "daemon/host/checkouts.h"
#include "daemon/host/config.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/spdlog_log.h"

namespace escrow::daemon {
namespace {

// Without asking git: no bare repository pays for work trees that it cannot have.
bool may_have_work_trees(const std::string& git_directory) {
  std::error_code failed;
  return git_directory.ends_with("/.git") || std::filesystem::exists(git_directory + "/worktrees", failed);
}

}  // namespace

RepositoryContext::RepositoryContext(const GlobalOptions& options)
    : log_(make_log(options.verbose)),
      repository_(storage::Repository::open(repository_path(options), *log_)),
      checkouts_(!options.checkouts_from.empty() && may_have_work_trees(repository_->git_directory())
                     ? std::make_unique<Checkouts>(repository_->git_directory(), *log_)
                     : nullptr),
      work_tree_(checkouts_ ? checkouts_->work_tree_around(options.checkouts_from) : std::nullopt),
      followed_(checkouts_ ? std::make_unique<CheckedOutReferences>(repository_->references(), *checkouts_, work_tree_)
                           : nullptr),
      services_{.objects = repository_->objects(),
                .references = followed_ ? *followed_ : repository_->references(),
                .catalog = repository_->catalog(),
                .directories = repository_->directories(),
                .clock = clock_,
                .log = *log_,
                .times = &repository_->change_times(),
                .chains = &chains_},
      sessions_(services_) {}

RepositoryContext::~RepositoryContext() = default;

void RepositoryContext::recover() {
  clear_dead_mounts([this](const std::string& text, const std::function<void()>& clear) {
    const auto id = session::SessionId::parse(text);
    if (!id || !services_.catalog.find(*id) || services_.directories.is_held(*id)) return;
    // While it is ours nobody mounts it again. One that has ended has no directory, and is mounted by nobody.
    std::unique_ptr<session::SessionDirectory> held;
    try {
      held = services_.directories.try_open(*id);
      if (!held) return;
    } catch (const session::Error& error) {
      if (error.code() != session::Errc::no_session) return;
    }
    clear();
  });
  for (const std::string& sentence : sessions_.recover()) log_->write(session::LogLevel::info, sentence);
  // After the sessions: a commit that a dead process had begun may just have been made.
  if (!checkouts_) return;
  for (const std::string& sentence : checkouts_->mend()) log_->write(session::LogLevel::warning, sentence);
}

std::string RepositoryContext::words_about_checkout(const std::string& branch) const {
  if (!work_tree_ || checkouts_->branch_of(*work_tree_) != branch) return {};
  const std::size_t count = checkouts_->uncommitted(*work_tree_, Checkouts::Untracked::counted).size();
  if (count == 0) return {};
  return plural(count, "path") + " of " + *work_tree_ + (count == 1 ? " is" : " are") +
         " not committed, and not in the session: it begins at the head of '" + branch + "'";
}

void RepositoryContext::tidy() noexcept {
  try {
    repository_->fold_packs();
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::warning, std::string("making one pack of many: ") + failure.what());
  }
}

}  // namespace escrow::daemon
