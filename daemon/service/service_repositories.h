// The repositories that escrowd serves: registered by an operator or in the configuration, below the allowed roots,
// open as long as the service runs. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/host/repository_context.h"
#include "daemon/import/allowed_roots.h"
#include "daemon/process/shutdown_deadline.h"
#include "daemon/service/escrowd_config.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

class ServiceRepositories {
 public:
  struct Entry {
    std::string name, path;
    std::shared_ptr<RepositoryContext> context;  // null: it cannot be used, and `error` says why
    std::string error;
  };

  // Opens and recovers every repository that was registered; what cannot be opened is logged and tried again when it is
  // asked for. All must outlive this.
  // Those of the configuration are registered before: throws Error{exists} where they contradict what is known.
  // Once `stopping` is over no trees are read any more: a request that walks them is refused as unavailable. All must
  // outlive this.
  ServiceRepositories(const LiveConfig& config, storage::ServiceStore& store, const AllowedRoots& roots,
                      const ShutdownDeadline& stopping, session::Log& log);

  std::vector<Entry> list();
  // Throws Problem{no_repository}, or the Error that it cannot be opened with.
  Entry find(const std::string& name);
  struct Added {
    bool is_new = false;   // it was not registered before
    bool is_made = false;  // there was no repository before
  };
  // With a branch it is made, as `escrow init` does it, when it is missing. Throws Problem{forbidden}, Error{exists},
  // and what making and opening it throws.
  Added add(const std::string& name, const std::string& path, const std::string& who,
            const std::optional<std::string>& branch_to_make = std::nullopt);

  // Nothing in it is changed; what it was is returned. Throws Problem{no_repository}, and Problem{wrong_state} while
  // sessions are open in it and when it is one of the configuration's.
  Entry remove(const std::string& name);

  // Those of a configuration that are not served yet are from here on. What cannot be opened is logged. Throws
  // Error{exists} before anything is changed, as the constructor does.
  void add_configured(const EscrowdConfig& config);

  struct Session {
    Entry repository;
    session::SessionRecord record;
  };
  // By its whole id; nullopt: in no repository.
  std::optional<Session> find_session(const std::string& id);

  // Sessions whose hosts died, or that nobody approved in time, reach a legal state, and what could not be opened is
  // tried again. A failure is logged.
  void recover() noexcept;
  // The packs that many commits left become one; little work where there are few. A failure is logged.
  void tidy() noexcept;

 private:
  Entry open(const std::string& name, const std::string& path) const;
  bool make(const std::string& path, const std::string& branch) const;

  const LiveConfig& config_;   // constant references, self-locking
  storage::ServiceStore& store_;
  const AllowedRoots& roots_;
  const ShutdownDeadline& stopping_;
  session::Log& log_;
  const bool verbose_;
  session::Synchronized<std::map<std::string, Entry>> entries_;  // self-locking
};

}  // namespace escrow::daemon
