#include "daemon/service/http/service_file_routes.h"

#include <chrono>
#include <memory>
#include <utility>

#include "api/problem.h"
#include "api/resources.h"
#include "api/session_routes.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;
using api::Problem;
using api::ProblemCode;
using api::json_answer;

namespace {

constexpr std::size_t kFilePartBytes = 256 * 1024;
// How long another request may have the session while a content is on its way.
constexpr auto kFilePatience = std::chrono::seconds(30);

// A content, part by part, that is sent while others may use the session: it is held for a part only, and a content
// that was changed meanwhile is broken off. Used by one thread at a time.
class Content {
 public:
  Content(ServiceSessions& sessions, Caller file_caller, const Call& call, ServiceSessions::Side side)
      : sessions_(sessions),
        caller_(std::move(file_caller)),
        session_(call.parameters[0]),
        path_(call.parameters[1]),
        side_(side),
        first_(sessions_.read_file(caller_, session_, path_, side_, 0, kFilePartBytes)),
        at_(first_.bytes.size()) {}

  const ServiceSessions::FilePart& first() const { return first_; }
  bool is_whole() const { return at_ == first_.size_bytes; }
  std::string take_first() { return std::exchange(first_.bytes, {}); }

  api::Stream::Part next(bool is_last) {
    try {
      ServiceSessions::FilePart part = sessions_.read_file(caller_, session_, path_, side_, at_, kFilePartBytes);
      if (is_last) throw session::Error(session::Errc::unavailable, "the service stops");
      if (part.version != first_.version || part.bytes.empty()) {
        throw session::Error(session::Errc::busy, "the file was changed while it was read");
      }
      at_ += part.bytes.size();
      progress_ = std::chrono::steady_clock::now();
      return {.bytes = std::move(part.bytes), .is_end = is_whole()};
    } catch (const Problem& problem) {
      const bool is_late = std::chrono::steady_clock::now() - progress_ > kFilePatience;
      if (problem.problem() != ProblemCode::busy || is_late || is_last) throw;
      return {};
    }
  }

 private:
  ServiceSessions& sessions_;  // self-locking
  const Caller caller_;
  const std::string session_, path_;
  const ServiceSessions::Side side_;
  ServiceSessions::FilePart first_;
  std::uint64_t at_;
  std::chrono::steady_clock::time_point progress_ = std::chrono::steady_clock::now();
};

Caller file_caller(const ServiceParts& parts, const Call& call) { return caller_of(parts.config, call.request); }

HttpReply get_file(const ServiceParts& parts, Call& call) {
  const std::string side = call.query.take("side").value_or("session");
  call.query.refuse_others();
  if (side != "base" && side != "session") {
    throw Problem(ProblemCode::invalid_value, "\"side\" is base or session", {{"field", "side"}});
  }
  const auto content =
      std::make_shared<Content>(parts.sessions, file_caller(parts, call), call,
                                side == "base" ? ServiceSessions::Side::base : ServiceSessions::Side::session);
  HttpResponse response = api::file_head(content->first());
  response.body = content->take_first();
  if (content->is_whole()) return response;
  return api::Stream{.head = std::move(response), .next = [content](bool is_last) { return content->next(is_last); }};
}

HttpReply put_file(const ServiceParts& parts, Call& call) {
  const std::optional<bool> executable = api::read_file_mode(call.query);
  const ServiceSessions::Written written = parts.sessions.write_file(
      file_caller(parts, call), call.parameters[0], call.parameters[1], call.request.content->descriptor(), executable);
  return json_answer(api::to_json(written.file), written.is_new ? 201 : 200);
}

void admit_file(const ServiceParts& parts, Call& call, std::optional<std::uint64_t> length) {
  api::read_file_mode(call.query);
  parts.sessions.check_write(file_caller(parts, call), call.parameters[0], call.parameters[1], length);
}

HttpReply delete_file(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const api::FileResource file =
      parts.sessions.remove_file(file_caller(parts, call), call.parameters[0], call.parameters[1]);
  return json_answer(api::to_json(file));
}

HttpReply list_files(const ServiceParts& parts, Call& call) {
  const api::ListFilesRequest request = api::read_listing(call.query);
  const api::ListingAnswer listing = parts.sessions.list_files(file_caller(parts, call), call.parameters[0], request);
  const bool is_last = listing.is_whole || listing.entries.empty();
  return json_answer(api::to_json(listing, is_last ? "" : api::encode_cursor(listing.entries.back().name)));
}

}  // namespace

void add_file_routes(api::Router& router, const ServiceParts& parts) {
  const auto add = [&](const char* method, HttpReply (*handler)(const ServiceParts&, Call&),
                       api::Router::Admission admission = {}) {
    router.add(method, "/v1/sessions/{session}/files/{path}",
               [parts, handler](Call& call) { return handler(parts, call); }, std::move(admission));
  };
  add("GET", get_file);
  add("PUT", put_file,
      [parts](Call& call, std::optional<std::uint64_t> length) { admit_file(parts, call, length); });
  add("DELETE", delete_file);
  const auto get = [&](const char* route, HttpReply (*handler)(const ServiceParts&, Call&)) {
    router.add("GET", route, [parts, handler](Call& call) { return handler(parts, call); });
  };
  get("/v1/sessions/{session}/entries", list_files);
}

}  // namespace escrow::daemon
