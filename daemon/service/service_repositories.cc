#include "daemon/service/service_repositories.h"

#include <unistd.h>

#include <utility>

#include "api/problem.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::LogLevel;

namespace {

constexpr const char* kByConfiguration = "configuration";

void check_name(const std::string& name) {
  if (is_repository_name(name)) return;
  throw Problem(ProblemCode::invalid_value, std::string("\"name\" is not ") + kRepositoryNames, {{"field", "name"}});
}

}  // namespace

ServiceRepositories::ServiceRepositories(const LiveConfig& config, storage::ServiceStore& store,
                                         const AllowedRoots& roots, const ShutdownDeadline& stopping,
                                         session::Log& log)
    : config_(config), store_(store), roots_(roots), stopping_(stopping), log_(log), verbose_(config->verbose) {
  add_configured(*config.now());
}

void ServiceRepositories::add_configured(const EscrowdConfig& config) {
  for (const auto& [name, path] : config.repositories) store_.add_repository({name, path}, kByConfiguration);
  for (const auto& [name, path] : store_.repositories()) {
    if (entries_.lock()->contains(name)) continue;
    Entry entry{.name = name, .path = path, .context = nullptr, .error = {}};
    try {
      entry = open(name, path);
      entry.context->recover();
    } catch (const session::Error& error) {
      entry.error = error.what();
      log_.write(LogLevel::error, "the repository '" + name + "' cannot be used: " + error.what());
    }
    entries_.lock()->insert_or_assign(name, std::move(entry));
  }
}

ServiceRepositories::Entry ServiceRepositories::open(const std::string& name, const std::string& path) const {
  roots_.check(path, false, "path");
  GlobalOptions options;
  options.repository = path;
  options.verbose = verbose_;
  auto context = std::make_shared<RepositoryContext>(options);
  context->repository().check_before_trees(
      [&stopping = stopping_] { stopping.check("reading the repository's directories"); });
  return {.name = name, .path = path, .context = std::move(context), .error = {}};
}

std::vector<ServiceRepositories::Entry> ServiceRepositories::list() {
  std::vector<Entry> entries;
  const auto held = entries_.lock();
  for (const auto& [name, entry] : *held) entries.push_back(entry);
  return entries;
}

ServiceRepositories::Entry ServiceRepositories::find(const std::string& name) {
  Entry entry;
  {
    auto held = entries_.lock();
    const auto found = held->find(name);
    if (found == held->end()) {
      throw Problem(ProblemCode::no_repository,
                    "there is no repository '" + name + "'; \"repositories\" of the service's configuration registers "
                    "one, and so may its operators (POST /v1/repositories)");
    }
    if (found->second.context) return found->second;
    entry = found->second;
  }
  // Not under the lock: opening reads the disk.
  entry = open(entry.name, entry.path);
  auto held = entries_.lock();
  Entry& kept = (*held)[name];
  if (!kept.context) kept = entry;
  return kept;
}

// Whether it was made. A kill in the middle leaves a directory in which the next one makes it.
bool ServiceRepositories::make(const std::string& path, const std::string& branch) const {
  const bool was_there = ::access(path.c_str(), F_OK) == 0;
  roots_.check(path, true, "path");
  try {
    return storage::Repository::init(path, branch);
  } catch (...) {
    if (!was_there) ::rmdir(path.c_str());
    throw;
  }
}

ServiceRepositories::Added ServiceRepositories::add(const std::string& name, const std::string& path,
                                                    const std::string& who,
                                                    const std::optional<std::string>& branch_to_make) {
  check_name(name);
  const bool is_made = branch_to_make && make(path, *branch_to_make);
  const Entry entry = open(name, path);
  if (!store_.add_repository({name, path}, who)) return {.is_new = false, .is_made = is_made};
  entry.context->recover();
  entries_.lock()->insert_or_assign(name, entry);
  return {.is_new = true, .is_made = is_made};
}

std::optional<ServiceRepositories::Session> ServiceRepositories::find_session(const std::string& text) {
  const std::optional<session::SessionId> id = session::SessionId::parse(text);
  if (!id) return std::nullopt;
  for (Entry& entry : list()) {
    if (!entry.context) continue;
    std::optional<session::SessionRecord> record = entry.context->repository().catalog().find(*id);
    if (record) return Session{.repository = std::move(entry), .record = *std::move(record)};
  }
  return std::nullopt;
}

void ServiceRepositories::recover() noexcept {
  for (const Entry& entry : list()) {
    try {
      // One that is still missing has been said at the start.
      const Entry usable = entry.context ? entry : find(entry.name);
      usable.context->recover();
      usable.context->repository().renew_handles();
    } catch (const std::exception& failure) {
      if (!entry.context) continue;
      log_.write(LogLevel::warning, "recovering sessions of the repository '" + entry.name + "': " + failure.what());
    }
  }
}

ServiceRepositories::Entry ServiceRepositories::remove(const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw Problem(ProblemCode::wrong_state, "the repository '" + name + "' cannot be unregistered: " + why);
  };
  if (config_->repositories.contains(name)) refuse("it is one of \"repositories\" of the configuration");
  const auto refuse_open = [&](const Entry& entry) {
    if (!entry.context) return;
    const std::vector<session::SessionRecord> open = entry.context->repository().catalog().unended();
    if (open.empty()) return;
    refuse(std::to_string(open.size()) + " of its sessions have not ended, " + open.front().id.text() +
           " for one; end them first");
  };
  Entry entry;
  {
    auto held = entries_.lock();
    const auto found = held->find(name);
    if (found == held->end()) throw Problem(ProblemCode::no_repository, "there is no repository '" + name + "'");
    entry = found->second;
  }
  refuse_open(entry);
  entries_.lock()->erase(name);
  // Who had found it before may have opened one meanwhile.
  try {
    refuse_open(entry);
    store_.remove_repository(name);
  } catch (...) {
    entries_.lock()->insert_or_assign(name, entry);
    throw;
  }
  return entry;
}

void ServiceRepositories::tidy() noexcept {
  for (const Entry& entry : list()) {
    if (entry.context) entry.context->tidy();
  }
}

}  // namespace escrow::daemon
