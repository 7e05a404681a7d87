#include "daemon/host/repository_context.h"

#include "daemon/host/config.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/spdlog_log.h"

namespace escrow::daemon {

RepositoryContext::RepositoryContext(const GlobalOptions& options)
    : log_(make_log(options.verbose)),
      repository_(storage::Repository::open(repository_path(options), *log_)),
      services_{.objects = repository_->objects(),
                .references = repository_->references(),
                .catalog = repository_->catalog(),
                .directories = repository_->directories(),
                .clock = clock_,
                .log = *log_,
                .chains = &chains_},
      sessions_(services_) {}

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
}

void RepositoryContext::tidy() noexcept {
  try {
    repository_->fold_packs();
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::warning, std::string("making one pack of many: ") + failure.what());
  }
}

}  // namespace escrow::daemon
