// Sessions as their host uses them, over a repository in memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "session/base/error.h"
#include "session/transaction/session.h"
#include "session/transaction/session_manager.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {

using support::Files;

class Sessions : public testing::Test {
 protected:
  SessionOptions options(const std::string& prefix = "") {
    SessionOptions chosen;
    chosen.branch = "main";
    chosen.prefix = RepoPath::parse(prefix, "prefix");
    chosen.audit = {"user:alice", "user:bob", "sandbox", "", "", ""};
    return chosen;
  }
  std::unique_ptr<Session> open(const std::string& prefix = "") { return manager_.open(options(prefix), true); }

  NodeId directory(FileSystem& files, std::string_view path, bool create) {
    NodeId at = kRootNode;
    for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos; path.remove_prefix(slash + 1)) {
      const auto name = path.substr(0, slash);
      auto next = files.lookup(at, name);
      if (!next && create) next = files.make_node(at, name, S_IFDIR | 0755, 0, {});
      if (!next) throw Error(Errc::not_found, "no such directory");
      at = next->node;
    }
    return at;
  }
  static std::string_view last(std::string_view path) { return path.substr(path.rfind('/') + 1); }

  void write(Session& session, const std::string& path, const std::string& content) {
    FileSystem& files = session.file_system();
    const NodeId parent = directory(files, path, true);
    auto found = files.lookup(parent, last(path));
    if (!found) found = files.make_node(parent, last(path), S_IFREG | 0644, 0, {});
    AttributeChange truncate;
    truncate.size_bytes = 0;
    files.change_attributes(found->node, truncate);
    files.write(found->node, 0, std::as_bytes(std::span(content)), WriteOrigin::call);
  }
  void remove(Session& session, const std::string& path) {
    session.file_system().unlink(directory(session.file_system(), path, false), last(path));
  }
  std::optional<std::string> read(Session& session, const std::string& path) {
    FileSystem& files = session.file_system();
    const auto found = files.lookup(directory(files, path, true), last(path));
    if (!found) return std::nullopt;
    std::string content(found->size_bytes, '\0');
    files.read(found->node, 0, std::as_writable_bytes(std::span(content)));
    return content;
  }
  CommitOutcome commit(Session& session, bool by_hand = false) {
    session.gate().move_to(WriteGate::Position::sealed);
    return session.commit({"a message", 0, Reason::success, by_hand, "user:alice"});
  }
  Files head_files() {
    return support::files_of(world_.objects, tree_of_commit(world_.objects, world_.references.head("main")));
  }
  Errc code_of(const std::function<void()>& work, std::string* message = nullptr) {
    try {
      work();
    } catch (const Error& error) {
      if (message) *message = error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return Errc::unavailable;
  }
  RepoPath path(const std::string& text) { return RepoPath::parse(text, "path"); }

  support::FakeWorld world_;
  SessionManager manager_{world_.services()};
};

}  // namespace escrow::session
