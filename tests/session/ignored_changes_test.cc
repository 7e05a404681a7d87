// What git would not add stays out of commits, unless the base tracks it or it was asked for.
#include <algorithm>

#include "session/trees/ignore_patterns.h"
#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

class Ignored : public Sessions {
 protected:
  void push(const Files& files) { world_.push("main", files); }
  static std::vector<std::string> named(const std::vector<Omission>& omitted) {
    std::vector<std::string> paths;
    for (const Omission& one : omitted) paths.push_back(std::string(name_of(one.kind)) + " " + one.path);
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  using Names = std::vector<std::string>;
};

TEST_F(Ignored, NewFilesAreLeftOutAndNamedAndTrackedOnesAreCommitted) {
  push({{".gitignore", "*.o\nbuild/\n"}, {"tracked.o", "1"}, {"build/tracked", "1"}, {"a.c", "1"}});
  auto session = open();
  write(*session, "tracked.o", "2");
  write(*session, "new.o", "2");
  write(*session, "build/tracked", "2");
  write(*session, "build/new", "2");
  write(*session, "build/deep/new", "2");
  write(*session, "src/build/x/y", "2");
  write(*session, "src/a.c", "2");
  const Preview preview = session->preview();
  EXPECT_EQ(preview.changes.size(), 3u);
  EXPECT_EQ(named(preview.omitted), (Names{"ignored build/deep", "ignored build/new", "ignored new.o",
                                           "ignored src/build"}));
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(session->omitted().size(), 4u);
  EXPECT_EQ(head_files(), (Files{{".gitignore", "*.o\nbuild/\n"}, {"tracked.o", "2"}, {"build/tracked", "2"},
                                 {"a.c", "1"}, {"src/a.c", "2"}}));
}

TEST_F(Ignored, ASessionThatWroteNothingElseHasNothingToCommit) {
  push({{".gitignore", "__pycache__/\n"}, {"lib.py", "1"}});
  auto session = open();
  write(*session, "__pycache__/lib.pyc", "compiled");
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(commit(*session)));
}

TEST_F(Ignored, WhatTwoSessionsCompiledDoesNotConflict) {
  push({{".gitignore", "*.pyc\n"}, {"lib.py", "1"}});
  auto one = open(), other = open();
  write(*one, "one.py", "1");
  write(*one, "lib.pyc", "by one");
  write(*other, "other.py", "1");
  write(*other, "lib.pyc", "by other");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*one)));
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*other)));
  EXPECT_EQ(head_files().size(), 4u);
}

TEST_F(Ignored, TheFilesCountAsTheSessionHasThem) {
  push({{".gitignore", "*.o\n"}, {"a/.gitignore", "*.log\n"}, {"a/x", "1"}});
  auto session = open();
  write(*session, ".gitignore", "*.tmp\n");
  remove(*session, "a/.gitignore");
  write(*session, "b/.gitignore", "*\n");
  for (const char* path : {"x.o", "x.tmp", "a/x.log", "b/x"}) write(*session, path, "2");
  session->file_system().make_symlink(directory(session->file_system(), "c/x", true), ".gitignore", "../.gitignore",
                                      {});
  write(*session, "c/x.o", "2");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(named(session->omitted()), (Names{"ignored b/.gitignore", "ignored b/x", "ignored x.tmp"}));
  EXPECT_TRUE(head_files().contains("c/x.o")) << "git follows no link there";
  EXPECT_TRUE(head_files().contains("a/x.log"));
}

TEST_F(Ignored, APrefixIsUnderThePatternsAboveIt) {
  push({{".gitignore", "/p/sub/*.o\n*.tmp\n"}, {"p/.gitignore", "*.log\n"}, {"p/sub/a", "1"}});
  world_.references.set_rule("main", {.ignore = {.is_on = true, .exclude_file = "/p/sub/excluded\n"}});
  auto session = open("p/sub");
  for (const char* path : {"x.o", "x.tmp", "x.log", "excluded", "in/x.o", "new"}) write(*session, path, "2");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(named(session->omitted()), (Names{"ignored excluded", "ignored x.log", "ignored x.o", "ignored x.tmp"}));
  EXPECT_TRUE(head_files().contains("p/sub/in/x.o"));
}

TEST_F(Ignored, WhatTheBaseTracksInADirectoryStaysTrackedWhenTheDirectoryIsMadeAnew) {
  push({{".gitignore", "dist/\n"}, {"dist/app.js", "1"}, {"dist/gone.js", "1"}, {"a", "1"}});
  auto session = open();
  FileSystem& files = session->file_system();
  remove(*session, "dist/app.js");
  remove(*session, "dist/gone.js");
  files.remove_directory(kRootNode, "dist");
  write(*session, "dist/app.js", "2");
  write(*session, "dist/new.js", "2");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(named(session->omitted()), Names{"ignored dist/new.js"});
  EXPECT_EQ(head_files(), (Files{{".gitignore", "dist/\n"}, {"dist/app.js", "2"}, {"a", "1"}}));
}

TEST_F(Ignored, AMovedDirectoryKeepsWhatWasTrackedInIt) {
  push({{".gitignore", "*.o\nout/\n"}, {"src/a.o", "1"}, {"src/b.c", "1"}, {"lib/c.c", "1"}});
  auto session = open();
  FileSystem& files = session->file_system();
  files.rename(kRootNode, "src", kRootNode, "moved", RenameMode::replace);
  write(*session, "moved/a.o", "2");
  write(*session, "moved/new.o", "2");
  files.rename(kRootNode, "lib", kRootNode, "out", RenameMode::replace);
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(named(session->omitted()), (Names{"ignored moved/new.o", "ignored out"}));
  EXPECT_EQ(head_files(), (Files{{".gitignore", "*.o\nout/\n"}, {"moved/a.o", "2"}, {"moved/b.c", "1"}}));
}

TEST_F(Ignored, AFileInThePlaceOfATrackedDirectoryIsNotTracked) {
  push({{".gitignore", "x\n"}, {"x/a", "1"}, {"y", "1"}});
  auto session = open();
  remove(*session, "x/a");
  session->file_system().remove_directory(kRootNode, "x");
  write(*session, "x", "2");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{".gitignore", "x\n"}, {"y", "1"}}));
}

TEST_F(Ignored, AnUpdateTakesInWhatOthersTrackAndACommitKeepsIt) {
  push({{".gitignore", "*.o\n"}, {"a", "1"}, {"d/b", "1"}});
  auto session = open();
  write(*session, "d/mine.o", "mine");
  write(*session, "d/new", "mine");
  push({{".gitignore", "*.o\n"}, {"a", "1"}, {"d/b", "1"}, {"d/theirs.o", "theirs"}, {"e/theirs.o", "theirs"}});
  EXPECT_TRUE(session->update().conflicts.empty());
  EXPECT_EQ(read(*session, "d/theirs.o"), "theirs");
  write(*session, "e/other", "mine");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(named(session->omitted()), Names{"ignored d/mine.o"});
  EXPECT_EQ(head_files(), (Files{{".gitignore", "*.o\n"}, {"a", "1"}, {"d/b", "1"}, {"d/new", "mine"},
                                 {"d/theirs.o", "theirs"}, {"e/theirs.o", "theirs"}, {"e/other", "mine"}}));
}

TEST_F(Ignored, TheSessionTheCommitOrTheRepositoryCanHaveItAll) {
  push({{".gitignore", "*.o\n"}});
  SessionOptions asked = options();
  asked.include_ignored = true;
  auto session = manager_.open(asked, true);
  write(*session, "session.o", "1");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  session = open();
  write(*session, "commit.o", "1");
  EXPECT_TRUE(session->preview().changes.empty());
  session->gate().move_to(WriteGate::Position::sealed);
  const CommitRequest everything{.message = "", .exit_code = 0, .reason = Reason::success, .by_hand = true,
                                 .who = "x", .include_ignored = true};
  EXPECT_TRUE(std::holds_alternative<Committed>(session->commit(everything)));
  world_.references.set_rule("main", {.ignore = {.is_on = false}});
  session = open();
  write(*session, "rule.o", "1");
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(),
            (Files{{".gitignore", "*.o\n"}, {"session.o", "1"}, {"commit.o", "1"}, {"rule.o", "1"}}));
}

TEST_F(Ignored, WhatIsSealedForApprovalIsWhatIsCommitted) {
  push({{".gitignore", "*.o\n"}});
  SessionOptions asked = options();
  asked.require_approval = true;
  auto session = manager_.open(asked, true);
  write(*session, "x.o", "1");
  write(*session, "x.c", "1");
  const CommitOutcome outcome = commit(*session);
  ASSERT_TRUE(std::holds_alternative<AwaitingApproval>(outcome));
  const ObjectId sealed = std::get<AwaitingApproval>(outcome).result;
  EXPECT_EQ(named(session->omitted()), Names{"ignored x.o"});
  const SessionId id = session->id();
  session.reset();
  manager_.approve(id, {.review = {.reviewer = "user:bob", .comment = {}}, .result = sealed.hex(), .message = {}});
  EXPECT_EQ(head_files(), (Files{{".gitignore", "*.o\n"}, {"x.c", "1"}}));
}

TEST_F(Ignored, AFileThatIsTooLargeIsNamedAndHoldsUpNoRollback) {
  push({{"a", "1"}});
  SessionOptions asked = options();
  asked.keep_on_failure = true;
  auto session = manager_.open(asked, true);
  write(*session, "d/.gitignore", std::string(kLargestIgnoreFile_bytes + 1, '\n'));
  std::string message;
  EXPECT_EQ(code_of([&] { commit(*session, true); }, &message), Errc::bad_request);
  EXPECT_NE(message.find("d/.gitignore"), std::string::npos) << message;
  EXPECT_EQ(session->record().state, State::open);
  session->rollback(Reason::exit_status, 1, "user:alice", true);
  EXPECT_TRUE(world_.references.result(session->id()).has_value());
}

}  // namespace
}  // namespace escrow::session
