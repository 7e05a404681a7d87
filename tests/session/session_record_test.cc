#include "session/interfaces/session_record.h"

#include <gtest/gtest.h>

#include <array>

#include "session/base/error.h"

namespace escrow::session {
namespace {

Errc code_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Errc::input_output;
}

TEST(SessionRecord, EveryStateAndReasonComesBackFromItsName) {
  for (int value = 0; value <= static_cast<int>(State::rolled_back); ++value) {
    const auto state = static_cast<State>(value);
    EXPECT_EQ(state_from_name(name_of(state)), state);
  }
  for (int value = 0; value <= static_cast<int>(Reason::lease_expired); ++value) {
    const auto reason = static_cast<Reason>(value);
    EXPECT_EQ(reason_from_name(name_of(reason)), reason);
  }
}

TEST(SessionRecord, AnUnknownNameIsNoState) {
  EXPECT_EQ(state_from_name("Open"), std::nullopt);
  EXPECT_EQ(state_from_name(""), std::nullopt);
  EXPECT_EQ(reason_from_name("?"), std::nullopt);
}

TEST(SessionRecord, OnlyThreeStatesAreFinal) {
  EXPECT_FALSE(is_final(State::open));
  EXPECT_FALSE(is_final(State::awaiting_approval));
  EXPECT_FALSE(is_final(State::committing));
  EXPECT_TRUE(is_final(State::committed));
  EXPECT_TRUE(is_final(State::commit_failed));
  EXPECT_TRUE(is_final(State::rolled_back));
}

TEST(SessionRecord, ARuleOnlyMakesASessionStricter) {
  for (const auto& [asked, ruled, expected] : {std::array<std::int64_t, 3>{0, 0, 0}, {60, 0, 60}, {0, 60, 60},
                                               {30, 60, 30}, {60, 30, 30}}) {
    SessionOptions options;
    options.require_approval = true;
    options.approval_expires_s = asked;
    strengthen(options, {.require_approval = false, .approval_expires_s = ruled});
    EXPECT_EQ(options.approval_expires_s, expected);
    EXPECT_TRUE(options.require_approval) << "a rule that asks for nothing takes nothing away";
  }
  SessionOptions options;
  strengthen(options, {.require_approval = true, .approval_expires_s = 0});
  EXPECT_TRUE(options.require_approval);
}

TEST(SessionRecord, AuditValuesHoldNoControlCharacters) {
  EXPECT_NO_THROW(check_audit_value("Grüße, 世界", "--image"));
  EXPECT_NO_THROW(check_audit_value("", "--image"));
  EXPECT_NO_THROW(check_audit_value(std::string(1024, 'a'), "--image"));
  for (const char* bad : {"a\nb", "a\rb", "\x1b[31m", "a\x7f", "a\tb", "a\xc2\x85" "b"})
    EXPECT_EQ(code_of([&] { check_audit_value(bad, "--image"); }), Errc::bad_request) << bad;
  EXPECT_EQ(code_of([] { check_audit_value(std::string_view("a\0b", 3), "--image"); }), Errc::bad_request);
  EXPECT_EQ(code_of([] { check_audit_value(std::string(1025, 'a'), "--image"); }), Errc::bad_request);
}

TEST(SessionRecord, ARefusedAuditValueIsNamed) {
  try {
    check_audit_value("a\nb", "--trigger");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--trigger"), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(SessionRecord, PrincipalsHaveAKindAndAName) {
  for (const char* good : {"user:alice", "agent:trainer-7", "role:ci", "user:a b", "user:a:b"})
    EXPECT_NO_THROW(check_principal(good, "--committer")) << good;
  for (const char* bad : {"", "alice", "user:", "User:alice", "group:x", "user:a<b", "user:a>", "user: a", "user:a ",
                          "user:a\nb"})
    EXPECT_EQ(code_of([&] { check_principal(bad, "--committer"); }), Errc::bad_request) << bad;
}

}  // namespace
}  // namespace escrow::session
