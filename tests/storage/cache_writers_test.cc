// The first write to a file of a cache copies it, unless the writer is to end.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

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
  void publish(const std::string& session) const { caches_.publish(path_of(session), std::uint64_t{1} << 40); }
  std::string path_of(const std::string& session) const { return state_.path() + "/sessions/" + session; }

  static void write(session::FileSystem& files, NodeId node, const std::string& text) {
    files.open(node, {.read = false, .write = true});
    files.write(node, 0, std::as_bytes(std::span(text)), session::WriteOrigin::call);
    files.close(node, {.read = false, .write = true});
  }
  static std::optional<Errc> code_of_write(session::FileSystem& files, const std::string& name) {
    try {
      write(files, files.lookup(kRootNode, name).value().node, "new");
      return std::nullopt;
    } catch (const session::Error& error) {
      return error.code();
    }
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

}  // namespace
}  // namespace escrow::storage
