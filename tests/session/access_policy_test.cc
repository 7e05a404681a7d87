// Policies: what single rules mean, and that any number of them decide as a slow evaluator does that shares no code.
#include "session/decorators/access_policy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <set>

#include "session/base/error.h"
#include "session/base/path_pattern.h"
#include "tests/support/seed.h"
#include "tests/support/slow_policy.h"

namespace escrow::session {
namespace {

constexpr Actions kAll = Actions::all();

PolicyDocument document(bool allows_by_default, std::vector<PolicyRule> rules) {
  return {allows_by_default, std::move(rules)};
}
PolicyRule deny(Actions actions, std::vector<std::string> paths) { return {false, actions, std::move(paths)}; }
PolicyRule allow(Actions actions, std::vector<std::string> paths) { return {true, actions, std::move(paths)}; }

TEST(AccessPolicy, WhatNoRuleNamesFollowsTheDefault) {
  EXPECT_EQ(AccessPolicy({document(true, {})}).allowed("a/b", false), kAll);
  EXPECT_EQ(AccessPolicy({document(false, {})}).allowed("a/b", false), Actions());
}

TEST(AccessPolicy, ADenyWinsInWhateverOrder) {
  const PolicyRule no = deny({Action::write}, {"a"}), yes = allow({Action::write, Action::read}, {"a"});
  for (const auto& rules : {std::vector{no, yes}, std::vector{yes, no}})
    EXPECT_EQ(AccessPolicy({document(false, rules)}).allowed("a", false), Actions{Action::read});
}

TEST(AccessPolicy, APatternThatMatchesADirectoryCoversEverythingBelowIt) {
  const AccessPolicy policy({document(true, {deny(kAll, {"secret/"})})});
  EXPECT_EQ(policy.allowed("secret", true), Actions());
  EXPECT_EQ(policy.allowed("secret", false), kAll) << "a file of that name is no directory";
  EXPECT_EQ(policy.allowed("secret/a/b", false), Actions());
  EXPECT_EQ(policy.allowed("x/secret/a", false), Actions());
  EXPECT_EQ(policy.allowed("secretary/a", false), kAll);
}

TEST(AccessPolicy, TheRootIsASlashAndCoversEverything) {
  for (const char* everything : {"/", "**"}) {
    const AccessPolicy policy({document(false, {allow({Action::read}, {everything})})});
    EXPECT_EQ(policy.allowed("", true), Actions{Action::read});
    EXPECT_EQ(policy.allowed("a/b/c", false), Actions{Action::read});
  }
  for (const char* names : {"*", "/*", "/**"}) {
    const AccessPolicy policy({document(false, {allow({Action::read}, {names})})});
    EXPECT_EQ(policy.allowed("", true), Actions()) << "the root has no name";
    EXPECT_EQ(policy.allowed("a/b/c", false), Actions{Action::read});
  }
}

TEST(AccessPolicy, EachOfSeveralPoliciesCanOnlyNarrow) {
  const PolicyDocument one = document(true, {deny({Action::write}, {"a"})});
  const PolicyDocument two = document(false, {allow({Action::read, Action::write}, {"a", "b"})});
  const AccessPolicy policy({one, two});
  EXPECT_EQ(policy.allowed("a", false), Actions{Action::read});
  EXPECT_EQ(policy.allowed("b", false), (Actions{Action::read, Action::write}));
  EXPECT_EQ(policy.allowed("c", false), Actions());
  EXPECT_THROW(AccessPolicy(std::vector<PolicyDocument>(kMaxPolicies + 1)), Error);
}

TEST(AccessPolicy, TheRuleThatDecidedIsNamed) {
  const PolicyDocument one = document(true, {deny({Action::write}, {"*.log"})});
  const PolicyDocument two = document(false, {allow(kAll, {"src/"}), deny({Action::write}, {"src/**"})});
  const AccessPolicy policy({one, two});
  const auto why = [&](const char* path, Action action) {
    return AccessPolicy::describe(policy.decide(path, false, action));
  };
  EXPECT_EQ(why("src/a.log", Action::write), "policy 1, rule 1: deny *.log");
  EXPECT_EQ(why("src/a.c", Action::write), "policy 2, rule 2: deny src/**");
  EXPECT_EQ(why("src/a.c", Action::read), "policy 2, rule 1: allow src/");
  EXPECT_EQ(why("doc", Action::read), "policy 2, default: deny");
  EXPECT_EQ(AccessPolicy::describe(AccessPolicy({document(true, {})}).decide("a", false, Action::list)),
            "policy 1, default: allow");
}

TEST(AccessPolicy, PatternsThatMatchNothingAreRefused) {
  for (const char* pattern : {"", "//", "!a", "a//b", "./a", "a/../b", "..", "a\\", "a\\/b", "[ab", "a/[",
                              "[a/b]", "/a//"})
    EXPECT_THROW(check_policy_pattern(pattern), Error) << pattern;
  EXPECT_THROW(check_policy_pattern(std::string("a\0b", 3)), Error);
  EXPECT_THROW(check_policy_pattern(std::string(5000, 'a')), Error);
  for (const char* pattern : {"/", "a", "/a/", "**", "**/a", "a/**", "[]a]", "[a\\]]", "\\[", "a\\\\",
                              "*.key", "a b", "..a"})
    EXPECT_NO_THROW(check_policy_pattern(pattern)) << pattern;
}

// Every path of the names, down to three levels.
std::vector<std::string> all_paths() {
  std::vector<std::string> paths{""};
  for (std::size_t begin = 0, depth = 0; depth < 3; ++depth) {
    const std::size_t end = paths.size();
    for (std::size_t i = begin; i < end; ++i)
      for (const std::string& name : support::kPolicyNames)
        paths.push_back(paths[i].empty() ? name : paths[i] + "/" + name);
    begin = end;
  }
  return paths;
}

TEST(AccessPolicy, RandomPoliciesDecideAsTheSlowEvaluatorDoes) {
  const std::uint64_t seed = support::seed_of_this_run();
  std::mt19937_64 random(seed);
  const std::vector<std::string> paths = all_paths();
  for (std::uint64_t round = 0; round < support::gate_or_campaign(40, 300); ++round) {
    const auto documents = support::random_policies(random);
    const AccessPolicy policy(documents);
    const support::SlowPolicy slow(documents);
    const auto where = [&](const std::string& path) {
      return "seed " + std::to_string(seed) + ", '" + path + "' under\n" + support::describe(documents);
    };
    for (int i = 0; i < 40; ++i) {
      const std::string& path = paths[random() % paths.size()];
      for (const bool is_directory : {false, true}) {
        const Actions expected = slow.allowed(path, is_directory);
        ASSERT_EQ(policy.allowed(path, is_directory), expected) << where(path);
        const std::size_t slash = path.rfind('/');
        const auto parent = policy.at(slash == std::string::npos ? "" : path.substr(0, slash), true);
        if (!path.empty()) {
          ASSERT_EQ(policy.allowed(policy.below(parent, path, is_directory)), expected) << where(path);
        }
        for (const Action action : kAllActions) {
          ASSERT_EQ(policy.decide(path, is_directory, action).allowed, expected.has(action)) << where(path);
          if (!expected.has(action)) { ASSERT_TRUE(policy.can_deny(action)) << where(path); }
        }
      }
    }
  }
}

// Every text of up to so many of the characters, one after the other.
void for_each_text(const std::string& characters, std::size_t most,
                   const std::function<void(const std::string&)>& use) {
  std::vector<std::string> texts{""};
  for (std::size_t length = 1; length <= most; ++length) {
    std::vector<std::string> longer;
    for (const std::string& text : texts)
      for (const char c : characters) use(longer.emplace_back(text + c));
    texts = std::move(longer);
  }
}

// Random patterns rarely are `***/a` or `[]-a]`; this test has them. The seed chooses a part of the patterns of six and
// seven characters.
TEST(AccessPolicy, EveryShortPatternDecidesAsTheSlowEvaluatorDoes) {
  const std::uint64_t seed = support::seed_of_this_run();
  const std::uint64_t parts = support::gate_or_campaign(100, 16);
  std::size_t decided = 0, long_ones = 0;
  const auto compare = [&](const std::string& pattern, std::initializer_list<const char*> paths) {
    if (pattern.size() >= 6 && ++long_ones % parts != seed % parts) return;
    try {
      check_policy_pattern(pattern);
    } catch (const Error&) {
      return;
    }
    const std::vector<PolicyDocument> documents{document(true, {deny({Action::write}, {pattern})})};
    const AccessPolicy policy(documents);
    const support::SlowPolicy slow(documents);
    for (const char* const path : paths)
      for (const bool is_directory : {false, true})
        ASSERT_EQ(policy.decide(path, is_directory, Action::write).allowed,
                  slow.allows(path, is_directory, Action::write))
            << "'" << path << (is_directory ? "/" : "") << "' under " << pattern;
    ++decided;
  };
  for_each_text("a*/?", 7, [&](const std::string& pattern) {
    compare(pattern, {"a", "b", "a/a", "a/b", "b/a/a", "b/a/b/a"});
  });
  for_each_text("ab[]!-\\", 6, [&](const std::string& pattern) {
    compare(pattern, {"a", "b", "-", "!", "]", "\\", "ab"});
  });
  EXPECT_GT(decided, 10'000u);
}

TEST(AccessPolicy, WhatIsSaidOfAllBelowADirectoryIsNeverTooLittle) {
  const std::uint64_t seed = support::seed_of_this_run();
  std::mt19937_64 random(seed);
  const std::vector<std::string> paths = all_paths();
  int uniform = 0, closed = 0;
  for (int round = 0; round < 60; ++round) {
    const auto documents = support::random_policies(random);
    const AccessPolicy policy(documents);
    const support::SlowPolicy slow(documents);
    const std::string& path = paths[random() % 31];  // with something below it
    const Actions here = policy.allowed(path, true);
    const bool may_differ = policy.may_differ_below(path);
    const Actions may_be = policy.may_be_allowed_below(policy.at(path, true));
    uniform += !may_differ;
    closed += may_be.empty();
    for (const std::string& below : paths) {
      if (below == path || !(path.empty() || below.starts_with(path + "/"))) continue;
      for (const bool is_directory : {false, true}) {
        const Actions there = slow.allowed(below, is_directory);
        const auto where = [&] {
          return "seed " + std::to_string(seed) + ", '" + below + "' below '" + path + "' under\n" +
                 support::describe(documents);
        };
        if (!may_differ) { ASSERT_EQ(there, here) << where(); }
        ASSERT_TRUE((there - may_be).empty()) << where();
      }
    }
  }
  EXPECT_GT(uniform, 0) << "the walk is never spared";
  EXPECT_GT(closed, 0) << "nothing is ever hidden";
}

// As a lookup decides it, of each name on the way.
bool can_be_seen(const AccessPolicy& policy, const std::string& path) {
  for (std::size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
    const std::string name = path.substr(0, slash);
    if (policy.allowed(name, false).empty() && policy.allowed(name, true).empty() &&
        policy.may_be_allowed_below(policy.at(name, true)).empty())
      return false;
    if (slash == std::string::npos) return true;
  }
}

// What a mount asks nobody for is what no policy denies: every short pattern, each with rules that deny all, what an
// open needs, or nothing of that.
TEST(AccessPolicy, WhatIsNotDeniedOnAnythingSeenIsDeniedNowhereThatCanBeSeen) {
  const std::vector<std::string> paths = {"a",     "b",     "a/a",   "a/b",   "b/a",     "b/b",
                                          "a/a/a", "a/b/a", "b/a/a", "b/a/b", "x.key/a", "x.key"};
  std::size_t hiding = 0, open = 0;
  const auto check = [&](const std::vector<PolicyDocument>& documents) {
    const AccessPolicy policy(documents);
    const support::SlowPolicy slow(documents);
    bool hides = false;
    for (const std::string& path : paths) {
      if (!can_be_seen(policy, path)) {
        hides = true;
        continue;
      }
      for (const Action action : kAllActions) {
        const auto where = [&] { return "'" + path + "' under\n" + support::describe(documents); };
        if (!slow.allows(path, false, action)) { ASSERT_TRUE(policy.can_deny_on_seen_file(action)) << where(); }
        if (!slow.allows(path, true, action)) { ASSERT_TRUE(policy.can_deny_on_seen_directory(action)) << where(); }
      }
    }
    const bool asks = policy.can_deny_on_seen_file(Action::read) || policy.can_deny_on_seen_file(Action::write);
    open += !asks;
    hiding += !asks && hides;
  };
  const Actions kinds[] = {kAll, {Action::read, Action::write}, {Action::list},
                           {Action::create, Action::remove, Action::rename, Action::metadata}};
  for_each_text("a*/", 4, [&](const std::string& pattern) {
    try {
      check_policy_pattern(pattern);
    } catch (const Error&) {
      return;
    }
    for (const Actions kind : kinds) check({document(true, {deny({Action::create}, {"b"}), deny(kind, {pattern})})});
    check({document(true, {deny(kAll, {pattern, "x.key/"})}), document(true, {allow(kAll, {"a/b"})})});
    check({document(true, {deny(kAll, {pattern})}), document(false, {allow(kAll, {"/"})})});
  });
  EXPECT_GT(hiding, 50u);
  EXPECT_GT(open, hiding) << "those that deny creating and the like alone are among them";
}

TEST(AccessPolicy, ADenialOfAllThatNamesDirectoriesOnlyLeavesThemToBeSeen) {
  const AccessPolicy hidden({document(true, {deny(kAll, {"secrets", "*.key"})})});
  EXPECT_FALSE(hidden.can_deny_on_seen_file(Action::read));
  EXPECT_FALSE(hidden.can_deny_on_seen_directory(Action::list));
  const AccessPolicy entered({document(true, {deny(kAll, {"secrets/"})})});
  EXPECT_FALSE(entered.can_deny_on_seen_file(Action::read));
  EXPECT_TRUE(entered.can_deny_on_seen_directory(Action::list));
  const AccessPolicy read_only({document(true, {deny({Action::write}, {"/src/**"})})});
  EXPECT_FALSE(read_only.can_deny_on_seen_file(Action::read));
  EXPECT_TRUE(read_only.can_deny_on_seen_file(Action::write));
}

TEST(AccessPolicy, AClassTakesWhatItsRangesAndEscapesSay) {
  const auto taken = [](const char* glob) {
    std::string characters;
    for (int c = 1; c < 128; ++c)
      if (glob_match(glob, std::string(1, static_cast<char>(c)))) characters += static_cast<char>(c);
    return characters;
  };
  EXPECT_EQ(taken("[a-c]"), "abc");
  EXPECT_EQ(taken("[\\a-\\c]"), "abc");
  EXPECT_EQ(taken("[Z-\\]]"), "Z[\\]");
  EXPECT_EQ(taken("[]a]"), "]a");
  EXPECT_EQ(taken("[a\\]]"), "]a");
  EXPECT_EQ(taken("[a-]"), "-a");
  EXPECT_EQ(taken("[c-a]"), "");
  EXPECT_EQ(taken("[^!-.0-~]"), taken("[!!-.0-~]"));
}

std::string repeated(const std::string& part, std::size_t size) {
  std::string text;
  while (text.size() + part.size() <= size) text += part;
  return text;
}

// As long as the service takes them, on the paths that they are the slowest on. A matcher that tries again wherever it
// can takes minutes; this one a second, under the sanitizers ten.
TEST(PathPatterns, NoPatternMakesAPathSlow) {
  const std::string narrow = repeated("a/", 4000) + "a", wide = repeated(std::string(255, '[') + "/", 4000) + "[";
  const std::pair<std::string, std::string> worst[] = {
      {"**/" + repeated("a/", 4000) + "b", narrow},  {"**/" + repeated("?/", 2000) + "b", narrow},
      {"**/*" + repeated("[!b]", 2000) + "b", wide}, {"**/" + repeated("**/*[*", 4000) + "b", wide},
      {"**/*" + repeated("[", 4000) + "b", wide},    {"**/*" + repeated("[a\\]", 4000) + "b", wide}};
  // Processor time, which no load of the machine adds to.
  const std::clock_t begin = std::clock();
  for (const auto& [pattern, path] : worst) {
    const PathPatterns patterns(std::vector<std::string>(20, pattern));
    EXPECT_FALSE(patterns.match(path, false)) << pattern.substr(0, 20);
  }
  EXPECT_LT(std::clock() - begin, 12 * CLOCKS_PER_SEC);
  EXPECT_TRUE(PathPatterns({"**/" + repeated("a/", 3000) + "a"}).match(narrow, false));
}

// As a lookup of a hidden name is judged: in its directory, as a file, as a directory, and by what may be below it.
TEST(AccessPolicy, AThousandRulesAreNotLookedAtOneByOne) {
  std::vector<PolicyRule> rules{deny(kAll, {"hidden*"})};
  const std::vector<std::string> kinds = {"secret#/", "/private/#/**", "*.ext#", "/d#/keys/*.pem", "team/**/report#.*",
                                          "*part#*",  "/*/[ab]#/*.c",  "**/x#/?"};
  for (std::size_t i = 0; i < 1000; ++i) {
    std::string pattern = kinds[i % kinds.size()];
    pattern.replace(pattern.find('#'), 1, std::to_string(i));
    rules.push_back(i % 2 == 0 ? allow({Action::read, Action::list}, {pattern}) : deny({Action::write}, {pattern}));
  }
  const AccessPolicy policy({document(true, {deny(kAll, {"/"})}), document(false, rules)});
  std::chrono::nanoseconds best = std::chrono::hours(1);
  for (int turn = 0; turn < 5; ++turn) {
    constexpr int kLookups = 200;
    const std::clock_t begin = std::clock();  // processor time, which no load of the machine adds to
    for (int i = 0; i < kLookups; ++i) {
      const AccessPolicy::Place directory = policy.at("team/source/library", true);
      const std::string path = "team/source/library/hidden" + std::to_string(i);
      ASSERT_TRUE(policy.allowed(policy.below(directory, path, false)).empty());
      const AccessPolicy::Place place = policy.below(directory, path, true);
      ASSERT_TRUE(policy.allowed(place).empty());
      ASSERT_TRUE(policy.may_be_allowed_below(place).empty());
    }
    const std::chrono::nanoseconds all = std::chrono::seconds(std::clock() - begin);
    best = std::min(best, all / CLOCKS_PER_SEC / kLookups);
  }
  RecordProperty("lookup_ns", std::to_string(best.count()));
  EXPECT_LT(best, std::chrono::microseconds(500)) << "50 as it is shipped; it took 6,000 when each was looked at";
}

TEST(AccessPolicy, NoPathMakesAPatternSlow) {
  const std::string path(4000, 'a');
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "a/";
  deep += "a";
  const std::clock_t begin = std::clock();
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*b", path));
  EXPECT_FALSE(glob_match("**/*a*/**/*a*/**/*a*/**/*a*/**/b", deep));
  EXPECT_TRUE(glob_match("**/*a*/**/*a*/**/*a*/**/*a*/**/a", deep));
  EXPECT_LT(std::clock() - begin, 30 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace escrow::session
