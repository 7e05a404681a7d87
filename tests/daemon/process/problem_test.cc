#include "api/problem.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/protocol.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

TEST(Problem, AFailureHasTheExitStatusThatTheCommandLineHasForIt) {
  for (int value = 0; value <= static_cast<int>(session::Errc::unavailable); ++value) {
    const auto code = static_cast<session::Errc>(value);
    const api::ProblemKind& kind = api::kind_of(api::problem_code(code));
    EXPECT_EQ(kind.exit_code, exit_status_of(code)) << api::name_of(code) << " is " << kind.name;
  }
}

TEST(Problem, EveryCodeHasANameOfItsOwnAndAStatusOfAFailure) {
  std::set<std::string> names;
  for (int value = 0; value <= static_cast<int>(api::kLastProblem); ++value) {
    const api::ProblemKind& kind = api::kind_of(static_cast<api::ProblemCode>(value));
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_GE(kind.status, 400u) << kind.name;
    EXPECT_LT(kind.status, 600u) << kind.name;
  }
}

}  // namespace
}  // namespace escrow::daemon
