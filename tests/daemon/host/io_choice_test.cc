#include "daemon/host/io_choice.h"

#include <gtest/gtest.h>

#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using fuse::Data;
using fuse::Opens;

struct Case {
  const char *io, *opens;
  Opens chosen_opens;
  Data chosen_data;
};

TEST(IoChoice, EachLegalCombinationIsChosenAsAskedFor) {
  const Case cases[] = {
      {"auto", "auto", Opens::none, Data::cached},
      {"auto", "none", Opens::none, Data::cached},
      {"auto", "daemon", Opens::daemon, Data::cached},
      {"cached", "auto", Opens::none, Data::cached},
      {"cached", "none", Opens::none, Data::cached},
      {"cached", "daemon", Opens::daemon, Data::cached},
      {"passthrough", "auto", Opens::daemon, Data::passthrough},
      {"passthrough", "daemon", Opens::daemon, Data::passthrough},
  };
  for (const Case& it : cases) {
    SessionRequest arguments;
    arguments.io = it.io;
    arguments.opens = it.opens;
    const IoChoice choice = choose_io(arguments, {});
    EXPECT_EQ(it.chosen_opens, choice.mode.opens) << it.io << " " << it.opens;
    EXPECT_EQ(it.chosen_data, choice.mode.data) << it.io << " " << it.opens;
    EXPECT_NE("", choice.reason);
  }
}

TEST(IoChoice, PassthroughWithoutOpensIsRefused) {
  SessionRequest arguments;
  arguments.io = "passthrough";
  arguments.opens = "none";
  try {
    choose_io(arguments, {});
    FAIL() << "chosen";
  } catch (const session::Error& error) {
    EXPECT_EQ(session::Errc::bad_request, error.code());
  }
}

PolicyNeeds needs_of(const std::string& rule, const std::string& prefix = "") {
  return needs_of_policies({R"({"default": "allow", "rules": [{"effect": "deny", )" + rule + "}]}"}, prefix);
}
constexpr const char* kAllActions =
    R"("actions": ["read", "list", "write", "create", "delete", "rename", "metadata"], )";

TEST(IoChoice, APolicyThatDeniesNoOpenOfWhatCanBeSeenNeedsNoOpens) {
  const std::string all = kAllActions;
  for (const std::string& rule : {all + R"("paths": ["secrets", "*.key"])",
                                  std::string(R"("actions": ["create", "delete"], "paths": ["/src/**"])")}) {
    const IoChoice choice = choose_io({}, needs_of(rule));
    EXPECT_EQ(Opens::none, choice.mode.opens) << rule;
    EXPECT_EQ(Opens::none, choice.mode.listings) << rule;
    SessionRequest arguments;
    arguments.opens = "none";
    EXPECT_NO_THROW(choose_io(arguments, needs_of(rule)));
    arguments.opens = "auto";
    arguments.io = "writeback";
    EXPECT_THROW(choose_io(arguments, needs_of(rule)), session::Error);
  }
  const IoChoice listed = choose_io({}, needs_of(all + R"("paths": ["secrets/"])"));
  EXPECT_EQ(Opens::none, listed.mode.opens);
  EXPECT_EQ(Opens::daemon, listed.mode.listings);
  // Nobody looks up the root of a mount.
  EXPECT_EQ(Opens::daemon, choose_io({}, needs_of(all + R"("paths": ["/"])")).mode.listings);
  EXPECT_EQ(Opens::none, choose_io({}, needs_of(all + R"("paths": ["/a"])")).mode.listings);
  EXPECT_EQ(Opens::daemon, choose_io({}, needs_of(all + R"("paths": ["/a"])", "a/b")).mode.listings);
}

TEST(IoChoice, APolicyNeedsOpensThatReachTheDaemon) {
  const PolicyNeeds needs = needs_of(R"("actions": ["read"], "paths": ["*.key"])");
  for (const char* io : {"auto", "cached", "passthrough"}) {
    SessionRequest arguments;
    arguments.io = io;
    const IoChoice choice = choose_io(arguments, needs);
    EXPECT_EQ(Opens::daemon, choice.mode.opens) << io;
    EXPECT_EQ(Opens::none, choice.mode.listings) << io;
    EXPECT_EQ(io == std::string("passthrough") ? Data::passthrough : Data::cached, choice.mode.data) << io;
    arguments.opens = "none";
    EXPECT_THROW(choose_io(arguments, needs), session::Error) << io;
  }
}

}  // namespace
}  // namespace escrow::daemon
