#include "api/router.h"

#include <charconv>
#include <chrono>
#include <utility>

#include "api/problem.h"
#include "api/text_bytes.h"

namespace escrow::api {

namespace {

const std::string kGet = "GET";

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> components;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::size_t slash = std::min(path.find('/'), path.size());
    components.emplace_back(path.substr(0, slash));
    path.remove_prefix(slash);
  }
  return components;
}

bool is_parameter(const std::string& component) { return component.starts_with('{'); }

bool takes_rest(const std::vector<std::string>& pattern) { return pattern.back() == "{path}"; }

bool fits(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  if (takes_rest(pattern) ? path.size() < pattern.size() : path.size() != pattern.size()) return false;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (is_parameter(pattern[at]) ? path[at].empty() : pattern[at] != path[at]) return false;
  }
  return true;
}

// Of a path that fits.
std::vector<std::string> parameters_of(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  std::vector<std::string> parameters;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (is_parameter(pattern[at])) parameters.push_back(percent_decoded(path[at]));
  }
  for (std::size_t at = pattern.size(); at < path.size(); ++at) {
    parameters.back() += "/" + percent_decoded(path[at]);
  }
  return parameters;
}

HttpResponse response_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Problem& problem) {
    HttpResponse response = problem_response(problem);
    for (const auto& [name, value] : problem.members()) {
      if (name == "allowed") response.headers.emplace_back("Allow", value);
    }
    return response;
  } catch (...) {
    return problem_of_current_exception();
  }
}

[[noreturn]] void refuse_method(const HttpRequest& request, const std::string& allowed) {
  throw Problem(ProblemCode::method_not_allowed,
                request.method + " is not possible here; " + allowed + " is", {{"allowed", allowed}});
}

}  // namespace

std::optional<std::vector<std::string>> match_path(std::string_view pattern, std::string_view path) {
  const std::vector<std::string> wanted = split(pattern), given = split(path);
  const bool is_path = path.starts_with('/');
  return is_path && fits(wanted, given) ? std::optional(parameters_of(wanted, given)) : std::nullopt;
}

Query::Query(std::string_view encoded) {
  while (!encoded.empty()) {
    const std::size_t end = std::min(encoded.find('&'), encoded.size());
    const std::string_view pair = encoded.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = equals == pair.size() ? std::string_view() : pair.substr(equals + 1);
    if (!pair.empty()) values_.emplace(percent_decoded(pair.substr(0, equals)), percent_decoded(value));
    encoded.remove_prefix(std::min(end + 1, encoded.size()));
  }
}

std::vector<std::string> Query::take_all(const std::string& name) {
  std::vector<std::string> found;
  const auto [begin, end] = values_.equal_range(name);
  for (auto at = begin; at != end; ++at) found.push_back(at->second);
  values_.erase(begin, end);
  return found;
}

std::optional<std::string> Query::take(const std::string& name) {
  std::vector<std::string> found = take_all(name);
  if (found.size() > 1) {
    throw Problem(ProblemCode::invalid_value, "the query has \"" + name + "\" more than once", {{"field", name}});
  }
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::optional<std::uint64_t> Query::take_number(const std::string& name, std::uint64_t most) {
  const std::optional<std::string> text = take(name);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value > most) {
    throw Problem(ProblemCode::invalid_value,
                  "the query's \"" + name + "\" is not a whole number of at most " + std::to_string(most),
                  {{"field", name}});
  }
  return value;
}

void Query::refuse_others() const {
  if (values_.empty()) return;
  const std::string& name = values_.begin()->first;
  throw Problem(ProblemCode::unknown_field, "the query's \"" + name + "\" is not known here", {{"field", name}});
}

void Router::add(const std::string& method, const std::string& pattern, Handler handler, Admission admission) {
  routes_.push_back({method, pattern, split(pattern), std::move(handler), std::move(admission)});
}

std::pair<const Router::Route*, Call> Router::find(const HttpRequest& request, std::string& route) const {
  const std::string_view target = request.target;
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, question);
  const auto refuse = [&] { throw Problem(ProblemCode::not_found, "there is no " + std::string(path)); };
  // Of the server as a whole (RFC 9110, section 9.3.7).
  if (path == "*") refuse_method(request, "GET, HEAD, PUT, POST, DELETE");
  if (!path.starts_with('/')) refuse();
  // Answered as a GET; the server leaves the body out.
  const std::string& method = request.method == "HEAD" ? kGet : request.method;
  const std::vector<std::string> components = split(path);
  std::string allowed;
  for (const Route& candidate : routes_) {
    if (!fits(candidate.components, components)) continue;
    if (candidate.method != method) {
      allowed += (allowed.empty() ? "" : ", ") + candidate.method + (candidate.method == kGet ? ", HEAD" : "");
      continue;
    }
    route = candidate.pattern;
    return {&candidate,
            Call{.request = request,
                 .route = candidate.pattern,
                 .parameters = parameters_of(candidate.components, components),
                 .query = Query(question == target.size() ? std::string_view() : target.substr(question + 1)),
                 .on_begin = {},
                 .was_left = {}}};
  }
  if (allowed.empty()) refuse();
  refuse_method(request, allowed);
}

HttpReply Router::answer(const HttpRequest& request) const noexcept {
  const auto begin = std::chrono::steady_clock::now();
  std::string route;
  HttpReply reply;
  try {
    auto [found, call] = find(request, route);
    reply = found->handler(call);
  } catch (...) {
    reply = response_of_current_exception();
  }
  if (!observer_) return reply;
  const auto tell = [observer = &observer_, method = request.method, route, begin](const HttpResponse& response) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    (*observer)(method, route, response.status, taken.count());
  };
  if (const auto* response = std::get_if<HttpResponse>(&reply)) tell(*response);
  if (auto* poll = std::get_if<Poll>(&reply)) {
    return [poll = std::move(*poll), tell](bool is_last) {
      std::optional<HttpResponse> response = poll(is_last);
      if (response) tell(*response);
      return response;
    };
  }
  return reply;
}

std::optional<HttpResponse> Router::refusal_of_content(const HttpRequest& request,
                                                       std::optional<std::uint64_t> length) const noexcept {
  std::string route;
  try {
    auto [found, call] = find(request, route);
    if (!found->admission) {
      throw Problem(ProblemCode::unsupported_media_type,
                    "the body is '" + request.content_type + "'; send Content-Type: application/json");
    }
    found->admission(call, length);
    return std::nullopt;
  } catch (...) {
    HttpResponse response = response_of_current_exception();
    if (observer_) observer_(request.method, route, response.status, 0);
    return response;
  }
}

}  // namespace escrow::api
