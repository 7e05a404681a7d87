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
    const IoChoice choice = choose_io(arguments, false);
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
    choose_io(arguments, false);
    FAIL() << "chosen";
  } catch (const session::Error& error) {
    EXPECT_EQ(session::Errc::bad_request, error.code());
  }
}

TEST(IoChoice, APolicyNeedsOpensThatReachTheDaemon) {
  for (const char* io : {"auto", "cached", "passthrough"}) {
    SessionRequest arguments;
    arguments.io = io;
    const IoChoice choice = choose_io(arguments, true);
    EXPECT_EQ(Opens::daemon, choice.mode.opens) << io;
    EXPECT_EQ(io == std::string("passthrough") ? Data::passthrough : Data::cached, choice.mode.data) << io;
    arguments.opens = "none";
    EXPECT_THROW(choose_io(arguments, true), session::Error) << io;
  }
}

}  // namespace
}  // namespace escrow::daemon
