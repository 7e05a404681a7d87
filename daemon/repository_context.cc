#include "daemon/repository_context.h"

#include "daemon/config.h"
#include "daemon/mountpoint.h"
#include "daemon/spdlog_log.h"

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
  clear_dead_mounts([this](const std::string& text) {
    const auto id = session::SessionId::parse(text);
    return id && services_.catalog.find(*id);
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
