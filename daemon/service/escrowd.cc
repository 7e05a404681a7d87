#include "daemon/service/escrowd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "api/service_manager.h"
#include "daemon/host/spdlog_log.h"
#include "daemon/process/descriptor_limit.h"
#include "daemon/process/exit_status.h"
#include "daemon/service/http/service_routes.h"
#include "daemon/service/http/service_run_routes.h"
#include "daemon/service/imports/caller_files.h"
#include "daemon/service/reload_command.h"
#include "daemon/service/sessions/mount_host.h"
#include "daemon/service/upkeep_process.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::chrono::milliseconds kTidyEvery{2'000};
constexpr int kTidiesToRecovery = 30;
constexpr ConcurrencyLimit::Number kMostLongVerbs{.all = 64, .of_one = 48};

FileDescriptor take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC));
}

// Made (0700) when it is missing; one service at a time has it.
FileDescriptor lock_state(const std::string& directory) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::unavailable, "cannot use the state directory " + directory + ": " + why);
  };
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) refuse(std::strerror(errno));
  FileDescriptor lock(open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) refuse(std::strerror(errno));
  // The process's own (fcntl(2)): one of flock(2) would live on in a child that was being made as it was killed.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(lock.get(), F_SETLK, &whole) != 0) refuse("another escrowd uses it; stop that one, or choose another");
  return lock;
}

api::HttpServer::Options server_options(const EscrowdConfig& config) {
  api::HttpServer::Options options;
  options.socket = config.socket;
  options.group = config.socket_group;
  options.max_body_bytes = config.max_body_bytes;
  options.content_directory = config.state_directory;
  options.max_content_bytes = config.max_content_bytes;
  options.max_connections = config.max_connections;
  options.idle_timeout = std::chrono::milliseconds(config.idle_timeout_ms);
  options.request_timeout = std::chrono::milliseconds(config.request_timeout_ms);
  options.tcp.address = config.listen;
  options.tcp.certificate = config.tls_certificate;
  options.tcp.key = config.tls_key;
  return options;
}

// Of what is configured and cannot be had.
void warn_of(const EscrowdConfig& config, session::Log& log) {
  if (geteuid() == 0 && config.operators.empty() && config.repositories.empty()) {
    log.write(session::LogLevel::warning,
              "operators: nobody is one, so nobody can register repositories; \"repositories\" of the configuration "
              "does that, too, and \"operators\": [\"user:root\"] makes root of this machine one");
  }
  if (config.source_roots.empty()) return;
  if (const std::string why = CallerFiles::why_only_own(); !why.empty()) {
    log.write(session::LogLevel::warning, "source_roots: " + why);
  }
}

}  // namespace

Escrowd::Escrowd(const EscrowdConfig& config, Reread reread)
    : started_with_(config),
      reread_(std::move(reread)),
      config_(config),
      given_socket_(api::take_service_manager_socket()),
      log_(make_log(config.verbose)),
      signals_(take_signals()),
      repository_roots_(config.repository_roots, "repository_roots"),
      mount_roots_(config.mount_roots, "mount_roots"),
      source_roots_(config.source_roots, "source_roots"),
      state_lock_(lock_state(config.state_directory)),
      store_(config.state_directory + "/escrowd.db"),
      event_log_(config.state_directory + "/events.db"),
      token_store_(config.state_directory + "/tokens.db"),
      webhook_store_(config.state_directory + "/webhooks.db"),
      tokens_(config_, token_store_, event_log_, clock_, *log_),
      time_(store_, boot_clock_, clock_),
      repositories_(config_, store_, repository_roots_, stopping_, *log_),
      hosts_(config, store_, mount_roots_, *log_),
      sessions_(config_, repositories_, hosts_, store_, metrics_, clock_, time_, source_roots_),
      runs_(config_, repositories_, sessions_, store_, clock_) {
  warn_of(config, *log_);
  allow_many_descriptors();  // one for each connection and several for each mount
  runs_.forget_unborn();
  sessions_.forget_unborn();
  hosts_.take_up(repositories_);
  events_ = std::make_unique<ServiceEvents>(event_log_, repositories_, clock_, *log_);
  webhooks_ = std::make_unique<Webhooks>(config_, webhook_store_, event_log_, clock_, *log_);
  leases_ = std::make_unique<ServiceLeases>(store_, sessions_, time_, *log_);
  long_verbs_ = std::make_unique<AsyncRequests>(
      config_, kMostLongVerbs, [this](api::Call& call) { return accepted(config_, sessions_, call); });
  add_service_routes(router_, {.config = config_, .repositories = repositories_, .sessions = sessions_,
                               .store = store_, .time = time_, .events = *events_, .tokens = tokens_,
                               .webhooks = *webhooks_,
                               .long_verbs = *long_verbs_, .source_roots = source_roots_, .stopping = stopping_,
                               .reload = [this] { return reload(); }});
  add_run_routes(router_, {.config = config_, .runs = runs_, .store = store_, .time = time_});
  router_.observe([this](const std::string& method, const std::string& route, unsigned status, double seconds) {
    metrics_.add_request(method, route, status, seconds);
  });
  if (config.volume_plugin) {
    volumes_ = std::make_unique<VolumePlugin>(started_with_, config_, repositories_, sessions_, store_, *log_);
  }
  api::HttpServer::Options options = server_options(config);
  options.given_socket = given_socket_;
  // Whoever supervises the service learns how it is while all its threads are busy; metrics ask each mount's host.
  options.apart = {{"/v1/health", "/v1/ready"}, {"/metrics"}};
  options.on_refusal = [this](unsigned status) { metrics_.add_request("", "", status, 0); };
  options.admit = [this](const api::HttpRequest& request, std::optional<std::uint64_t> length) {
    return router_.refusal_of_content(request, length);
  };
  options.tcp.principal_of_token = [this](std::string_view token) { return tokens_.principal_of(token); };
  server_ = std::make_unique<api::HttpServer>(
      options, [this](const api::HttpRequest& request) { return router_.answer(request); }, *log_);
  upkeep_ = std::make_unique<ServiceUpkeep>(ServiceUpkeep::Parts{.config = config_, .repositories = repositories_,
                                                                  .store = store_, .events = event_log_,
                                                                  .time = time_, .metrics = metrics_, .log = *log_});
}

Escrowd::~Escrowd() {
  api::tell_service_manager("STOPPING=1");
  stopping_.begin(std::chrono::milliseconds(started_with_.stop_grace_ms));
  keep_house();
  save_time();
}

std::vector<std::string> Escrowd::reload() {
  const auto turn = reloading_.lock();
  EscrowdConfig next = reread_();
  const AllowedRoots repository_roots(next.repository_roots, "repository_roots");
  const AllowedRoots mount_roots(next.mount_roots, "mount_roots");
  const AllowedRoots source_roots(next.source_roots, "source_roots");
  std::vector<std::string> later = fixed_members_that_differ(started_with_, next);
  // All that may fail comes first.
  std::vector<storage::ServiceStore::Registration> named;
  for (const auto& [name, path] : next.repositories) named.push_back({name, path});
  store_.check_repositories(named);
  server_->change(server_options(next));
  repository_roots_.take(repository_roots);
  mount_roots_.take(mount_roots);
  source_roots_.take(source_roots);
  config_.replace(next);
  repositories_.add_configured(next);
  events_->follow_repositories();
  webhooks_->follow_config();
  return later;
}

void Escrowd::reload_for_a_signal() noexcept {
  try {
    for (const std::string& name : reload()) {
      log_->write(session::LogLevel::warning, "the configuration was read again; \"" + name +
                                                  "\" counts from the next start on");
    }
    log_->write(session::LogLevel::info, "the configuration was read again");
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::error, std::string("the configuration stays as it was: ") + failure.what());
  }
}

bool Escrowd::is_told_to_stop(std::chrono::milliseconds within) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  while (!is_stopping_) {
    const auto rest = deadline - std::chrono::steady_clock::now();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(rest);
    pollfd watched{signals_.get(), POLLIN, 0};
    if (left.count() < 0 || poll(&watched, 1, static_cast<int>(left.count())) <= 0) return false;
    signalfd_siginfo about{};
    if (read(signals_.get(), &about, sizeof about) != sizeof about) continue;
    if (about.ssi_signo == SIGHUP) {
      reload_for_a_signal();
    } else {
      is_stopping_ = true;
    }
  }
  return true;
}

void Escrowd::run() {
  api::tell_service_manager("READY=1");
  for (int turn = 1; !is_told_to_stop(kTidyEvery); ++turn) {
    repositories_.tidy();
    runs_.reap();
    hosts_.tidy();
    if (volumes_) volumes_->reap();
    tokens_.tidy(static_cast<std::int64_t>(config_->retention.tokens_s));
    if (turn % kTidiesToRecovery != 0) continue;
    repositories_.recover();
    keep_house();
    save_time();
  }
}

void Escrowd::keep_house() noexcept {
  try {
    sessions_.keep_house();
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::warning,
                std::string("what is known of sessions that are forgotten is kept: ") + failure.what());
  }
}

void Escrowd::save_time() noexcept {
  try {
    time_.save();
  } catch (const std::exception& failure) {
    log_->write(session::LogLevel::warning,
                std::string("how far leases and deadlines have come is not kept: ") + failure.what());
  }
}

int run_escrowd(int argc, char** argv) {
  try {
    if (argc == 2 && std::strcmp(argv[1], kRunHostArgument) == 0) return run_host();
    if (argc == 2 && std::strcmp(argv[1], kMountHostArgument) == 0) return run_mount_host();
    if (argc == 3 && (argv[1] == kGcVerb || argv[1] == kVerifyVerb)) return run_upkeep(argv[1], argv[2], {});
    if (argc == 4 && argv[1] == kGcVerb) return run_upkeep(argv[1], argv[2], std::stoull(argv[3]));
    int exit_status = kExitSuccess;
    const std::optional<EscrowdInvocation> invocation = parse_escrowd_arguments(argc, argv, exit_status);
    if (!invocation) return exit_status;
    if (invocation->check_only) {
      warn_of(invocation->config, *make_log(false));
      return kExitSuccess;
    }
    if (invocation->reload) return reload_running_service(invocation->config);
    Escrowd service(invocation->config, [argc, argv] {
      int ignored = kExitSuccess;
      return parse_escrowd_arguments(argc, argv, ignored).value().config;
    });
    service.run();
    return kExitSuccess;
  } catch (const Error& error) {
    std::fprintf(stderr, "escrowd: %s\n", error.what());
    return exit_status_of(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "escrowd: internal error: %s\n", error.what());
    return kExitEscrowFailed;
  }
}

}  // namespace escrow::daemon
