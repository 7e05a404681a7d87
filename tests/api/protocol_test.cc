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
}

TEST(Protocol, AStatusAnswerCarriesTheWholeRecord) {
  session::SessionRecord record = support::sample_record(session::SessionId::generate());
  record.state = session::State::commit_failed;
  record.reason = session::Reason::conflict;
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
  view.io.reset();
  EXPECT_FALSE(through_the_wire(view, decode_answer).io);
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
