#include "daemon/host/session_run.h"

#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "daemon/host/config.h"
#include "daemon/host/fork_parents.h"
#include "daemon/host/io_choice.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/run_result.h"
#include "daemon/host/session_access.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_verbs.h"
#include "daemon/process/confinement.h"
#include "daemon/process/user_namespace.h"
#include "session/base/error.h"
#include "storage/bucket/bucket_name.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

using namespace std::chrono_literals;

// Storing the files of a command with a time limit may take as long again as the limit, and at least this long.
constexpr std::chrono::milliseconds kShortestStoring = 1min;
constexpr auto kLookEvery = 100ms;

bool names(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

std::uint64_t requests_of(const fuse::Mount& mount) {
  std::uint64_t sum = 0;
  for (const fuse::OperationCount& of : mount.counts()) sum += of.count;
  return sum;
}

void set_variable(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  environment.push_back(name + "=" + value);
}

}  // namespace

std::optional<CommandSpec::Identity> identity_of(uid_t uid, gid_t gid) {
  if (uid == ::geteuid() && gid == ::getegid()) return std::nullopt;
  CommandSpec::Identity identity{uid, gid, {gid}};
  std::array<char, 16384> buffer;
  passwd entry{};
  passwd* user = nullptr;
  ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &user);
  if (user != nullptr) {
    int count = 256;
    std::vector<gid_t> groups(static_cast<std::size_t>(count));
    if (::getgrouplist(user->pw_name, gid, groups.data(), &count) >= 0) {
      groups.resize(static_cast<std::size_t>(count));
      identity.groups = groups;
    }
  }
  return identity;
}

void SessionRun::check() const {
  const SessionRequest& view = settings_.view;
  choose_io(view, needs_of_policies(view.policies.documents, view.path_prefix),
            {.staged_bytes = view.limit_staged_bytes, .files = view.limit_files}, view.mounts.specs);
  for (const std::string& entry : settings_.environment) {
    if (entry.find('=') == std::string::npos || entry.starts_with('=')) {
      throw Error(Errc::bad_request, "--env \"" + entry + "\" is not of the form NAME=VALUE");
    }
  }
  if (settings_.command.empty() && !settings_.container)
    throw Error(Errc::bad_request, "there is no command to run; give one after --, or an image with --image");
  if (settings_.confined && settings_.container) {
    throw Error(Errc::bad_request, "--confine and --image exclude each other: a container has its own view of the "
                                   "machine; leave one of them out");
  }
  if (settings_.confined) {
    check_can_confine();
    check_sandbox_mountpoint(visible_mountpoint());
    check_sandbox_command(settings_.command, settings_.environment);
  } else if (!settings_.network && !settings_.container) {
    check_can_cut_network();
  }
  if (settings_.identity && !settings_.container && ::geteuid() != 0) {
    throw Error(Errc::bad_request, "--uid and --gid name another user or group than yours; only root may run a "
                                   "command as somebody else");
  }
}

// Of a command that has caches, and sees this machine. An ordinary user whose mount the helper could make makes it in a
// user namespace, which gives the right to move it.
void SessionRun::decide_on_view() {
  const std::vector<MountEntrySpec>& entries = settings_.view.mounts.specs;
  wants_view_ = !is_elsewhere() && std::any_of(entries.begin(), entries.end(), [](const MountEntrySpec& entry) {
    return entry.source == MountEntrySpec::Source::cache;
  });
  MountAccess access = find_mount_access();
  may_have_view_ = wants_view_ && may_make_view(access);
  if (may_have_view_ && access == MountAccess::helper) access = MountAccess::user_namespace;
  if (access == MountAccess::user_namespace) enter_user_namespace();
}

// While there is one thread and nothing is open.
void SessionRun::prepare_process() {
  decide_on_view();
  runner_ = std::make_unique<Runner>();
  if (settings_.container) return;
  CommandSpec spec;
  spec.identity = settings_.identity;
  spec.limits = settings_.confined ? limits_when_confined(settings_.limits) : settings_.limits;
  runner_->make_ready(spec);
}

// Before anything is opened: there may be no runtime, or no image.
void SessionRun::find_container() {
  ContainerOptions options = *settings_.container;
  options.mountpoint = visible_mountpoint();
  container_ = std::make_unique<Container>(options);
}

// A run that is killed, or whose runtime is away when it ends, may leave its container.
void SessionRun::sweep_containers() {
  storage::Repository& repository = context_->repository();
  const std::string left = container_->sweep([&](const std::string& label) -> std::optional<std::string> {
    const std::optional<session::SessionId> id = session::SessionId::parse(label);
    const std::optional<session::SessionRecord> record = id ? repository.catalog().find(*id) : std::nullopt;
    const bool has_ended = record && (is_final(record->state) || record->state == session::State::awaiting_approval);
    return has_ended ? std::optional(repository.directories().path_of(*id)) : std::nullopt;
  });
  if (!left.empty()) settings_.say("warning: " + left);
}

// The session in which the command runs, and which others have opened.
std::unique_ptr<session::Session> SessionRun::attach_session() {
  const session::SessionManager::Listed listed = context_->sessions().status(*settings_.within);
  if (listed.record.state != session::State::open) {
    throw Error(Errc::wrong_state, "cannot run a command in session " + settings_.within->text() + ": it is " +
                                       name_of(listed.record.state));
  }
  if (listed.attachment == session::Attachment::mounted) {
    throw Error(Errc::attached_elsewhere, "session " + settings_.within->text() + " is mounted on " +
                                              listed.record.mountpoint + "; unmount it first");
  }
  std::unique_ptr<session::Session> session = attach(*context_, *settings_.within);
  context_->repository().catalog().remark(session->id(), context_->clock().now(), settings_.who, "ran a command in it");
  return session;
}

void SessionRun::open_session() {
  context_ = std::make_unique<RepositoryContext>(settings_.repository);
  context_->recover();
  if (container_) sweep_containers();
  std::unique_ptr<session::Session> session;
  if (settings_.within) session = attach_session();
  session::SessionOptions session_options =
      session ? session->record().options : settings_.session_options(context_->references());
  std::shared_ptr<DenialTrace> trace;
  if (!settings_.trace.empty()) {
    trace = std::make_shared<DenialTrace>(settings_.trace, settings_.output.most_bytes);
  }
  if (!session) {
    session_options.ephemeral = true;
    session_options.keep_on_failure = settings_.keep_on_failure;
    session_options.command = settings_.command;
  }
  if (is_elsewhere() && settings_.view.symlinks.empty()) session_options.contained_symlinks = true;
  const bool sees_objects = !is_elsewhere() && !settings_.identity;
  git_ = session ? noted_git_terms(session->directory())
                 : git_terms(settings_.view.git, settings_.git_by_default && sees_objects, session_options,
                             context_->repository(), repository_path(settings_.repository));
  if (git_ && !session && is_elsewhere()) git_->objects = kObjectsInside;
  if (container_) {
    session_options.audit.image = container_->image_digest();
    session_options.uid = container_->uid();
    session_options.gid = container_->gid();
  }
  mountpoint_ = std::make_unique<RunMountpoint>(is_elsewhere() ? "" : settings_.mountpoint,
                                                context_->repository().git_directory(), session_options,
                                                may_have_view_);
  if (!session) {
    session = context_->sessions().open(
        session_options, settings_.create_branch, settings_.id.value_or(session::SessionId::generate()),
        preparation_of(settings_.view, git_ && git_->keeps_commits ? git_ : std::nullopt, session_options,
                       context_->repository()));
  }
  id_ = session->id();
  if (const std::string words = settings_.with_changes
                                    ? open_with_changes(*context_, session)
                                    : context_->words_about_checkout(session->record().options.branch);
      !words.empty())
    settings_.say(words);
  ballast_.emplace(session->directory());
  SessionHost::Options host_options;
  host_options.mount.mountpoint = mountpoint_->path();
  host_options.mount.xattrs = settings_.view.xattr == "user";
  host_options.mount.io_uring = settings_.view.io_uring != "off";
  host_options.mount.is_fresh_mountpoint = mountpoint_->is_fresh();
  if (!mountpoint_->is_fresh()) {
    host_options.mount.root_mask = closed_to_others(mountpoint_->path(), context_->repository().git_directory());
  }
  IoChoice io = choose_io(settings_.view, needs_of_policies(session_options.policies, session_options.prefix.text()),
                          session_options.limits, kept_mounts(session->directory()).entries);
  host_options.mount.io = io.mode;
  host_options.io_reason = std::move(io.reason);
  host_options.visible_root = visible_mountpoint();
  const bool has_view = !mountpoint_->seen_at().empty();
  if (wants_view_ && !has_view) {
    settings_.say("warning: the session is at a path of the machine, because " +
                  (may_have_view_ ? FixedPath::base() + " cannot be made" : std::string("no mount namespace can be")) +
                  "; other sessions at such paths cannot use its caches meanwhile");
  }
  host_options.place = {.is_seen = !is_elsewhere() && (!has_view || !mountpoint_->is_fresh()),
                        .sees_others = !is_elsewhere() && !has_view};
  host_options.trace = std::move(trace);
  host_options.git = git_;
  host_options.git_viewer = {
      .hand = hand(), .shows_entries = is_elsewhere() || !settings_.within, .shows_caches = is_elsewhere()};
  host_options.mount.allow_other = ::geteuid() == 0;
  host_options.mount.read_only = session_options.read_only;
  // The runner hears it as it hears every signal that cancels.
  if (!settings_.within) host_options.cancel_run = [] { ::kill(::getpid(), SIGTERM); };
  host_ = std::make_unique<SessionHost>(std::move(session), host_options, context_->repository(), context_->log());
  if (const std::string& words = host_->words_about_hidden_git(); !words.empty()) settings_.say(words);
}

// The command's, not the caller's: a confined one is not to be trusted with what the caller may do.
std::string SessionRun::hand() const {
  if (is_elsewhere()) return hand_of_command(settings_.who);
  return hand_of_user(settings_.identity ? settings_.identity->uid : ::getuid());
}

// What the command begins with (this process's, or a confined command's), what was asked for, and where it is.
std::vector<std::string> SessionRun::command_environment() const {
  const bool inherits = settings_.inherits_environment && !settings_.confined;
  std::vector<std::string> environment;
  if (!inherits) environment = confined_environment();
  for (char** entry = environ; *entry && inherits; ++entry) environment.emplace_back(*entry);
  // Where the repository is, and the right to ask a service for it, is Escrow's: a policy holds in the mount, not in
  // the repository's own directory. OLDPWD is where the caller was.
  for (const char* name : {"ESCROW_REPO", "ESCROW_HOST", "ESCROW_TOKEN", "OLDPWD"}) {
    std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  }
  // So is the right to change the bucket that the repository is in.
  if (storage::names_bucket(repository_path(settings_.repository))) {
    for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
      std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  }
  set_variable(environment, "PWD", visible_mountpoint());
  set_command_variables(environment);
  return environment;
}

// Before what the command would have anyway; Python itself puts the system's directories after all of it.
void SessionRun::set_python_path(std::vector<std::string>& environment) const {
  if (settings_.python_path.empty()) return;
  std::string path;
  for (const std::string& below : settings_.python_path)
    path += (path.empty() ? "" : ":") + visible_mountpoint() + (below.empty() ? "" : "/" + below);
  constexpr std::string_view kName = "PYTHONPATH";
  for (const std::string& entry : environment)
    if (names(entry, kName) && entry.size() > kName.size() + 1) path += ":" + entry.substr(kName.size() + 1);
  set_variable(environment, std::string(kName), path);
}

void SessionRun::set_command_variables(std::vector<std::string>& environment) const {
  for (const std::string& entry : settings_.environment) {
    const std::size_t equals = entry.find('=');
    set_variable(environment, entry.substr(0, equals), entry.substr(equals + 1));
  }
  set_python_path(environment);
  set_variable(environment, "ESCROW_SESSION", id_->text());
  set_variable(environment, "ESCROW_MOUNT", visible_mountpoint());
}

std::string SessionRun::borrowed_objects() const {
  return git_ ? objects_directory(context_->repository()) : "";
}

// The runtime's program runs as who we are, where we are.
void SessionRun::put_into_container(CommandSpec& spec) {
  std::vector<std::string> environment;
  set_command_variables(environment);
  spec.environment.clear();
  for (char** entry = environ; *entry; ++entry) spec.environment.emplace_back(*entry);
  spec.working_directory = std::filesystem::current_path().string();
  spec.identity.reset();
  container_->wrap(spec, {.session = id_->text(),
                          .host_mountpoint = mountpoint_->path(),
                          .directory = host_->session().directory(),
                          .read_only = host_->session().record().options.read_only,
                          .objects = borrowed_objects(),
                          .limits = settings_.limits,
                          .environment = environment});
}

CommandSpec SessionRun::command_spec() {
  CommandSpec spec;
  spec.arguments = settings_.command;
  spec.environment = command_environment();
  spec.seen_at = mountpoint_->seen_at();
  spec.working_directory = spec.seen_at.empty() ? mountpoint_->path() : spec.seen_at;
  spec.identity = settings_.identity;
  spec.umask = settings_.umask;
  spec.timeout = settings_.timeout;
  spec.grace = settings_.grace;
  spec.limits = settings_.limits;
  spec.output = settings_.output;
  spec.mountpoint = mountpoint_->path();
  spec.device = host_->mount().device();
  spec.remove_mountpoint = mountpoint_->is_fresh();
  if (container_) {
    put_into_container(spec);
  } else if (settings_.confined) {
    confine(spec, {.mountpoint = visible_mountpoint(), .objects = borrowed_objects(), .network = settings_.network});
  } else if (!settings_.network) {
    spec.without_network = true;
  }
  return spec;
}

// As the command sees it.
std::string SessionRun::visible_mountpoint() const {
  if (mountpoint_ && !mountpoint_->seen_at().empty()) return mountpoint_->seen_at();
  if (!is_elsewhere()) return mountpoint_ ? mountpoint_->path() : settings_.mountpoint;
  return settings_.mountpoint.empty() ? kSandboxMountpoint : settings_.mountpoint;
}

// A runtime looks at the path of the mount before it starts the container. One that has other mounts than this process
// finds the directory below, and what the container writes there is in no session. That stays unseen if somebody else
// has looked at the mount meanwhile.
void SessionRun::run_container() {
  fuse::Mount& mount = host_->mount();
  mount.invalidate({{session::kRootNode, ""}});  // the next look at it sends a request
  const std::uint64_t before = requests_of(mount);
  end_ = runner_->run(command_spec(), settings_.started);
  const std::string left = container_->settle(end_, settings_.grace);
  runner_->container_is_settled();
  if (!left.empty()) settings_.say("warning: " + left);
  if (end_.cause != EndCause::exited || requests_of(mount) != before) return;
  end_.cause = EndCause::failed;
  end_.command_status.reset();
  end_.message = "the container did not see the session: the runtime has other mounts than this process, and what the "
                 "container wrote is in the runtime's directory " + mountpoint_->path() +
                 "; run escrow in the runtime's mount namespace";
}

void SessionRun::run_command() {
  if (settings_.before_start) settings_.before_start();
  if (container_) {
    run_container();
  } else {
    end_ = runner_->run(command_spec(), settings_.started);
  }
  std::string pids;
  for (const pid_t pid : end_.survivors) pids += (pids.empty() ? "" : ", ") + std::to_string(pid);
  if (end_.ran_out_of_processes) {
    settings_.say("warning: the command wanted more than " + std::to_string(settings_.limits.processes) +
                  " processes and threads at once, and was refused them; --max-processes gives it more");
  }
  if (!pids.empty()) settings_.say("processes of the command could not be ended: " + pids + "; they can write no more");
}

void SessionRun::leave_session() {
  if (!host_->has_ended()) {
    const std::string warning = host_->leave();
    if (!warning.empty()) settings_.say("warning: " + warning);
  }
  result_.record = context_->sessions().status(*id_).record;
}

void SessionRun::end_session() {
  result_.command_status = end_.command_status;
  if (settings_.within) return leave_session();
  const std::string warning = host_->seal_and_unmount();
  if (!warning.empty()) settings_.say("warning: " + warning);
  if (!rollback_reason(end_) && settings_.was_cancelled && settings_.was_cancelled()) {
    end_.cause = EndCause::cancelled;
    end_.signal_number = SIGTERM;
  }
  stored_by_ = std::chrono::steady_clock::now() + std::max(settings_.timeout.value_or(0ms), kShortestStoring);
  host_->session().overlay().while_storing([this] { check_storing(); });
  rollback_reason(end_) ? roll_back(*rollback_reason(end_)) : commit();
  result_.mounts = host_->mounts();
  result_.omitted = host_->session().omitted();
  result_.record = host_->session().record();
  if (result_.record->state == session::State::rolled_back) roll_back_forks();
  if (settings_.concluded) settings_.concluded(result_);
}

// A file with a hole of terabytes takes days to read: who waits for the run is not kept waiting for that. Throws.
void SessionRun::check_storing() {
  const auto now = std::chrono::steady_clock::now();
  if (now < look_again_) return;
  look_again_ = now + kLookEvery;
  const int signal = runner_->cancel_signal();
  const bool is_cancelled = signal != 0 || (settings_.was_cancelled && settings_.was_cancelled());
  if (!is_cancelled && (!settings_.timeout || now < stored_by_)) return;
  if (!rollback_reason(end_)) {
    end_.cause = is_cancelled ? EndCause::cancelled : EndCause::timed_out;
    if (is_cancelled) end_.signal_number = signal != 0 ? signal : SIGTERM;
  }
  is_given_up_ = true;
  throw Error(Errc::unavailable, "storing what the command left took too long");
}

void SessionRun::tell_not_kept(const Error& why) const {
  settings_.say("warning: the result of session " + id_->text() + " is not kept: " + why.what());
}

void SessionRun::roll_back(session::Reason reason) {
  if (settings_.keep_on_failure || end_.keep_result) {
    try {
      return host_->finish_rollback(reason, recorded_status(end_), settings_.who, true);
    } catch (const Error& error) {
      if (!is_given_up_) throw;
      tell_not_kept(error);
    }
  }
  host_->finish_rollback(reason, recorded_status(end_), settings_.who, false);
}

// A fork is committed into its session, so nobody could commit one whose session has been rolled back.
void SessionRun::roll_back_forks() {
  try {
    std::string named;
    for (const session::SessionId& fork : daemon::roll_back_forks(*context_, *id_, settings_.who))
      named += (named.empty() ? "" : ", ") + fork.text();
    if (!named.empty()) settings_.say("its forks were rolled back with it: " + named);
  } catch (const Error& error) {
    settings_.say(std::string("warning: forks of the session stay open: ") + error.what());
  }
}

void SessionRun::commit() try {
  const session::CommitRequest request = with_commits_inside(
      host_->session(), {.message = settings_.message, .exit_code = 0, .reason = session::Reason::success,
                         .by_hand = settings_.is_tried_again, .who = settings_.who});
  const session::CommitOutcome outcome = host_->finish_commit(request);
  std::string squashed;
  if (const auto* committed = std::get_if<session::Committed>(&outcome)) {
    result_.counts = committed->counts;
    squashed = squashed_words(committed->squashed);
  }
  if (const auto* sealed = std::get_if<session::AwaitingApproval>(&outcome)) {
    result_.counts = sealed->counts;
    squashed = squashed_words(sealed->squashed);
  }
  if (!squashed.empty()) settings_.say("warning: " + squashed);
  const auto* conflicts = std::get_if<session::Conflicts>(&outcome);
  if (conflicts == nullptr) return;
  result_.conflicts = conflicts->paths;
  if (settings_.is_tried_again) host_->finish_rollback(session::Reason::conflict, 0, settings_.who, false);
} catch (const Error& error) {
  if (!is_given_up_) throw;
  if (settings_.keep_on_failure) tell_not_kept(error);
  host_->finish_rollback(*rollback_reason(end_), recorded_status(end_), settings_.who, false);
}

// Escrow itself failed on the way. What was to be rolled back is; a commit that failed for an outside reason has left
// the session open, to be tried again by hand.
void SessionRun::abandon() {
  if (ballast_) ballast_->release();
  host_.reset();
  try {
    result_.record = context_->sessions().status(*id_).record;
    if (settings_.within || result_.record->state != session::State::open || !result_.record->last_error.empty()) {
      return;
    }
    if (!rollback_reason(end_)) return keep_open();
    const std::unique_ptr<session::Session> session = context_->sessions().attach(*id_);
    session->rollback(rollback_reason(end_).value_or(session::Reason::not_started), recorded_status(end_),
                      settings_.who, settings_.keep_on_failure || end_.keep_result);
    result_.record = session->record();
  } catch (const Error& error) {
    if (result_.error != error.what()) result_.error += std::string("; ") + error.what();
  }
}

// The commit failed and had no room to say so: without this, recovery would take the session for an orphan's.
void SessionRun::keep_open() {
  session::SessionRecord record = *result_.record;
  record.last_error = result_.error;
  context_->repository().catalog().transition(session::State::open, record, settings_.who,
                                              "the commit failed: the session stays open");
  result_.record = record;
}

void SessionRun::execute() {
  try {
    check();
    prepare_process();
    if (settings_.container) find_container();
    open_session();
    run_command();
    end_session();
  } catch (const Error& error) {
    result_.error = error.what();
    if (!id_) throw;
    abandon();
    if (!result_.record) throw;
  }
  // Everything is gone before the last sentence is said.
  host_.reset();
  mountpoint_.reset();
}

}  // namespace escrow::daemon
