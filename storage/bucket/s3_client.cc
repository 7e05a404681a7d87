#include "storage/bucket/s3_client.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>

#include "session/base/error.h"
#include "storage/bucket/curl_library.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr long kConnect_ms = 5000;
constexpr long kStalled_s = 10;  // without a byte in either direction
constexpr std::chrono::milliseconds kFirstDelay{100};
constexpr std::uint64_t kLongestAnswerBytes = std::uint64_t{64} << 20;

struct FreeList {
  void operator()(curl_slist* list) const noexcept { curl_library().slist_free_all(list); }
};

std::string percent_encoded(std::string_view text, bool keeps_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.' || c == '~' || (c == '/' && keeps_slashes);
    if (is_plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return out;
}

// Reads a body piece by piece, from memory or from a file.
class BodyReader {
 public:
  explicit BodyReader(const S3Body& body)
      : body_(body), size_bytes_(body.fd >= 0 ? body.size_bytes : body.text.size()) {}
  std::uint64_t size() const noexcept { return size_bytes_; }
  void seek(std::uint64_t offset) noexcept { at_ = offset; }
  // 0 at the end; negative when the file cannot be read, or has become shorter.
  ssize_t read(std::span<char> out) noexcept {
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_bytes_ - at_));
    if (wanted == 0) return 0;
    ssize_t count = static_cast<ssize_t>(wanted);
    if (body_.fd < 0) std::memcpy(out.data(), body_.text.data() + at_, wanted);
    else count = ::pread(body_.fd, out.data(), wanted, static_cast<off_t>(at_));
    if (count > 0) at_ += static_cast<std::uint64_t>(count);
    return count > 0 ? count : -1;
  }

 private:
  const S3Body& body_;
  const std::uint64_t size_bytes_;
  std::uint64_t at_ = 0;
};

std::string sha256_of(const S3Body& body) {
  struct Free {
    void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
  };
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  BodyReader reader(body);
  std::vector<char> piece(std::size_t{256} << 10);
  for (;;) {
    const ssize_t count = reader.read(piece);
    if (count < 0) throw system_error(EIO, "read what is to be put into the bucket");
    if (count == 0) break;
    EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(count));
  }
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

std::size_t on_upload(char* out, std::size_t size, std::size_t count, void* reader) {
  const ssize_t read = static_cast<BodyReader*>(reader)->read({out, size * count});
  return read < 0 ? CURL_READFUNC_ABORT : static_cast<std::size_t>(read);
}

int on_seek(void* reader, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<BodyReader*>(reader)->seek(static_cast<std::uint64_t>(offset));
  return CURL_SEEKFUNC_OK;
}

std::size_t on_body(const char* bytes, std::size_t size, std::size_t count, void* out) {
  auto& body = *static_cast<std::string*>(out);
  if (body.size() + size * count > kLongestAnswerBytes) return 0;  // ends the transfer
  body.append(bytes, size * count);
  return size * count;
}

std::size_t on_header(const char* bytes, std::size_t size, std::size_t count, void* out) {
  std::string_view line(bytes, size * count);
  constexpr std::string_view kEtag = "etag:";
  if (line.size() > kEtag.size() && ::strncasecmp(line.data(), kEtag.data(), kEtag.size()) == 0) {
    line.remove_prefix(kEtag.size());
    std::string etag;
    for (const char c : line) {
      if (c > ' ' && c != '"' && c != 0x7f) etag += c;
    }
    *static_cast<std::string*>(out) = etag;
  }
  return size * count;
}

bool may_pass(long status) { return status == 408 || status == 409 || status == 429 || status >= 500; }

// Grows, and differs between clients that failed at the same moment.
void wait_before(int attempt) {
  thread_local std::minstd_rand random(std::random_device{}());
  const auto longest = kFirstDelay * (1 << std::min(attempt - 1, 6));
  std::this_thread::sleep_for(longest / 2 + longest / 2 * std::uniform_real_distribution<>(0, 1)(random));
}

}  // namespace

struct S3Client::Request {
  const char* method = "GET";
  std::string key;                                          // "": the bucket itself
  std::vector<std::pair<std::string, std::string>> query;  // in the order of the names
  std::vector<std::string> headers;
  std::string range;
  std::optional<S3Body> body;
  std::uint64_t expected_bytes = 0;  // of a range
};

struct S3Client::Answer {
  long status = 0;
  std::string body;
  std::string etag;
};

// One of libcurl's handles, which keeps its connections.
class S3Client::Connection {
 public:
  Connection() : handle_(curl_library().easy_init()) {
    if (handle_ == nullptr) throw std::bad_alloc();
  }
  ~Connection() { curl_library().easy_cleanup(handle_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  CURL* get() const noexcept { return handle_; }

 private:
  CURL* const handle_;
};

S3Client::S3Client(S3Service service, BucketName name) : service_(std::move(service)), name_(std::move(name)) {
  curl_library();
}

S3Client::~S3Client() = default;

std::string S3Client::url(const Request& request) const {
  std::string text = service_.endpoint + "/" + name_.bucket;
  if (!request.key.empty()) text += "/" + percent_encoded(request.key, true);
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    text += separator + name + "=" + percent_encoded(value, false);
    separator = '&';
  }
  return text;
}

void S3Client::refuse(const Request& request, const Answer& answer) const {
  const std::string code = parse_error_code(answer.body);
  const std::string what = std::string("cannot ") + (std::strcmp(request.method, "GET") == 0 ? "read" : "change") +
                           " s3://" + name_.bucket + "/" + request.key + " at " + service_.endpoint + ": ";
  const std::string said = std::to_string(answer.status) + (code.empty() ? "" : " " + code);
  if (code == "NoSuchBucket") {
    throw Error(Errc::no_repository, what + "there is no bucket '" + name_.bucket + "'; make it first");
  }
  if (code == "RequestTimeTooSkewed") {
    throw Error(Errc::access_denied, what + "this machine's clock differs too much from the service's; correct it");
  }
  if (answer.status == 401 || answer.status == 403) {
    throw Error(Errc::access_denied, what + "the service refused it (" + said +
                                         "); check the credentials, the region and the rights of " +
                                         service_.access_key);
  }
  throw Error(Errc::input_output, what + "the service answered " + said);
}

S3Client::Answer S3Client::send(const Request& request) const {
  using Clock = std::chrono::steady_clock;
  const CurlLibrary& curl = curl_library();
  const Clock::time_point began = Clock::now();
  const std::string url_text = url(request), signer = "aws:amz:" + service_.region + ":s3";
  const S3Body nothing;
  const S3Body& sent = request.body ? *request.body : nothing;
  std::vector<std::string> headers = request.headers;
  headers.push_back("x-amz-content-sha256: " + sha256_of(sent));
  if (!service_.session_token.empty()) headers.push_back("x-amz-security-token: " + service_.session_token);
  curl_slist* raw = nullptr;
  for (const std::string& header : headers) raw = curl.slist_append(raw, header.c_str());
  const std::unique_ptr<curl_slist, FreeList> header_list(raw);
  std::string why;
  for (int attempt = 1;; ++attempt) {
    std::unique_ptr<Connection> connection;
    if (auto idle = idle_.lock(); !idle->empty()) {
      connection = std::move(idle->back());
      idle->pop_back();
    }
    if (!connection) connection = std::make_unique<Connection>();
    CURL* const handle = connection->get();
    Answer answer;
    BodyReader reader(sent);
    std::array<char, CURL_ERROR_SIZE> words{};
    curl.easy_reset(handle);
    curl.easy_setopt(handle, CURLOPT_URL, url_text.c_str());
    curl.easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl.easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(handle, CURLOPT_AWS_SIGV4, signer.c_str());
    curl.easy_setopt(handle, CURLOPT_USERNAME, service_.access_key.c_str());
    curl.easy_setopt(handle, CURLOPT_PASSWORD, service_.secret_key.c_str());
    curl.easy_setopt(handle, CURLOPT_HTTPHEADER, header_list.get());
    curl.easy_setopt(handle, CURLOPT_ERRORBUFFER, words.data());
    curl.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, kConnect_ms);
    curl.easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl.easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, kStalled_s);
    curl.easy_setopt(handle, CURLOPT_USERAGENT, "escrow");
    curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
    curl.easy_setopt(handle, CURLOPT_WRITEDATA, &answer.body);
    curl.easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(handle, CURLOPT_HEADERDATA, &answer.etag);
    if (!request.range.empty()) curl.easy_setopt(handle, CURLOPT_RANGE, request.range.c_str());
    if (request.body) {
      curl.easy_setopt(handle, CURLOPT_UPLOAD, 1L);
      curl.easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(reader.size()));
      curl.easy_setopt(handle, CURLOPT_READFUNCTION, on_upload);
      curl.easy_setopt(handle, CURLOPT_READDATA, &reader);
      curl.easy_setopt(handle, CURLOPT_SEEKFUNCTION, on_seek);
      curl.easy_setopt(handle, CURLOPT_SEEKDATA, &reader);
    } else if (std::strcmp(request.method, "GET") != 0) {
      curl.easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method);
    }
    const CURLcode code = curl.easy_perform(handle);
    curl.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &answer.status);
    if (code == CURLE_OK) {
      idle_.lock()->push_back(std::move(connection));
      const bool is_short = answer.status == 206 && answer.body.size() != request.expected_bytes;
      if (!may_pass(answer.status) && !is_short) return answer;
      const std::string said = parse_error_code(answer.body);
      why = is_short ? "an answer had another length than asked for"
                     : "the service answered " + std::to_string(answer.status) + (said.empty() ? "" : " " + said);
    } else {
      why = words[0] != '\0' ? words.data() : curl.easy_strerror(code);
    }
    if (attempt >= kMostAttempts || Clock::now() - began > kPatience) {
      throw Error(Errc::input_output,
                  std::string("cannot ") + (std::strcmp(request.method, "GET") == 0 ? "read" : "change") + " s3://" +
                      name_.bucket + "/" + request.key + " at " + service_.endpoint + ": " + why + " (tried " +
                      std::to_string(attempt) + " times); check the service and the network, then try again");
    }
    wait_before(attempt);
  }
}

std::optional<S3Object> S3Client::get(const std::string& name) const {
  Request request;
  request.key = name_.key(name);
  Answer answer = send(request);
  if (answer.status == 404 && parse_error_code(answer.body) != "NoSuchBucket") return std::nullopt;
  if (answer.status != 200) refuse(request, answer);
  return S3Object{std::move(answer.body), std::move(answer.etag)};
}

std::optional<std::string> S3Client::get_range(const std::string& name, std::uint64_t offset,
                                               std::uint64_t length) const {
  Request request;
  request.key = name_.key(name);
  request.range = std::to_string(offset) + "-" + std::to_string(offset + length - 1);
  request.expected_bytes = length;
  Answer answer = send(request);
  if (answer.status == 404 && parse_error_code(answer.body) != "NoSuchBucket") return std::nullopt;
  // Some services answer with everything when that is what was asked for.
  if (answer.status != 206 && !(answer.status == 200 && offset == 0 && answer.body.size() == length))
    refuse(request, answer);
  return std::move(answer.body);
}

void S3Client::put(const std::string& name, const S3Body& body) const {
  Request request;
  request.method = "PUT";
  request.key = name_.key(name);
  request.body = body;
  const Answer answer = send(request);
  if (answer.status != 200) refuse(request, answer);
}

bool S3Client::put_if(const std::string& name, const S3Condition& condition, const std::string& content) const {
  Request request;
  request.method = "PUT";
  request.key = name_.key(name);
  request.body = S3Body{.text = content};
  if (!condition.etag) {
    request.headers.push_back("if-none-match: *");
  } else {
    const std::string quote = *etags_quoted_.lock() ? "\"" : "";
    request.headers.push_back("if-match: " + quote + *condition.etag + quote);
  }
  const Answer answer = send(request);
  // 404: what was to be replaced is not there.
  if (answer.status == 412 || (answer.status == 404 && parse_error_code(answer.body) != "NoSuchBucket")) return false;
  if (answer.status != 200) refuse(request, answer);
  return true;
}

void S3Client::remove(const std::string& name) const {
  Request request;
  request.method = "DELETE";
  request.key = name_.key(name);
  const Answer answer = send(request);
  if (answer.status != 200 && answer.status != 204 && answer.status != 404) refuse(request, answer);
}

std::vector<S3Listing::Object> S3Client::list(const std::string& prefix) const {
  std::vector<S3Listing::Object> found;
  const std::size_t own = name_.key("").size();
  for (std::string continuation;;) {
    Request request;
    if (!continuation.empty()) request.query.emplace_back("continuation-token", continuation);
    request.query.emplace_back("list-type", "2");
    request.query.emplace_back("prefix", name_.key(prefix));
    const Answer answer = send(request);
    if (answer.status != 200) refuse(request, answer);
    S3Listing listing = parse_listing(answer.body);
    for (S3Listing::Object& object : listing.objects) {
      object.key.erase(0, std::min(own, object.key.size()));
      found.push_back(std::move(object));
    }
    if (listing.continuation.empty()) return found;
    continuation = std::move(listing.continuation);
  }
}

}  // namespace escrow::storage
