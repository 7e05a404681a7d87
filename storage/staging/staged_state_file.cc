#include "storage/staging/staged_state_file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "session/base/error.h"
#include "session/base/unresolved.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionRecord;
using session::StagedName;

namespace {

constexpr std::string_view kStagedStateMagic = "escrow session 2\n";
constexpr std::size_t kHeaderBytes = 5, kDigestBytes = 32, kLongNumberBytes = 8;
constexpr std::size_t kMostPayload = std::size_t{16} << 20;
constexpr char kBegin = 'S', kRemoved = 'R', kName = 'N', kBytes = 'B', kLeftOut = 'L', kEnd = 'E';

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Errc::bad_request, "this is no whole exported session: " + why);
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { ::EVP_MD_CTX_free(context); }
};

Digest256 digest_of(const Digest256& before, std::string_view header, std::string_view payload) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(::EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
  Digest256 digest;
  const bool done = ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) == 1 &&
                    ::EVP_DigestUpdate(context.get(), before.data(), before.size()) == 1 &&
                    ::EVP_DigestUpdate(context.get(), header.data(), header.size()) == 1 &&
                    ::EVP_DigestUpdate(context.get(), payload.data(), payload.size()) == 1 &&
                    ::EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1;
  if (!done) throw Error(Errc::unavailable, "SHA-256 cannot be computed: libcrypto refuses it");
  return digest;
}

class Fields {
 public:
  void number(std::uint64_t value, std::size_t bytes = kLongNumberBytes) {
    for (std::size_t i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> 8 * i & 0xff);
  }
  void text(std::string_view value) {
    number(value.size());
    text_ += value;
  }
  void texts(const std::vector<std::string>& values) {
    number(values.size());
    for (const std::string& value : values) text(value);
  }
  void time(const session::Timestamp& time) {
    number(static_cast<std::uint64_t>(time.seconds));
    number(time.nanoseconds);
  }
  void bytes(std::string_view bytes) { text_ += bytes; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class FieldsReader {
 public:
  explicit FieldsReader(std::string_view payload) : rest_(payload) {}
  std::uint64_t number() {
    const std::string_view bytes = take(kLongNumberBytes);
    std::uint64_t value = 0;
    for (std::size_t i = kLongNumberBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::uint32_t word() {
    const std::uint64_t value = number();
    if (value > 0xffffffff) refuse("a number in it is too large");
    return static_cast<std::uint32_t>(value);
  }
  bool flag() { return number() != 0; }
  std::string text() { return std::string(take(number())); }
  std::vector<std::string> texts() {
    std::vector<std::string> values;
    for (std::uint64_t left = number(); left > 0; --left) values.push_back(text());
    return values;
  }
  session::Timestamp time() {
    const auto seconds = static_cast<std::int64_t>(number());
    const std::uint32_t nanoseconds = word();
    if (nanoseconds >= 1'000'000'000) refuse("a time in it is impossible");
    return {seconds, nanoseconds};
  }
  std::optional<ObjectId> object() {
    const std::string hex = text();
    if (hex.empty()) return std::nullopt;
    const auto id = ObjectId::from_hex(hex);
    if (!id) refuse("the name of an object in it is none");
    return id;
  }
  std::string_view rest() { return std::exchange(rest_, {}); }
  void end() const {
    if (!rest_.empty()) refuse("a record of it is longer than what it holds");
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) refuse("a record of it is shorter than what it holds");
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

SessionRecord read_record(FieldsReader& in) {
  const auto id = session::SessionId::parse(in.text());
  if (!id) refuse("the id of its session is none");
  SessionRecord record{*id};
  record.base = in.object();
  record.message = in.text();
  auto unresolved = session::unresolved_from(in.texts());
  if (!unresolved) refuse("its list of unresolved paths is none");
  record.unresolved = *std::move(unresolved);
  session::SessionOptions& options = record.options;
  options.branch = in.text();
  const std::string prefix = in.text();
  options.prefix = session::RepoPath::parse(prefix, "the path prefix of the exported session");
  options.uid = in.word();
  options.gid = in.word();
  options.umask = in.word() & 0777;
  options.excludes = in.texts();
  options.include_ignored = in.flag();
  options.policies = in.texts();
  options.contained_symlinks = in.flag();
  options.shows_lfs_pointers = in.flag();
  options.require_approval = in.flag();
  options.approval_expires_s = static_cast<std::int64_t>(in.number());
  options.limits.staged_bytes = in.number();
  options.limits.files = in.number();
  return record;
}

StagedName read_name(FieldsReader& in) {
  StagedName name;
  name.path = in.text();
  name.mode = in.word();
  name.uid = in.word();
  name.gid = in.word();
  name.rdev = in.word();
  name.accessed = in.time();
  name.modified = in.time();
  name.target = in.text();
  name.same_as = in.text();
  name.submodule = in.object();
  if (in.flag()) name.base_path = in.text();
  name.size_bytes = in.number();
  for (std::uint64_t left = in.number(); left > 0; --left) {
    std::string xattr = in.text();
    name.xattrs.emplace_back(std::move(xattr), in.text());
  }
  return name;
}

std::string hex_of(const std::optional<ObjectId>& id) { return id ? id->hex() : std::string(); }

}  // namespace

// ---- writing

void StagedStateWriter::add(char kind, const std::string& payload) {
  if (payload.size() > kMostPayload)
    throw Error(Errc::result_too_large, "the session cannot be exported: a part of it is larger than 16 MiB");
  Fields header;
  header.bytes({&kind, 1});
  header.number(payload.size(), kHeaderBytes - 1);
  const std::string head = header.take();
  digest_ = digest_of(digest_, head, payload);
  send_(head + payload + std::string(digest_.data(), digest_.size()));
}

void StagedStateWriter::begin(const SessionRecord& record) {
  send_(kStagedStateMagic);
  const session::SessionOptions& options = record.options;
  Fields out;
  out.text(record.id.text());
  out.text(hex_of(record.base));
  out.text(record.message);
  out.texts(session::texts_of(record.unresolved));
  out.text(options.branch);
  out.text(options.prefix.text());
  out.number(options.uid);
  out.number(options.gid);
  out.number(options.umask);
  out.texts(options.excludes);
  out.number(options.include_ignored);
  out.texts(options.policies);
  out.number(options.contained_symlinks);
  out.number(options.shows_lfs_pointers);
  out.number(options.require_approval);
  out.number(static_cast<std::uint64_t>(options.approval_expires_s));
  out.number(options.limits.staged_bytes);
  out.number(options.limits.files);
  add(kBegin, out.take());
}

void StagedStateWriter::removed(const std::string& path) { add(kRemoved, path); }

void StagedStateWriter::name(const StagedName& name) {
  Fields out;
  out.text(name.path);
  out.number(name.mode);
  out.number(name.uid);
  out.number(name.gid);
  out.number(name.rdev);
  out.time(name.accessed);
  out.time(name.modified);
  out.text(name.target);
  out.text(name.same_as);
  out.text(hex_of(name.submodule));
  out.number(name.base_path.has_value());
  if (name.base_path) out.text(*name.base_path);
  out.number(name.size_bytes);
  out.number(name.xattrs.size());
  for (const auto& [xattr, value] : name.xattrs) {
    out.text(xattr);
    out.text(value);
  }
  add(kName, out.take());
}

void StagedStateWriter::bytes(std::uint64_t offset, std::span<const std::byte> bytes) {
  Fields out;
  out.number(offset);
  out.bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  add(kBytes, out.take());
}

void StagedStateWriter::left_out(const std::string& path) { add(kLeftOut, path); }

void StagedStateWriter::end() { add(kEnd, {}); }

// ---- reading

void StagedStateReader::feed(std::string_view bytes) {
  pending_ += bytes;
  if (!has_magic_) {
    const std::size_t known = std::min(pending_.size(), kStagedStateMagic.size());
    if (std::string_view(pending_).substr(0, known) != kStagedStateMagic.substr(0, known)) {
      if (pending_.starts_with("escrow session ")) refuse("it was made by another version of Escrow");
      refuse("it does not begin like one");
    }
    if (known < kStagedStateMagic.size()) return;
    pending_.erase(0, kStagedStateMagic.size());
    has_magic_ = true;
  }
  while (take_record()) {}
}

bool StagedStateReader::take_record() {
  if (has_ended_) {
    if (!pending_.empty()) refuse("something follows its end");
    return false;
  }
  if (pending_.size() < kHeaderBytes) return false;
  std::size_t length = 0;
  for (std::size_t i = kHeaderBytes; i-- > 1;) length = length << 8 | static_cast<unsigned char>(pending_[i]);
  if (length > kMostPayload) refuse("a record of it is impossibly long");
  const std::size_t whole = kHeaderBytes + length + kDigestBytes;
  if (pending_.size() < whole) return false;
  const std::string_view record(pending_.data(), whole);
  digest_ = digest_of(digest_, record.substr(0, kHeaderBytes), record.substr(kHeaderBytes, length));
  if (std::string_view(digest_.data(), digest_.size()) != record.substr(kHeaderBytes + length))
    refuse("its bytes are not those that were written: it was damaged or altered");
  pass_on(record.front(), record.substr(kHeaderBytes, length));
  pending_.erase(0, whole);
  return true;
}

void StagedStateReader::pass_on(char kind, std::string_view payload) {
  FieldsReader in(payload);
  if (has_begun_ == (kind == kBegin)) refuse("its first record is not at its beginning");
  switch (kind) {
    case kBegin: {
      const SessionRecord record = read_record(in);
      in.end();
      has_begun_ = true;
      return to_.begin(record);
    }
    case kRemoved: return to_.removed(std::string(payload));
    case kName: {
      const StagedName name = read_name(in);
      in.end();
      return to_.name(name);
    }
    case kBytes: {
      const std::uint64_t offset = in.number();
      return to_.bytes(offset, std::as_bytes(std::span(in.rest())));
    }
    case kLeftOut: return to_.left_out(std::string(payload));
    case kEnd:
      in.end();
      has_ended_ = true;
      return to_.end();
    default: refuse("it has a record that this version of Escrow does not know");
  }
}

void StagedStateReader::finish() {
  if (!has_ended_) refuse("it was cut short");
}

}  // namespace escrow::storage
