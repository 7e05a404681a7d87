// The way out of a conflict: a failed session is resumed on the new head, and each path that conflicts is settled.
#include <atomic>

#include "session/base/unresolved.h"
#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

class Resolving : public Sessions {
 protected:
  // A run over `first` that made `work` of it while others committed `theirs`: its commit has failed, or it was rolled
  // back with its result kept.
  SessionId failed(const Files& first, const std::function<void(Session&)>& work, const Files& theirs,
                   const std::string& prefix = "") {
    world_.push("main", first);
    auto session = open(prefix);
    work(*session);
    world_.push("main", theirs);
    EXPECT_TRUE(std::holds_alternative<Conflicts>(commit(*session)));
    EXPECT_EQ(session->record().state, State::commit_failed);
    return session->id();
  }
  std::unique_ptr<Session> resume(const SessionId& older) { return manager_.resume(older, "user:carol"); }
  std::vector<std::string> unresolved(Session& session) {
    std::vector<std::string> paths;
    for (const Unresolved& one : session.unresolved()) paths.push_back(one.path);
    return paths;
  }
  Resolution settle(Session& session, const std::string& at, Settle how) {
    return session.resolve({path(at)}, how, "user:carol");
  }
  ObjectId blob(const std::string& content) {
    return entry_at(world_.objects, world_.objects.put_files({{"f", content}}), path("f"))->id;
  }
  using Paths = std::vector<std::string>;
};

TEST_F(Resolving, AFailedSessionGoesOnInANewOneOnTheNewHead) {
  const SessionId older = failed({{"a", "1"}, {"b", "1"}, {"d/x", "1"}, {"k", "1"}},
                                 [&](Session& session) {
                                   write(session, "a", "2");
                                   write(session, "d/n", "2");
                                   remove(session, "k");
                                 },
                                 {{"a", "9"}, {"b", "9"}, {"d/x", "9"}, {"k", "1"}});
  const ObjectId head = *world_.references.head("main");
  auto session = resume(older);
  EXPECT_EQ(session->record().base, head);
  EXPECT_EQ(session->record().resumes, older);
  EXPECT_EQ(session->record().options.audit.committer, "user:carol");
  EXPECT_EQ(world_.catalog.resumed_as(older), std::vector{session->id()});
  EXPECT_EQ(read(*session, "a"), "2") << "its own side";
  EXPECT_EQ(read(*session, "b"), "9");
  EXPECT_EQ(read(*session, "d/n"), "2");
  EXPECT_EQ(read(*session, "d/x"), "9");
  EXPECT_EQ(read(*session, "k"), std::nullopt);
  const auto listed = session->unresolved();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0], (Unresolved{"a", {0100644, blob("1")}, {0100644, blob("2")}, {0100644, blob("9")}}));
  // What it shows of the result, and the head, outlives whatever becomes of the older session.
  EXPECT_EQ(world_.references.pins_of(session->id()),
            (std::set<ObjectId>{head, *world_.references.result(older)}));

  const auto refused = commit(*session, true);
  ASSERT_TRUE(std::holds_alternative<Conflicts>(refused));
  ASSERT_EQ(std::get<Conflicts>(refused).paths.size(), 1u);
  EXPECT_EQ(std::get<Conflicts>(refused).paths[0].path, "a");
  EXPECT_EQ(session->record().state, State::open);
  std::string message;
  EXPECT_EQ(code_of([&] { commit(*session, false); }, &message), Errc::wrong_state);
  EXPECT_NE(message.find("changed a;"), std::string::npos) << message;
  EXPECT_EQ(session->foreseen_conflicts()->paths.size(), 1u);

  const Resolution done = settle(*session, "a", Settle::mine);
  EXPECT_EQ(done.settled, Paths{"a"});
  EXPECT_TRUE(done.left.empty());
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"b", "9"}, {"d/n", "2"}, {"d/x", "9"}}));
}

TEST_F(Resolving, EachPathIsSettledAsItIsSaid) {
  const SessionId older = failed({{"d/m", "1"}, {"d/n", "1"}, {"e/o", "1"}, {"e/p", "1"}},
                                 [&](Session& session) {
                                   for (const char* name : {"d/m", "d/n", "e/o", "e/p"}) write(session, name, "2");
                                 },
                                 {{"d/m", "9"}, {"d/n", "9"}, {"e/o", "9"}, {"e/p", "9"}});
  auto session = resume(older);
  EXPECT_EQ(unresolved(*session), (Paths{"d/m", "d/n", "e/o", "e/p"}));
  EXPECT_EQ(settle(*session, "d/m", Settle::mine).left.size(), 3u);
  write(*session, "d/n", "between");
  EXPECT_EQ(settle(*session, "d/n", Settle::merged).left.size(), 2u);
  session->take_stale();
  EXPECT_EQ(settle(*session, "e", Settle::theirs).settled, (Paths{"e/o", "e/p"})) << "a directory means what is below";
  EXPECT_FALSE(session->take_stale().empty());
  EXPECT_EQ(read(*session, "e/o"), "9");
  EXPECT_EQ(session->preview().changes.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"d/m", "2"}, {"d/n", "between"}, {"e/o", "9"}, {"e/p", "9"}}));
}

TEST_F(Resolving, APathWhereNothingConflictsIsRefusedAndNothingIsSettled) {
  const SessionId older = failed({{"a", "1"}}, [&](Session& session) { write(session, "a", "2"); }, {{"a", "9"}});
  auto session = resume(older);
  std::string message;
  EXPECT_EQ(code_of([&] { session->resolve({path("a"), path("b")}, Settle::theirs, "user:carol"); }, &message),
            Errc::not_found);
  EXPECT_NE(message.find("cannot resolve b "), std::string::npos) << message;
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(unresolved(*session), Paths{"a"});
  settle(*session, "a", Settle::mine);
  EXPECT_EQ(code_of([&] { settle(*session, "a", Settle::mine); }), Errc::not_found) << "it is settled";
}

TEST_F(Resolving, WhatOneSideDeletedAndTheOtherChangedIsSettledEitherWay) {
  for (const bool keeps_mine : {true, false}) {
    const SessionId older = failed({{"d/x", "1"}, {"e/y", "1"}, {"k", "1"}},
                                   [&](Session& session) {
                                     remove(session, "d/x");
                                     write(session, "e/y", "2");
                                   },
                                   {{"d/x", "9"}, {"k", "1"}});
    auto session = resume(older);
    EXPECT_EQ(unresolved(*session), (Paths{"d/x", "e/y"}));
    EXPECT_EQ(session->unresolved()[0].mine, Version{});
    EXPECT_EQ(session->unresolved()[1].theirs, Version{});
    EXPECT_EQ(read(*session, "e/y"), "2");
    const Settle how = keeps_mine ? Settle::mine : Settle::theirs;
    session->resolve({path("d"), path("e/y")}, how, "user:carol");
    EXPECT_EQ(session->file_system().lookup(kRootNode, "e").has_value(), keeps_mine) << "git has no empty directories";
    const CommitOutcome outcome = commit(*session);
    EXPECT_EQ(std::holds_alternative<Committed>(outcome), keeps_mine);
    EXPECT_EQ(head_files(), (keeps_mine ? Files{{"e/y", "2"}, {"k", "1"}} : Files{{"d/x", "9"}, {"k", "1"}}));
  }
}

TEST_F(Resolving, AFileAgainstADirectoryIsSettledEitherWay) {
  for (const bool mine_is_file : {true, false}) {
    for (const Settle how : {Settle::mine, Settle::theirs}) {
      const Files file{{"a", "f"}, {"k", "1"}}, directory{{"a/x", "f"}, {"a/y", "f"}, {"k", "1"}};
      const Files &mine = mine_is_file ? file : directory, &theirs = mine_is_file ? directory : file;
      const SessionId older = failed({{"k", "1"}},
                                     [&](Session& session) {
                                       for (const auto& [name, content] : mine)
                                         if (name != "k") write(session, name, content);
                                     },
                                     theirs);
      auto session = resume(older);
      ASSERT_EQ(unresolved(*session), Paths{"a"});
      settle(*session, "a", how);
      EXPECT_EQ(std::holds_alternative<Committed>(commit(*session)), how == Settle::mine);
      EXPECT_EQ(head_files(), how == Settle::mine ? mine : theirs);
    }
  }
}

TEST_F(Resolving, AnOpenSessionThatMetAConflictComesOntoTheHeadWithItsOwnSide) {
  world_.push("main", {{"a", "1"}, {"b", "1"}, {"c", "1"}, {"gone/x", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "c", "2");
  const ObjectId head = world_.push("main", {{"a", "9"}, {"b", "9"}, {"c", "9"}});
  ASSERT_TRUE(std::holds_alternative<Conflicts>(commit(*session, true)));
  EXPECT_EQ(unresolved(*session), (Paths{"a", "c"})) << "as the commit named them";
  EXPECT_EQ(read(*session, "b"), "1") << "looking changes nothing";

  session->gate().move_to(WriteGate::Position::open);
  const Resolution first = settle(*session, "a", Settle::mine);
  EXPECT_EQ(first.merged, 2u);
  ASSERT_EQ(first.left.size(), 1u);
  EXPECT_EQ(first.left[0].path, "c");
  EXPECT_EQ(session->record().base, head);
  EXPECT_EQ(world_.references.pins_of(session->id()), std::set<ObjectId>{head});
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(read(*session, "b"), "9");
  EXPECT_EQ(read(*session, "c"), "2");
  EXPECT_FALSE(session->file_system().lookup(kRootNode, "gone"));
  ASSERT_TRUE(std::holds_alternative<Conflicts>(commit(*session, true)));
  session->gate().move_to(WriteGate::Position::open);
  settle(*session, "c", Settle::theirs);
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"b", "9"}, {"c", "9"}}));
}

TEST_F(Resolving, WhatOthersChangeAfterwardsConflictsAgain) {
  world_.push("main", {{"a", "1"}, {"k", "1"}});
  auto session = open();
  write(*session, "a", "2");
  world_.push("main", {{"a", "8"}, {"k", "1"}});
  settle(*session, "a", Settle::mine);
  world_.push("main", {{"a", "8"}, {"k", "9"}});
  EXPECT_TRUE(unresolved(*session).empty()) << "another path of the same head";
  world_.push("main", {{"a", "9"}, {"k", "9"}});
  ASSERT_TRUE(std::holds_alternative<Conflicts>(commit(*session, true)));
  EXPECT_EQ(head_files()["a"], "9") << "theirs is never overwritten unseen";
  session->gate().move_to(WriteGate::Position::open);
  settle(*session, "a", Settle::theirs);
  EXPECT_EQ(read(*session, "a"), "9");
  ASSERT_TRUE(std::holds_alternative<NothingToCommit>(commit(*session, true)));
}

// The branch's side is that of the head which the session is on, also for a path that was unresolved before.
TEST_F(Resolving, TheirsIsWhatTheHeadHasByThen) {
  const SessionId older = failed({{"a", "1"}, {"b", "1"}},
                                 [&](Session& session) {
                                   write(session, "a", "2");
                                   write(session, "b", "2");
                                 },
                                 {{"a", "8"}, {"b", "8"}});
  auto session = resume(older);
  write(*session, "a", "8");  // by hand, as the first head has it
  world_.push("main", {{"a", "9"}, {"b", "9"}});
  session->resolve({path("a"), path("b")}, Settle::theirs, "user:carol");
  EXPECT_EQ(read(*session, "a"), "9");
  EXPECT_EQ(read(*session, "b"), "9");
  EXPECT_TRUE(session->preview().changes.empty());
}

TEST_F(Resolving, ADiscardedPathIsSettledAsTheBranchHasIt) {
  const SessionId older = failed({{"d/a", "1"}, {"d/b", "1"}, {"c", "1"}},
                                 [&](Session& session) {
                                   for (const char* name : {"d/a", "d/b", "c"}) write(session, name, "2");
                                 },
                                 {{"d/a", "9"}, {"d/b", "9"}, {"c", "9"}});
  auto session = resume(older);
  session->discard({path("d")});
  EXPECT_EQ(unresolved(*session), Paths{"c"});
  session->discard({path("c")});
  ASSERT_TRUE(std::holds_alternative<NothingToCommit>(commit(*session)));
}

TEST_F(Resolving, AResultIsResumedAsOftenAsSomebodyWants) {
  const SessionId older = failed({{"a", "1"}}, [&](Session& session) { write(session, "a", "2"); }, {{"a", "9"}});
  auto first = resume(older);
  first->rollback(Reason::requested, std::nullopt, "user:carol", false);
  auto second = resume(older), third = resume(older);
  EXPECT_EQ(world_.catalog.resumed_as(older).size(), 3u);
  for (Session* session : {second.get(), third.get()}) {
    EXPECT_EQ(read(*session, "a"), "2");
    EXPECT_EQ(unresolved(*session), Paths{"a"});
  }
  settle(*second, "a", Settle::mine);
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*second)));
  settle(*third, "a", Settle::mine);
  ASSERT_TRUE(std::holds_alternative<NothingToCommit>(commit(*third))) << "the same is no conflict";
}

TEST_F(Resolving, AKeptResultOfAFailedRunGoesOnToo) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "2");
  session->rollback(Reason::exit_status, 3, "run", true);
  const SessionId kept = session->id();
  session = open();
  const SessionId dropped = session->id();
  write(*session, "a", "3");
  session->rollback(Reason::exit_status, 3, "run", false);
  EXPECT_EQ(code_of([&] { resume(dropped); }), Errc::wrong_state);
  session = open();
  EXPECT_EQ(code_of([&] { resume(session->id()); }), Errc::wrong_state) << "it is open";
  EXPECT_EQ(code_of([&] { resume(SessionId::generate()); }), Errc::no_session);
  EXPECT_EQ(world_.catalog.list().size(), 3u) << "what was refused has left nothing";
  session = resume(kept);
  EXPECT_TRUE(unresolved(*session).empty());
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}}));
}

TEST_F(Resolving, APrefixHolds) {
  const SessionId older = failed({{"p/a", "1"}, {"o", "1"}}, [&](Session& session) { write(session, "a", "2"); },
                                 {{"p/a", "9"}, {"o", "9"}}, "p");
  auto session = resume(older);
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(unresolved(*session), Paths{"p/a"});
  settle(*session, "p/a", Settle::theirs);
  EXPECT_EQ(read(*session, "a"), "9");
  // Others make a file of what its mount shows.
  const SessionId another = failed({{"p/a", "1"}}, [&](Session& one) { write(one, "a", "2"); }, {{"p", "f"}}, "p");
  EXPECT_EQ(code_of([&] { resume(another); }), Errc::not_a_directory);
}

TEST_F(Resolving, WhatIsUnresolvedOutlivesTheHost) {
  const SessionId older = failed({{"a", "1"}, {"b", "1"}},
                                 [&](Session& session) {
                                   write(session, "a", "2");
                                   write(session, "b", "2");
                                 },
                                 {{"a", "9"}, {"b", "9"}});
  auto session = resume(older);
  const SessionId id = session->id();
  session.reset();
  world_.directories.lose_power();
  session = manager_.attach(id);
  EXPECT_EQ(read(*session, "a"), "2") << "resume is on disk when it returns";
  EXPECT_EQ(unresolved(*session), (Paths{"a", "b"}));
  settle(*session, "a", Settle::theirs);
  session->overlay().abandon();
  session.reset();
  world_.directories.lose_power();
  session = manager_.attach(id);
  EXPECT_EQ(unresolved(*session), Paths{"b"});
  EXPECT_EQ(read(*session, "a"), "9");
}

// Dies before each write to the catalog and to the journal, in turn: a resumed session is whole, or nothing of it is
// left.
TEST_F(Resolving, AResumeThatIsCutShortLeavesNothing) {
  Files first, mine, theirs;
  for (int i = 0; i < 250; ++i) first["d" + std::to_string(i % 5) + "/f" + std::to_string(i)] = "1";
  theirs = first;
  for (int i = 0; i < 20; ++i) theirs["d" + std::to_string(i % 5) + "/f" + std::to_string(i)] = "9";
  const SessionId older = failed(first,
                                 [&](Session& session) {
                                   for (const auto& [name, content] : first) write(session, name, "2");
                                 },
                                 theirs);
  bool is_over = false;
  for (int step = 1; !is_over; ++step) {
    std::atomic<int> writes = 0;
    world_.before_each_write([&] {
      if (++writes >= step) throw Error(Errc::no_space, "the process is killed here");
    });
    std::unique_ptr<Session> session;
    try {
      session = resume(older);
    } catch (const Error&) {
    }
    const bool is_there = session != nullptr;
    if (is_there) session->overlay().abandon();
    session.reset();
    if (step % 2 == 0) world_.directories.lose_power();
    world_.before_each_write(nullptr);
    manager_.recover();
    const auto ids = world_.catalog.resumed_as(older);
    ASSERT_EQ(ids.size(), is_there ? 1u : 0u) << step;
    EXPECT_EQ(world_.directories.list().size(), is_there ? 1u : 0u) << step;
    if (is_there) {
      session = manager_.attach(ids[0]);
      EXPECT_EQ(unresolved(*session).size(), 20u) << step;
      EXPECT_EQ(session->preview().changes.size(), first.size()) << step;
      is_over = true;
    }
    ASSERT_LT(step, 100);
  }
}

// The same while an open session is brought onto the head that it met: it is on one of the two, with its own side of
// what conflicts, and either has all that conflicts unresolved or meets it again.
TEST_F(Resolving, OneThatIsCutShortAtAnyWriteIsFinishedWhenTheSessionIsAttachedAgain) {
  Files first{{"mine", "1"}, {"both", "1"}, {"other", "1"}};
  for (int i = 0; i < 200; ++i) first["d" + std::to_string(i % 5) + "/f" + std::to_string(i)] = "1";
  Files second = first;
  for (int i = 0; i < 120; ++i) second["d" + std::to_string(i % 5) + "/f" + std::to_string(i)] = "9";
  second["both"] = second["other"] = "9";
  bool is_over = false, was_between = false;
  for (int step = 1; !is_over; ++step) {
    const ObjectId base = world_.push("main", first);
    auto session = open();
    const SessionId id = session->id();
    for (const char* name : {"mine", "both", "other"}) write(*session, name, "2");
    session->overlay().flush(true);
    const ObjectId head = world_.push("main", second);
    std::atomic<int> writes = 0;
    world_.before_each_write([&] {
      if (++writes >= step) throw Error(Errc::no_space, "the process is killed here");
    });
    try {
      settle(*session, "both", Settle::theirs);
      is_over = true;
    } catch (const Error&) {
    }
    session->overlay().abandon();
    session.reset();
    if (step % 2 == 0) world_.directories.lose_power();
    world_.before_each_write(nullptr);
    was_between = was_between || world_.catalog.find(id)->updating_to;
    session = manager_.attach(id);
    const SessionRecord record = session->record();
    EXPECT_FALSE(record.updating_to) << step;
    EXPECT_FALSE(record.updating_keeps) << step;
    ASSERT_TRUE(record.base == base || record.base == head) << step;
    EXPECT_EQ(read(*session, "d0/f0"), record.base == head ? "9" : "1") << step;
    EXPECT_EQ(read(*session, "mine"), "2") << step;
    EXPECT_EQ(read(*session, "other"), "2") << step;
    const Paths left = unresolved(*session);
    EXPECT_TRUE(is_over ? left == Paths{"other"} : left == (Paths{"both", "other"})) << step;
    EXPECT_EQ(record.unresolved.empty(), record.base == base) << step;
    if (!is_over) settle(*session, "both", Settle::theirs);
    settle(*session, "other", Settle::mine);
    ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true))) << step;
    Files expected = second;
    expected["mine"] = expected["other"] = "2";
    EXPECT_EQ(head_files(), expected) << step;
    ASSERT_LT(step, 100);
  }
  EXPECT_TRUE(was_between);
}

TEST(Unresolved, AListComesBackFromItsTexts) {
  const Version there{0100755, *ObjectId::from_hex(std::string(40, 'a'))};
  const std::vector<Unresolved> paths{{"a b\n\xff", there, {}, there}, {"c", {}, there, {040000, there.id}}};
  EXPECT_EQ(unresolved_from(texts_of(paths)), paths);
  EXPECT_EQ(unresolved_from({}), std::vector<Unresolved>{});
  const std::string id = there.id.hex();
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"a"}, {"a", ""}, {"a", "- -"}, {"a", "- - - -"}, {"a", "- - x"},
        {"a", "- - 100644:" + id.substr(1)}, {"a", "- - 0:" + id}, {"a", "- - 9:" + id}, {"a", "- - 100644" + id}})
    EXPECT_FALSE(unresolved_from(wrong)) << wrong.back();
}

}  // namespace
}  // namespace escrow::session
