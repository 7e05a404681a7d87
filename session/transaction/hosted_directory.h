// The directory of a session in its host process, whose overlay stops writing to it before it is emptied or removed.
// Thread-safety and errors as SessionDirectory; both references must outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/interfaces/session_directory.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

class HostedDirectory final : public SessionDirectory {
 public:
  HostedDirectory(SessionDirectory& inner, Overlay& overlay) : inner_(inner), overlay_(overlay) {}
  StagingArea& staging() override { return inner_.staging(); }
  SessionJournal& journal() override { return inner_.journal(); }
  Quarantine& quarantine() override { return inner_.quarantine(); }
  std::string path() const override { return inner_.path(); }
  void opened() override { inner_.opened(); }
  bool has_work() const override { return inner_.has_work(); }
  std::string set_aside() override {
    overlay_.abandon();
    return inner_.set_aside();
  }
  bool drop_staged() override {
    overlay_.abandon();
    return inner_.drop_staged();
  }
  void publish_caches() override { inner_.publish_caches(); }
  std::vector<std::string> drop_caches() override { return inner_.drop_caches(); }
  void share_staging(const std::vector<StagingId>& files, SessionDirectory& heir) override {
    inner_.share_staging(files, heir);
  }
  ReadLog& reads() override { return inner_.reads(); }
  void remove() override {
    overlay_.abandon();
    inner_.remove();
  }

 private:
  SessionDirectory& inner_;
  Overlay& overlay_;
};

}  // namespace escrow::session
