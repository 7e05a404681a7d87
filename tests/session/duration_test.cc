#include "session/base/duration.h"

#include <gtest/gtest.h>

#include "session/base/error.h"

namespace escrow::session {
namespace {

using std::chrono::milliseconds;

TEST(Duration, TakesUnitsAndTheirSums) {
  EXPECT_EQ(parse_duration("90s", "--timeout"), milliseconds(90'000));
  EXPECT_EQ(parse_duration("5m", "--timeout"), milliseconds(300'000));
  EXPECT_EQ(parse_duration("1h30m", "--timeout"), milliseconds(5'400'000));
  EXPECT_EQ(parse_duration("500ms", "--timeout"), milliseconds(500));
  EXPECT_EQ(parse_duration("1m500ms", "--timeout"), milliseconds(60'500));
  EXPECT_EQ(parse_duration("2d", "--timeout"), milliseconds(172'800'000));
}

TEST(Duration, ANumberAloneIsSeconds) {
  EXPECT_EQ(parse_duration("90", "--timeout"), milliseconds(90'000));
  EXPECT_EQ(parse_duration("1.5", "--timeout"), milliseconds(1'500));
  EXPECT_EQ(parse_duration(".25s", "--timeout"), milliseconds(250));
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* text : {"", "s", "ten", "-5s", "5 s", "5x", "1h30", "1..5s", "5s ", " 5", "nan", "inf", "1e3", "0",
                           "0s", "99999999999d", "+5", "0x10"}) {
    EXPECT_THROW(parse_duration(text, "--timeout"), Error) << text;
  }
}

TEST(Duration, NamesTheOptionAndTheTextInItsRefusal) {
  try {
    parse_duration("soon", "--timeout");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--timeout \"soon\""), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), Errc::bad_request);
  }
}

TEST(Duration, IsShownAsPeopleWriteIt) {
  EXPECT_EQ(format_duration(milliseconds(90'000)), "1m30s");
  EXPECT_EQ(format_duration(milliseconds(1'500)), "1.5s");
  EXPECT_EQ(format_duration(milliseconds(500)), "500ms");
  EXPECT_EQ(format_duration(milliseconds(5'400'000)), "1h30m");
  EXPECT_EQ(format_duration(milliseconds(1'050)), "1.05s");
}

}  // namespace
}  // namespace escrow::session
