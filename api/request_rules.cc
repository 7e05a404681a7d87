#include "api/request_rules.h"

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <string_view>

namespace escrow::api {

namespace beast = boost::beast;
namespace http = beast::http;
using Header = http::request_header<>;

namespace {

constexpr std::array<std::string_view, 10> kMethods = {"GET",    "HEAD",    "POST",  "PUT",   "DELETE",
                                                       "PATCH",  "OPTIONS", "TRACE", "LINK",  "UNLINK"};
constexpr std::array<http::field, 5> kSingle = {http::field::host, http::field::content_length,
                                                http::field::content_type, http::field::authorization,
                                                http::field::expect};
constexpr std::array<std::string_view, 2> kSingleNames = {"Idempotency-Key", "Last-Event-ID"};

std::string text_of(beast::string_view view) { return {view.data(), view.size()}; }

[[noreturn]] void refuse(const std::string& why) { throw Problem(ProblemCode::malformed_request, why); }

// Two values of which a proxy may have believed the other one.
void check_single_fields(const Header& header) {
  for (const http::field name : kSingle) {
    if (header.count(name) > 1) refuse("the request has " + text_of(http::to_string(name)) + " more than once");
  }
  for (const std::string_view name : kSingleNames) {
    if (header.count(beast::string_view(name.data(), name.size())) > 1) {
      refuse("the request has " + std::string(name) + " more than once");
    }
  }
}

// uri-host [ ":" port ] (RFC 3986): nothing that could end it early for somebody.
bool is_authority(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    const bool is_alphanumeric = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                                 (letter >= 'A' && letter <= 'Z');
    return is_alphanumeric || std::string_view("-._~%!$&'()*+;=:[]").find(letter) != std::string_view::npos;
  });
}

void check_host(const Header& header) {
  const auto host = header.find(http::field::host);
  if (host == header.end()) {
    if (header.version() >= 11) refuse("a request of HTTP/1.1 has a Host");
    return;
  }
  if (!is_authority(text_of(host->value()))) refuse("the Host is none");
}

void check_framing(const Header& header) {
  if (header.count(http::field::transfer_encoding) == 0) return;
  if (header.version() < 11) refuse("HTTP/1.0 has no Transfer-Encoding");
  if (header.count(http::field::content_length) > 0) refuse("it has a Transfer-Encoding and a Content-Length");
  std::string codings;
  const auto [begin, end] = header.equal_range(http::field::transfer_encoding);
  for (auto at = begin; at != end; ++at) codings += (codings.empty() ? "" : ", ") + text_of(at->value());
  if (beast::iequals(codings, "chunked")) return;
  const std::size_t last = codings.find_last_of(", \t");
  const bool ends_chunked = last != std::string::npos && beast::iequals(codings.substr(last + 1), "chunked");
  const bool is_chunked_twice = ends_chunked && beast::iequals(codings.substr(0, 7), "chunked");
  if (!ends_chunked || is_chunked_twice) refuse("where a body ends that comes as '" + codings + "', nobody knows");
  throw Problem(ProblemCode::not_implemented, "a body that comes as '" + codings + "' is not understood here; send it "
                                              "chunked, or with its length");
}

void check_method(const std::string& method) {
  if (std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end()) return;
  throw Problem(ProblemCode::not_implemented, "the method " + method + " is not known here");
}

// The scheme and the authority of an absolute form say no more than the connection does.
std::string origin_form(const std::string& method, const std::string& target) {
  if (target == "*") {
    if (method != "OPTIONS") refuse("the target * is for OPTIONS alone");
    return target;
  }
  std::string path = target;
  if (!target.starts_with('/')) {
    const std::size_t colon = target.find("://");
    const std::string scheme = colon == std::string::npos ? "" : target.substr(0, colon);
    if (!beast::iequals(scheme, "http") && !beast::iequals(scheme, "https")) {
      refuse("the target is neither a path nor an http:// or https:// address");
    }
    const std::size_t begin = colon + 3, end = std::min(target.find_first_of("/?#", begin), target.size());
    const std::string authority = target.substr(begin, end - begin);
    if (authority.empty() || !is_authority(authority)) refuse("the target has no authority, or one that is none");
    path = target.substr(end);
    if (!path.starts_with('/')) path = "/" + path;
  }
  if (path.find('#') != std::string::npos) refuse("the target has a fragment ('#'), which is not for servers");
  return path;
}

bool expects_continue(const Header& header) {
  const auto expect = header.find(http::field::expect);
  if (expect == header.end() || header.version() < 11) return false;
  if (!beast::iequals(expect->value(), "100-continue")) {
    throw Problem(ProblemCode::expectation_failed,
                  "the expectation '" + text_of(expect->value()) + "' is not known here; 100-continue is");
  }
  const auto length = header.find(http::field::content_length);
  return header.count(http::field::transfer_encoding) > 0 || (length != header.end() && length->value() != "0");
}

std::string list_of(const Header& header, const char* name) {
  std::string values;
  const auto [begin, end] = header.equal_range(name);
  for (auto at = begin; at != end; ++at) values += (values.empty() ? "" : ", ") + text_of(at->value());
  return values;
}

}  // namespace

RequestHead read_head(const Header& header) {
  RequestHead head;
  head.method = text_of(header.method_string());
  head.knows_chunks = header.version() >= 11;
  check_framing(header);
  check_single_fields(header);
  check_host(header);
  check_method(head.method);
  head.target = origin_form(head.method, text_of(header.target()));
  head.expects_continue = expects_continue(header);
  head.content_type = text_of(header[http::field::content_type]);
  head.last_event_id = text_of(header["Last-Event-ID"]);
  head.prefer = list_of(header, "Prefer");
  if (const auto key = header.find("Idempotency-Key"); key != header.end()) {
    head.idempotency_key = text_of(key->value());
  }
  head.is_content = head.method == "PUT" || (head.method == "POST" && media_type(head.content_type) == kTarType);
  return head;
}

}  // namespace escrow::api
