// escrow.merge: files that the session and others changed, merged line by line where the repository asks for it.
#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class MergeTextAtWork : public EscrowRun {
 protected:
  void SetUp() override {
    EscrowRun::SetUp();
    ASSERT_EQ(run("seq 10 > n; echo x > other").status, 0);
  }
  // A run that writes while another one, which it starts, has committed.
  ProcessResult meet(const std::string& ours, const std::string& theirs, const std::vector<std::string>& options = {}) {
    return run(options, "set -e; cat n > /dev/null; (cd /; '" ESCROW_BINARY "' --repo '" + repository_ +
                            "' run -- sh -c '" + theirs + "') 2> '" + file("theirs.log") + "'\n" + ours);
  }
};

constexpr const char *kOurs = "sed -i s/^2$/two/ n", *kTheirs = "sed -i s/^9$/nine/ n";

TEST_F(MergeTextAtWork, LinesOfBothAreThereWhereTheRepositoryAsksForIt) {
  git("config escrow.merge text");
  const ProcessResult result = meet(kOurs, kTheirs);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content("n"), "1\ntwo\n3\n4\n5\n6\n7\n8\nnine\n10");
  EXPECT_EQ(git("diff --stat main~1 main | tail -1"), " 1 file changed, 1 insertion(+), 1 deletion(-)");
  EXPECT_EQ(git("fsck --full --strict"), "");
}

TEST_F(MergeTextAtWork, WithoutItTheyConflictAndABranchMayDiffer) {
  EXPECT_EQ(meet(kOurs, kTheirs).status, 122);
  git("config escrow.merge text");
  git("config escrow.main.merge path");
  EXPECT_EQ(meet("sed -i s/^3$/three/ n", "sed -i s/^8$/eight/ n").status, 122);
}

TEST_F(MergeTextAtWork, ChangesThatTouchConflictAndNothingOfTheSessionLands) {
  git("config escrow.merge text");
  const ProcessResult result = meet("sed -i s/^5$/ours/ n; echo y > other", "sed -i s/^5$/theirs/ n");
  EXPECT_EQ(result.status, 122) << result.err;
  EXPECT_NE(result.err.find("1 path conflicts"), std::string::npos) << result.err;
  EXPECT_EQ(content("other"), "x");
}

TEST_F(MergeTextAtWork, AReviewerSeesTheMergedResultBeforeItIsCommitted) {
  git("config escrow.merge text");
  const ProcessResult sealed =
      run({"--require-approval", "--result", file("result.json")}, std::string("set -e; ") + kOurs);
  ASSERT_EQ(sealed.status, 123) << sealed.err;
  ASSERT_EQ(run(kTheirs).status, 0);
  const std::string json = read("result.json");
  const std::string id = json.substr(json.find("\"session\":\"") + 11, 16);
  EXPECT_EQ(escrow({"approve", id}).status, 123) << "what is committed is what was looked at";
  EXPECT_EQ(git("diff --stat main refs/sessions/" + id + " | tail -1"),
            " 1 file changed, 1 insertion(+), 1 deletion(-)");
  const ProcessResult approved = escrow({"approve", id, "--result", git("rev-parse refs/sessions/" + id)});
  EXPECT_EQ(approved.status, 0) << approved.err;
  EXPECT_EQ(content("n"), "1\ntwo\n3\n4\n5\n6\n7\n8\nnine\n10");
}

TEST_F(MergeTextAtWork, AValueThatIsNeitherIsNamed) {
  git("config escrow.merge lines");
  const ProcessResult result = run("echo y > other");
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("escrow.merge in"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("'lines': it must be path or text; mend it with git config"), std::string::npos);
}

}  // namespace
}  // namespace escrow::test
