#include "daemon/host/run_result.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

#include "daemon/cli/commands/commands.h"
#include "session/base/error.h"
#include "tests/daemon/process/process_helpers.h"

namespace escrow::daemon {
namespace {

using session::Reason;
using session::State;

session::SessionRecord record_in(State state, Reason reason) {
  session::SessionRecord record{.id = *session::SessionId::parse("0123456789abcdef"),
                                .options = {},
                                .base = {},
                                .commit = {},
                                .swap_from = {},
                                .swap_to = {},
                                .exit_code = {},
                                .message = {},
                                .mountpoint = {},
                                .last_error = {},
                                .conflicts = {},
                                .created = {},
                                .changed = {}};
  record.options.branch = "main";
  record.state = state;
  record.reason = reason;
  return record;
}

CommandEnd end_of(EndCause cause, int status = 0, int signal_number = 0) {
  CommandEnd end;
  end.cause = cause;
  end.status = status;
  end.signal_number = signal_number;
  end.message = "the command \"x\" was not found";
  return end;
}

TEST(RunResult, OnlyExitZeroCommits) {
  EXPECT_FALSE(rollback_reason(end_of(EndCause::exited, 0)));
  EXPECT_EQ(rollback_reason(end_of(EndCause::exited, 3)), Reason::exit_status);
  EXPECT_EQ(rollback_reason(end_of(EndCause::signalled, 0, SIGSEGV)), Reason::signal);
  EXPECT_EQ(rollback_reason(end_of(EndCause::cancelled, 0, SIGTERM)), Reason::cancelled);
  EXPECT_EQ(rollback_reason(end_of(EndCause::timed_out)), Reason::timed_out);
  EXPECT_EQ(rollback_reason(end_of(EndCause::not_found)), Reason::not_started);
  EXPECT_EQ(rollback_reason(end_of(EndCause::could_not_run)), Reason::not_started);
  EXPECT_EQ(rollback_reason(end_of(EndCause::failed)), Reason::not_started);
  EXPECT_EQ(rollback_reason(end_of(EndCause::lost)), Reason::host_lost);
}

TEST(RunResult, EveryEndHasItsExitStatus) {
  const auto rolled_back = record_in(State::rolled_back, Reason::exit_status);
  EXPECT_EQ(exit_code_of_run(record_in(State::committed, Reason::success), end_of(EndCause::exited)), 0);
  EXPECT_EQ(exit_code_of_run(record_in(State::committed, Reason::no_changes), end_of(EndCause::exited)), 0);
  EXPECT_EQ(exit_code_of_run(record_in(State::commit_failed, Reason::conflict), end_of(EndCause::exited)), 122);
  EXPECT_EQ(exit_code_of_run(record_in(State::awaiting_approval, Reason::none), end_of(EndCause::exited)), 123);
  EXPECT_EQ(exit_code_of_run(record_in(State::open, Reason::none), end_of(EndCause::exited)), 125);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::exited, 77)), 77);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::signalled, 0, SIGKILL)), 137);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::cancelled, 0, SIGINT)), 130);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::timed_out)), 124);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::failed)), 125);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::lost)), 125);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::could_not_run)), 126);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::not_found)), 127);
  EXPECT_EQ(exit_code_of_run(rolled_back, end_of(EndCause::exited, 0)), 125) << "Escrow failed after exit 0";
}

std::string summary(const api::RunResult& result, const CommandEnd& end) {
  return summary_of({result, end, std::chrono::milliseconds(90'000)});
}

TEST(RunResult, TheSummarySaysWhatBecameOfTheSession) {
  api::RunResult result;
  result.record = record_in(State::committed, Reason::success);
  result.record->commit = session::ObjectId::from_hex("1234567890123456789012345678901234567890");
  result.counts = {2, 1, 3};
  EXPECT_EQ(summary(result, end_of(EndCause::exited)),
            "session 0123456789abcdef was committed to main as 123456789012: 2 added, 1 modified, 3 deleted");
  result.record = record_in(State::committed, Reason::no_changes);
  EXPECT_EQ(summary(result, end_of(EndCause::exited)),
            "session 0123456789abcdef changed nothing, so there is no commit");
  result.record = record_in(State::rolled_back, Reason::timed_out);
  EXPECT_EQ(summary(result, end_of(EndCause::timed_out)),
            "session 0123456789abcdef was rolled back: the command ran longer than 1m30s");
  EXPECT_EQ(summary(result, end_of(EndCause::signalled, 0, SIGSEGV)),
            "session 0123456789abcdef was rolled back: the command was killed by SIGSEGV");
  EXPECT_EQ(summary(result, end_of(EndCause::not_found)),
            "session 0123456789abcdef was rolled back: the command \"x\" was not found");
}

TEST(RunResult, AResultThatWaitsIsNamedWithWhatCanBeDoneAboutIt) {
  api::RunResult result;
  result.record = record_in(State::awaiting_approval, Reason::none);
  result.record->result = session::ObjectId::from_hex("1234567890123456789012345678901234567890");
  result.record->expires = session::Timestamp{1'700'000'000, 0};
  result.counts = {2, 0, 3};
  EXPECT_EQ(summary(result, end_of(EndCause::exited)),
            "session 0123456789abcdef (2 added, 3 deleted) awaits approval of its result "
            "1234567890123456789012345678901234567890, until 2023-11-14 22:13:20 +0000: `escrow diff "
            "0123456789abcdef` shows it, `escrow approve 0123456789abcdef --result "
            "1234567890123456789012345678901234567890` commits it, `escrow reject 0123456789abcdef` rolls it back");
}

TEST(RunResult, AConflictNamesItsPathsAndWhereTheResultIs) {
  api::RunResult result;
  result.record = record_in(State::commit_failed, Reason::conflict);
  for (int at = 0; at < 7; ++at) {
    result.conflicts.push_back({"f" + std::to_string(at), session::Did::modified, session::Did::deleted});
  }
  EXPECT_EQ(summary(result, end_of(EndCause::exited)),
            "session 0123456789abcdef was not committed: 7 paths conflict with what others committed to main "
            "meanwhile: f0, f1, f2, f3, f4 and 2 more; its result is kept as refs/sessions/0123456789abcdef; "
            "`escrow resume 0123456789abcdef` opens a session with it on the new head");
}

TEST(RunResult, AFailedCommitSaysHowToTryAgain) {
  api::RunResult result;
  result.record = record_in(State::open, Reason::none);
  result.error = "the disk is full";
  result.record->last_error = result.error;
  const std::string text = summary(result, end_of(EndCause::exited));
  EXPECT_NE(text.find("the disk is full"), std::string::npos);
  EXPECT_NE(text.find("`escrow commit 0123456789abcdef`"), std::string::npos);
}

TEST(RunResult, WhatIsLeftOutIsNamedByKind) {
  EXPECT_EQ(omissions_sentence({}, false), "");
  EXPECT_EQ(omissions_sentence({{"a.sock", session::OmissionKind::socket},
                                {"b\n", session::OmissionKind::socket},
                                {"e", session::OmissionKind::empty_directory}},
                               false),
            "left out of the commit: 2 socket (a.sock, \"b\\n\"); 1 empty directory (e)");
}

TEST(RunResult, IsWrittenWholeOrNotAtAll) {
  const tests::ScratchDirectory scratch;
  api::RunResult result;
  result.record = record_in(State::rolled_back, Reason::exit_status);
  result.command_status = 3;
  result.exit_code = 3;
  result.conflicts = {{"bad\xff", session::Did::modified, session::Did::deleted}};
  result.omitted = {{"x", session::OmissionKind::excluded}, {"s", session::OmissionKind::socket}};
  write_result(scratch.file("out"), result);
  const std::string text = tests::read_file(scratch.file("out"));
  EXPECT_NE(text.find("\"session\":\"0123456789abcdef\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"exit_code\":3"), std::string::npos) << text;
  EXPECT_NE(text.find("\"path_base64\":\"YmFk/w==\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"excluded\":[\"x\"]"), std::string::npos) << text;
  EXPECT_NE(text.find("\"omitted\":{\"socket\":[\"s\"]}"), std::string::npos) << text;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1) << "no temporary file stays";
  EXPECT_THROW(write_result(scratch.file("missing/out"), result), session::Error);
  EXPECT_THROW(check_result_path(scratch.file("missing/out")), session::Error);
  EXPECT_THROW(check_result_path(scratch.path()), session::Error);
  EXPECT_NO_THROW(check_result_path(scratch.file("out")));
}

TEST(Words, OfTheCommandAreThoseThatWereTyped) {
  const std::vector<std::string> line = {"escrow", "run", "--", "grep", "[0-9]", "", "[a,b]", "[]", "x"};
  EXPECT_EQ(words_as_given(line, {"grep", "0-9", "", "a", "b", "x"}),
            (std::vector<std::string>{"grep", "[0-9]", "", "[a,b]", "[]", "x"}));
  EXPECT_EQ(words_as_given({"escrow", "run", "make", "-j2"}, {"make", "-j2"}),
            (std::vector<std::string>{"make", "-j2"}));
}

}  // namespace
}  // namespace escrow::daemon
