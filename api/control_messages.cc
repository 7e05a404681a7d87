#include "api/control_messages.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <limits>
#include <utility>

#include "api/text_bytes.h"

namespace escrow::api {

namespace http = boost::beast::http;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

namespace {

// Far above what any has, so that a peer gone mad cannot fill the memory.
constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{1} << 30;
// Bodies are bounded where they are kept. An absent limit is none to Boost before 1.75: it refuses every body.
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kMaxHeaderBytes = 1u << 20;
constexpr const char* kPrincipalHeader = "Escrow-Principal";

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

template <typename Buffers, typename Take>
std::size_t each(const Buffers& buffers, const Take& take) {
  std::size_t taken = 0;
  for (auto at = boost::asio::buffer_sequence_begin(buffers); at != boost::asio::buffer_sequence_end(buffers); ++at) {
    const boost::asio::const_buffer part(*at);
    take(std::string_view(static_cast<const char*>(part.data()), part.size()));
    taken += part.size();
  }
  return taken;
}

// The content of a file goes to a file, every other body to memory.
struct RequestBody {
  struct value_type {
    std::string content_directory, bytes;
    std::shared_ptr<ReceivedBody> content;
  };
  class reader {
   public:
    template <bool IsRequest, typename Fields>
    reader(http::header<IsRequest, Fields>& header, value_type& body) : body_(body) {
      if constexpr (IsRequest) is_content_ = [&header] { return header.method() == http::verb::put; };
    }
    void init(const boost::optional<std::uint64_t>& size, error_code& failed) {
      failed = {};
      if (!is_content_() && size && *size > kMaxRequestBytes) failed = http::error::body_limit;
    }
    template <typename Buffers>
    std::size_t put(const Buffers& buffers, error_code& failed) {
      failed = {};
      return each(buffers, [&](std::string_view bytes) {
        if (is_content_()) return keep(bytes, failed);
        if (body_.bytes.size() + bytes.size() > kMaxRequestBytes) failed = http::error::body_limit;
        if (!failed) body_.bytes += bytes;
      });
    }
    void finish(error_code& failed) { failed = {}; }

   private:
    void keep(std::string_view bytes, error_code& failed) {
      int error = 0;
      if (!body_.content) body_.content = ReceivedBody::create(body_.content_directory, error);
      if (body_.content) error = body_.content->append(bytes);
      if (error != 0) failed.assign(error, boost::system::system_category());
    }

    std::function<bool()> is_content_;
    value_type& body_;
  };
};

struct ResponseBody {
  struct value_type {
    std::function<void(std::string_view)> on_part;
    std::string bytes;
  };
  class reader {
   public:
    template <bool IsRequest, typename Fields>
    reader(http::header<IsRequest, Fields>& header, value_type& body) : body_(body) {
      if constexpr (!IsRequest) status_ = [&header] { return header.result_int(); };
    }
    void init(const boost::optional<std::uint64_t>&, error_code& failed) { failed = {}; }
    template <typename Buffers>
    std::size_t put(const Buffers& buffers, error_code& failed) {
      failed = {};
      return each(buffers, [&](std::string_view bytes) {
        if (body_.on_part && status_() == 200) return body_.on_part(bytes);
        if (body_.bytes.size() + bytes.size() > kMaxAnswerBytes) failed = http::error::body_limit;
        if (!failed) body_.bytes += bytes;
      });
    }
    void finish(error_code& failed) { failed = {}; }

   private:
    std::function<unsigned()> status_;
    value_type& body_;
  };
};

NoMessage reason_of(Received received) {
  switch (received) {
    case Received::unread:
      return NoMessage::unread;
    case Received::too_slow:
      return NoMessage::too_slow;
    case Received::some:
    case Received::closed:
      break;
  }
  return NoMessage::closed;
}

// Gives the parser what is pending. False: it wants more, or `failed`.
template <typename Parser>
bool parse(Parser& parser, std::string& pending, error_code& failed) {
  while (!pending.empty() && !parser.is_done()) {
    const std::size_t taken = parser.put(boost::asio::buffer(pending), failed);
    pending.erase(0, taken);
    if (failed == http::error::need_more) {
      failed = {};
      return false;
    }
    if (failed) return false;
  }
  return parser.is_done();
}

std::string header_line(std::string_view name, std::string_view value) {
  std::string line(name);
  return line.append(": ").append(value).append("\r\n");
}

}  // namespace

RequestReader::RequestReader(int socket, const std::string& content_directory)
    : socket_(socket), content_directory_(content_directory) {}
RequestReader::~RequestReader() = default;

std::optional<RequestReader::Request> RequestReader::next(Milliseconds patience) {
  http::request_parser<RequestBody> parser;
  parser.eager(true);
  parser.body_limit(kNoLimit);
  parser.header_limit(kMaxHeaderBytes);
  parser.get().body().content_directory = content_directory_;
  Descriptor beside;
  error_code failed;
  auto deadline = std::chrono::steady_clock::now() + patience;
  while (!parse(parser, pending_, failed)) {
    if (failed) {
      const bool is_too_long = failed == http::error::body_limit || failed == http::error::header_limit;
      end_ = is_too_long ? NoMessage::too_long : NoMessage::malformed;
      return std::nullopt;
    }
    if (parser.get().body().content) deadline = std::chrono::steady_clock::now() + patience;
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    const Received received =
        left > Milliseconds::zero() ? receive_bytes(socket_, left, pending_, beside) : Received::too_slow;
    if (received == Received::some) continue;
    end_ = reason_of(received);
    return std::nullopt;
  }
  auto message = parser.release();
  Request request{.http = {.method = std::string(view(message.method_string())),
                           .target = std::string(view(message.target())),
                           .content_type = std::string(view(message[http::field::content_type])),
                           .last_event_id = {},
                           .prefer = {},
                           .idempotency_key = {},
                           .body = std::move(message.body().bytes),
                           .content = std::move(message.body().content),
                           .principal = {},
                           .token = {},
                           .peer = {}},
                  .speaks_for = percent_decoded(view(message[kPrincipalHeader])),
                  .is_last = !message.keep_alive()};
  if (message.method() == http::verb::put && !request.http.content) {
    int error = 0;
    request.http.content = beside.get() >= 0 ? ReceivedBody::of_descriptor(beside.release())
                                             : ReceivedBody::create(content_directory_, error);
  }
  return request;
}

struct ResponseReader::Parser : http::response_parser<ResponseBody> {};

ResponseReader::ResponseReader(int socket, std::function<void(std::string_view)> on_part)
    : socket_(socket), parser_(std::make_unique<Parser>()) {
  parser_->eager(true);
  parser_->body_limit(kNoLimit);
  parser_->header_limit(kMaxHeaderBytes);
  parser_->get().body().on_part = std::move(on_part);
}
ResponseReader::~ResponseReader() = default;

std::optional<HttpResponse> ResponseReader::next(Milliseconds patience) {
  Descriptor beside;
  error_code failed;
  while (!parse(*parser_, pending_, failed)) {
    if (failed) {
      end_ = NoMessage::malformed;
      return std::nullopt;
    }
    const Received received = receive_bytes(socket_, patience, pending_, beside);
    if (received == Received::some) {
      has_begun_ = true;
      continue;
    }
    end_ = reason_of(received);
    return std::nullopt;
  }
  auto message = parser_->release();
  HttpResponse response{.status = message.result_int(),
                        .content_type = std::string(view(message[http::field::content_type])),
                        .body = std::move(message.body().bytes),
                        .headers = {}};
  for (const auto& field : message) {
    response.headers.emplace_back(std::string(view(field.name_string())), std::string(view(field.value())));
  }
  return response;
}

std::string to_bytes(const SessionRequestLine& request, const std::string& speaks_for) {
  std::string bytes = request.method + " " + request.target + " HTTP/1.1\r\n" + header_line("Host", "escrow");
  if (!speaks_for.empty()) bytes += header_line(kPrincipalHeader, percent_encoded(speaks_for));
  if (!request.json.empty()) bytes += header_line("Content-Type", "application/json");
  bytes += header_line("Content-Length", std::to_string(request.json.size())) + "\r\n";
  return bytes + request.json;
}

std::string to_bytes(const HttpResponse& response, bool is_chunked) {
  const auto reason = view(http::obsolete_reason(http::int_to_status(response.status)));
  std::string bytes = "HTTP/1.1 " + std::to_string(response.status) + " " + std::string(reason) + "\r\n";
  bytes += header_line("Content-Type", response.content_type);
  for (const auto& [name, value] : response.headers) bytes += header_line(name, value);
  if (is_chunked) return bytes + header_line("Transfer-Encoding", "chunked") + "\r\n";
  bytes += header_line("Content-Length", std::to_string(response.body.size())) + "\r\n";
  return bytes + response.body;
}

std::string chunk_of(std::string_view bytes) {
  std::array<char, 20> size;
  std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  return std::string(size.data()).append(bytes).append("\r\n");
}

}  // namespace escrow::api
