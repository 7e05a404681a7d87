#include "daemon/host/repository_context.h"

#include "daemon/console/text_output.h"
#include "daemon/host/checked_out_references.h"
#include "daemon/host/checkouts.h"
#include "daemon/host/config.h"
#include "daemon/host/fork_parents.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/spdlog_log.h"
#include "daemon/host/work_tree_changes.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

RepositoryContext::RepositoryContext(const GlobalOptions& options)
    : log_(make_log(options.verbose)),
      repository_(storage::Repository::open(repository_path(options), *log_)),
      checkouts_(options.checkouts_from.empty()
                     ? nullptr
                     : std::make_unique<Checkouts>(repository_->git_directory(), *log_)),
      work_tree_(checkouts_ && checkouts_->may_be_any() ? checkouts_->work_tree_around(options.checkouts_from)
                                                        : std::nullopt),
      references_(std::make_unique<CheckedOutReferences>(repository_->references(), checkouts_.get(), work_tree_)),
      parents_(std::make_unique<ForkParents>(*this)),
      services_{.objects = repository_->objects(),
                .references = *references_,
                .catalog = repository_->catalog(),
                .directories = repository_->directories(),
                .clock = clock_,
                .log = *log_,
                .times = &repository_->change_times(),
                .chains = &chains_,
                .parents = parents_.get(),
                .files = &repository_->files()},
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

std::string RepositoryContext::take_changes_of_checkout(session::Session& session) const {
  using session::Errc;
  const session::SessionRecord record = session.record();
  const std::string& branch = record.options.branch;
  if (!work_tree_)
    throw session::Error(Errc::bad_request, "--with-changes takes the uncommitted changes of a work tree of the "
                                            "repository, and neither the current directory nor --repo "
                                            "is in one; call it from there");
  if (record.options.read_only)
    throw session::Error(Errc::bad_request, "--with-changes and --read-only exclude each other: a session that is read "
                                            "only has nothing to commit; leave one of them out");
  const std::optional<std::string> there = checkouts_->branch_of(*work_tree_);
  if (there != branch || checkouts_->head_of(*work_tree_) != record.base)
    throw session::Error(Errc::wrong_state, "--with-changes: the session begins at the head of '" + branch +
                                                "', and the work tree " + *work_tree_ + " is " +
                                                (there ? "at another commit, on '" + *there + "'" : "on no branch") +
                                                "; check '" + branch + "' out there, or name its branch");
  const TakenChanges changes = take_changes(*work_tree_, checkouts_->changed_paths(*work_tree_), session);
  std::string words;
  if (changes.taken > 0)
    words = plural(changes.taken, "path") + " of " + *work_tree_ + (changes.taken == 1 ? " is" : " are") +
            " not committed, and in the session as found there";
  if (changes.left.empty()) return words;
  return words + (words.empty() ? "" : "; ") + plural(changes.left.size(), "path") +
         " outside of the session, or of another mount or repository, " + (changes.left.size() == 1 ? "is" : "are") +
         " not: " + session::quote_path(changes.left.front()) + (changes.left.size() == 1 ? "" : ", ...");
}

void RepositoryContext::tidy() noexcept {
  try {
    repository_->fold_packs();
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::warning, std::string("making one pack of many: ") + failure.what());
  }
}

std::string open_with_changes(RepositoryContext& context, std::unique_ptr<session::Session>& session) {
  try {
    return context.take_changes_of_checkout(*session);
  } catch (...) {
    const session::SessionId id = session->id();
    session.reset();
    context.sessions().roll_back(id, session::Reason::not_started, {}, current_principal());
    throw;
  }
}

}  // namespace escrow::daemon
