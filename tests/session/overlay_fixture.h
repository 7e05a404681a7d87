// The overlay over fakes, which a test can take the power of.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "session/base/path_pattern.h"
#include "session/overlay/overlay.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/manual_clock.h"

namespace escrow::session {

using support::FakeJournal;
using support::FakeObjectStore;
using support::FakeQuarantine;
using support::FakeStaging;

inline constexpr Caller kRootUser{};
inline constexpr std::uint32_t kFile = S_IFREG | 0644, kDir = S_IFDIR | 0755;

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline Errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Errc::bad_request;
}

class OverlayTest : public testing::Test {
 protected:
  OverlayTest() { base(objects.put_files({{"a/one", "1"}, {"a/two", "22"}, {"a/deep/x", "xxx"}, {"b.txt", "bee"}})); }

  void base(ObjectId tree) {
    overlay.reset();
    options.base_tree = tree;
    options.base_time = {1000, 0};
    open();
  }
  void open() {
    overlay.reset();
    overlay = std::make_unique<Overlay>(options, objects, staging, journal, clock, log);
  }
  Attributes at(std::string_view path) {
    const auto found = try_at(path);
    if (!found) throw std::runtime_error("no " + std::string(path));
    return *found;
  }
  std::optional<Attributes> try_at(std::string_view path) {
    std::optional<Attributes> found = overlay->attributes(kRootNode);
    while (found && !path.empty()) {
      const std::size_t slash = path.find('/');
      found = overlay->lookup(found->node, path.substr(0, slash));
      path = slash == std::string_view::npos ? "" : path.substr(slash + 1);
    }
    return found;
  }
  NodeId node(std::string_view path) { return at(path).node; }
  void write(NodeId id, std::string_view text, std::uint64_t offset = 0) {
    overlay->write(id, offset, bytes_of(text), WriteOrigin::call);
  }
  std::string read(NodeId id) {
    std::string text(overlay->attributes(id).size_bytes, '?');
    text.resize(overlay->read(id, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  std::vector<std::string> names(NodeId directory) {
    std::vector<std::string> result;
    overlay->list(directory, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name != "." && entry.name != "..") result.emplace_back(entry.name);
      return true;
    });
    return result;
  }
  // Of the journal what a barrier covered is left, of the staging files what was synced.
  void lose_power() {
    overlay->abandon();
    journal.drop_unbarriered();
    staging.crash();
    open();
  }
  std::optional<ObjectId> tree() { return overlay->build_tree(quarantine, {}).tree; }

  FakeObjectStore objects;
  FakeQuarantine quarantine{objects};
  FakeStaging staging;
  FakeJournal journal;
  SystemClock clock;
  NullLog log;
  Overlay::Options options;
  std::unique_ptr<Overlay> overlay;
};

}  // namespace escrow::session
