// The combinations of opens and data: what reaches the daemon, and that no reader sees old bytes in any of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "session/base/error.h"
#include "tests/mount/scene.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

using fuse::Data;
using fuse::Opens;

struct Mode {
  const char* name;
  fuse::IoMode io;
  unsigned threads;
};
constexpr Mode kModes[] = {
    {"NoOpensCached", {Opens::none, Data::cached}, 4},
    {"DaemonOpensCached", {Opens::daemon, Data::cached}, 4},
    {"Writeback", {Opens::none, Data::writeback}, 4},
    {"DaemonOpensWriteback", {Opens::daemon, Data::writeback}, 1},
    {"Passthrough", {Opens::daemon, Data::passthrough}, 4},
    {"PassthroughOneThread", {Opens::daemon, Data::passthrough}, 1},
};
constexpr std::size_t kMiB = 1 << 20;

// An open file that is closed with the test.
class File {
 public:
  File(const std::string& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    EXPECT_GE(number_, 0) << path << ": " << errno_name(errno);
  }
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  void write_at(const std::string& bytes, off_t offset) {
    EXPECT_EQ(static_cast<ssize_t>(bytes.size()), pwrite(number_, bytes.data(), bytes.size(), offset))
        << errno_name(errno);
  }
  std::string read_at(std::size_t size, off_t offset) {
    std::string bytes(size, '\0');
    const ssize_t got = pread(number_, bytes.data(), size, offset);
    EXPECT_GE(got, 0) << errno_name(errno);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }
  struct stat status() {
    struct stat values {};
    EXPECT_EQ(0, fstat(number_, &values));
    return values;
  }

 private:
  int number_;
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class IoMode : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    ESCROW_NEEDS_FUSE();
    try {
      tree_ = mount_tree(options());
    } catch (const session::Error& error) {
      // A kernel before 6.9. Where the tests are judged it must be there.
      if (!passes_through() || error.code() != session::Errc::unavailable || fuse_required()) throw;
      GTEST_SKIP() << error.what();
    }
  }
  TreeOptions options() const {
    TreeOptions result;
    result.base = {{"small", "small base"}, {"large", std::string(3 * kMiB, 'b')}};
    result.io = GetParam().io;
    result.threads = GetParam().threads;
    return result;
  }
  bool passes_through() const { return GetParam().io.data == Data::passthrough; }
  bool writes_back() const { return GetParam().io.data == Data::writeback; }
  bool opens_reach() const { return GetParam().io.opens == Opens::daemon; }
  std::string at(const std::string& name) const { return tree_->path() + "/" + name; }
  std::uint64_t count(const std::string& operation) {
    for (const auto& counted : tree_->mount().counts())
      if (counted.name == operation) return counted.count;
    return 0;
  }
  void write(const std::string& name, const std::string& bytes) {
    File(at(name), O_WRONLY | O_CREAT | O_TRUNC).write_at(bytes, 0);
  }
  std::string read(const std::string& name) { return File(at(name), O_RDONLY).read_at(8 * kMiB, 0); }

  std::unique_ptr<MountedTree> tree_;
};

TEST_P(IoMode, AWriteReachesTheDaemonUnlessItIsPassedThrough) {
  const std::string bytes(kMiB, 'w');
  {
    File file(at("new"), O_RDWR | O_CREAT | O_EXCL);
    for (off_t i = 0; i < 64; ++i) file.write_at(bytes, i * static_cast<off_t>(kMiB));
    EXPECT_EQ(64 * static_cast<off_t>(kMiB), file.status().st_size);
    EXPECT_EQ(bytes, file.read_at(kMiB, 63 * static_cast<off_t>(kMiB)));
  }
  if (writes_back()) {
    EXPECT_LE(count("write"), 64u + 8u) << "the kernel begins where it likes";
  } else {
    EXPECT_EQ(passes_through() ? 0u : 64u, count("write")) << "and one message carries 1 MiB";
  }
  const std::string stored = tree_->stored_bytes("new");
  EXPECT_EQ(64 * kMiB, stored.size());
  for (std::size_t at = 0; at < stored.size(); at += kMiB) EXPECT_EQ(0, stored.compare(at, kMiB, bytes)) << at;
}

TEST_P(IoMode, SmallWritesAreAMessageEachUnlessTheyAreWrittenBack) {
  {
    File file(at("new"), O_WRONLY | O_CREAT | O_EXCL);
    for (off_t i = 0; i < 100; ++i) file.write_at(std::string(512, 's'), i * 512);
  }
  if (writes_back()) {
    // One, unless somebody's sync(2) comes between: it takes what is there by then.
    EXPECT_GE(count("write"), 1u);
    EXPECT_LE(count("write"), 8u);
  } else {
    EXPECT_EQ(passes_through() ? 0u : 100u, count("write"));
  }
  EXPECT_EQ(std::string(51200, 's'), tree_->stored_bytes("new")) << "close(2) brings it in";
}

TEST_P(IoMode, OpensAndClosesReachTheDaemonWhenTheyAreToldTo) {
  write("f", "x");
  const std::uint64_t before = count("open");
  for (int i = 0; i < 10; ++i) EXPECT_EQ("x", read("f"));
  for (int i = 0; i < 10; ++i) EXPECT_EQ("small base", read("small"));
  if (!opens_reach()) {
    EXPECT_LE(count("open"), before + 1);
    return;
  }
  EXPECT_EQ(before + 20, count("open"));
  EXPECT_TRUE(eventually([&] { return count("release") == before + 21; })) << count("release");
}

// In a child: a fault holds its process's memory lock while it waits for the mount, whose threads need theirs. The
// child allocates nothing: under AddressSanitizer another thread may have been in the allocator.
TEST_P(IoMode, AFlushBringsInWhatIsMappedAndAsksForNoOtherFile) {
  write("other", "x");
  EXPECT_EQ("small base", read("small"));
  const std::string large = at("large");  // of the base: cached in every mode
  int ready[2];
  ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(large.c_str(), O_RDWR);
    auto* memory = static_cast<char*>(mmap(nullptr, 3 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    std::memset(memory + kMiB, 'm', kMiB);
    if (::write(ready[1], "r", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  ASSERT_EQ(1, ::read(ready[0], &byte, 1));
  // What was closed is released some time after close(2): until then it is asked for, too.
  EXPECT_TRUE(eventually([&] {
    const std::uint64_t before = count("open");
    tree_->mount().flush(tree_->files());
    return count("open") == before + (opens_reach() ? 1 : 0);
  }));
  EXPECT_EQ(std::string(kMiB, 'm'), tree_->stored_bytes("large").substr(kMiB, kMiB));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_P(IoMode, AFileOfTheBaseIsCachedUntilItIsWhole) {
  {
    File file(at("large"), O_RDWR);
    file.write_at("edit", 5);
    EXPECT_EQ("bbbbbeditb", file.read_at(10, 0));
  }
  EXPECT_GT(count("write"), 0u);
  ASSERT_EQ(0, truncate(at("large").c_str(), 0));
  // What was closed is released some time after close(2): until then it is cached for others, too.
  EXPECT_TRUE(eventually([&] {
    const std::uint64_t before = count("write");
    write("large", "all new");
    return count("write") == before + (passes_through() ? 0 : 1);
  }));
  EXPECT_EQ("all new", tree_->stored_bytes("large"));
}

TEST_P(IoMode, AReaderSeesEveryWriteAtOnce) {
  write("f", std::string(3 * kMiB, '0'));
  File writer(at("f"), O_WRONLY), reader(at("f"), O_RDONLY);
  for (int i = 0; i < 500; ++i) {
    const off_t offset = (i * 37777) % static_cast<off_t>(3 * kMiB - 16);
    const std::string word = "word" + std::to_string(i);
    writer.write_at(word, offset);
    ASSERT_EQ(word, reader.read_at(word.size(), offset)) << i;
    ASSERT_EQ(word, File(at("f"), O_RDONLY).read_at(word.size(), offset)) << i;
  }
}

// In a child: a fault holds its process's memory lock while it waits for the mount, whose threads need theirs. `body`
// allocates nothing, as above.
std::string in_io_child(const std::function<const char*()>& body) {
  int ends[2];
  EXPECT_EQ(0, pipe(ends));
  const pid_t child = fork();
  if (child == 0) {
    const char* const text = body();
    _exit(::write(ends[1], text, std::strlen(text)) < 0);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = ::read(ends[0], text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? text : "the child failed";
}

TEST_P(IoMode, MappingsAndWritesSeeOneAnother) {
  write("f", std::string(kMiB, '0'));
  const std::string path = at("f");
  const std::string seen = in_io_child([&]() -> const char* {
    const int file = open(path.c_str(), O_RDWR);
    auto* memory = static_cast<char*>(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (memory == MAP_FAILED) return "mmap failed";
    for (int i = 0; i < 200; ++i) {
      const off_t offset = (i * 4099) % static_cast<off_t>(kMiB - 8);
      const char byte = static_cast<char>('a' + i % 26);
      if (pwrite(file, &byte, 1, offset) != 1 || memory[offset] != byte) return "the mapping shows old bytes";
      memory[offset + 1] = byte;
      char got = 0;
      if (pread(file, &got, 1, offset + 1) != 1 || got != byte) return "read(2) shows old bytes";
    }
    const int again = open(path.c_str(), O_RDONLY);
    char got[2];
    if (pread(again, got, 2, (199 * 4099) % static_cast<off_t>(kMiB - 8)) != 2 || got[1] != 'a' + 199 % 26)
      return "a second descriptor shows old bytes";
    return "ok";
  });
  EXPECT_EQ("ok", seen);
}

TEST_P(IoMode, TruncationIsSeenByReadersAtOnce) {
  write("f", std::string(10000, 'x'));
  File writer(at("f"), O_RDWR), reader(at("f"), O_RDONLY);
  EXPECT_EQ(10000u, reader.read_at(20000, 0).size());
  for (const off_t size : {off_t{5000}, off_t{0}, off_t{7777}, off_t{100000}, off_t{1}}) {
    ASSERT_EQ(0, ftruncate(writer.number(), size));
    EXPECT_EQ(static_cast<std::size_t>(size), reader.read_at(200000, 0).size());
    EXPECT_EQ(size, reader.status().st_size);
    struct stat values {};
    ASSERT_EQ(0, stat(at("f").c_str(), &values));
    EXPECT_EQ(size, values.st_size);
  }
  EXPECT_EQ(std::string(1, 0), reader.read_at(10, 0));
  File(at("f"), O_WRONLY | O_TRUNC).write_at("new", 0);
  EXPECT_EQ("new", reader.read_at(10, 0));
  EXPECT_EQ(3, writer.status().st_size);
}

TEST_P(IoMode, AppendingWritesGoToTheEnd) {
  File first(at("log"), O_WRONLY | O_CREAT | O_APPEND), second(at("log"), O_WRONLY | O_APPEND);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const std::string line = std::to_string(i) + "\n";
    ASSERT_EQ(static_cast<ssize_t>(line.size()), ::write((i % 2 ? first : second).number(), line.data(), line.size()));
    expected += line;
  }
  EXPECT_EQ(expected, read("log"));
  EXPECT_EQ(expected, tree_->stored_bytes("log"));
}

std::pair<time_t, long> moment(const timespec& time) { return {time.tv_sec, time.tv_nsec}; }

TEST_P(IoMode, SizesBlocksAndTimesAreThoseOfTheLastWrite) {
  File file(at("f"), O_RDWR | O_CREAT);
  const struct stat empty = file.status();
  EXPECT_EQ(0, empty.st_size);
  for (int i = 1; i <= 5; ++i) {
    const struct stat before = file.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    file.write_at(std::string(8192, 'x'), i * 8192);
    const struct stat after = file.status();
    EXPECT_EQ((i + 1) * 8192, after.st_size);
    EXPECT_TRUE(after.st_blocks > 0 || writes_back());
    EXPECT_LT(moment(before.st_mtim), moment(after.st_mtim));
    EXPECT_LT(moment(before.st_ctim), moment(after.st_ctim));
  }
  ASSERT_EQ(0, fsync(file.number()));
  EXPECT_TRUE(eventually([&] { return file.status().st_blocks > 0; }));
  const timespec times[2] = {{1000, 0}, {2000, 5}};
  ASSERT_EQ(0, futimens(file.number(), times));
  EXPECT_EQ(2000, file.status().st_mtim.tv_sec) << "what is set stays, after writes too";
  file.close();
  struct stat values {};
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(0, stat(at("f").c_str(), &values));
  EXPECT_EQ(2000, values.st_mtim.tv_sec);
  EXPECT_EQ(5, values.st_mtim.tv_nsec);
}

TEST_P(IoMode, StoresThroughAMappingMoveTheTime) {
  write("f", std::string(8192, 'x'));
  const timespec times[2] = {{1000, 0}, {2000, 0}};
  ASSERT_EQ(0, utimensat(AT_FDCWD, at("f").c_str(), times, 0));
  struct stat values {};
  ASSERT_EQ(0, stat(at("f").c_str(), &values));
  ASSERT_EQ(2000, values.st_mtim.tv_sec);
  const std::string path = at("f");
  EXPECT_EQ("ok", in_io_child([&]() -> const char* {
              const int file = open(path.c_str(), O_RDWR);
              auto* memory = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
              if (memory == MAP_FAILED) return "mmap failed";
              close(file);
              memory[5000] = 'y';
              return msync(memory, 8192, MS_SYNC) == 0 ? "ok" : "msync failed";
            }));
  EXPECT_TRUE(eventually([&] { return stat(at("f").c_str(), &values) == 0 && values.st_mtim.tv_sec > 2000; }));
  EXPECT_EQ('y', read("f")[5000]);
}

TEST_P(IoMode, AnOpenFileLivesThroughRenameUnlinkAndLink) {
  File file(at("a"), O_RDWR | O_CREAT);
  file.write_at("one", 0);
  ASSERT_EQ(0, link(at("a").c_str(), at("b").c_str()));
  File other(at("b"), O_RDWR);
  other.write_at("two", 3);
  EXPECT_EQ("onetwo", file.read_at(20, 0));
  EXPECT_EQ(2u, file.status().st_nlink);
  ASSERT_EQ(0, rename(at("a").c_str(), at("c").c_str()));
  file.write_at("three", 6);
  EXPECT_EQ("onetwothree", read("c"));
  EXPECT_EQ("onetwothree", read("b"));
  ASSERT_EQ(0, unlink(at("b").c_str()));
  ASSERT_EQ(0, unlink(at("c").c_str()));
  file.write_at("four", 11);
  EXPECT_EQ("onetwothreefour", other.read_at(50, 0));
  EXPECT_EQ(0u, other.status().st_nlink);
  write("a", "another");
  EXPECT_EQ("onetwothreefour", file.read_at(50, 0));
}

TEST_P(IoMode, AllocateSeekAndCopyAgreeWithWrites) {
  File file(at("f"), O_RDWR | O_CREAT);
  file.write_at(std::string(65536, 'x'), 0);
  ASSERT_EQ(0, fallocate(file.number(), 0, 100000, 50000));
  EXPECT_EQ(150000, file.status().st_size);
  file.write_at("after", 149995);
  ASSERT_EQ(0, fallocate(file.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 16384, 16384));
  EXPECT_EQ(std::string(4096, '\0'), file.read_at(4096, 20000));
  ASSERT_EQ(0, fallocate(file.number(), FALLOC_FL_ZERO_RANGE, 40000, 1000));
  EXPECT_EQ(std::string(1000, '\0') + "x", file.read_at(1001, 40000));
  // What the kernel passes through it finds by itself.
  EXPECT_EQ(passes_through() ? 16384 : 150000, lseek(file.number(), 0, SEEK_HOLE));
  EXPECT_EQ(passes_through() ? 32768 : 16384, lseek(file.number(), 16384, SEEK_DATA));
  File copy(at("copy"), O_RDWR | O_CREAT);
  off_t from = 0, to = 10;
  while (from < 150000) ASSERT_GT(copy_file_range(file.number(), &from, copy.number(), &to, 150000, 0), 0);
  EXPECT_EQ(file.read_at(200000, 0), copy.read_at(200000, 10));
  copy.write_at("tail", 150010);
  EXPECT_EQ(150014, lseek(copy.number(), 0, SEEK_END));
  EXPECT_EQ("aftertail", copy.read_at(100, 150005));
}

// fsx(8) in small: every operation on a file of the mount, through several descriptors, and on one of the host.
TEST_P(IoMode, RandomOperationsAgreeWithAFileOfTheHost) {
  constexpr std::size_t kMax = 400000;
  const TemporaryDirectory host;
  const std::string paths[2] = {at("fsx"), host.path() + "/fsx"};
  const std::uint64_t seed = support::seed_of_this_run();
  std::mt19937_64 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<std::array<std::unique_ptr<File>, 2>> open;
  const auto reopen = [&](int flags) {
    open.push_back({std::make_unique<File>(paths[0], flags), std::make_unique<File>(paths[1], flags)});
  };
  reopen(O_RDWR | O_CREAT);
  std::string history;
  for (int step = 0; step < 4000 && !HasFailure(); ++step) {
    auto& pair = open[pick(open.size())];
    const auto offset = static_cast<off_t>(pick(kMax));
    const std::size_t size = 1 + pick(pick(4) ? 5000 : 120000);
    const std::size_t what = pick(12);
    history += std::to_string(what) + ":" + std::to_string(offset) + "+" + std::to_string(size) + " ";
    switch (what) {
      case 0: case 1: case 2: case 3: {
        const std::string bytes(size, static_cast<char>('a' + pick(26)));
        for (const auto& file : pair) file->write_at(bytes, offset);
        break;
      }
      case 4: case 5:
        EXPECT_EQ(pair[1]->read_at(size, offset), pair[0]->read_at(size, offset));
        break;
      case 6:
        for (const auto& file : pair) EXPECT_EQ(0, ftruncate(file->number(), offset));
        break;
      case 7:
        for (const auto& file : pair)
          EXPECT_EQ(0, fallocate(file->number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                                 static_cast<off_t>(size)));
        break;
      case 8:
        for (const auto& file : pair)
          EXPECT_EQ(0, fallocate(file->number(), FALLOC_FL_ZERO_RANGE, offset, static_cast<off_t>(size)));
        break;
      case 9:
        for (const auto& file : pair) EXPECT_EQ(0, fsync(file->number()));
        break;
      case 10:
        if (open.size() < 4) reopen(O_RDWR | (pick(10) ? 0 : O_TRUNC));
        break;
      default:
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick(open.size())));
        if (open.empty()) reopen(O_RDWR);
        break;
    }
    struct stat ours {}, theirs {};
    EXPECT_EQ(0, stat(paths[0].c_str(), &ours));
    EXPECT_EQ(0, stat(paths[1].c_str(), &theirs));
    EXPECT_EQ(theirs.st_size, ours.st_size);
  }
  EXPECT_EQ(File(paths[1], O_RDONLY).read_at(kMax * 2, 0), read("fsx"));
  EXPECT_EQ(File(paths[1], O_RDONLY).read_at(kMax * 2, 0), tree_->stored_bytes("fsx"));
  EXPECT_FALSE(HasFailure()) << "seed " << seed << ", the last steps were: "
                             << history.substr(history.size() > 500 ? history.size() - 500 : 0);
}

TEST_P(IoMode, ManyThreadsOpenWriteAndCloseOneFile) {
  write("f", std::string(64 * 4096, '-'));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string page(4096, static_cast<char>('a' + t));
      for (int i = 0; i < 200; ++i) {
        File file(at("f"), i % 3 ? O_RDWR : O_RDONLY);
        if (i % 3) file.write_at(page, (t * 16 + i % 16) * 4096);
        EXPECT_EQ(4096u, file.read_at(4096, (t * 16 + i % 16) * 4096).size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string bytes = tree_->stored_bytes("f");
  for (int page = 0; page < 64; ++page)
    EXPECT_EQ(std::string(4096, static_cast<char>('a' + page / 16)), bytes.substr(page * 4096u, 4096)) << page;
}

TEST_P(IoMode, UnmountsWhenTheLastFileIsClosed) {
  auto file = std::make_unique<File>(at("f"), O_RDWR | O_CREAT);
  file->write_at("x", 0);
  EXPECT_FALSE(tree_->mount().try_unmount());
  file.reset();
  EXPECT_TRUE(eventually([&] { return tree_->mount().try_unmount(); }));
  EXPECT_EQ("x", tree_->stored_bytes("f"));
}

INSTANTIATE_TEST_SUITE_P(Every, IoMode, testing::ValuesIn(kModes),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(IoModes, PassthroughWithoutOpensIsRefused) {
  ESCROW_NEEDS_FUSE();
  TreeOptions options;
  options.io = {Opens::none, Data::passthrough};
  try {
    mount_tree(options);
    FAIL() << "mounted";
  } catch (const session::Error& error) {
    EXPECT_EQ(session::Errc::bad_request, error.code());
    EXPECT_NE(std::string::npos, std::string(error.what()).find("needs opens that reach the daemon"));
  }
}

}  // namespace
}  // namespace escrow::support
