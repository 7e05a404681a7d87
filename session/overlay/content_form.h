// What the bytes of one regular file are made of: a base below, a staging file, or the one showing through the other.
//
// The base is a blob, or the form that the file had when a savepoint sealed it. Byte i is in the staging file when its
// block is held there or i is at or past base_length; else it is the base's. Without a staging file the size is
// base_length. A plain value; what is sealed is shared and never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/ids.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/staging_area.h"
#include "session/overlay/block_map.h"

namespace escrow::session {

struct ContentForm {
  ObjectId base;                  // null: none, or `sealed`
  std::uint64_t base_length = 0;
  StagingId staging;              // 0: none
  BlockMap map{};                 // meaningful with both a base and a staging file
  std::shared_ptr<const ContentForm> sealed{};  // the base, instead of a blob; it has a staging file

  bool has_base() const { return !base.is_null() || sealed; }
  bool is_nothing() const { return !has_base() && !staging; }
  // How many sealed forms lie below this one.
  std::size_t depth() const;
  // Its staging file, and those that it shows through; none is 0.
  std::vector<StagingId> staging_files() const;
  friend bool operator==(const ContentForm& one, const ContentForm& other);
};

// Fills `out` from `offset`, of a file of `size_bytes`; returns the bytes read, short only at the end. What a staging
// file lacks reads as zeroes. `base`: base_source() of the form; null when it has none.
std::size_t read_form(const ContentForm& form, const ByteSource* base, const StagingArea& staging,
                      std::uint64_t size_bytes, std::uint64_t offset, std::span<std::byte> out);

// What shows below the form's staging file; null when nothing does. The references must outlive it.
std::shared_ptr<const ByteSource> base_source(const ContentForm& form, const ObjectReader& objects,
                                              const StagingArea& staging);

// The sealed forms below this one, as the journal keeps them; "" for none. decode_sealed() throws
// Error{damaged_repository}.
std::string encode_sealed(const ContentForm& form);
std::shared_ptr<const ContentForm> decode_sealed(std::string_view bytes);

}  // namespace escrow::session
