#include "daemon/service/http/service_import_routes.h"

#include <optional>
#include <string>

#include "api/resources.h"
#include "daemon/import/archive_import.h"
#include "daemon/import/interruptible_quarantine.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/idempotency.h"
#include "daemon/service/imports/caller_files.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;

namespace {

// Half of the threads that answer requests, each of which waits some moments for what it has begun.
constexpr ConcurrencyLimit::Number kMaxImports{.all = 8, .of_one = 6};

HttpReply import(const ServiceParts& parts, Call& call) {
  const Importing importing = read_importing(call);
  const Caller caller = caller_of(parts.config, call.request);
  const std::uint64_t most_bytes = parts.config->max_content_bytes;
  std::optional<CallerFiles> files;  // opened before there is a session
  if (!importing.source.empty()) files.emplace(parts.source_roots, caller, importing.source, "source");
  const auto read = [&](session::Quarantine& own, const std::string& repository, ImportFilter filter) {
    InterruptibleQuarantine quarantine(own, parts.stopping);
    return files ? files->read(quarantine, repository, most_bytes, std::move(filter))
                 : import_archive(quarantine, *call.request.content, most_bytes, std::move(filter));
  };
  const api::SessionResource made = parts.sessions.import(caller, importing.opening, read);
  return HttpResponse{.status = 201, .content_type = "application/json", .body = api::to_json(made),
                      .headers = {{"Location", "/v1/sessions/" + made.view.record.id.text()}}};
}

void admit_archive(const ServiceParts& parts, Call& call) {
  parts.sessions.check_import(caller_of(parts.config, call.request), read_importing(call).opening);
}

}  // namespace

void add_import_routes(api::Router& router, const ServiceParts& parts) {
  const api::Router::Handler bound = [parts](Call& call) { return import(parts, call); };
  router.add("POST", "/v1/repositories/{repository}/imports",
             parts.long_verbs.apart(
                 idempotent(parts.store, parts.time, parts.config, at_most(kMaxImports, parts.config, bound))),
             [parts](Call& call, std::optional<std::uint64_t>) { admit_archive(parts, call); });
}

}  // namespace escrow::daemon
