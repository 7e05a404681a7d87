#include "api/protocol.h"

#include <gtest/gtest.h>

#include "api/json_document.h"
#include "tests/support/sample_record.h"

namespace escrow::api {
namespace {

using session::Errc;
using session::Error;

const std::vector<std::string> kHardNames = {
    "plain",       "caf\xc3\xa9",  "raw\xff\xfe",           "new\nline", "esc\x1b[31m", "tab\t\"quote\\",
    "cut\xe2\x82", "over\xc0\xaf", "surrogate\xed\xa0\x80", " "};

template <typename Part, typename Whole>
Part through_the_wire(const Part& part, Whole (*decode)(std::string_view)) {
  const std::string line = encode(Whole(part));
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return std::get<Part>(decode(line));
}

void expect_refused(std::string_view line) {
  try {
    decode_request(line);
    ADD_FAILURE() << "accepted: " << line;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bad_request) << line;
  }
}

TEST(Protocol, PathsOfAnyBytesComeThroughExactly) {
  const DiscardRequest sent{.paths = kHardNames};
  EXPECT_EQ(through_the_wire(sent, decode_request).paths, kHardNames);
}

TEST(Protocol, AMessageOfAnyBytesComesThroughExactly) {
  for (const std::string& text : kHardNames) {
    EXPECT_EQ(through_the_wire(CommitRequest{.message = text}, decode_request).message, text);
    EXPECT_EQ(through_the_wire(DiffPart{.text = text}, decode_answer).text, text);
  }
}

TEST(Protocol, EveryRequestComesThrough) {
  EXPECT_TRUE(through_the_wire(StatusRequest{.with_changes = true}, decode_request).with_changes);
  EXPECT_TRUE(through_the_wire(RollbackRequest{.keep_result = true}, decode_request).keep_result);
  through_the_wire(UpdateRequest{}, decode_request);
  through_the_wire(UnmountRequest{}, decode_request);
  for (const DiffFormat format : {DiffFormat::name_status, DiffFormat::stat, DiffFormat::patch}) {
    EXPECT_EQ(through_the_wire(DiffRequest{.format = format}, decode_request).format, format);
  }
  through_the_wire(ChangesRequest{}, decode_request);
  through_the_wire(TrafficRequest{}, decode_request);
  for (const session::Settle how : {session::Settle::mine, session::Settle::theirs, session::Settle::merged}) {
    const ResolveRequest got = through_the_wire(ResolveRequest{.paths = kHardNames, .how = how}, decode_request);
    EXPECT_EQ(got.how, how);
    EXPECT_EQ(got.paths, kHardNames);
  }
  for (const std::string& path : kHardNames) {
    const ReadFileRequest read{.path = path, .offset = 5, .most_bytes = std::uint64_t{1} << 40};
    const ReadFileRequest got = through_the_wire(read, decode_request);
    EXPECT_EQ(std::tuple(got.path, got.offset, got.most_bytes), std::tuple(path, read.offset, read.most_bytes));
    EXPECT_EQ(through_the_wire(RemoveFileRequest{.path = path}, decode_request).path, path);
    const ListFilesRequest listed =
        through_the_wire(ListFilesRequest{.path = path, .after = path, .most_entries = 7}, decode_request);
    EXPECT_EQ(std::tuple(listed.path, listed.after, listed.most_entries), std::tuple(path, path, 7u));
    for (const std::optional<bool> executable : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
      const WriteFileRequest sent{.path = path, .executable = executable};
      EXPECT_EQ(through_the_wire(sent, decode_request).executable, executable);
    }
    EXPECT_EQ(decode_asked(encode(UpdateRequest{}, path)).who, path);
  }
}

TEST(Protocol, ChangesComeThroughWithTheirEntriesAndSizes) {
  const session::TreeEntry entry{
      .name = {}, .mode = session::GitMode::executable, .id = *session::ObjectId::from_hex(std::string(40, 'a'))};
  const ChangesAnswer sent{
      .changes = {{.change = {.path = kHardNames.back(),
                              .did = session::Did::modified,
                              .before = entry,
                              .after = entry},
                   .size_before = 7,
                   .size_after = {}},
                  {.change = {.path = "new", .did = session::Did::added, .before = {}, .after = entry},
                   .size_before = {},
                   .size_after = 0}},
      .omitted = {}};
  const ChangesAnswer got = through_the_wire(sent, decode_answer);
  ASSERT_EQ(got.changes.size(), 2u);
  for (std::size_t at = 0; at < 2; ++at) {
    EXPECT_EQ(got.changes[at].change.path, sent.changes[at].change.path);
    EXPECT_EQ(got.changes[at].change.did, sent.changes[at].change.did);
    EXPECT_EQ(got.changes[at].change.before, sent.changes[at].change.before);
    EXPECT_EQ(got.changes[at].change.after, sent.changes[at].change.after);
    EXPECT_EQ(got.changes[at].size_before, sent.changes[at].size_before);
    EXPECT_EQ(got.changes[at].size_after, sent.changes[at].size_after);
  }
}

TEST(Protocol, FilesAndTrafficComeThrough) {
  for (const std::string& bytes : kHardNames) {
    const FileAnswer sent{
        .bytes = bytes, .mode = 0100755, .size_bytes = std::uint64_t{1} << 40, .version = "v", .is_new = true};
    const FileAnswer got = through_the_wire(sent, decode_answer);
    EXPECT_EQ(std::tuple(got.bytes, got.mode, got.size_bytes, got.version, got.is_new),
              std::tuple(sent.bytes, sent.mode, sent.size_bytes, sent.version, sent.is_new));
  }
  for (const std::string& name : kHardNames) {
    const ListingAnswer sent{.entries = {{.name = name, .mode = 0100755, .size_bytes = 9}}, .is_whole = false};
    const ListingAnswer got = through_the_wire(sent, decode_answer);
    ASSERT_EQ(got.entries.size(), 1u);
    EXPECT_EQ(std::tuple(got.entries[0].name, got.entries[0].mode, got.entries[0].size_bytes, got.is_whole),
              std::tuple(name, 0100755u, 9u, false));
  }
  const TrafficAnswer sent{.operations = {{.name = "lookup", .count = 3, .within = {1, 2}, .seconds = 0.25}},
                           .staged_bytes = 9,
                           .cache_hits = 4,
                           .cache_misses = 5};
  const TrafficAnswer got = through_the_wire(sent, decode_answer);
  ASSERT_EQ(got.operations.size(), 1u);
  EXPECT_EQ(got.operations[0].name, "lookup");
  EXPECT_EQ(got.operations[0].within, sent.operations[0].within);
  EXPECT_EQ(got.operations[0].seconds, 0.25);
  EXPECT_EQ(std::tuple(got.staged_bytes, got.cache_hits, got.cache_misses), std::tuple(9u, 4u, 5u));
}

TEST(Protocol, AStatusAnswerCarriesTheWholeRecord) {
  session::SessionRecord record = support::sample_record(session::SessionId::generate());
  record.state = session::State::commit_failed;
  record.reason = session::Reason::conflict;
  record.base_time.reset();  // for the mount alone
  SessionView view{.record = record,
                   .attachment = session::Attachment::lost,
                   .head = record.base,
                   .counts = record.counts,
                   .usage = session::Overlay::Usage{.staged_files = 4, .staged_bytes = 5, .nodes = 6},
                   .omitted = {{"a\xff", session::OmissionKind::fifo}},
                   .io = IoView{.opens = "daemon", .data = "passthrough", .reason = "because"}};
  const SessionView back = through_the_wire(view, decode_answer);
  EXPECT_EQ(support::describe(back.record), support::describe(record));
  EXPECT_EQ(back.attachment, view.attachment);
  EXPECT_EQ(back.head, view.head);
  EXPECT_EQ(back.counts->modified, 2u);
  EXPECT_EQ(back.usage->staged_bytes, 5u);
  ASSERT_EQ(back.omitted.size(), 1u);
  EXPECT_EQ(back.omitted[0].path, "a\xff");
  EXPECT_EQ(back.omitted[0].kind, session::OmissionKind::fifo);
  EXPECT_EQ(back.io->opens + back.io->data + back.io->reason, "daemonpassthroughbecause");
  EXPECT_FALSE(back.resumed_as);
  view.resumed_as = record.id;
  EXPECT_EQ(through_the_wire(view, decode_answer).resumed_as, record.id);
  view.io.reset();
  EXPECT_FALSE(through_the_wire(view, decode_answer).io);
}

TEST(Protocol, AResolveAnswerCarriesTheVersionsOfWhatIsLeft) {
  const session::Version there{.mode = 0100755, .id = *session::ObjectId::from_hex(std::string(40, 'a'))};
  const ResolveAnswer sent{.settled = {"x\ny", "\xff"},
                           .left = {{"\xfe", there, {}, there}, {"dir", {}, there, {040000, there.id}}},
                           .merged = 7};
  const ResolveAnswer back = through_the_wire(sent, decode_answer);
  EXPECT_EQ(back.settled, sent.settled);
  EXPECT_EQ(back.left, sent.left);
  EXPECT_EQ(back.merged, 7u);
}

TEST(Protocol, ACommitAnswerCarriesItsConflicts) {
  CommitAnswer sent{.state = session::State::open,
                    .reason = session::Reason::none,
                    .commit = std::nullopt,
                    .result = std::nullopt,
                    .expires = std::nullopt,
                    .counts = {1, 0, 7},
                    .conflicts = {{"x\ny", session::Did::deleted, session::Did::type_changed}},
                    .omitted = {},
                    .warning = "held by bash (12)"};
  const CommitAnswer back = through_the_wire(sent, decode_answer);
  EXPECT_EQ(back.state, sent.state);
  EXPECT_EQ(back.counts.deleted, 7u);
  EXPECT_FALSE(back.commit);
  ASSERT_EQ(back.conflicts.size(), 1u);
  EXPECT_EQ(back.conflicts[0].path, "x\ny");
  EXPECT_EQ(back.conflicts[0].ours, session::Did::deleted);
  EXPECT_EQ(back.conflicts[0].theirs, session::Did::type_changed);
  EXPECT_EQ(back.warning, sent.warning);
}

TEST(Protocol, ACommitAnswerCarriesTheResultThatAwaitsApproval) {
  CommitAnswer sent;
  sent.state = session::State::awaiting_approval;
  sent.result = session::ObjectId::from_hex("1234567890123456789012345678901234567890");
  sent.expires = session::Timestamp{1'700'000'000, 5};
  const CommitAnswer back = through_the_wire(sent, decode_answer);
  EXPECT_EQ(back.state, sent.state);
  EXPECT_EQ(back.result, sent.result);
  EXPECT_EQ(back.expires, sent.expires);
  sent.result.reset();
  sent.expires.reset();
  EXPECT_FALSE(through_the_wire(sent, decode_answer).result);
  EXPECT_FALSE(through_the_wire(sent, decode_answer).expires);
}

TEST(Protocol, EveryErrorCodeHasANameOfItsOwn) {
  for (int value = 0; value <= static_cast<int>(Errc::unavailable); ++value) {
    const ErrorAnswer sent{.code = static_cast<Errc>(value), .message = "why"};
    EXPECT_EQ(through_the_wire(sent, decode_answer).code, sent.code) << name_of(sent.code);
  }
}

TEST(Protocol, MalformedRequestsAreRefused) {
  for (const char* line :
       {"", "{", "null", "[]", "3", "\"commit\"", "{}", R"({"request":7})", R"({"request":"launch"})",
        R"({"request":"commit","message":[]})", R"({"request":"rollback","keep_result":"yes"})",
        R"({"request":"resolve","paths":[{"path":"a"}]})", R"({"request":"resolve","paths":[],"how":"ours"})",
        R"({"request":"diff","format":"colour"})", R"({"request":"discard","paths":"a"})",
        R"({"request":"discard","paths":["a"]})", R"({"request":"discard","paths":[{"path":1}]})",
        R"({"request":"discard","paths":[{"path":"a","path_base64":"%%%%"}]})",
        R"({"request":"commit","message_base64":"abc"})", R"({"request":"status"} trailing)",
        "{\"request\":\"com\xff\"}"}) {
    expect_refused(line);
  }
  expect_refused(std::string(100'000, '['));
  expect_refused(std::string(100'000, '{'));
}

TEST(Protocol, WhatIsNotKnownInARequestIsIgnored) {
  const Request request = decode_request(R"({"request":"commit","message":"m","colour":"red"})");
  EXPECT_EQ(std::get<CommitRequest>(request).message, "m");
}

TEST(JsonDocument, BytesThatAreNotUnicodeAreLossyAndExact) {
  EXPECT_EQ(JsonObject().text("path", "a\xff").text(), "{\"path\":\"a\xef\xbf\xbd\",\"path_base64\":\"Yf8=\"}");
  EXPECT_EQ(JsonObject().text("path", "caf\xc3\xa9").text(), "{\"path\":\"caf\xc3\xa9\"}");
  EXPECT_EQ(JsonObject().text("path", "a\n\x1b").text(), "{\"path\":\"a\\n\\u001b\"}");
}

}  // namespace
}  // namespace escrow::api
