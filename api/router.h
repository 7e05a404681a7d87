// Finds the handler of a request by its method and path; the dispatcher's catch site.
//
// Routes are added before the first request; afterwards thread-safe. Paths and queries are percent-encoded bytes
// (RFC 3986); a path that is not in its one normal form ("//", ".", "..", a bad escape) names nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/http_message.h"

namespace escrow::api {

// The parameters of a path that fits a pattern as Router::add() takes it, decoded, in order; nullopt: it does not fit.
std::optional<std::vector<std::string>> match_path(std::string_view pattern, std::string_view path);

// The query of a request, read strictly: parameters that nobody asked for are refused by name.
class Query {
 public:
  // Throws Problem{malformed_request}.
  explicit Query(std::string_view encoded);
  std::optional<std::string> take(const std::string& name);
  // Every value of a parameter that may come more than once.
  std::vector<std::string> take_all(const std::string& name);
  std::optional<std::uint64_t> take_number(const std::string& name, std::uint64_t most);
  void refuse_others() const;

 private:
  std::multimap<std::string, std::string> values_;
};

// One request on its way.
struct Call {
  const HttpRequest& request;
  std::string route;                    // as it was added: "/v1/sessions/{session}"
  std::vector<std::string> parameters;  // of the path, decoded, in order
  Query query;
  // What takes long calls it when it goes on: from then on the client may be told to come back for the answer. May be
  // empty.
  std::function<void()> on_begin;
  // Whether the client was told so. From here on it is not: it is given the answer. Empty: it never is told so.
  std::function<bool()> was_left;
};

class Router {
 public:
  using Handler = std::function<HttpReply(Call& call)>;
  // Judges by all else of a request whether it may send its content; refuses by throwing. The length is in bytes;
  // nullopt: it comes in chunks. The handler judges again: meanwhile what holds may change.
  using Admission = std::function<void(Call& call, std::optional<std::uint64_t> length)>;
  // `pattern` has whole components as parameters: "/v1/sessions/{session}/diff". One that ends with "{path}" takes all
  // that follows as one parameter, with its slashes. Without an admission a request with a content (http_message.h) is
  // refused.
  void add(const std::string& method, const std::string& pattern, Handler handler, Admission admission = {});
  // Told of every answer: the route ("" where there is none), the status and the seconds it took.
  using Observer = std::function<void(const std::string& method, const std::string& route, unsigned status,
                                      double seconds)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  HttpReply answer(const HttpRequest& request) const noexcept;
  // For HttpServer::Options::admit.
  std::optional<HttpResponse> refusal_of_content(const HttpRequest& request,
                                                 std::optional<std::uint64_t> length) const noexcept;

 private:
  struct Route {
    std::string method, pattern;
    std::vector<std::string> components;
    Handler handler;
    Admission admission;
  };
  // The route that the request is for, and its call; `route` is known before the query is read. Throws Problem.
  std::pair<const Route*, Call> find(const HttpRequest& request, std::string& route) const;

  std::vector<Route> routes_;
  Observer observer_;
};

}  // namespace escrow::api
