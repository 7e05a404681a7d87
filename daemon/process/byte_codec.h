// Values as bytes and back, for messages between two processes of one program: host byte order, nothing named.
//
// Both ends are one program, so a message that does not parse is our bug. Not thread-safe. Throws nothing.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace escrow::daemon {

class ByteWriter {
 public:
  void number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  void texts(const std::vector<std::string>& values) {
    list(values, [this](const std::string& value) { text(value); });
  }
  template <typename List, typename Each>
  void list(const List& values, Each each) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) each(value);
  }
  // What is never negative; -1 stands for nothing.
  template <typename Number>
  void optional(const std::optional<Number>& value) {
    number(value ? static_cast<std::int64_t>(*value) : -1);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number() {
    assert(rest_.size() >= sizeof(std::int64_t));
    std::int64_t value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  bool flag() { return number() != 0; }
  std::string text() {
    const auto length = static_cast<std::size_t>(number());
    std::string value(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return value;
  }
  std::vector<std::string> texts() {
    return list<std::string>([this] { return text(); });
  }
  template <typename Value, typename Each>
  std::vector<Value> list(Each each) {
    std::vector<Value> values(static_cast<std::size_t>(number()));
    for (Value& value : values) value = each();
    return values;
  }
  template <typename Number>
  std::optional<Number> optional() {
    const std::int64_t value = number();
    return value < 0 ? std::nullopt : std::optional(static_cast<Number>(value));
  }

 private:
  std::string_view rest_;
};

}  // namespace escrow::daemon
