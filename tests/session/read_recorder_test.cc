#include "session/decorators/read_recorder.h"

#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

class LogInMemory final : public ReadLog {
 public:
  void create() override {}
  Loaded load() override { return {events, is_complete}; }
  void append(std::string_view more) override {
    if (is_full) throw Error(Errc::no_space, "the disk is full");
    events += more;
  }
  void give_up() override {
    if (is_broken) throw Error(Errc::input_output, "the disk is broken");
    is_complete = false;
  }
  void close() override {}

  std::string events;
  bool is_complete = true, is_full = false, is_broken = false;
};

class ReadRecorderTest : public OverlayTest {
 protected:
  bool counts_everything(ReadRecorder& recorder) { return recorder.now().is_covered(ReadSet::kRoot); }
  // What another process would know.
  std::string known_afterwards() { return ReadRecorder(*overlay, reads, log).now().encoded(); }

  LogInMemory reads;
};

TEST_F(ReadRecorderTest, WhatWasNotedIsKnownToTheNextProcess) {
  ReadRecorder recorder(*overlay, reads, log);
  recorder.read(node("a/one"));
  recorder.looked_at(node("b.txt"));
  recorder.listed(node("a"));
  recorder.missed(kRootNode, "none");
  EXPECT_EQ(known_afterwards(), recorder.now().encoded());
  const ReadSet::Summary summary = recorder.now().summary();
  EXPECT_EQ(summary.read, 1u);
  EXPECT_EQ(summary.looked_at, 1u);
  EXPECT_EQ(summary.listed, 1u);
  EXPECT_EQ(summary.absent, 1u);
}

TEST_F(ReadRecorderTest, WhatIsNotedInABatchIsOnRecordAtItsEnd) {
  ReadRecorder recorder(*overlay, reads, log);
  {
    ReadRecorder::Batch batch(recorder);
    recorder.looked_at(node("a/one"));
    recorder.looked_at(node("a/two"));
    EXPECT_EQ(reads.events, "");
    batch.end();
  }
  EXPECT_EQ(known_afterwards(), recorder.now().encoded());
  EXPECT_EQ(recorder.now().summary().looked_at, 2u);
}

TEST_F(ReadRecorderTest, WhatTheSessionHasMadeIsNotNoted) {
  ReadRecorder recorder(*overlay, reads, log);
  const NodeId made = overlay->make_node(kRootNode, "made", kFile, 0, kRootUser).node;
  recorder.read(made);
  recorder.looked_at(made);
  EXPECT_EQ(recorder.now().encoded(), ReadSet().encoded());
}

TEST_F(ReadRecorderTest, ARecordThatLacksSomethingCountsAsOneOfEverything) {
  {
    ReadRecorder recorder(*overlay, reads, log);
    recorder.read(node("a/one"));
  }
  const std::string whole = reads.events;
  for (std::size_t length = 1; length < whole.size(); ++length) {
    reads.events = whole.substr(0, length);
    ReadRecorder recorder(*overlay, reads, log);
    EXPECT_TRUE(counts_everything(recorder)) << length;
  }
  reads.events = whole;
  reads.is_complete = false;
  ReadRecorder recorder(*overlay, reads, log);
  EXPECT_TRUE(counts_everything(recorder));
}

TEST_F(ReadRecorderTest, ARestoreThatWasCutShortCountsAsHavingReadEverything) {
  {
    ReadRecorder recorder(*overlay, reads, log);
    recorder.begin_taking_in();
    recorder.end_taking_in({"a/one"});
  }
  {
    ReadRecorder recorder(*overlay, reads, log);
    EXPECT_FALSE(counts_everything(recorder));
    recorder.begin_taking_in();
  }
  ReadRecorder recorder(*overlay, reads, log);
  EXPECT_TRUE(counts_everything(recorder));
}

TEST_F(ReadRecorderTest, WhereTheDiskIsFullEverythingCountsAsRead) {
  ReadRecorder recorder(*overlay, reads, log);
  reads.is_full = true;
  recorder.read(node("a/one"));
  EXPECT_TRUE(counts_everything(recorder));
  EXPECT_FALSE(reads.is_complete);
}

TEST_F(ReadRecorderTest, WhatCannotBeNotedInAnyWayIsNotSeen) {
  ReadRecorder recorder(*overlay, reads, log);
  reads.is_full = reads.is_broken = true;
  const NodeId one = node("a/one"), two = node("a/two");
  EXPECT_EQ(code_of([&] { recorder.read(one); }), Errc::input_output);
  EXPECT_EQ(code_of([&] { recorder.read(one); }), Errc::input_output) << "the second time, too";
  reads.is_full = false;
  EXPECT_EQ(code_of([&] { recorder.read(two); }), Errc::input_output) << "the record lacks one and does not say so";
  reads.is_broken = false;
  recorder.read(one);
  EXPECT_FALSE(reads.is_complete);
}

TEST_F(ReadRecorderTest, MemoryHasABoundAndBeyondItMoreCountsAsReadAndNothingLess) {
  std::map<std::string, std::string> files;
  for (int directory = 0; directory < 200; ++directory)
    files["d" + std::to_string(directory) + "/sub/file"] = "old";
  const ObjectId before = objects.put_files(files);
  base(before);
  constexpr std::size_t kBound = 4096;
  ReadRecorder recorder(*overlay, reads, log, kBound);
  for (const auto& [path, content] : files) recorder.read(node(path));
  EXPECT_LT(recorder.now().encoded().size(), kBound);
  for (const std::string changed : {"d0/sub/file", "d77/sub/file", "d199/sub/file"}) {
    std::map<std::string, std::string> others = files;
    others[changed] = "new";
    const ObjectId after = objects.put_files(others);
    const auto met = changed_reads(objects, recorder.now(), {}, before, after);
    ASSERT_EQ(met.size(), 1u) << changed;
    EXPECT_TRUE(changed.starts_with(met.front().path)) << met.front().path;
  }
}

}  // namespace
}  // namespace escrow::session
