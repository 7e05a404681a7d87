// One command over one session, from its opening to what became of it: what `escrow run` and every run of escrowd do.
//
// One per process and not thread-safe: it forks the supervisor of the command before the repository is opened, and
// while the process has a single thread. What is wrong with the machine or the settings is thrown before anything is
// opened; once there is a session, Escrow's own failures end up in its result.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/result_json.h"
#include "daemon/host/global_options.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/run_mountpoint.h"
#include "daemon/host/session_host.h"
#include "daemon/host/session_request.h"
#include "daemon/process/ballast.h"
#include "daemon/process/container.h"
#include "daemon/process/runner.h"

namespace escrow::daemon {

class SessionRun {
 public:
  struct Settings {
    GlobalOptions repository;
    // Asked when the repository is open; what makes it a run's is filled in.
    std::function<session::SessionOptions(const session::ReferenceStore&)> session_options;
    bool create_branch = false;
    bool with_changes = false;  // of the user's work tree (RepositoryContext::take_changes_of_checkout())
    std::optional<session::SessionId> id;  // nullopt: a fresh one
    // A session that is open and mounted nowhere: the command runs in it, and it stays open whatever becomes of the
    // command. Its own options hold; session_options is not asked.
    std::optional<session::SessionId> within;
    SessionRequest view;  // of it the mount table, git inside, and the mount's xattr, symlinks, io, opens, io_uring
    std::string trace;                     // a file for denials, or "-": standard error; empty: none
    std::string mountpoint;                // confined: as the command sees it; empty: a fresh one, or /sandbox
    std::vector<std::string> command;
    std::vector<std::string> environment;  // "NAME=value", beside what it begins with
    std::vector<std::string> python_path;  // below the mount: first in PYTHONPATH, in this order
    bool inherits_environment = true;      // of this process, where it is not confined
    std::optional<CommandSpec::Identity> identity;  // nullopt: it stays who we are
    mode_t umask = 022;
    std::optional<std::chrono::milliseconds> timeout;
    std::chrono::milliseconds grace = kDefaultGrace;
    Containment::Limits limits{.memory_bytes = {}, .processes = kDefaultProcesses, .millicpus = {}};
    CommandSpec::Output output;
    std::string message;  // of the commit
    std::string who;      // for the history
    bool keep_on_failure = false;
    bool git_by_default = false;  // where view.git says nothing (session_git.h)
    // It will be made again if it meets a conflict: nothing of it is kept then.
    bool is_tried_again = false;
    bool confined = false;
    bool network = true;  // the machine's
    // Its mountpoint and, where they were asked for, uid and gid are filled in: the command runs in a container.
    std::optional<ContainerOptions> container;
    // The session is open and mounted; what it throws rolls it back.
    std::function<void()> before_start;
    std::function<void()> started;
    // Whether the run was cancelled; asked when the command has succeeded, and while its files are stored.
    std::function<bool()> was_cancelled;
    // The session is decided, and the result has what there is to say of it.
    std::function<void(const api::RunResult&)> concluded;
    std::function<void(const std::string&)> say;  // one sentence for people
  };
  explicit SessionRun(Settings settings) : settings_(std::move(settings)) {}

  // Once. Throws Error when no session came to be.
  void execute();

  // Afterwards. Its record is there; exit_code and summary are the caller's to fill in.
  const CommandEnd& end() const { return end_; }
  const Settings& settings() const { return settings_; }
  api::RunResult& result() { return result_; }
  void tidy() noexcept { context_->tidy(); }

 private:
  void check() const;
  void prepare_process();
  void decide_on_view();
  void open_session();
  std::unique_ptr<session::Session> attach_session();
  CommandSpec command_spec();
  std::vector<std::string> command_environment() const;
  void set_python_path(std::vector<std::string>& environment) const;
  void set_command_variables(std::vector<std::string>& environment) const;
  std::string borrowed_objects() const;
  std::string visible_mountpoint() const;
  std::string hand() const;
  bool is_elsewhere() const { return settings_.confined || settings_.container; }
  void find_container();
  void sweep_containers();
  void put_into_container(CommandSpec& spec);
  void run_command();
  void run_container();
  void end_session();
  void leave_session();
  void commit();
  void roll_back(session::Reason reason);
  void roll_back_forks();
  void check_storing();
  void tell_not_kept(const session::Error& why) const;
  void abandon();
  void keep_open();

  const Settings settings_;
  bool wants_view_ = false, may_have_view_ = false;  // run_view.h
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Container> container_;  // null: the command runs on this machine
  std::unique_ptr<RepositoryContext> context_;
  std::unique_ptr<RunMountpoint> mountpoint_;
  std::optional<session::SessionId> id_;
  std::optional<GitTerms> git_;
  std::optional<Ballast> ballast_;
  std::unique_ptr<SessionHost> host_;
  CommandEnd end_;
  // When storing the files of a command with a time limit is given up; when check_storing() looks again.
  std::chrono::steady_clock::time_point stored_by_{}, look_again_{};
  bool is_given_up_ = false;  // storing it took longer, or the run was cancelled meanwhile
  api::RunResult result_;
};

// For Settings::identity: nullopt where they are this process's own. With the user's groups, if there is such a user.
std::optional<CommandSpec::Identity> identity_of(uid_t uid, gid_t gid);

}  // namespace escrow::daemon
