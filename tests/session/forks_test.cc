// Forks of sessions, over a repository in memory: what they begin as, how they diverge, what comes into the parent.
#include <algorithm>
#include <map>
#include <ostream>
#include <sstream>

#include "session/transaction/forks.h"
#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

// What can become of a file, as far as a landing tells it apart.
struct Shape {
  std::optional<std::string> text = "0\n";
  std::uint32_t mode = 0644, uid = 0;
  std::map<std::string, std::string> xattrs = {{"user.x", "0"}};
  friend bool operator==(const Shape&, const Shape&) = default;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << (shape.text ? *shape.text : "nothing") << ", " << std::oct << shape.mode << ", " << shape.uid;
  for (const auto& [name, value] : shape.xattrs) out << ", " << name << "=" << value;
  return out;
}

class Forks : public Sessions {
 protected:
  // Everybody in this process: the parent is asked for by its id.
  class Here final : public ParentSessions {
   public:
    CommitOutcome land(const SessionId& parent, const SessionId& fork, const CommitRequest& request) override {
      if (before_landing) before_landing();
      CommitOutcome outcome = sessions.at(parent)->land(fork, request);
      if (after_landing) after_landing();
      return outcome;
    }
    std::map<SessionId, Session*> sessions;
    std::function<void()> before_landing, after_landing;  // may throw
  };
  class StopAt final : public CommitObserver {
   public:
    void reached(CommitStep step) override {
      if (step == stops_at) throw Error(Errc::unavailable, "stopped");
    }
    std::optional<CommitStep> stops_at;
  };

  Forks() {
    services_.parents = &here_;
    services_.observer = &observer_;
  }
  std::unique_ptr<Session> open() {
    auto opened = manager().open(options(), true);
    here_.sessions[opened->id()] = opened.get();
    return opened;
  }
  SessionManager& manager() {
    if (!manager_of_forks_) manager_of_forks_.emplace(services_);
    return *manager_of_forks_;
  }
  std::unique_ptr<Session> fork(Session& parent, const SessionOptions& narrowing) {
    const SessionId id = SessionId::generate();
    auto made = manager().fork(parent.id(), narrowing, id, {}, [&] { parent.fork_into(id, [] {}); });
    here_.sessions[id] = made.get();
    return made;
  }
  std::unique_ptr<Session> fork(Session& parent) { return fork(parent, options()); }
  CommitOutcome land(Session& session, bool by_hand = true) {
    const WriteGate::Pause pause(session.gate());
    return session.commit({"a message", std::nullopt, Reason::success, by_hand, "user:alice"});
  }
  // As a new process finds it.
  std::unique_ptr<Session> again(std::unique_ptr<Session> session) {
    const SessionId id = session->id();
    session.reset();
    auto attached = manager().attach(id);
    here_.sessions[id] = attached.get();
    return attached;
  }
  std::vector<std::string> paths_of(const CommitOutcome& outcome) {
    std::vector<std::string> paths;
    for (const Conflict& one : std::get<Conflicts>(outcome).paths) paths.push_back(one.path);
    return paths;
  }

  Shape shape_of(Session& session, const std::string& name) {
    FileSystem& files = session.file_system();
    const auto found = files.lookup(kRootNode, name);
    if (!found) return {std::nullopt, 0, 0, {}};
    Shape shape{read(session, name), found->mode & 07777u, found->uid, {}};
    for (const std::string& xattr : files.xattr_names(found->node))
      shape.xattrs[xattr] = *files.xattr(found->node, xattr);
    return shape;
  }

  void make_it(Session& session, const std::string& name, const Shape& wanted) {
    FileSystem& files = session.file_system();
    if (!wanted.text) return remove(session, name);
    const Shape is = shape_of(session, name);
    if (is.text != wanted.text) write(session, name, *wanted.text);
    const NodeId node = files.lookup(kRootNode, name)->node;
    AttributeChange change;
    if (is.uid != wanted.uid) change.uid = wanted.uid;
    if (is.mode != wanted.mode) change.mode = wanted.mode;
    if (change.uid || change.mode) files.change_attributes(node, change);
    for (const auto& [xattr, value] : is.xattrs)
      if (!wanted.xattrs.contains(xattr)) files.remove_xattr(node, xattr);
    for (const auto& [xattr, value] : wanted.xattrs)
      if (!is.xattrs.contains(xattr) || is.xattrs.at(xattr) != value)
        files.set_xattr(node, xattr, value, XattrMode::any);
  }

  Here here_;
  StopAt observer_;
  Services services_{world_.services()};
  std::optional<SessionManager> manager_of_forks_;
};

TEST_F(Forks, AForkBeginsAsItsParentAndThenTheyDiverge) {
  world_.push("main", {{"base", "of the branch"}, {"gone", "x"}});
  auto parent = open();
  write(*parent, "d/made", "by the parent");
  remove(*parent, "gone");
  auto child = fork(*parent);
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(read(*child, "base"), "of the branch");
    EXPECT_EQ(read(*child, "d/made"), "by the parent");
    EXPECT_EQ(read(*child, "gone"), std::nullopt);
    child = again(std::move(child));
  }
  write(*parent, "d/made", "changed by the parent");
  write(*child, "base", "changed by the fork");
  EXPECT_EQ(read(*child, "d/made"), "by the parent");
  EXPECT_EQ(read(*parent, "base"), "of the branch");
  parent = again(std::move(parent));
  EXPECT_EQ(read(*child, "d/made"), "by the parent") << "also after the parent was opened anew";
  write(*parent, "d/made", "again");
  child = again(std::move(child));
  EXPECT_EQ(read(*child, "d/made"), "by the parent");
  EXPECT_EQ(read(*child, "base"), "changed by the fork");
}

TEST_F(Forks, ItsDiffIsAgainstWhatItBeganAs) {
  world_.push("main", {{"base", "b"}});
  auto parent = open();
  write(*parent, "parents", "p");
  auto child = fork(*parent);
  EXPECT_TRUE(child->preview().changes.empty());
  write(*child, "childs", "c");
  write(*parent, "later", "l");
  const Preview shown = child->preview();
  ASSERT_EQ(shown.changes.size(), 1u);
  EXPECT_EQ(shown.changes.front().path, "childs");
}

TEST_F(Forks, ItsCommitComesIntoTheParentAndNotIntoTheBranch) {
  world_.push("main", {{"base", "b"}, {"both", "one\n"}});
  auto parent = open();
  write(*parent, "before", "p");
  auto child = fork(*parent);
  const SessionId id = child->id();
  write(*child, "d/new", "made by the fork");
  write(*child, "before", "changed by the fork");
  remove(*child, "base");
  write(*parent, "meanwhile", "of the parent");
  const CommitOutcome outcome = land(*child);
  ASSERT_TRUE(std::holds_alternative<Landed>(outcome));
  EXPECT_EQ(std::get<Landed>(outcome).parent, parent->id());
  EXPECT_EQ(std::get<Landed>(outcome).counts, (ChangeCounts{1, 1, 1}));
  child.reset();
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(read(*parent, "d/new"), "made by the fork");
    EXPECT_EQ(read(*parent, "before"), "changed by the fork");
    EXPECT_EQ(read(*parent, "base"), std::nullopt);
    EXPECT_EQ(read(*parent, "meanwhile"), "of the parent");
    parent = again(std::move(parent));
  }
  EXPECT_EQ(head_files(), (Files{{"base", "b"}, {"both", "one\n"}}));
  const SessionRecord row = *world_.catalog.find(id);
  EXPECT_EQ(row.state, State::committed);
  EXPECT_EQ(row.commit, std::nullopt);
  EXPECT_FALSE(world_.directories.exists(id));
  EXPECT_TRUE(parent->overlay().savepoints().empty()) << "what the fork needed of the parent is given back";
  commit(*parent);
  EXPECT_EQ(head_files(),
            (Files{{"before", "changed by the fork"}, {"both", "one\n"}, {"d/new", "made by the fork"},
                   {"meanwhile", "of the parent"}}));
}

TEST_F(Forks, WhatGitHasNoWordForComesAlong) {
  auto parent = open();
  FileSystem& before = parent->file_system();
  const NodeId kept = before.make_node(kRootNode, "kept", S_IFREG | 0644, 0, {}).node;
  before.make_node(kRootNode, "empty", S_IFDIR | 0755, 0, {});
  before.set_xattr(kept, "user.a", "parent", XattrMode::any);
  auto child = fork(*parent);
  FileSystem& files = child->file_system();
  EXPECT_EQ(files.xattr(files.lookup(kRootNode, "kept")->node, "user.a"), "parent");
  EXPECT_TRUE(files.lookup(kRootNode, "empty"));
  AttributeChange mode;
  mode.mode = 0600;
  files.change_attributes(files.lookup(kRootNode, "kept")->node, mode);
  files.set_xattr(files.lookup(kRootNode, "kept")->node, "user.b", "fork", XattrMode::any);
  files.remove_directory(kRootNode, "empty");
  files.make_node(kRootNode, "hollow", S_IFDIR | 0700, 0, {});
  files.make_node(kRootNode, "pipe", S_IFIFO | 0600, 0, {});
  files.make_symlink(kRootNode, "to", "kept", {});
  write(*child, "two/one", "linked");
  const NodeId linked = files.lookup(files.lookup(kRootNode, "two")->node, "one")->node;
  files.link(linked, kRootNode, "other");
  ASSERT_TRUE(std::holds_alternative<Landed>(land(*child)));
  FileSystem& after = parent->file_system();
  const Attributes now = *after.lookup(kRootNode, "kept");
  EXPECT_EQ(now.mode, S_IFREG | 0600u);
  EXPECT_EQ(after.xattr(now.node, "user.a"), "parent");
  EXPECT_EQ(after.xattr(now.node, "user.b"), "fork");
  EXPECT_FALSE(after.lookup(kRootNode, "empty"));
  EXPECT_EQ(after.lookup(kRootNode, "hollow")->mode, S_IFDIR | 0700u);
  EXPECT_EQ(after.lookup(kRootNode, "pipe")->mode, S_IFIFO | 0600u);
  EXPECT_EQ(after.read_link(after.lookup(kRootNode, "to")->node), "kept");
  EXPECT_EQ(after.lookup(kRootNode, "other")->node,
            after.lookup(after.lookup(kRootNode, "two")->node, "one")->node);
  EXPECT_EQ(after.lookup(kRootNode, "other")->links, 2u);
}

// Every pair of changes of one file. What one side alone changed is in the result; a mode is as many things as it has
// bits. Of what both changed, to something else, bytes and existence are a conflict, and all else stays as it is.
TEST_F(Forks, EveryPairOfChangesOfAFileIsMergedPieceByPiece) {
  const std::vector<Shape> shapes = {
      {},
      {.text = "1\n"},
      {.text = "2\n"},
      {.mode = 0755},
      {.mode = 0600},
      {.uid = 7},
      {.uid = 8},
      {.xattrs = {{"user.x", "1"}}},
      {.xattrs = {{"user.x", "0"}, {"user.y", "1"}}},
      {.xattrs = {}},
      {.text = "1\n", .mode = 0700, .uid = 7, .xattrs = {{"user.x", "2"}, {"user.y", "2"}}},
      {.text = std::nullopt, .mode = 0, .xattrs = {}},
  };
  const Shape first;
  int number = 0;
  for (const bool is_of_the_branch : {false, true}) {
    for (const Shape& theirs : shapes) {
      for (const Shape& ours : shapes) {
        const std::string name = "f" + std::to_string(number++);
        if (is_of_the_branch) world_.push("main", {{name, *first.text}});
        auto parent = open();
        make_it(*parent, name, first);
        auto child = fork(*parent);
        make_it(*parent, name, theirs);
        make_it(*child, name, ours);
        const CommitOutcome outcome = land(*child);
        const Shape now = shape_of(*parent, name);
        std::ostringstream about;
        about << "the parent: " << theirs << "; the fork: " << ours << "; now: " << now;
        // As git sees them.
        const auto is_same_in_git = [](const Shape& a, const Shape& b) {
          return a.text == b.text && (a.mode & 0100u) == (b.mode & 0100u);
        };
        const bool is_text_disputed = ours.text != first.text && theirs.text != first.text && ours.text != theirs.text;
        const bool is_removal_disputed = (!ours.text && theirs.text && !is_same_in_git(theirs, first)) ||
                                         (!theirs.text && ours.text && !is_same_in_git(ours, first));
        if (std::holds_alternative<Conflicts>(outcome)) {
          EXPECT_EQ(paths_of(outcome), std::vector<std::string>{name}) << about.str();
          EXPECT_EQ(now, theirs) << about.str();
          // Two changes of one file, of its bytes and of its executable bit, are one for the merge of trees.
          EXPECT_TRUE(!is_same_in_git(ours, first) && !is_same_in_git(theirs, first)) << about.str();
        } else {
          EXPECT_FALSE(is_text_disputed || is_removal_disputed) << about.str();
          if (!ours.text || !theirs.text) {
            EXPECT_EQ(now.text, std::nullopt) << about.str();
          } else {
            EXPECT_EQ(now.text, ours.text != first.text ? ours.text : theirs.text) << about.str();
            EXPECT_EQ(now.mode, theirs.mode ^ ((theirs.mode ^ ours.mode) & (first.mode ^ ours.mode))) << about.str();
            EXPECT_EQ(now.uid, ours.uid == first.uid || theirs.uid != first.uid ? theirs.uid : ours.uid) << about.str();
            std::map<std::string, std::string> xattrs = theirs.xattrs;
            for (const char* xattr : {"user.x", "user.y"}) {
              const auto of = [&](const Shape& shape) {
                const auto found = shape.xattrs.find(xattr);
                return found == shape.xattrs.end() ? std::optional<std::string>() : found->second;
              };
              if (of(ours) == of(first) || of(theirs) != of(first)) continue;
              xattrs.erase(xattr);
              if (of(ours)) xattrs[xattr] = *of(ours);
            }
            EXPECT_EQ(now.xattrs, xattrs) << about.str();
          }
        }
        here_.sessions.clear();
      }
    }
  }
}

TEST_F(Forks, WhatTheParentHasInTheWayAndNoTreeTellsIsAConflict) {
  auto parent = open();
  auto child = fork(*parent);
  FileSystem& files = parent->file_system();
  files.make_node(kRootNode, "pipe", S_IFIFO | 0600, 0, {});
  files.make_node(kRootNode, "hollow", S_IFDIR | 0755, 0, {});
  files.make_node(kRootNode, "above", S_IFIFO | 0600, 0, {});
  for (const std::string name : {"pipe", "hollow", "above/below"}) {
    write(*child, name, "a file");
    EXPECT_EQ(paths_of(land(*child)), std::vector<std::string>{name.substr(0, name.find('/'))});
    remove(*child, name);
  }
  EXPECT_EQ(files.lookup(kRootNode, "pipe")->mode, S_IFIFO | 0600u);
  EXPECT_EQ(files.lookup(kRootNode, "hollow")->mode, S_IFDIR | 0755u);
}

TEST_F(Forks, WhatIsTheBranchsIsNotCopiedWhenItIsMoved) {
  world_.push("main", {{"large", std::string(1 << 20, 'l')}, {"run", "r"}});
  auto parent = open();
  auto child = fork(*parent);
  FileSystem& files = child->file_system();
  files.rename(kRootNode, "large", kRootNode, "moved", RenameMode::replace);
  AttributeChange mode;
  mode.mode = 0755;
  files.change_attributes(files.lookup(kRootNode, "run")->node, mode);
  ASSERT_TRUE(std::holds_alternative<Landed>(land(*child)));
  EXPECT_EQ(read(*parent, "moved"), std::string(1 << 20, 'l'));
  EXPECT_EQ(shape_of(*parent, "run").mode, 0755u);
  EXPECT_EQ(parent->overlay().usage().staged_bytes, 0u);
}

TEST_F(Forks, WhatBothChangedConflictsAndNothingHasChanged) {
  world_.push("main", {{"f", "0"}, {"g", "0"}});
  auto parent = open();
  auto child = fork(*parent);
  write(*child, "f", "of the fork");
  write(*child, "h", "new");
  write(*parent, "f", "of the parent");
  const CommitOutcome outcome = land(*child);
  EXPECT_EQ(paths_of(outcome), std::vector<std::string>{"f"});
  EXPECT_EQ(read(*parent, "f"), "of the parent");
  EXPECT_EQ(read(*parent, "h"), std::nullopt);
  EXPECT_EQ(child->record().state, State::open);
  write(*parent, "f", "0");
  EXPECT_TRUE(std::holds_alternative<Landed>(land(*child))) << "the parent has taken its own change back";
  EXPECT_EQ(read(*parent, "f"), "of the fork");
}

TEST_F(Forks, AConflictOfARunKeepsItsResult) {
  world_.push("main", {{"f", "0"}});
  auto parent = open();
  auto child = fork(*parent);
  write(*child, "f", "of the fork");
  write(*parent, "f", "of the parent");
  EXPECT_EQ(paths_of(land(*child, false)), std::vector<std::string>{"f"});
  EXPECT_EQ(child->record().state, State::commit_failed);
  EXPECT_TRUE(world_.references.result(child->id()));
}

TEST_F(Forks, ARollbackLeavesTheParentUntouched) {
  world_.push("main", {{"f", "0"}});
  auto parent = open();
  write(*parent, "mine", "p");
  auto child = fork(*parent);
  write(*child, "f", "of the fork");
  write(*child, "mine", "of the fork");
  child->rollback(Reason::requested, std::nullopt, "user:alice", false);
  EXPECT_EQ(read(*parent, "f"), "0");
  EXPECT_EQ(read(*parent, "mine"), "p");
  commit(*parent);
  EXPECT_EQ(head_files(), (Files{{"f", "0"}, {"mine", "p"}}));
}

TEST_F(Forks, AParentDoesNotEndBeforeItsForks) {
  auto parent = open();
  write(*parent, "f", "p");
  auto child = fork(*parent);
  std::string why;
  EXPECT_EQ(code_of([&] { commit(*parent); }, &why), Errc::wrong_state);
  EXPECT_NE(why.find(child->id().text()), std::string::npos) << why;
  EXPECT_EQ(code_of([&] { parent->rollback(Reason::requested, std::nullopt, "user:alice", false); }),
            Errc::wrong_state);
  parent->gate().move_to(WriteGate::Position::open);
  const SessionId id = parent->id();
  parent.reset();
  EXPECT_EQ(code_of([&] { manager().roll_back(id, Reason::requested, std::nullopt, "user:alice"); }),
            Errc::wrong_state);
  parent = manager().attach(id);
  child->rollback(Reason::requested, std::nullopt, "user:alice", false);
  child.reset();
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*parent)));
}

TEST_F(Forks, ForksOfForksComeHomeOneByOneAndOnlySoDeep) {
  world_.push("main", {{"f", "0"}});
  std::vector<std::unique_ptr<Session>> all;
  all.push_back(open());
  for (std::size_t depth = 0; depth < kDeepestFork; ++depth) {
    all.push_back(fork(*all.back()));
    write(*all.back(), "depth" + std::to_string(depth), "d");
  }
  EXPECT_EQ(code_of([&] { fork(*all.back()); }), Errc::wrong_state);
  EXPECT_EQ(world_.directories.list().size(), all.size()) << "nothing stays of a fork that was refused";
  EXPECT_EQ(code_of([&] { land(*all[1]); }), Errc::wrong_state) << "it has a fork";
  while (all.size() > 1) {
    ASSERT_TRUE(std::holds_alternative<Landed>(land(*all.back())));
    all.pop_back();
  }
  for (std::size_t depth = 0; depth < kDeepestFork; ++depth)
    EXPECT_EQ(read(*all[0], "depth" + std::to_string(depth)), "d");
}

TEST_F(Forks, OnlySoManyAtOnce) {
  auto parent = open();
  std::vector<std::unique_ptr<Session>> all;
  for (std::size_t count = 0; count < kMostForks; ++count) all.push_back(fork(*parent));
  EXPECT_EQ(code_of([&] { fork(*parent); }), Errc::wrong_state);
  all.front()->rollback(Reason::requested, std::nullopt, "user:alice", false);
  all.erase(all.begin());
  all.push_back(fork(*parent));
}

TEST_F(Forks, AForkCanOnlyBeNarrowed) {
  SessionOptions above = options();
  above.policies = {"{\"default\": \"allow\"}"};
  above.limits = {1000, 10};
  above.contained_symlinks = true;
  above.require_approval = true;
  SessionOptions more = options();
  more.branch = "other";
  more.policies = {"{\"default\": \"deny\"}"};
  more.limits = {2000, 5};
  const SessionOptions both = fork_options(above, more);
  EXPECT_EQ(both.branch, "main");
  EXPECT_EQ(both.policies, (std::vector<std::string>{above.policies[0], more.policies[0]}));
  EXPECT_EQ(both.limits.staged_bytes, 1000u);
  EXPECT_EQ(both.limits.files, 5u);
  EXPECT_TRUE(both.contained_symlinks);
  EXPECT_FALSE(both.require_approval) << "what the parent commits is reviewed";
}

TEST_F(Forks, AForkThatNeverCameToBeIsForgotten) {
  auto parent = open();
  write(*parent, "f", "p");
  const SessionId id = SessionId::generate();
  EXPECT_EQ(code_of([&] {
              manager().fork(parent->id(), options(), id, {}, [&] {
                parent->fork_into(id, [] {});
                throw Error(Errc::unavailable, "its maker died");
              });
            }),
            Errc::unavailable);
  EXPECT_FALSE(world_.directories.exists(id));
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(*parent)));
}

TEST_F(Forks, AParentThatFailsHalfwayIsWhatItWas) {
  world_.push("main", {{"f", "0"}});
  for (const CommitStep step : {CommitStep::landing_begun, CommitStep::landing_applied}) {
    auto parent = open();
    auto child = fork(*parent);
    write(*child, "f", "of the fork");
    write(*child, "new", "of the fork");
    observer_.stops_at = step;
    EXPECT_EQ(code_of([&] { land(*child); }), Errc::unavailable);
    observer_.stops_at.reset();
    if (step == CommitStep::landing_applied) {
      EXPECT_EQ(read(*parent, "f"), "0");
      EXPECT_EQ(read(*parent, "new"), std::nullopt);
    }
    EXPECT_EQ(child->record().state, State::open);
    EXPECT_NE(child->record().last_error, "");
    EXPECT_TRUE(std::holds_alternative<Landed>(land(*child)));
    EXPECT_EQ(read(*parent, "f"), "of the fork");
  }
}

TEST_F(Forks, AnAnswerThatIsLostIsLookedUp) {
  auto parent = open();
  auto child = fork(*parent);
  write(*child, "f", "of the fork");
  here_.after_landing = [] { throw Error(Errc::unavailable, "the connection broke"); };
  EXPECT_TRUE(std::holds_alternative<Landed>(land(*child)));
  EXPECT_EQ(read(*parent, "f"), "of the fork");
}

// At each write of any database: the parent has all of it or nothing, and the fork is committed or open.
TEST_F(Forks, ALandingThatIsCutShortAtAnyWriteIsAllOrNothing) {
  for (int last = 0, outcome = 0; outcome < 2; ++last) {
    ASSERT_LT(last, 200);
    auto parent = open();
    write(*parent, "f", "before");
    auto child = fork(*parent);
    const SessionId id = child->id();
    write(*child, "f", "of the fork");
    write(*child, "new", "of the fork");
    parent->overlay().flush(true);
    child->overlay().flush(true);
    int left = last;
    bool is_dead = false;
    world_.before_each_write([&] {
      is_dead = is_dead || left-- <= 0;
      if (is_dead) throw Error(Errc::no_space, "dead");
    });
    bool done = true;
    try {
      land(*child);
    } catch (const Error&) {
      done = false;
    }
    world_.before_each_write({});
    if (done && !is_dead) outcome = 2;
    parent->overlay().abandon();
    child->overlay().abandon();
    const SessionId above = parent->id();
    parent.reset();
    child.reset();
    manager().recover();
    parent = manager().attach(above);
    here_.sessions[above] = parent.get();
    const State state = world_.catalog.find(id)->state;
    if (state == State::committed) {
      EXPECT_EQ(read(*parent, "f"), "of the fork") << last;
      EXPECT_EQ(read(*parent, "new"), "of the fork") << last;
    } else {
      EXPECT_EQ(state, State::open) << last;
      EXPECT_EQ(read(*parent, "f"), "before") << last;
      EXPECT_EQ(read(*parent, "new"), std::nullopt) << last;
      child = manager().attach(id);
      EXPECT_TRUE(std::holds_alternative<Landed>(land(*child))) << last;
      EXPECT_EQ(read(*parent, "new"), "of the fork") << last;
    }
    child.reset();
    EXPECT_TRUE(std::holds_alternative<Committed>(commit(*parent))) << last;
    world_.push("main", {});
  }
}

}  // namespace
}  // namespace escrow::session
