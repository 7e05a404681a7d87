// Distinct id types, so that a node can never be passed where a staging file is meant.
// All are plain values: copyable, comparable, hashable, without locks.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace escrow::session {

template <typename Tag>
struct NumericId {
  std::uint64_t value = 0;
  friend auto operator<=>(const NumericId&, const NumericId&) = default;
  explicit operator bool() const noexcept { return value != 0; }
};

// A file, directory or other object of one session. Equals st_ino; never reused and never changed while the session
// lives, across restarts too. 0 is "none", the root is 1.
using NodeId = NumericId<struct NodeTag>;
inline constexpr NodeId kRootNode{1};

// One file of bytes in a session's staging directory. Never reused within a session. 0 is "none".
using StagingId = NumericId<struct StagingTag>;

// A set of staged edits; only the session's top layer is writable. The first layer is 1.
using LayerId = NumericId<struct LayerTag>;
inline constexpr LayerId kFirstLayer{1};

// A git object name (SHA-1, 20 bytes). The default value is all zeroes, git's "no object".
class ObjectId {
 public:
  static constexpr std::size_t kSize = 20;
  using Bytes = std::array<std::uint8_t, kSize>;

  ObjectId() = default;
  explicit ObjectId(const Bytes& bytes) : bytes_(bytes) {}
  // `raw` points at kSize bytes.
  static ObjectId from_raw(const void* raw) {
    ObjectId id;
    std::memcpy(id.bytes_.data(), raw, kSize);
    return id;
  }
  // nullopt unless `hex` is exactly 40 hexadecimal digits.
  static std::optional<ObjectId> from_hex(std::string_view hex);

  const Bytes& bytes() const noexcept { return bytes_; }
  bool is_null() const noexcept { return bytes_ == Bytes{}; }
  std::string hex() const;

  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;

 private:
  Bytes bytes_{};
};

// A session's public name: kSize lower-case hexadecimal digits, chosen at random.
class SessionId {
 public:
  static constexpr std::size_t kSize = 16;

  static SessionId generate();
  // nullopt unless `text` is a whole id.
  static std::optional<SessionId> parse(std::string_view text);

  const std::string& text() const noexcept { return text_; }
  friend auto operator<=>(const SessionId&, const SessionId&) = default;

 private:
  explicit SessionId(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

}  // namespace escrow::session

template <typename Tag>
struct std::hash<escrow::session::NumericId<Tag>> {
  std::size_t operator()(escrow::session::NumericId<Tag> id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};

template <>
struct std::hash<escrow::session::ObjectId> {
  std::size_t operator()(const escrow::session::ObjectId& id) const noexcept {
    std::size_t value;
    std::memcpy(&value, id.bytes().data(), sizeof value);
    return value;
  }
};
