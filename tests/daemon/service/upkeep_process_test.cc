// What verify answers when there is more wrong than it may say.
#include "daemon/service/upkeep_process.h"

#include <gtest/gtest.h>

#include "api/remote_documents.h"

namespace escrow::daemon {
namespace {

TEST(VerifiedJson, IsBoundedToTheByteWhateverTheFindingsAre) {
  const std::string worst(3u << 20, '\xff'), quotes(5000, '"'), plain(40, 'x');
  for (const std::string& text : {worst, quotes, plain}) {
    for (const std::size_t most_bytes : {std::size_t{512}, std::size_t{40'000}, std::size_t{512} << 10}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{20'000}}) {
        std::vector<api::Finding> findings(std::min<std::size_t>(count, text.size() > 5000 ? 3 : count),
                                           api::Finding{.where = text, .what = text});
        const std::size_t all = findings.size();
        const std::string said = verified_json(findings, most_bytes);
        EXPECT_LE(said.size(), most_bytes);
        const std::vector<api::Finding> read = api::findings_from_json(said);
        ASSERT_FALSE(read.empty());
        if (read.back().where != "repository") {
          EXPECT_EQ(read.size(), all);
          continue;
        }
        EXPECT_EQ(read.back().what, "has " + std::to_string(all - (read.size() - 1)) + " further problems");
      }
    }
  }
}

TEST(VerifiedJson, TellsTheBeginningOfALongText) {
  std::string name(4095, 'a');
  name += "\u00e9 and more";  // the cut would be within its two bytes
  const std::vector<api::Finding> read =
      api::findings_from_json(verified_json({{.where = name, .what = "is missing"}}, 100'000));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].where, std::string(4095, 'a') + "... (4106 bytes)");
  EXPECT_EQ(read[0].what, "is missing");
}

TEST(VerifiedJson, OfNothingIsSound) { EXPECT_EQ(verified_json({}, 512), "{\"sound\":true,\"problems\":[]}\n"); }

}  // namespace
}  // namespace escrow::daemon
