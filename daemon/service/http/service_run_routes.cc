#include "daemon/service/http/service_run_routes.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/problem.h"
#include "api/resources.h"
#include "api/session_routes.h"
#include "daemon/host/run_conclusion.h"
#include "daemon/process/output_capture.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/idempotency.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;
using api::Problem;
using api::ProblemCode;
using api::json_answer;

namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::uint64_t kMaxRunWait_ms = 300'000;
constexpr std::uint64_t kDefaultWait_ms = 30'000;
constexpr std::size_t kMaxRunsAtOnce = 256;            // awaited in one request
constexpr std::size_t kMaxGathered = std::size_t{64} << 10;  // of each stream, with the awaited runs
constexpr std::size_t kMaxOutput = std::size_t{1} << 20;   // in an answer that is not a stream
constexpr std::size_t kPart = std::size_t{64} << 10;       // of a stream

Caller run_caller(const RunParts& parts, const Call& call) { return caller_of(parts.config, call.request); }

SteadyTime deadline_of(api::Query& query) {
  const std::uint64_t timeout = query.take_number("timeout_ms", kMaxRunWait_ms).value_or(kDefaultWait_ms);
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
}

bool is_past(SteadyTime deadline) { return std::chrono::steady_clock::now() >= deadline; }

// Asked now, and again until it answers.
HttpReply poll_now(api::Poll poll) {
  if (std::optional<HttpResponse> response = poll(false)) return *std::move(response);
  return poll;
}

HttpReply start_run(const RunParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceRuns::RunRequest ordering = read_run_request(call.request);
  const api::RunResource run = parts.runs.start(run_caller(parts, call), ordering);
  HttpResponse response = json_answer(api::to_json(run), 201);
  response.headers.emplace_back("Location", "/v1/runs/" + run.id);
  return response;
}

HttpReply list_runs(const RunParts& parts, Call& call) {
  const ServiceRuns::Filter filter = read_run_filter(call.query);
  const ServiceRuns::Page page = parts.runs.list(run_caller(parts, call), filter);
  return json_answer(api::to_json(page.runs, page.next.empty() ? "" : api::encode_cursor(page.next)));
}

HttpReply get_run(const RunParts& parts, Call& call) {
  call.query.refuse_others();
  return json_answer(api::to_json(parts.runs.get(run_caller(parts, call), call.parameters[0])));
}

// Answers when the run has ended, or with the run as it is when the time is over.
HttpReply wait_for_run(const RunParts& parts, Call& call) {
  const SteadyTime deadline = deadline_of(call.query);
  call.query.refuse_others();
  return poll_now([&runs = parts.runs, who = run_caller(parts, call), id = call.parameters[0],
                   deadline](bool is_last) -> std::optional<HttpResponse> {
    try {
      if (!is_last && !runs.has_ended(who, id) && !is_past(deadline)) return std::nullopt;
      return json_answer(api::to_json(runs.get(who, id)));
    } catch (...) {
      return api::problem_of_current_exception();
    }
  });
}

std::vector<std::string> read_ids(const std::string& joined) {
  std::vector<std::string> ids;
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t end = std::min(joined.find(',', at), joined.size());
    ids.push_back(joined.substr(at, end - at));
    at = end + 1;
  }
  if (ids.empty() || ids.size() > kMaxRunsAtOnce) {
    throw Problem(ProblemCode::invalid_value, "\"ids\" are 1 to 256 ids, joined by commas", {{"field", "ids"}});
  }
  return ids;
}

void gather(ServiceRuns& runs, const Caller& who, api::RunResource& run, std::size_t most) {
  for (std::size_t at = 0; at < kOutputNames.size() && most > 0; ++at) {
    const std::uint64_t size = run.streams[at].bytes;
    run.output[at] = runs.output(who, run.id, kOutputNames[at], size - std::min<std::uint64_t>(size, most), most).bytes;
  }
}

// Answers when all of them have ended (or one of them, as asked), or with what is there when the time is over.
HttpReply wait_for_runs(const RunParts& parts, Call& call) {
  const Caller who = run_caller(parts, call);
  const std::optional<std::string> named = call.query.take("ids");
  const std::string what = call.query.take("for").value_or("all");
  if (what != "all" && what != "any") {
    throw Problem(ProblemCode::invalid_value, "\"for\" is all or any", {{"field", "for"}});
  }
  const std::size_t most = call.query.take_number("output_bytes", kMaxGathered).value_or(0);
  const SteadyTime deadline = deadline_of(call.query);
  call.query.refuse_others();
  const std::vector<std::string> ids = named ? read_ids(*named) : parts.runs.running(who);
  return poll_now([&runs = parts.runs, who, ids, is_any = what == "any", most,
                   deadline](bool is_last) -> std::optional<HttpResponse> {
    try {
      const auto ended = [&](const std::string& id) { return runs.has_ended(who, id); };
      const bool is_done = is_any && !ids.empty() ? std::any_of(ids.begin(), ids.end(), ended)
                                                  : std::all_of(ids.begin(), ids.end(), ended);
      if (!is_done && !is_last && !is_past(deadline)) return std::nullopt;
      std::vector<api::RunResource> found;
      for (const std::string& id : ids) {
        found.push_back(runs.get(who, id));
        gather(runs, who, found.back(), most);
      }
      return json_answer(api::to_json(found, is_done));
    } catch (...) {
      return api::problem_of_current_exception();
    }
  });
}

HttpReply cancel_run(const RunParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  const ServiceRuns::Cancelled cancelled = parts.runs.cancel(run_caller(parts, call), call.parameters[0]);
  // Not by the state that it has meanwhile: the mark may have ended it already.
  return json_answer(api::to_json(cancelled.run), cancelled.had_ended ? 200 : 202);
}

HttpReply free_run(const RunParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  return json_answer(api::to_json(parts.runs.free(run_caller(parts, call), call.parameters[0])));
}

HttpResponse output_head(std::vector<std::pair<std::string, std::string>> headers) {
  return {.status = 200, .content_type = "application/octet-stream", .body = {}, .headers = std::move(headers)};
}

HttpResponse output_answer(ServiceRuns::Output output) {
  HttpResponse response = output_head({{"Escrow-Next-Offset", std::to_string(output.next)},
                                       {"Escrow-Complete", output.is_complete ? "true" : "false"},
                                       {"Escrow-Truncated", output.is_truncated ? "true" : "false"}});
  response.body = std::move(output.bytes);
  return response;
}

// What is there and what comes, until the run has ended.
HttpReply follow_output(ServiceRuns& runs, const Caller& who, const std::string& id, const std::string& stream,
                        std::uint64_t offset) {
  ServiceRuns::Output first = runs.output(who, id, stream, offset, kPart);
  api::Stream reply{.head = output_head({}), .next = {}};
  reply.head.body = std::move(first.bytes);
  reply.next = [&runs, who, id, stream, at = first.next](bool is_last) mutable -> api::Stream::Part {
    ServiceRuns::Output output = runs.output(who, id, stream, at, kPart);
    if (is_last && !output.is_complete) throw Problem(ProblemCode::unavailable, "the service stops; the run goes on");
    at = output.next;
    return {.bytes = std::move(output.bytes), .is_end = output.is_complete};
  };
  return reply;
}

HttpReply run_output(const RunParts& parts, Call& call) {
  const Caller who = run_caller(parts, call);
  const std::string& id = call.parameters[0];
  const std::string stream = call.query.take("stream").value_or(kOutputNames[0]);
  const bool is_output = std::find(kOutputNames.begin(), kOutputNames.end(), stream) != kOutputNames.end();
  if (!is_output && stream != kTraceName && stream != kOmittedName) {
    throw Problem(ProblemCode::invalid_value, "\"stream\" is stdout, stderr, trace or omitted", {{"field", "stream"}});
  }
  const std::string follow = call.query.take("follow").value_or("false");
  if (follow != "true" && follow != "false") {
    throw Problem(ProblemCode::invalid_value, "\"follow\" is true or false", {{"field", "follow"}});
  }
  const std::uint64_t offset = call.query.take_number("offset", std::uint64_t{1} << 62).value_or(0);
  const std::size_t most = call.query.take_number("limit", kMaxOutput).value_or(kMaxOutput);
  call.query.refuse_others();
  if (follow == "true") return follow_output(parts.runs, who, id, stream, offset);
  return output_answer(parts.runs.output(who, id, stream, offset, most));
}

}  // namespace

void add_run_routes(api::Router& router, const RunParts& parts) {
  const auto bound = [&router, parts](const char* method, const char* pattern,
                                      HttpReply (*handler)(const RunParts&, Call&)) {
    router.add(method, pattern, [parts, handler](Call& call) { return handler(parts, call); });
  };
  const auto get = [&](const char* pattern, auto handler) { bound("GET", pattern, handler); };
  const auto remove = [&](const char* pattern, auto handler) { bound("DELETE", pattern, handler); };
  const auto post = [&](const char* pattern, HttpReply (*handler)(const RunParts&, Call&)) {
    router.add("POST", pattern, idempotent(parts.store, parts.time, parts.config,
                                           [parts, handler](Call& call) { return handler(parts, call); }));
  };
  post("/v1/runs", start_run);
  get("/v1/runs", list_runs);
  get("/v1/runs/wait", wait_for_runs);  // before a run of that name
  get("/v1/runs/{run}", get_run);
  remove("/v1/runs/{run}", free_run);
  get("/v1/runs/{run}/wait", wait_for_run);
  get("/v1/runs/{run}/output", run_output);
  post("/v1/runs/{run}/cancel", cancel_run);
}

}  // namespace escrow::daemon
