#include "api/protocol.h"

#include <gtest/gtest.h>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/session_calls.h"
#include "api/session_routes.h"
#include "tests/support/sample_record.h"

namespace escrow::api {
namespace {

using session::Errc;
using session::Error;

const std::vector<std::string> kHardNames = {
    "plain",       "caf\xc3\xa9",  "raw\xff\xfe",           "new\nline", "esc\x1b[31m", "tab\t\"quote\\",
    "cut\xe2\x82", "over\xc0\xaf", "surrogate\xed\xa0\x80", " "};

const session::SessionId kId = *session::SessionId::parse("0123456789abcdef");

HttpRequest http_of(const SessionRequestLine& line) {
  HttpRequest request;
  request.method = line.method;
  request.target = line.target;
  if (!line.json.empty()) request.content_type = "application/json";
  request.body = line.json;
  return request;
}

// As a host reads what a client sends.
template <typename Part>
Part requested(const Part& part) {
  const SessionCall call = read_session_call(http_of(call_of(kId, part)));
  EXPECT_EQ(call.session, kId.text());
  return std::get<Part>(call.request);
}

SessionView sample() { return {.record = support::sample_record(kId)}; }

// As a client reads what a host answers.
template <typename Part>
Part answered(const Request& request, const Part& part, const SessionView& session = sample()) {
  const HttpResponse response = response_of({.session = kId.text(), .request = request}, part, [&] { return session; });
  return std::get<Part>(answer_of(request, response));
}

// A session's document has the outcome of a verb.
SessionView ended(session::State state, session::Reason reason) {
  SessionView session = sample();
  session.record.state = state;
  session.record.reason = reason;
  session.counts = session.record.counts;
  return session;
}

void expect_refused(const HttpRequest& request, ProblemCode code) {
  try {
    read_session_call(request);
    ADD_FAILURE() << "accepted: " << request.method << " " << request.target << " " << request.body;
  } catch (const Problem& problem) {
    EXPECT_STREQ(kind_of(problem.problem()).name, kind_of(code).name) << request.target << " " << request.body;
  }
}

void expect_refused(const std::string& verb, const std::string& body, ProblemCode code = ProblemCode::invalid_value) {
  expect_refused(http_of({.method = "POST", .target = "/v1/sessions/" + kId.text() + verb, .json = body}), code);
}

void expect_get_refused(const std::string& target, ProblemCode code) {
  expect_refused(http_of({.method = "GET", .target = target, .json = {}}), code);
}

TEST(Protocol, PathsOfAnyBytesComeThroughExactly) {
  const DiscardRequest sent{.paths = kHardNames};
  EXPECT_EQ(requested(sent).paths, kHardNames);
}

TEST(Protocol, AMessageOfAnyBytesComesThroughExactly) {
  for (const std::string& text : kHardNames) {
    EXPECT_EQ(requested(CommitRequest{.message = text}).message, text);
  }
}

TEST(Protocol, EveryRequestComesThrough) {
  EXPECT_TRUE(requested(StatusRequest{.with_changes = true}).with_changes);
  EXPECT_TRUE(requested(RollbackRequest{.keep_result = true}).keep_result);
  requested(UpdateRequest{});
  requested(UnmountRequest{});
  for (const DiffFormat format : {DiffFormat::name_status, DiffFormat::stat, DiffFormat::patch}) {
    EXPECT_EQ(requested(DiffRequest{.format = format}).format, format);
  }
  for (const std::string& path : kHardNames) {
    const DiffRequest diff = requested(DiffRequest{.path = path, .since = path});
    EXPECT_EQ(std::tuple(diff.path, diff.since), std::tuple(path, path));
    using enum SavepointVerb;
    for (const SavepointVerb verb : {create, restore, drop}) {
      const SavepointRequest savepoint = requested(SavepointRequest{.verb = verb, .name = path});
      EXPECT_EQ(std::tuple(savepoint.verb, savepoint.name), std::tuple(verb, path));
    }
    const FinishRequest sent{.reason = session::Reason::lease_expired,
                             .exit_code = 143,
                             .message = path,
                             .keep_result = true,
                             .image = path,
                             .trigger_id = path};
    const FinishRequest finish = requested(sent);
    EXPECT_EQ(std::tuple(finish.reason, finish.exit_code, finish.keep_result),
              std::tuple(sent.reason, sent.exit_code, true));
    EXPECT_EQ(std::tuple(finish.message, finish.image, finish.trigger_id), std::tuple(path, path, path));
  }
  EXPECT_EQ(requested(SavepointRequest{}).verb, SavepointVerb::list);
  EXPECT_TRUE(requested(ResolveRequest{}).paths.empty());
  EXPECT_TRUE(requested(CommitRequest{.message = {}, .include_ignored = true}).include_ignored);
  requested(ChangesRequest{});
  requested(TrafficRequest{});
  for (const session::Settle how : {session::Settle::mine, session::Settle::theirs, session::Settle::merged}) {
    const ResolveRequest got = requested(ResolveRequest{.paths = kHardNames, .how = how});
    EXPECT_EQ(got.how, how);
    EXPECT_EQ(got.paths, kHardNames);
  }
  for (const std::string& path : kHardNames) {
    const ReadFileRequest read{.path = path, .offset = 5, .most_bytes = 1u << 20};
    const ReadFileRequest got = requested(read);
    EXPECT_EQ(std::tuple(got.path, got.offset, got.most_bytes), std::tuple(path, read.offset, read.most_bytes));
    EXPECT_EQ(requested(RemoveFileRequest{.path = path}).path, path);
    const ListFilesRequest listed =
        requested(ListFilesRequest{.path = path, .after = path, .most_entries = 7});
    EXPECT_EQ(std::tuple(listed.path, listed.after, listed.most_entries), std::tuple(path, path, 7u));
    for (const std::optional<bool> executable : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
      const WriteFileRequest sent{.path = path, .executable = executable};
      EXPECT_EQ(requested(sent).executable, executable);
    }
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
  const ChangesAnswer got = answered(ChangesRequest{}, sent);
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
        .bytes = bytes, .mode = 0100755, .size_bytes = std::uint64_t{1} << 40, .version = "v", .is_new = false};
    const FileAnswer got = answered(ReadFileRequest{.path = bytes}, sent);
    EXPECT_EQ(std::tuple(got.bytes, got.mode, got.size_bytes, got.version, got.is_new),
              std::tuple(sent.bytes, sent.mode, sent.size_bytes, sent.version, sent.is_new));
  }
  for (const bool is_new : {true, false}) {
    const FileAnswer sent{.bytes = {}, .mode = 0100644, .size_bytes = 7, .version = {}, .is_new = is_new};
    const FileAnswer got = answered(WriteFileRequest{.path = "a\xff", .executable = {}}, sent);
    EXPECT_EQ(std::tuple(got.mode, got.size_bytes, got.is_new), std::tuple(0100644u, 7u, is_new));
  }
  for (const std::string& name : kHardNames) {
    const ListingAnswer sent{.entries = {{.name = name, .mode = 0100755, .size_bytes = 9}}, .is_whole = false};
    const ListingAnswer got = answered(ListFilesRequest{}, sent);
    ASSERT_EQ(got.entries.size(), 1u);
    EXPECT_EQ(std::tuple(got.entries[0].name, got.entries[0].mode, got.entries[0].size_bytes, got.is_whole),
              std::tuple(name, 0100755u, 9u, false));
  }
  const TrafficAnswer sent{.operations = {{.name = "lookup", .count = 3, .within = {1, 2}, .seconds = 0.25}},
                           .staged_bytes = 9,
                           .cache_hits = 4,
                           .cache_misses = 5};
  const TrafficAnswer got = answered(TrafficRequest{}, sent);
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
  const SessionView back = answered(StatusRequest{}, view);
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
  EXPECT_EQ(answered(StatusRequest{}, view).resumed_as, record.id);
  view.io.reset();
  EXPECT_FALSE(answered(StatusRequest{}, view).io);
}

TEST(Protocol, AResolveAnswerCarriesTheVersionsOfWhatIsLeft) {
  const session::Version there{.mode = 0100755, .id = *session::ObjectId::from_hex(std::string(40, 'a'))};
  const ResolveAnswer sent{.settled = {"x\ny", "\xff"},
                           .left = {{"\xfe", there, {}, there}, {"dir", {}, there, {040000, there.id}}},
                           .merged = 7};
  const ResolveAnswer back = answered(ResolveRequest{}, sent);
  EXPECT_EQ(back.settled, sent.settled);
  EXPECT_EQ(back.left, sent.left);
  EXPECT_EQ(back.merged, 7u);
}

TEST(Protocol, ACommitThatMeetsConflictsIsRefusedWithThem) {
  CommitAnswer sent;
  sent.conflicts = {{"x\ny", session::Did::deleted, session::Did::type_changed}};
  const HttpResponse response = response_of({.session = kId.text(), .request = CommitRequest{}}, sent, sample);
  EXPECT_EQ(response.status, 409u);
  const CommitAnswer back = std::get<CommitAnswer>(answer_of(CommitRequest{}, response));
  EXPECT_EQ(back.state, session::State::open);
  EXPECT_FALSE(back.commit);
  ASSERT_EQ(back.conflicts.size(), 1u);
  EXPECT_EQ(back.conflicts[0].path, "x\ny");
  EXPECT_EQ(back.conflicts[0].ours, session::Did::deleted);
  EXPECT_EQ(back.conflicts[0].theirs, session::Did::type_changed);
}

TEST(Protocol, AVerbThatEndsASessionIsAnsweredWithItsDocument) {
  CommitAnswer committed;
  committed.warning = "held by bash (12)";
  committed.omitted = {{"a\xff", session::OmissionKind::fifo}};
  SessionView session = ended(session::State::committed, session::Reason::success);
  session.record.commit = session.record.base;
  const CommitAnswer back = answered(CommitRequest{}, committed, session);
  EXPECT_EQ(std::tuple(back.state, back.reason, back.commit, back.warning),
            std::tuple(session::State::committed, session::Reason::success, session.record.base,
                       committed.warning));
  EXPECT_EQ(back.counts.modified, 2u);
  ASSERT_EQ(back.omitted.size(), 1u);
  EXPECT_EQ(back.omitted[0].path, "a\xff");
  EXPECT_FALSE(back.result) << "only of one that awaits approval";
  FinishRequest finish;
  finish.reason = session::Reason::signal;
  const RollbackAnswer gone = answered(finish, RollbackAnswer{.warning = "w"},
                                       ended(session::State::rolled_back, session::Reason::signal));
  EXPECT_EQ(std::tuple(gone.state, gone.reason, gone.warning),
            std::tuple(session::State::rolled_back, session::Reason::signal, "w"));
}

TEST(Protocol, ACommitAnswerCarriesTheResultThatAwaitsApproval) {
  const SessionView session = ended(session::State::awaiting_approval, session::Reason::success);
  const CommitAnswer back = answered(CommitRequest{}, CommitAnswer{}, session);
  EXPECT_EQ(back.state, session::State::awaiting_approval);
  EXPECT_EQ(back.result, session.record.result);
  EXPECT_EQ(back.expires, session.record.expires);
}

TEST(Protocol, ADiffSaysHowManyFilesACommitLeavesOut) {
  EXPECT_EQ(answered(DiffRequest{}, DiffEnd{.omitted = {{"a", session::OmissionKind::fifo}}}).unnamed, 1u);
}

// What a host throws, a client of it throws again, and a server that passes it on says the same.
TEST(Protocol, EveryErrorKeepsItsCodeAndItsSentenceWhenItIsPassedOn) {
  for (int value = 0; value <= static_cast<int>(Errc::unavailable); ++value) {
    const auto code = static_cast<Errc>(value);
    HttpResponse first;
    try {
      throw Error(code, "why \xff");
    } catch (const Error&) {
      first = problem_of_current_exception();
    }
    try {
      throw Problem(problem_from_response(first));
    } catch (const Error& back) {
      EXPECT_EQ(back.code(), code) << first.body;
      EXPECT_STREQ(back.what(), "why \xff");
      EXPECT_EQ(problem_of_current_exception().body, first.body);
    }
  }
}

TEST(Protocol, WhatElseAProblemHasIsPassedOn) {
  const Problem sent("met", {{"x", session::Did::added, session::Did::deleted}}, {{"session", "5"}, {"rule", "r\xff"}});
  const HttpResponse response = problem_response(sent);
  const Problem back = problem_from_response(response);
  EXPECT_EQ(back.members(), sent.members());
  EXPECT_EQ(problem_response(back).body, response.body);
}

TEST(Protocol, ACodeOfALaterVersionIsTheOneOfItsStatus) {
  HttpResponse response;
  response.status = 409;
  response.body = R"({"code":"of_tomorrow","detail":"why","retryable":true,"exit_code":77})";
  const Problem problem = problem_from_response(response);
  EXPECT_EQ(std::tuple(problem.kind().status, problem.kind().retryable, problem.kind().exit_code),
            std::tuple(409u, true, 77));
}

TEST(Protocol, MalformedRequestsAreRefused) {
  for (const char* body : {"{", "null", "[]", "3", "\"commit\"", R"({"message":"a"} trailing)", "{\"mess\xff\":1}"}) {
    expect_refused("/commit", body, ProblemCode::malformed_json);
  }
  expect_refused("/commit", std::string(100'000, '['), ProblemCode::malformed_json);
  expect_refused("/commit", R"({"message":[]})");
  expect_refused("/commit", R"({"message_base64":"abc"})");
  expect_refused("/rollback", R"({"keep_result":"yes"})");
  expect_refused("/finish", R"({"reason":"boredom"})");
  expect_refused("/finish", "{}");
  expect_refused("/resolve", R"({"paths":["a"]})");
  expect_refused("/resolve", R"({"paths":["a"],"how":"ours"})");
  expect_refused("/resolve", R"({"paths":[],"how":"mine"})");
  expect_refused("/discard", R"({"paths":"a"})");
  expect_refused("/discard", R"({"paths":[1]})");
  expect_refused("/discard", "{}");
  expect_refused("/savepoints", "{}");
  expect_refused("/launch", "{}", ProblemCode::not_found);
  const std::string base = "/v1/sessions/" + kId.text();
  expect_get_refused(base + "/diff?format=colour", ProblemCode::invalid_value);
  expect_get_refused(base + "/diff?since=%4", ProblemCode::malformed_request);
  expect_get_refused(base + "/commit", ProblemCode::method_not_allowed);
  for (const char* target : {"/", "*", "", "v1/sessions/x", "/v1/sessions/", "/v1/sessions//diff"}) {
    expect_get_refused(target, ProblemCode::not_found);
  }
}

// A host that does not know an option does not do without it.
TEST(Protocol, WhatIsNotKnownInARequestIsRefusedByName) {
  expect_refused("/commit", R"({"message":"m","colour":"red"})", ProblemCode::unknown_field);
  expect_refused("/update", R"({"colour":"red"})", ProblemCode::unknown_field);
}

TEST(JsonDocument, BytesThatAreNotUnicodeAreLossyAndExact) {
  EXPECT_EQ(JsonObject().text("path", "a\xff").text(), "{\"path\":\"a\xef\xbf\xbd\",\"path_base64\":\"Yf8=\"}");
  EXPECT_EQ(JsonObject().text("path", "caf\xc3\xa9").text(), "{\"path\":\"caf\xc3\xa9\"}");
  EXPECT_EQ(JsonObject().text("path", "a\n\x1b").text(), "{\"path\":\"a\\n\\u001b\"}");
}

}  // namespace
}  // namespace escrow::api
