// A repository in memory for tests of the core: the fakes of tests/support/ with session directories over them.
//
// A session directory that is held cannot be opened again until its holder is destroyed, as with the lock of a process
// that dies; what it holds outlives the holder. The references refuse to name objects that are not in the repository,
// so a branch moved before its objects are durable fails a test. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "session/transaction/session.h"
#include "tests/support/fake_catalog.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_read_log.h"
#include "tests/support/fake_references.h"
#include "tests/support/fake_staging.h"
#include "tests/support/manual_clock.h"

namespace escrow::support {

// Directories in memory. What a directory holds outlives its holder, but for its quarantine: GitQuarantine empties what
// it opens, for all of it can be made again.
class FakeDirectories final : public session::SessionDirectories {
 public:
  using Id = session::SessionId;

  explicit FakeDirectories(FakeObjectStore& repository) : repository_(repository) {}

  std::unique_ptr<session::SessionDirectory> create(const Id& id) override {
    auto state = state_.lock();
    auto [at, fresh] = state->emplace(id, std::make_shared<Contents>(repository_));
    if (!fresh) throw session::Error(session::Errc::exists, "session directory exists");
    at->second->journal.back().before_write = [this] {
      if (before_write) before_write();
    };
    at->second->held = true;
    return std::make_unique<Held>(*this, id, at->second);
  }
  std::unique_ptr<session::SessionDirectory> try_open(const Id& id) override {
    auto state = state_.lock();
    const auto found = state->find(id);
    if (found == state->end()) throw session::Error(session::Errc::no_session, "no directory of " + id.text());
    if (found->second->held) return nullptr;
    found->second->held = true;
    found->second->quarantine.emplace(repository_);
    return std::make_unique<Held>(*this, id, found->second);
  }
  std::unique_ptr<session::SessionDirectory> borrow(const Id& id) override {
    auto state = state_.lock();
    const auto found = state->find(id);
    if (found == state->end()) throw session::Error(session::Errc::no_session, "no directory of " + id.text());
    return std::make_unique<Held>(*this, id, found->second, true);
  }
  bool exists(const Id& id) const override { return state_.lock_shared()->contains(id); }
  bool is_held(const Id& id) const override {
    const auto state = state_.lock_shared();
    const auto found = state->find(id);
    return found != state->end() && found->second->held;
  }
  std::vector<Id> list() const override {
    std::vector<Id> ids;
    const auto state = state_.lock_shared();
    for (const auto& [id, contents] : *state) ids.push_back(id);
    return ids;
  }
  std::vector<Id> list_aside() const override {
    std::vector<Id> ids;
    const auto aside = aside_.lock_shared();
    for (const auto& [id, contents] : *aside) ids.push_back(id);
    return ids;
  }
  void bring_back(const Id& id) override {
    if (cannot_bring_back) throw session::Error(session::Errc::no_space, "the disk is full");
    auto aside = aside_.lock();
    if (!state_.lock()->emplace(id, aside->at(id)).second)
      throw session::Error(session::Errc::exists, "session directory exists");
    aside->erase(id);
  }
  std::string path_of(const Id& id) const override { return "/fake/" + id.text(); }
  FakeJournal& journal_of(const Id& id) { return state_.lock()->at(id)->journal.back(); }
  bool cannot_bring_back = false;  // set before use
  std::function<void()> before_write;  // of a journal; may throw; set before use
  std::function<std::vector<std::string>()> drop_caches;  // of a session; may throw; set before use
  // Of every session what no barrier has brought to the disk is gone.
  void lose_power() {
    const auto state = state_.lock();
    for (auto& [id, contents] : *state) {
      contents->journal.back().drop_unbarriered();
      contents->reads.lose_power();
    }
  }
  bool was_opened(const Id& id) const { return state_.lock_shared()->at(id)->was_opened; }
  // Somebody's rm -rf.
  void lose(const Id& id) { state_.lock()->erase(id); }

 private:
  struct Contents {
    explicit Contents(FakeObjectStore& repository) { quarantine.emplace(repository); }
    // What was dropped lives as long as somebody may still look at it.
    std::deque<FakeStaging> staging = std::deque<FakeStaging>(1);
    std::deque<FakeJournal> journal = std::deque<FakeJournal>(1);
    std::optional<FakeQuarantine> quarantine;
    FakeReadLog reads;
    bool held = false;
    bool was_opened = false;
    bool dropped = false;
  };

  class Held final : public session::SessionDirectory {
   public:
    Held(FakeDirectories& all, Id id, std::shared_ptr<Contents> contents, bool is_borrowed = false)
        : all_(all), id_(std::move(id)), contents_(std::move(contents)), is_borrowed_(is_borrowed) {}
    ~Held() override {
      if (is_borrowed_) return;
      const auto state = all_.state_.lock();
      contents_->held = false;
    }
    session::StagingArea& staging() override { return contents_->staging.back(); }
    session::SessionJournal& journal() override { return contents_->journal.back(); }
    session::Quarantine& quarantine() override { return *contents_->quarantine; }
    session::ReadLog& reads() override { return contents_->reads; }
    std::string path() const override { return all_.path_of(id_); }
    void opened() override { contents_->was_opened = true; }
    bool has_work() const override { return contents_->was_opened && !contents_->journal.back().all_nodes().empty(); }
    std::string set_aside() override {
      all_.aside_.lock()->emplace(id_, contents_);
      all_.state_.lock()->erase(id_);
      return "/aside/" + id_.text();
    }
    bool drop_staged() override {
      if (contents_->dropped) return false;
      contents_->staging.emplace_back();
      contents_->journal.emplace_back();
      contents_->quarantine->discard();
      return contents_->dropped = true;
    }
    void publish_caches() override {}
    std::vector<std::string> drop_caches() override {
      return all_.drop_caches ? all_.drop_caches() : std::vector<std::string>();
    }
    void share_staging(const std::vector<session::StagingId>& files, session::SessionDirectory& heir) override {
      contents_->staging.back().share(files, dynamic_cast<support::FakeStaging&>(heir.staging()));
    }
    void remove() override {
      // What a quarantine published in vain can only be found while its directory is there.
      if (contents_->quarantine->object_count() != 0)
        throw std::logic_error("removed before its objects were discarded");
      all_.state_.lock()->erase(id_);
    }

   private:
    FakeDirectories& all_;
    const Id id_;
    const std::shared_ptr<Contents> contents_;
    const bool is_borrowed_;
  };

  FakeObjectStore& repository_;
  session::SharedSynchronized<std::map<Id, std::shared_ptr<Contents>>> aside_;
  session::SharedSynchronized<std::map<Id, std::shared_ptr<Contents>>> state_;
};

class MemoryLog final : public session::Log {
 public:
  void write(session::LogLevel, const std::string& message) override { lines_.lock()->push_back(message); }
  std::vector<std::string> lines() { return *lines_.lock(); }

 private:
  session::Synchronized<std::vector<std::string>> lines_;
};

struct FakeWorld {
  FakeObjectStore objects;
  FakeReferences references{objects};
  FakeCatalog catalog;
  FakeDirectories directories{objects};
  ManualClock clock;
  MemoryLog log;

  // Before each write to the catalog or to a session's journal; may throw.
  void before_each_write(std::function<void()> hook) {
    *hook_.lock() = std::move(hook);
    const auto call = [this] {
      const std::function<void()> now = *hook_.lock();
      if (now) now();
    };
    if (!catalog.before_write) catalog.before_write = call;
    if (!directories.before_write) directories.before_write = call;
  }

  session::Services services(session::CommitObserver* observer = nullptr) {
    return {objects, references, catalog, directories, clock, log, observer};
  }
  // A commit of `files` on the branch's head, made by others.
  session::ObjectId push(const std::string& branch, const Files& files) {
    session::Commit commit;
    commit.tree = objects.put_files(files);
    if (const auto head = references.head(branch)) commit.parents.push_back(*head);
    commit.author = commit.committer = {"others", "others@example.invalid", 1'600'000'000, 0};
    commit.message = "others\n";
    const session::ObjectId id = objects.put_commit(commit);
    references.set(branch, id);
    return id;
  }

 private:
  session::Synchronized<std::function<void()>> hook_;  // self-locking
};

inline Files files_of(const session::ObjectReader& objects, const std::optional<session::ObjectId>& tree,
                      const std::string& below = "") {
  Files files;
  if (!tree) return files;
  for (const session::TreeEntry& entry : objects.read_tree(*tree)) {
    const std::string path = session::join_path(below, entry.name);
    if (entry.mode == session::GitMode::tree) {
      files.merge(files_of(objects, entry.id, path));
    } else {
      files[path] = read_whole(*objects.open_blob(entry.id));
    }
  }
  return files;
}

}  // namespace escrow::support
