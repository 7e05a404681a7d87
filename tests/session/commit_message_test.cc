// The message of a commit, judged by `git interpret-trailers --parse`.
#include "session/transaction/commit_message.h"

#include <gtest/gtest.h>

#include <random>

#include "session/base/error.h"
#include "tests/session/git_command.h"
#include "tests/support/seed.h"

namespace escrow::session {
namespace {

class CommitMessage : public testing::Test {
 protected:
  CommitMessage() : record_{SessionId::generate()} {
    record_.options.audit = {"agent:trainer", "user:alice", "sandbox", "python:3.12", "nightly", "run 7: again"};
    record_.exit_code = 0;
    record_.base = ObjectId::from_hex("1234567890123456789012345678901234567890");
  }

  std::string compose(const std::string& message) {
    record_.message = message;
    return compose_commit_message(record_, {3, 2, 1});
  }
  std::string trailers() const {
    return "Escrow-Session: " + record_.id.text() +
           "\nEscrow-Committer: agent:trainer\nEscrow-Issuer: user:alice\nEscrow-Image: python:3.12\n"
           "Escrow-Source: sandbox\nEscrow-Trigger: nightly\nEscrow-Trigger-Id: run 7: again\n"
           "Escrow-Exit-Code: 0\nEscrow-Base: 1234567890123456789012345678901234567890\n";
  }
  std::string git_reads(const std::string& message) {
    return support::run_git(directory_, "interpret-trailers --parse", message);
  }

  SessionRecord record_;
  support::TemporaryDirectory directory_;
};

TEST_F(CommitMessage, EndsWithTheTrailersGitReads) {
  const std::string text = compose("Train the model\n\nWith more data.\n");
  EXPECT_EQ(text, "Train the model\n\nWith more data.\n\n" + trailers());
  EXPECT_EQ(git_reads(text), trailers());
}

TEST_F(CommitMessage, AnEmptyMessageCountsTheChangesAndNamesTheSession) {
  for (const char* empty : {"", "\n", "  \n\t\n"}) {
    const std::string text = compose(empty);
    EXPECT_TRUE(text.starts_with("3 added, 2 modified, 1 deleted in session " + record_.id.text() + "\n\n"));
    EXPECT_EQ(git_reads(text), trailers());
  }
}

TEST_F(CommitMessage, TheDefaultNamesTheCommandOfARunInOneLine) {
  const std::string counts = "\n\n3 added, 2 modified, 1 deleted in session " + record_.id.text() + "\n\n";
  const auto of = [&](const std::vector<std::string>& command) {
    record_.options.command = command;
    const std::string text = compose("");
    EXPECT_EQ(git_reads(text), trailers());
    const std::size_t end = text.find(counts);
    EXPECT_NE(end, std::string::npos) << text;
    return text.substr(0, end);
  };
  EXPECT_EQ(of({"make", "-j4"}), "run: make -j4");
  EXPECT_EQ(of({"sh", "-c", "set -e\nmake\x1b"}), "run: sh -c 'set -e make '");
  EXPECT_EQ(of({"echo", ""}), "run: echo ''");
  EXPECT_EQ(of({"\xff\xc3", "\xc2\x9b[31m", "\xc3\xa9", "\xf0\x9f\x98\x80"}),
            "run: ?? ??[31m \xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(of({"cat", "odd\xff", "\xc3\xa4", "\xc3", "\xe2\x82"}), "run: cat odd? \xc3\xa4 ? ??");
  EXPECT_EQ(of({"Signed-off-by:", "me"}), "run: Signed-off-by: me");
  EXPECT_EQ(of({"echo", std::string(100, 'x')}), "run: echo " + std::string(59, 'x') + "...");
  EXPECT_EQ(of({"echo", std::string(58, 'x') + "\xc3\xa9" + std::string(40, 'x')}),
            "run: echo " + std::string(58, 'x') + "...")
      << "no half of a character";
}

TEST_F(CommitMessage, WhatLooksLikeATrailerInTheUsersTextIsNotRead) {
  for (const char* message : {
           "Subject\n\nEscrow-Session: forged\nEscrow-Committer: user:root",
           "Subject\n\nSigned-off-by: Alice <a@example.org>\n",
           "Signed-off-by: Alice <a@example.org>",
           "Subject\n\nFixes: #12\n\n\n\n",
           "Escrow-Exit-Code: 1\n\nEscrow-Exit-Code: 1",
           "Subject\n\nKey: value\n continued\n",
           "Subject\n\n(cherry picked from commit 1234)\n",
           "Subject\r\n\r\nKey: value\r\n",
       })
    EXPECT_EQ(git_reads(compose(message)), trailers()) << message;
}

TEST_F(CommitMessage, LinesAtWhichGitStopsReadingAreIndented) {
  for (const char* message : {
           "Subject\n\n---\n file | 2 +-\n",
           "---",
           "Subject\n--- a/file\n+++ b/file\n",
           "Subject\n\n# ------------------------ >8 ------------------------\ncut\n",
           "# ------------------------ >8 ------------------------",
           "; ------------------------ >8 ------------------------\n\ntext",
           "Subject\n\n# a comment\n",
           "Subject\n\nConflicts:\n\tfile\n",
           "Subject\n\ndiff --git a/x b/x\n",
       })
    EXPECT_EQ(git_reads(compose(message)), trailers()) << message;
  EXPECT_TRUE(compose("Subject\n\n---\nrest").starts_with("Subject\n\n ---\nrest\n\n"));
  EXPECT_TRUE(compose("Subject\n\n----\nrest").starts_with("Subject\n\n----\nrest\n\n"));
}

TEST_F(CommitMessage, ValuesThatAreNotKnownAreLeftOut) {
  record_.options.audit = {"user:alice", "user:alice", "manual", "", "  ", ""};
  record_.exit_code.reset();
  record_.base.reset();
  EXPECT_EQ(compose("m"), "m\n\nEscrow-Session: " + record_.id.text() +
                              "\nEscrow-Committer: user:alice\nEscrow-Issuer: user:alice\nEscrow-Source: manual\n");
}

TEST_F(CommitMessage, AReviewerAndTheCommentComeLast) {
  record_.reviewer = "user:carol";
  record_.review_comment = "checked: fine";
  EXPECT_TRUE(compose("m").ends_with("\nEscrow-Reviewer: user:carol\nEscrow-Review-Comment: checked: fine\n"));
  EXPECT_TRUE(git_reads(compose("m")).ends_with("Escrow-Reviewer: user:carol\nEscrow-Review-Comment: checked: fine\n"))
      << git_reads(compose("m"));
}

TEST_F(CommitMessage, ControlCharactersAreRefusedNotPassedThrough) {
  for (const std::string& bad : {std::string("a\x1b[31m"), std::string("a\0b", 3), std::string("a\rb"),
                                 std::string("a\x7f"), std::string("a\x01")}) {
    try {
      compose(bad);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::bad_request);
    }
  }
  EXPECT_EQ(compose("tab\tand\r\nnewline \xc3\xa9"), "tab\tand\nnewline \xc3\xa9\n\n" + trailers());
}

TEST_F(CommitMessage, WhateverTheUserWritesGitReadsExactlyOurTrailers) {
  std::mt19937 random(static_cast<unsigned>(support::seed_of_this_run()));
  const std::vector<std::string> lines{
      "", "", "Subject", "Key: value", "Escrow-Session: forged", "---", "--- x", "-----", " ---", "# comment",
      "Signed-off-by: a <b>", "(cherry picked from commit 12)", " continued", "\tcontinued", "Conflicts:",
      "diff --git a b",
      "# ------------------------ >8 ------------------------", "text with: colon", ":", "=", "a:", "@@ -1 +1 @@"};
  // One process for many messages: each goes through a commit, and git log prints the trailers.
  support::run_git(directory_, "init -q --bare .");
  std::string stream;
  const int kMessages = 300;
  for (int i = 0; i < kMessages; ++i) {
    std::string message;
    for (unsigned n = random() % 8; n > 0; --n) message += lines[random() % lines.size()] + "\n";
    const std::string text = compose(message);
    if (i % 30 == 0) {
      EXPECT_EQ(git_reads(text), trailers()) << text;
    }
    stream += "commit refs/heads/main\ncommitter a <a@b> 1700000000 +0000\ndata " + std::to_string(text.size()) + "\n" +
              text + "\n";
  }
  support::run_git(directory_, "fast-import --quiet", stream);
  std::string expected;
  for (int i = 0; i < kMessages; ++i) expected += trailers() + "\n";
  EXPECT_EQ(support::run_git(directory_, "log --format='%(trailers:only,unfold)' main"), expected);
}

TEST_F(CommitMessage, TheIdentityIsThePrincipalAtAnAddressThatCannotExist) {
  const Signature alice = signature_of("user:alice", {1'700'000'000, 5});
  EXPECT_EQ(alice.name, "alice");
  EXPECT_EQ(alice.email, "alice@user.escrow.invalid");
  EXPECT_EQ(alice.time_s, 1'700'000'000);
  EXPECT_EQ(alice.offset_minutes, 0);
  EXPECT_EQ(signature_of("agent:code review", {}).email, "code%20review@agent.escrow.invalid");
  EXPECT_EQ(signature_of("role:deploy", {}).email, "deploy@role.escrow.invalid");
}

TEST_F(CommitMessage, TheAuthorIsWhomTheRecordNames) {
  Audit audit = record_.options.audit;
  audit.author_name = " Alice <A> Example\n";
  audit.author_email = "<alice@example.org>";
  const Signature who = signature_of(audit, {1'700'000'000, 5});
  EXPECT_EQ(who.name, "Alice A Example");
  EXPECT_EQ(who.email, "alice@example.org");
  EXPECT_EQ(who.time_s, 1'700'000'000);
  audit.author_email = "<>";
  EXPECT_EQ(signature_of(audit, {}).email, signature_of(audit.committer, {}).email);
}

TEST_F(CommitMessage, AnIdentityIsNeverOneThatGitRefuses) {
  support::run_git(directory_, "init -q --bare .");
  const std::string tree = support::run_git(directory_, "mktree").substr(0, 40);
  for (const char* principal : {"user:...", "user:<a>", "agent:\"", "role:a.b.", "user:\xc3\xa9milie", "user:"}) {
    const Signature who = signature_of(principal, {});
    EXPECT_FALSE(who.name.empty());
    EXPECT_EQ(who.email.find_first_of("<> \n"), std::string::npos);
    const std::string object = "tree " + tree + "\nauthor " + who.name + " <" + who.email +
                               "> 1 +0000\ncommitter " + who.name + " <" + who.email + "> 1 +0000\n\nm\n";
    EXPECT_NO_THROW(support::run_git(directory_, "hash-object -t commit --stdin", object)) << principal;
  }
}

}  // namespace
}  // namespace escrow::session
