#include "daemon/import/tar_stream.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace escrow::daemon {

using session::GitMode;

namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kMaxName = 100, kPieceBytes = std::size_t{256} << 10;
constexpr std::uint64_t kMaxSize = 077777777777;

std::string padding(std::uint64_t size) { return std::string((kBlock - size % kBlock) % kBlock, '\0'); }

// ustar (POSIX pax, "ustar Interchange Format"). What is too long is cut off: a pax header says it whole.
std::string header(char type, const std::string& name, std::uint64_t size, bool is_executable,
                   const std::string& target) {
  std::string block(kBlock, '\0');
  const auto put = [&block](std::size_t at, std::string_view text) { block.replace(at, text.size(), text); };
  const auto octal = [&](std::size_t at, const char* format, std::uint64_t value) {
    char digits[24];
    std::snprintf(digits, sizeof digits, format, static_cast<unsigned long long>(value));
    put(at, digits);
  };
  put(0, std::string_view(name).substr(0, kMaxName));
  octal(100, "%07llo", is_executable ? 0755 : 0644);
  octal(108, "%07llo", 0);  // user and group
  octal(116, "%07llo", 0);
  octal(124, "%011llo", std::min(size, kMaxSize));
  octal(136, "%011llo", 0);  // time
  put(148, "        ");
  block[156] = type;
  put(157, std::string_view(target).substr(0, kMaxName));
  put(257, std::string_view("ustar\00000", 8));
  std::uint64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  octal(148, "%06llo", sum);
  block[154] = '\0';
  return block;
}

// "LENGTH NAME=VALUE\n", the length being that of all of it.
std::string record(const std::string& name, const std::string& value) {
  const std::string rest = " " + name + "=" + value + "\n";
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

}  // namespace

void TarStream::leaf(const std::string& path, GitMode mode, const session::ByteSource& content) {
  std::string target;
  std::uint64_t size = content.size();
  if (mode == GitMode::symlink) {
    target.resize(static_cast<std::size_t>(size));
    target.resize(content.read(0, std::as_writable_bytes(std::span(target))));
    size = 0;
  }
  std::string extended;
  if (path.size() > kMaxName) extended += record("path", path);
  if (target.size() > kMaxName) extended += record("linkpath", target);
  if (size > kMaxSize) extended += record("size", std::to_string(size));
  if (!extended.empty()) {
    extended = record("hdrcharset", "BINARY") + extended;
    send_(header('x', "pax", extended.size(), false, "") + extended + padding(extended.size()));
  }
  send_(header(mode == GitMode::symlink ? '2' : '0', path, size, mode == GitMode::executable, target));
  std::vector<char> piece(static_cast<std::size_t>(std::min<std::uint64_t>(size, kPieceBytes)));
  for (std::uint64_t at = 0; at < size;) {
    const std::size_t count = content.read(at, std::as_writable_bytes(std::span(piece)));
    send_({piece.data(), count});
    at += count;
  }
  send_(padding(size));
}

void TarStream::finish() { send_(std::string(2 * kBlock, '\0')); }

}  // namespace escrow::daemon
