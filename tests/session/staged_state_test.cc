// A session that is made of the parts of another one: whoever sent them, nothing comes of parts that cannot be.
#include "session/transaction/staged_state.h"

#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

class StagedState : public Sessions {
 protected:
  std::unique_ptr<Session> open_with(const std::vector<StagedName>& names, const std::string& prefix = "") {
    return manager_.open_from_staged_state("", "user:alice", [&](StagedParts& to) {
      SessionRecord record{SessionId::generate()};
      record.options = options(prefix);
      record.base = world_.references.head("main");
      to.begin(record);
      for (const StagedName& name : names) to.name(name);
      to.end();
    });
  }
  static StagedName with(std::function<void(StagedName&)> change) {
    StagedName name{.path = "name", .mode = S_IFREG | 0644};
    change(name);
    return name;
  }
};

TEST_F(StagedState, WhatNoProgramCouldHaveMadeIsRefusedAndLeavesNothing) {
  world_.push("main", {{"f", "f"}, {"d/g", "g"}});
  const ObjectId none{}, some = ObjectId::from_hex(std::string(40, 'a')).value();
  const std::vector<std::pair<const char*, StagedName>> wrong = {
      {"a submodule as the root", with([&](StagedName& one) { one.path = "", one.submodule = some; })},
      {"a file as the root", with([](StagedName& one) { one.path = ""; })},
      {"a submodule without a commit", with([&](StagedName& one) { one.submodule = none; })},
      {"a submodule below a file", with([&](StagedName& one) { one.path = "f/s", one.submodule = some; })},
      {"a submodule in the place of a file", with([&](StagedName& one) { one.path = "f", one.submodule = some; })},
      {"a file below a file", with([](StagedName& one) { one.path = "f/x"; })},
      {"an impossible type", with([](StagedName& one) { one.mode = 0170644; })},
      {"no type", with([](StagedName& one) { one.mode = 0644; })},
      {"bits beyond the mode", with([](StagedName& one) { one.mode |= 01000000; })},
      {"a link to nowhere", with([](StagedName& one) { one.mode = S_IFLNK | 0777; })},
      {"a NUL in a target",
       with([](StagedName& one) { one.mode = S_IFLNK | 0777, one.target = std::string("a\0b", 3); })},
      {"a target that is too long",
       with([](StagedName& one) { one.mode = S_IFLNK | 0777, one.target = std::string(4096, 'a'); })},
      {"a target of a file", with([](StagedName& one) { one.target = "a"; })},
      {"an impossible size", with([](StagedName& one) { one.size_bytes = ~std::uint64_t{}; })},
      {"an impossible owner", with([](StagedName& one) { one.uid = ~std::uint32_t{}; })},
      {"an attribute of the system", with([](StagedName& one) { one.xattrs = {{"security.capability", "x"}}; })},
      {"a NUL in an attribute", with([](StagedName& one) { one.xattrs = {{std::string("user.a\0b", 8), "x"}}; })},
      {"a long attribute", with([](StagedName& one) { one.xattrs = {{"user." + std::string(300, 'a'), "x"}}; })},
      {"a large attribute", with([](StagedName& one) { one.xattrs = {{"user.a", std::string(70000, 'a')}}; })},
      {"bytes of what the base has not", with([](StagedName& one) { one.base_path = "nowhere"; })},
      {"bytes of a directory", with([](StagedName& one) { one.base_path = "d"; })},
      {"bytes from outside", with([](StagedName& one) { one.base_path = "../f"; })},
      {"a directory with bytes of the base",
       with([](StagedName& one) { one.mode = S_IFDIR | 0755, one.base_path = "f"; })},
      {"a link to a file that is not there", with([](StagedName& one) { one.same_as = "f"; })},
  };
  for (const auto& one : wrong)
    EXPECT_EQ(code_of([&] { open_with({one.second}); }), Errc::bad_request) << one.first;
  EXPECT_EQ(code_of([&] {
              open_with({with([&](StagedName& one) { one.path = "s", one.submodule = some; }),
                         with([](StagedName& one) { one.path = "s/x"; })});
            }),
            Errc::bad_request)
      << "a file in a submodule";
  EXPECT_TRUE(world_.directories.list().empty());
}

TEST_F(StagedState, PrefixWithANameThatGitRefusesIsRefusedAndLeavesNothing) {
  world_.push("main", {{"f", "f"}});
  for (const char* refused : {".git", "a/.GIT/b", "git~1", ".gitmodules"})
    EXPECT_EQ(code_of([&] { open_with({}, refused); }), Errc::bad_request) << refused;
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_TRUE(world_.catalog.list().empty());
}

TEST_F(StagedState, AFileOfTheBaseIsTakenFromWhereItWas) {
  world_.push("main", {{"f", "of the base"}, {"d/g", "g"}});
  const auto session =
      open_with({with([](StagedName& one) { one.path = "h", one.base_path = "f", one.mode |= 0111; })});
  EXPECT_EQ(read(*session, "h"), "of the base");
  EXPECT_EQ(session->overlay().usage().staged_bytes, 0u);
  commit(*session);
  EXPECT_EQ(head_files(), (Files{{"d/g", "g"}, {"f", "of the base"}, {"h", "of the base"}}));
}

}  // namespace
}  // namespace escrow::session
