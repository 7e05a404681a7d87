#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/host/repository_context.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/caches/caches.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct CacheArguments {
  std::string name;
  bool json = false;
};

// Caches lie with the repository, and a service has no word for them.
RepositoryContext open_repository(const GlobalOptions& options) {
  if (!service_host(options).empty())
    throw Error(Errc::bad_request, "--host has no caches: they lie with the repository; run escrow cache there");
  return RepositoryContext(options);
}

int list_caches(const GlobalOptions& options, const CacheArguments& arguments) {
  RepositoryContext context = open_repository(options);
  std::vector<std::vector<std::string>> rows = {{"CACHE", "SIZE", "ENTRIES", "OPEN IN", "LAST USED"}};
  for (const storage::CacheStatus& cache : context.repository().caches().list()) {
    if (arguments.json) {
      print_line(api::JsonObject()
                     .text("name", cache.name)
                     .number("bytes", cache.bytes)
                     .number("entries", cache.entries)
                     .number("sessions", cache.sessions)
                     .time("used", cache.used)
                     .text());
      continue;
    }
    rows.push_back({session::quote_path(cache.name), human_size(cache.bytes), std::to_string(cache.entries),
                    cache.sessions == 0 ? "-" : plural(cache.sessions, "session"), human_time(cache.used.seconds, 0)});
  }
  if (!arguments.json) print(table(rows));
  return kExitSuccess;
}

int drop(const GlobalOptions& options, const CacheArguments& arguments) {
  RepositoryContext context = open_repository(options);
  const storage::Caches& caches = context.repository().caches();
  std::vector<std::string> names = {arguments.name};
  if (arguments.name.empty()) {
    names.clear();
    for (const storage::CacheStatus& cache : caches.list()) names.push_back(cache.name);
  }
  std::size_t dropped = 0;
  for (const std::string& name : names) dropped += caches.drop(name) ? 1 : 0;
  if (!arguments.name.empty() && dropped == 0) {
    throw Error(Errc::not_found, "there is no cache '" + session::quote_path(arguments.name) +
                                     "'; `escrow cache list` names those there are");
  }
  print_line("Dropped " + plural(dropped, "cache") + ".");
  return kExitSuccess;
}

}  // namespace

void register_cache(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  CLI::App* cache = app.add_subcommand("cache", "List or drop what builds keep from session to session");
  cache->require_subcommand(1);
  cache->footer(
      "`escrow run` and `escrow mount` show a cache at PATH with --cache PATH[=NAME]: a session begins with what the\n"
      "last committed session left of it, whole, and what it makes of it counts when it is itself committed. All\n"
      "together have at most `git config escrow.cacheLimit` bytes (10g); least recently used ones go first, and none\n"
      "that a session has open.\n"
      "\n"
      "Builds write the path of the session into what they make. The command of a run with a cache therefore sees\n"
      "its session at one path in all runs of the repository, and no other session. The rest of the machine does not\n"
      "have that path: give a container --mountpoint DIR. An ordinary user's run is in a user namespace, without\n"
      "sudo. Only one session mounted by hand can use a cache at a time.\n"
      "\n"
      "A cache holds programs that later sessions start: runs that do not trust one another need caches of their own.\n"
      "\n"
      "Examples:\n"
      "  escrow run --cache build -- make -C src OUT=../build\n"
      "  escrow cache list\n"
      "  escrow cache drop build\n");
  auto arguments = std::make_shared<CacheArguments>();
  CLI::App* all = cache->add_subcommand("list", "Name each cache, its size, and who has it open");
  all->add_flag("--json", arguments->json, "Print one JSON object a line");
  all->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return list_caches(options, *arguments); }; });
  CLI::App* one =
      cache->add_subcommand("drop", "Remove a cache, or all; sessions that have it open keep what they see");
  one->add_option("NAME", arguments->name, "The cache (default: all)");
  one->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return drop(options, *arguments); }; });
}

}  // namespace escrow::daemon
