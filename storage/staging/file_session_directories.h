// Sessions' directories as <state>/sessions/<id>/ with `lock`, `session.db`, `staging/`, `objects/`, `control.sock`,
// `caches/`, `reads`; those that were set aside as <state>/orphans/<id>/. An empty file `opening` is there until a
// session was opened; from then on its name is `opened`.
//
// No link is followed to a directory or a lock: whoever may write <state> could else have other files locked, or
// removed, by the next command.
//
// Thread-safe, and safe between processes: the OFD write lock on `lock` is taken before a directory is used, and
// conflicts within a process too (fcntl(2)). Creation syncs nothing; the journal's first barrier does. Parts of a
// directory come into being when they are first needed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/interfaces/session_directory.h"

namespace escrow::storage {

// Makes the quarantine over <session>/objects, which need not exist yet.
using QuarantineFactory = std::function<std::unique_ptr<session::Quarantine>(const std::string& objects_directory)>;
// SessionDirectory::publish_caches() and drop_caches() of a session's directory. Both, or neither: there are no caches.
struct CacheVerbs {
  std::function<void(const std::string& session_directory)> publish;
  std::function<std::vector<std::string>(const std::string& session_directory)> drop;
};

class FileSessionDirectories final : public session::SessionDirectories {
 public:
  // `sessions_path` exists; `orphans` is made beside it when it is needed.
  FileSessionDirectories(const std::string& sessions_path, QuarantineFactory quarantine_factory,
                         CacheVerbs caches = {});

  std::unique_ptr<session::SessionDirectory> create(const session::SessionId& id) override;
  std::unique_ptr<session::SessionDirectory> try_open(const session::SessionId& id) override;
  std::unique_ptr<session::SessionDirectory> borrow(const session::SessionId& id) override;
  bool is_held(const session::SessionId& id) const override;
  bool exists(const session::SessionId& id) const override;
  std::vector<session::SessionId> list() const override;
  std::vector<session::SessionId> list_aside() const override;
  void bring_back(const session::SessionId& id) override;
  bool is_aside(const session::SessionId& id) const;
  // Of one that was set aside: when it was opened, in seconds since 1970; 0 where its directory does not say.
  std::int64_t opened_aside_s(const session::SessionId& id) const;
  std::string path_of(const session::SessionId& id) const override;

 private:
  std::string path_aside(const session::SessionId& id) const;

  const std::string sessions_path_;             // constant
  const std::string orphans_path_;              // constant
  const QuarantineFactory quarantine_factory_;  // constant, called from any thread
  const CacheVerbs caches_;                     // the same
};

}  // namespace escrow::storage
