// The staged state of a session (session/transaction/staged_state.h) as one file, in either direction a stream.
//
// The file is "escrow session 2\n" and records: a letter, the length of what it holds in four bytes, what it holds,
// and the SHA-256 of these three after the digest before (32 zero bytes before the first). So each record is known to
// be whole when it is read, and the last one to be the end of exactly this file. Numbers are little-endian, of eight
// bytes; texts and lists have their length before them.
// Not thread-safe. Memory is bounded by one record. Throws Error{bad_request} for what is no such file, was cut short
// or was changed, and what the parts and `send` throw.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "session/transaction/staged_state.h"

namespace escrow::storage {

using Digest256 = std::array<char, 32>;

class StagedStateWriter final : public session::StagedParts {
 public:
  explicit StagedStateWriter(std::function<void(std::string_view)> send) : send_(std::move(send)) {}

  void begin(const session::SessionRecord& record) override;
  void removed(const std::string& path) override;
  void name(const session::StagedName& name) override;
  void bytes(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void left_out(const std::string& path) override;
  void end() override;

 private:
  void add(char kind, const std::string& payload);

  const std::function<void(std::string_view)> send_;
  Digest256 digest_{};
};

class StagedStateReader {
 public:
  explicit StagedStateReader(session::StagedParts& to) : to_(to) {}
  // Any piece of the file, in order.
  void feed(std::string_view bytes);
  // There is no more: throws unless the last record has come.
  void finish();

 private:
  bool take_record();
  void pass_on(char kind, std::string_view payload);

  session::StagedParts& to_;
  std::string pending_;
  Digest256 digest_{};
  bool has_magic_ = false, has_begun_ = false, has_ended_ = false;
};

}  // namespace escrow::storage
