// Programs go on while a session is committed by hand: none is refused anything before the session has ended.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

using HasBegun = std::function<void()>;

// Each goes on until a call fails, and ends with its errno.
int append_for_ever(const std::string& path, const HasBegun& has_begun) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  has_begun();
  for (std::uint64_t count = 0;; ++count)
    if (::write(file, &count, sizeof count) != sizeof count) return errno;
}

// Below an open directory: its path leads elsewhere once the mount is gone.
int make_names_for_ever(const std::string& directory, const HasBegun& has_begun) {
  if (::mkdir(directory.c_str(), 0755) != 0) return errno;
  const int top = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (top < 0) return errno;
  has_begun();
  for (;;) {
    const int file = ::openat(top, "one", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) return errno;
    ::close(file);
    if (::fchmodat(top, "one", 0600, 0) != 0 || ::renameat(top, "one", top, "two") != 0) return errno;
    if (::unlinkat(top, "two", 0) != 0 || ::mkdirat(top, "inner", 0755) != 0) return errno;
    if (::unlinkat(top, "inner", AT_REMOVEDIR) != 0) return errno;
  }
}

// A store through a mapping, then a call: a commit that has the second has the first.
int store_then_write_for_ever(const std::string& path, const HasBegun& has_begun) {
  constexpr std::size_t kSize = std::size_t{1} << 20;
  const int mapped = ::open((path + ".mapped").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const int written = ::open((path + ".written").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (mapped < 0 || written < 0 || ::ftruncate(mapped, kSize) != 0) return errno;
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
  if (memory == MAP_FAILED) return errno;
  auto* const words = static_cast<volatile std::uint64_t*>(memory);
  for (std::uint64_t count = 1;; ++count) {
    for (std::size_t at = 0; at < kSize / sizeof count; at += 512) words[at] = count;
    if (::pwrite(written, &count, sizeof count, 0) != sizeof count) return errno;
    if (count == 1) has_begun();
  }
}

std::uint64_t word_at(const std::string& bytes, std::size_t offset) {
  std::uint64_t word = 0;
  if (bytes.size() >= offset + sizeof word) bytes.copy(reinterpret_cast<char*>(&word), sizeof word, offset);
  return word;
}

class LiveCommit : public EscrowCommands, public testing::WithParamInterface<std::vector<std::string>> {
 protected:
  std::string bytes_in_head(const std::string& path) const {
    return run_process({"git", "-c", "safe.directory=*", "--git-dir", repository_, "show", "main:" + path}).out;
  }
};

TEST_P(LiveCommit, RefusesNoWriterUnlessTheSessionHasEnded) {
  const std::string session = mount(GetParam());
  write(in_mount("a.txt"), "mine");
  std::vector<std::unique_ptr<Worker>> writers;
  const auto start = [&](auto work, const std::string& name) {
    writers.push_back(
        std::make_unique<Worker>([&](const HasBegun& has_begun) { return work(in_mount(name), has_begun); }));
    ASSERT_TRUE(writers.back()->has_begun());
  };
  // More of them than a mount has threads.
  for (int i = 0; i < 6; ++i) start(append_for_ever, "appended" + std::to_string(i));
  for (int i = 0; i < 3; ++i) start(make_names_for_ever, "names" + std::to_string(i));
  start(store_then_write_for_ever, "both");
  for (int round = 0; round < 6; ++round) {
    write(file("in/a.txt"), "theirs " + std::to_string(round));
    done({"import", file("in")});
    EXPECT_EQ(escrow({"commit", session}).status, 122) << "round " << round;
    for (auto& writer : writers) ASSERT_TRUE(writer->goes_on()) << "errno " << writer->wait() << " in round " << round;
  }
  done({"discard", session, "a.txt"});
  done({"commit", session});
  for (auto& writer : writers) {
    const int error = writer->wait();
    // A store has no errno.
    EXPECT_TRUE(error == EROFS || error == ENOTCONN || error == ECONNABORTED || error == 128 + SIGBUS) << error;
  }
  // One moment of all of them.
  const std::uint64_t written = word_at(bytes_in_head("both.written"), 0);
  EXPECT_GT(written, 0u);
  const std::string mapped = bytes_in_head("both.mapped");
  ASSERT_EQ(mapped.size(), std::size_t{1} << 20);
  for (std::size_t at = 0; at < mapped.size(); at += 4096) ASSERT_GE(word_at(mapped, at), written) << at;
}

INSTANTIATE_TEST_SUITE_P(Every, LiveCommit,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--opens", "daemon"}));
INSTANTIATE_TEST_SUITE_P(WithoutIoUring, LiveCommit, testing::Values(std::vector<std::string>{"--io-uring", "off"}));

}  // namespace
}  // namespace escrow::test
