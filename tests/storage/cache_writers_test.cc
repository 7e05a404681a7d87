// The first write to a file of a cache copies it, unless the writer is to end; and what is published changes no more.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "storage/caches/caches.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::kRootNode;
using session::NodeId;
using Files = std::shared_ptr<session::EntryFileSystem>;

constexpr const char* kNames[] = {"one", "several"};  // the second file has two names

class CacheWriters : public testing::Test {
 protected:
  Files open(const std::string& session) const {
    std::filesystem::create_directories(path_of(session));
    return caches_.open(path_of(session), "c", {::geteuid(), ::getegid(), 022}, {}, "tests");
  }
  void publish(const std::string& session, const Caches::Observer& observer = {}) const {
    caches_.publish(path_of(session), std::uint64_t{1} << 40, observer);
  }
  std::string path_of(const std::string& session) const { return state_.path() + "/sessions/" + session; }

  static void write(session::FileSystem& files, NodeId node, const std::string& text) {
    files.open(node, {.read = false, .write = true});
    files.write(node, 0, std::as_bytes(std::span(text)), session::WriteOrigin::call);
    files.close(node, {.read = false, .write = true});
  }
  static std::optional<Errc> code_of(const std::function<void()>& call) {
    try {
      call();
      return std::nullopt;
    } catch (const session::Error& error) {
      return error.code();
    }
  }
  static std::optional<Errc> code_of_write(session::FileSystem& files, const std::string& name) {
    return code_of([&] { write(files, files.lookup(kRootNode, name).value().node, "new"); });
  }
  static std::string text_at(session::FileSystem& files, const std::string& name) {
    std::string text(100, '\0');
    text.resize(files.read(files.lookup(kRootNode, name).value().node, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }

  support::TemporaryDirectory state_;
  const Caches caches_{state_.path()};
};

TEST_F(CacheWriters, NothingIsCopiedForOneThatIsToEnd) {
  const Files first = open("1");
  const session::Caller me{::geteuid(), ::getegid()};
  for (const char* name : kNames) write(*first, first->make_node(kRootNode, name, S_IFREG | 0644, 0, me).node, "old");
  first->link(first->lookup(kRootNode, "several").value().node, kRootNode, "link");
  publish("1");
  const Files second = open("2");
  {
    const std::function<bool()> is_wanted = [] { return false; };
    const session::WantedWhile wanted(is_wanted);
    for (const char* name : kNames) EXPECT_EQ(code_of_write(*second, name), Errc::unavailable) << name;
  }
  EXPECT_EQ(text_at(*second, "one"), "old");
  for (const char* name : kNames) EXPECT_EQ(code_of_write(*second, name), std::nullopt) << name;
  publish("2");
  const Files third = open("3");
  for (const char* name : {"one", "several", "link"}) EXPECT_EQ(text_at(*third, name), "new") << name;
}

TEST_F(CacheWriters, EachChangeIsRefusedFromThePublicationOn) {
  const Files files = open("1");
  const session::Caller me{::geteuid(), ::getegid()};
  const NodeId file = files->make_node(kRootNode, "one", S_IFREG | 0644, 0, me).node;
  files->make_node(kRootNode, "empty", S_IFDIR | 0755, 0, me);
  write(*files, file, "old");
  const auto bytes = std::as_bytes(std::span("new"));
  const std::vector<std::function<void()>> changes = {
      [&] { files->change_attributes(file, {.mode = 0600}); },
      [&] { files->make_node(kRootNode, "more", S_IFREG | 0644, 0, me); },
      [&] { files->make_symlink(kRootNode, "more", "one", me); },
      [&] { files->link(file, kRootNode, "more"); },
      [&] { files->unlink(kRootNode, "one"); },
      [&] { files->remove_directory(kRootNode, "empty"); },
      [&] { files->rename(kRootNode, "one", kRootNode, "more", session::RenameMode::replace); },
      [&] { files->write(file, 0, bytes, session::WriteOrigin::call); },
      [&] { files->write(file, 0, bytes, session::WriteOrigin::page_cache); },
      [&] { files->allocate(file, session::AllocateMode::reserve, 0, 10); },
      [&] { files->set_xattr(file, "user.x", "x", session::XattrMode::any); },
      [&] { files->remove_xattr(file, "user.x"); }};
  const auto all_are_refused = [&] {
    for (std::size_t at = 0; at < changes.size(); ++at) EXPECT_EQ(code_of(changes[at]), Errc::read_only) << at;
  };
  publish("1", [&](CacheStep) { all_are_refused(); });
  all_are_refused();
  const Files next = open("2");
  EXPECT_EQ(text_at(*next, "one"), "old");
  EXPECT_FALSE(next->lookup(kRootNode, "more"));
  EXPECT_TRUE(next->lookup(kRootNode, "empty"));
}

TEST_F(CacheWriters, AChangeThatIsUnderWayIsPublished) {
  const session::Caller me{::geteuid(), ::getegid()};
  const Files first = open("1");
  write(*first, first->make_node(kRootNode, "one", S_IFREG | 0644, 0, me).node, "old");
  publish("1");
  const Files files = open("2");
  // No write into a file that is open for writing waits for the copy of another one.
  const NodeId other = files->make_node(kRootNode, "other", S_IFREG | 0644, 0, me).node;
  files->open(other, {.read = false, .write = true});
  std::future<void> publication;
  std::string completed;
  const auto look = [&](CacheStep step) {
    if (step == CacheStep::completed) std::ifstream(path_of("2") + "/caches/c/tree/one") >> completed;
  };
  const std::function<bool()> is_wanted = [&] {
    if (publication.valid()) return true;
    publication = std::async(std::launch::async, [&] { publish("2", look); });
    const auto write_other = [&] { files->write(other, 0, {}, session::WriteOrigin::call); };
    while (code_of(write_other) != Errc::read_only) continue;
    for (int more = 0; more < 20'000; ++more) code_of(write_other);  // a publication that does not wait comes by
    return true;
  };
  {
    const session::WantedWhile wanted(is_wanted);
    EXPECT_EQ(code_of_write(*files, "one"), std::nullopt);
  }
  publication.get();
  EXPECT_EQ(completed, "new");
  EXPECT_EQ(text_at(*open("3"), "one"), "new");
}

}  // namespace
}  // namespace escrow::storage
