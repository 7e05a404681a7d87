// The seal: which calls pass in which position, and that no byte lands after it.
#include "session/decorators/write_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "session/base/error.h"
#include "tests/session/eventually.h"

namespace escrow::session {
namespace {

// Counts what gets through; a write takes a while.
class CountingFiles final : public FileSystem {
 public:
  std::optional<Attributes> lookup(NodeId, std::string_view) override { return ++reads, std::nullopt; }
  Attributes attributes(NodeId) override { return ++reads, Attributes{}; }
  Attributes change_attributes(NodeId, const AttributeChange&) override { return ++changes, Attributes{}; }
  std::string read_link(NodeId) override { return ++reads, ""; }
  Attributes make_node(NodeId, std::string_view, std::uint32_t, std::uint32_t, const Caller&) override {
    return ++changes, Attributes{};
  }
  Attributes make_symlink(NodeId, std::string_view, std::string_view, const Caller&) override {
    return ++changes, Attributes{};
  }
  Attributes link(NodeId, NodeId, std::string_view) override { return ++changes, Attributes{}; }
  void unlink(NodeId, std::string_view) override { ++changes; }
  void remove_directory(NodeId, std::string_view) override { ++changes; }
  void rename(NodeId, std::string_view, NodeId, std::string_view, RenameMode) override { ++changes; }
  std::unique_ptr<RawFile> open(NodeId, OpenIntent intent) override {
    return ++(intent.write ? changes : reads), nullptr;
  }
  void close(NodeId, OpenIntent) override { ++reads; }
  std::size_t read(NodeId, std::uint64_t, std::span<std::byte>) override { return ++reads, 0; }
  void write(NodeId, std::uint64_t, std::span<const std::byte>, WriteOrigin) override {
    ++under_way;
    for (std::atomic<int> step = 0; step < steps_of_a_write;) ++step;
    ++changes;
    --under_way;
  }
  void pages_lost(NodeId, std::uint64_t, std::uint64_t size_bytes) override { lost += size_bytes; }
  void allocate(NodeId, AllocateMode, std::uint64_t, std::uint64_t) override { ++changes; }
  std::optional<std::uint64_t> seek(NodeId, std::uint64_t, SeekTarget) override { return ++reads, std::nullopt; }
  void sync_file(NodeId) override { ++reads; }
  void sync_directory(NodeId) override { ++reads; }
  void list(NodeId, std::uint64_t, const std::function<bool(const Entry&)>&) override { ++reads; }
  std::optional<std::string> xattr(NodeId, std::string_view) override { return ++reads, std::nullopt; }
  std::vector<std::string> xattr_names(NodeId) override { return ++reads, std::vector<std::string>(); }
  void set_xattr(NodeId, std::string_view, std::string_view, XattrMode) override { ++changes; }
  void remove_xattr(NodeId, std::string_view) override { ++changes; }
  StagingArea::FreeSpace free_space() override { return ++reads, StagingArea::FreeSpace(); }
  void retain(NodeId) override { ++reads; }
  void release(NodeId) override { ++reads; }

  std::atomic<int> reads = 0, changes = 0, under_way = 0;
  int steps_of_a_write = 0;
  std::uint64_t lost = 0;
};

std::vector<std::function<void(FileSystem&)>> mutating_calls() {
  return {[](FileSystem& f) { f.change_attributes(kRootNode, {}); },
          [](FileSystem& f) { f.make_node(kRootNode, "n", 0, 0, {}); },
          [](FileSystem& f) { f.make_symlink(kRootNode, "n", "t", {}); },
          [](FileSystem& f) { f.link(kRootNode, kRootNode, "n"); },
          [](FileSystem& f) { f.unlink(kRootNode, "n"); },
          [](FileSystem& f) { f.remove_directory(kRootNode, "n"); },
          [](FileSystem& f) { f.rename(kRootNode, "n", kRootNode, "m", RenameMode::replace); },
          [](FileSystem& f) { f.open(kRootNode, {.write = true, .raw = true}); },
          [](FileSystem& f) { f.write(kRootNode, 0, {}, WriteOrigin::call); },
          [](FileSystem& f) { f.allocate(kRootNode, AllocateMode::reserve, 0, 1); },
          [](FileSystem& f) { f.set_xattr(kRootNode, "n", "v", XattrMode::any); },
          [](FileSystem& f) { f.remove_xattr(kRootNode, "n"); }};
}

// What would let changes come in later, and waits for nobody.
void open_for_writing(FileSystem& files) { files.open(kRootNode, {.write = true}); }

bool is_refused(const std::function<void()>& call) {
  try {
    call();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::read_only);
    return true;
  }
}

TEST(WriteGate, OpenPassesEverything) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::open);
  for (const auto& call : mutating_calls()) call(gate);
  gate.write(kRootNode, 0, {}, WriteOrigin::page_cache);
  EXPECT_EQ(files.changes, 13);
}

TEST(WriteGate, DrainingPassesWriteBackOnly) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::open);
  gate.move_to(WriteGate::Position::draining);
  for (const auto& call : mutating_calls()) EXPECT_TRUE(is_refused([&] { call(gate); }));
  EXPECT_TRUE(is_refused([&] { open_for_writing(gate); }));
  gate.write(kRootNode, 0, {}, WriteOrigin::page_cache);
  EXPECT_EQ(files.changes, 1);
}

TEST(WriteGate, SealedRefusesEveryMutationAndPassesEveryRead) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::sealed);
  for (const auto& call : mutating_calls()) EXPECT_TRUE(is_refused([&] { call(gate); }));
  EXPECT_TRUE(is_refused([&] { open_for_writing(gate); }));
  EXPECT_TRUE(is_refused([&] { gate.write(kRootNode, 0, {}, WriteOrigin::page_cache); }));
  EXPECT_EQ(files.changes, 0);
  gate.lookup(kRootNode, "n");
  gate.attributes(kRootNode);
  gate.read_link(kRootNode);
  gate.read(kRootNode, 0, {});
  gate.seek(kRootNode, 0, SeekTarget::data);
  gate.sync_file(kRootNode);
  gate.sync_directory(kRootNode);
  gate.list(kRootNode, 0, [](const FileSystem::Entry&) { return true; });
  gate.xattr(kRootNode, "n");
  gate.xattr_names(kRootNode);
  gate.free_space();
  gate.retain(kRootNode);
  gate.release(kRootNode);
  EXPECT_EQ(files.reads, 13);
}

TEST(WriteGate, CanBeOpenedAgain) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::sealed);
  gate.move_to(WriteGate::Position::open);
  EXPECT_EQ(gate.position(), WriteGate::Position::open);
  gate.unlink(kRootNode, "n");
  EXPECT_EQ(files.changes, 1);
}

TEST(WriteGate, NoWriteEndsAfterTheSealAndACrowdOfWritersCannotHoldItUp) {
  CountingFiles files;
  files.steps_of_a_write = 10'000;
  WriteGate gate(files, WriteGate::Position::open);
  std::atomic<bool> stop = false;
  std::array<std::atomic<int>, 8> refused = {};
  std::vector<std::thread> writers;
  for (std::size_t i = 0; i < refused.size(); ++i)
    writers.emplace_back([&, i] {
      while (!stop) {
        const auto origin = i % 2 ? WriteOrigin::call : WriteOrigin::page_cache;
        if (is_refused([&] { gate.write(kRootNode, 0, {}, origin); })) ++refused[i];
      }
    });
  EXPECT_TRUE(support::eventually([&] { return files.changes >= 20; }));
  gate.move_to(WriteGate::Position::sealed);
  EXPECT_EQ(files.under_way, 0);
  const int at_the_seal = files.changes;
  // By its second refusal each has ended every call that it made before the seal.
  EXPECT_TRUE(support::eventually([&] { return std::ranges::all_of(refused, [](int count) { return count > 1; }); }));
  EXPECT_EQ(files.changes, at_the_seal);
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST(WriteGate, APauseHoldsWritersBackWithoutRefusingThem) {
  CountingFiles files;
  files.steps_of_a_write = 10'000;
  WriteGate gate(files, WriteGate::Position::open);
  std::atomic<bool> stop = false;
  std::atomic<int> waiting = 0;
  gate.when_waiting([&]() -> std::shared_ptr<void> {
    ++waiting;
    return {nullptr, [&](void*) { --waiting; }};
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&] {
      while (!stop) gate.write(kRootNode, 0, {}, WriteOrigin::call);
    });
  EXPECT_TRUE(support::eventually([&] { return files.changes >= 20; }));
  {
    const WriteGate::Pause pause(gate);
    EXPECT_EQ(files.under_way, 0);
    const int before = files.changes;
    EXPECT_TRUE(support::eventually([&] { return waiting == 4; })) << "each is held back";
    EXPECT_EQ(files.changes, before);
  }
  const int before = files.changes;
  EXPECT_TRUE(support::eventually([&] { return files.changes >= before + 20; }));
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST(WriteGate, AHoldKeepsCallsWaitingAndLetsPagesComeIn) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::open);
  std::atomic<int> waiting = 0;
  gate.when_waiting([&]() -> std::shared_ptr<void> {
    ++waiting;
    return {nullptr, [&](void*) { --waiting; }};
  });
  std::vector<std::thread> callers;
  {
    const WriteGate::Hold hold(gate);
    for (const auto& call : mutating_calls()) callers.emplace_back([&gate, call] { call(gate); });
    EXPECT_TRUE(support::eventually([&] { return waiting == 12; }));
    gate.write(kRootNode, 0, {}, WriteOrigin::page_cache);
    EXPECT_EQ(files.changes, 1);
    // The commit that holds them opens files itself to have their pages.
    open_for_writing(gate);
    EXPECT_EQ(files.changes, 2);
    // Then pages wait, too.
    std::thread page;
    {
      const WriteGate::Pause pause(gate);
      page = std::thread([&] { gate.write(kRootNode, 0, {}, WriteOrigin::page_cache); });
      EXPECT_TRUE(support::eventually([&] { return waiting == 13; }));
      EXPECT_EQ(files.changes, 2);
    }
    page.join();
    EXPECT_EQ(files.changes, 3);
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(files.changes, 15) << "none was refused";
  EXPECT_EQ(waiting, 0);
}

TEST(WriteGate, WhoWaitedForASessionThatEndedIsRefused) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::open);
  std::atomic<int> waiting = 0, refused = 0;
  gate.when_waiting([&] { return ++waiting, std::make_shared<int>(0); });
  std::vector<std::thread> callers;
  {
    const WriteGate::Hold hold(gate);
    const WriteGate::Pause pause(gate);
    for (const auto& call : mutating_calls())
      callers.emplace_back([&, call] { refused += is_refused([&] { call(gate); }) ? 1 : 0; });
    EXPECT_TRUE(support::eventually([&] { return waiting == 12; }));
    gate.move_to(WriteGate::Position::sealed);
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, 12);
  EXPECT_EQ(files.changes, 0);
}

TEST(WriteGate, PagesRefusedAfterTheSealAreLostToASessionThatGoesOn) {
  CountingFiles files;
  WriteGate gate(files, WriteGate::Position::open);
  gate.pages_lost(kRootNode, 0, 4096);
  EXPECT_EQ(files.lost, 4096u) << "what failed for another reason";
  gate.move_to(WriteGate::Position::sealed);
  gate.pages_lost(kRootNode, 4096, 4096);
  gate.pages_lost(kRootNode, 8192, 4096);
  EXPECT_EQ(files.lost, 4096u);
  gate.move_to(WriteGate::Position::open);
  EXPECT_EQ(files.lost, 3u * 4096);
  gate.move_to(WriteGate::Position::sealed);
  gate.move_to(WriteGate::Position::open);
  EXPECT_EQ(files.lost, 3u * 4096) << "once";
}

}  // namespace
}  // namespace escrow::session
