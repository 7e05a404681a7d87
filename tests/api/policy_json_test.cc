// Policies as JSON: what is understood, and that nothing else is, with line, column and reason.
#include "api/policy_json.h"

#include <gtest/gtest.h>

#include "session/base/error.h"

namespace escrow::api {
namespace {

using session::Action;

TEST(PolicyJson, IsReadAsItIsWritten) {
  const session::PolicyDocument document = parse_policy(R"({
    "default": "deny",
    "rules": [
      {"effect": "allow", "actions": ["read", "list"], "paths": ["/"]},
      {"paths": ["a", "b/\u00e4/**"], "actions": ["delete"], "effect": "deny"}
    ]})",
                                                        "p.json");
  EXPECT_FALSE(document.allows_by_default);
  ASSERT_EQ(document.rules.size(), 2u);
  EXPECT_TRUE(document.rules[0].allows);
  EXPECT_EQ(document.rules[0].actions, (session::Actions{Action::read, Action::list}));
  EXPECT_EQ(document.rules[0].paths, std::vector<std::string>{"/"});
  EXPECT_FALSE(document.rules[1].allows);
  EXPECT_EQ(document.rules[1].actions, session::Actions{Action::remove});
  EXPECT_EQ(document.rules[1].paths, (std::vector<std::string>{"a", "b/\u00e4/**"}));
  EXPECT_TRUE(parse_policy(R"({"default":"allow","rules":[]})", "p").allows_by_default);
}

struct Refused {
  const char *text, *where, *why;
};

TEST(PolicyJson, WhatIsNotUnderstoodIsRefusedWithLineAndReason) {
  const Refused cases[] = {
      {"", "p.json:1:1", "JSON"},
      {"{\"default\": \"allow\"", "p.json:1:", "JSON"},
      {"{\"default\": \"allow\",\n \"rules\": [}", "p.json:2:12", "JSON"},
      {"{\"default\": \"allow\", \"rules\": []} x", "p.json:1:", "JSON"},
      {"[]", "p.json:1:1", "an object"},
      {"{\"rules\": []}", "p.json:1:1", "no \"default\""},
      {"{\"default\": \"allow\"}", "p.json:1:1", "no \"rules\""},
      {"{\"default\": \"maybe\", \"rules\": []}", "p.json:1:13", "\"allow\" or \"deny\""},
      {"{\"default\": true, \"rules\": []}", "p.json:1:13", "\"allow\" or \"deny\""},
      {"{\n  \"default\": \"allow\",\n  \"rule\": []}", "p.json:3:3", "\"rule\""},
      {"{\"default\": \"allow\", \"default\": \"deny\", \"rules\": []}", "p.json:1:22", "twice"},
      {"{\"default\": \"allow\", \"rules\": {}}", "p.json:1:31", "an array"},
      {"{\"default\": \"allow\", \"rules\": [\n1]}", "p.json:2:1", "an object"},
      {"{\"default\": \"allow\", \"rules\": [\n{\"effect\": \"deny\", \"actions\": [\"read\"],\n\"path\": [\"a\"]}]}",
       "p.json:3:1", "\"path\""},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\",\n   \"wriet\"], "
       "\"paths\": [\"a\"]}]}",
       "p.json:2:4", "wriet"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [], \"paths\": [\"a\"]}]}",
       "p.json:1:62", "without actions"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\"], \"paths\": []}]}",
       "p.json:1:81", "without paths"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\"], \"paths\": \"a\"}]}",
       "p.json:1:81", "an array"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\"],\n\"paths\": [\"a\",\n"
       "\"\"]}]}",
       "p.json:3:1", "empty"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\"],\n\"paths\": [\"a//b\"]}]}",
       "p.json:2:11", "a//b"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [\"read\"],\n\"paths\": [7]}]}",
       "p.json:2:11", "a string"},
      {"{\"default\": \"allow\", \"rules\": [{\"effect\": \"deny\", \"actions\": [7], \"paths\": [\"a\"]}]}",
       "p.json:1:63", "no action"},
      {"{\"default\": \"allow\", \"rules\": [[[[[[[[[[[]]]]]]]]]]]}", "p.json:1:", "nested"},
  };
  for (const Refused& it : cases) {
    try {
      parse_policy(it.text, "p.json");
      ADD_FAILURE() << "taken: " << it.text;
    } catch (const session::Error& error) {
      EXPECT_EQ(error.code(), session::Errc::bad_request);
      const std::string said = error.what();
      EXPECT_NE(said.find(it.where), std::string::npos) << it.text << "\n" << said;
      EXPECT_NE(said.find(it.why), std::string::npos) << it.text << "\n" << said;
    }
  }
}

TEST(PolicyJson, TextThatIsTooLongOrHidesItsEndIsRefused) {
  const std::string good = R"({"default": "allow", "rules": []})";
  EXPECT_NO_THROW(parse_policy(good + std::string(1000, '\n'), "p"));
  EXPECT_THROW(parse_policy(good + std::string(kMaxPolicy_bytes, ' '), "p"), session::Error);
  EXPECT_THROW(parse_policy(good + '\0' + "garbage", "p"), session::Error);
  EXPECT_THROW(parse_policy("{\"default\": \"allow\", \"rules\": [], \"\xff\": 1}", "p"), session::Error);
  std::string many = R"({"default": "allow", "rules": [{"effect": "deny", "actions": ["read"], "paths": ["a")";
  for (int i = 0; i < 20'000; ++i) many += ",\"a\"";
  EXPECT_THROW(parse_policy(many + "]}]}", "p"), session::Error);
}

}  // namespace
}  // namespace escrow::api
