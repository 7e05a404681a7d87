#include "storage/objects/pack_delta.h"

#include "session/base/error.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

[[noreturn]] void throw_no_delta(const char* what) {
  throw Error(Errc::damaged_repository, std::string("a delta is damaged: ") + what);
}

std::uint8_t take_byte(std::string_view& delta) {
  if (delta.empty()) throw_no_delta("it ends too early");
  const auto byte = static_cast<std::uint8_t>(delta.front());
  delta.remove_prefix(1);
  return byte;
}

std::uint64_t take_size(std::string_view& delta) {
  std::uint64_t size = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = take_byte(delta);
    if (shift > 56) throw_no_delta("a size is not valid");
    size |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) return size;
  }
}

DeltaSizes take_sizes(std::string_view& delta) {
  DeltaSizes sizes;
  sizes.base_bytes = take_size(delta);
  sizes.result_bytes = take_size(delta);
  return sizes;
}

// Calls `copy(offset, size)` and `add(bytes)` for the instructions of a delta without its sizes.
template <typename Copy, typename Add>
void follow_delta(std::string_view delta, std::uint64_t base_bytes, Copy copy, Add add) {
  while (!delta.empty()) {
    const std::uint8_t code = take_byte(delta);
    if (code == 0) throw_no_delta("an instruction is not valid");
    if ((code & 0x80) == 0) {
      if (delta.size() < code) throw_no_delta("it ends too early");
      add(delta.substr(0, code));
      delta.remove_prefix(code);
      continue;
    }
    std::uint32_t offset = 0, size = 0;
    for (unsigned i = 0; i < 4; ++i)
      if (code & (1u << i)) offset |= std::uint32_t{take_byte(delta)} << (8 * i);
    for (unsigned i = 0; i < 3; ++i)
      if (code & (0x10u << i)) size |= std::uint32_t{take_byte(delta)} << (8 * i);
    if (size == 0) size = 0x10000;
    if (offset > base_bytes || size > base_bytes - offset) throw_no_delta("it copies from outside its base");
    copy(offset, size);
  }
}

}  // namespace

DeltaSizes read_delta_sizes(std::string_view delta) { return take_sizes(delta); }

DeltaSizes check_delta(std::string_view delta) {
  const DeltaSizes sizes = take_sizes(delta);
  std::uint64_t total = 0;
  follow_delta(delta, sizes.base_bytes, [&](std::uint32_t, std::uint32_t size) { total += size; },
               [&](std::string_view bytes) { total += bytes.size(); });
  if (total != sizes.result_bytes) throw_no_delta("its result has another length than it says");
  return sizes;
}

std::string apply_delta(std::string_view base, std::string_view delta) {
  const DeltaSizes sizes = check_delta(delta);
  if (sizes.base_bytes != base.size()) throw_no_delta("it is made for another base");
  std::string result;
  result.reserve(static_cast<std::size_t>(sizes.result_bytes));
  take_sizes(delta);
  follow_delta(delta, base.size(),
               [&](std::uint32_t offset, std::uint32_t size) { result.append(base.substr(offset, size)); },
               [&](std::string_view bytes) { result.append(bytes); });
  return result;
}

}  // namespace escrow::storage
