// <gitdir>/packed-refs, in which git keeps references that have no file of their own.
//
// Read afresh by each object, which shows one moment and is not shared between threads. A name is found without reading
// the whole file where git has sorted it. Throws Error{damaged_repository} naming the file. Sources: git-pack-refs(1),
// refs/packed-backend.c of git.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "session/base/ids.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class PackedReferences {
 public:
  // There may be no such file.
  explicit PackedReferences(const std::string& git_directory);

  std::optional<session::ObjectId> find(const std::string& name) const;
  using Visit = std::function<void(const std::string& name, const session::ObjectId& id)>;
  // Those whose names begin so.
  void visit_below(const std::string& prefix, const Visit& visit) const;
  // The file without the references that `is_dropped` names; everything else, the header too, as it is.
  std::string without(const std::function<bool(std::string_view name)>& is_dropped) const;
  // Permission bits of the file.
  unsigned mode() const noexcept { return mode_; }

 private:
  struct Line {
    std::uint64_t begin, end;  // `end` is behind the newline
    std::string text;          // without it
  };
  std::string read(std::uint64_t offset, std::uint64_t length) const;
  // The line that begins at `offset`; nullopt at the end.
  std::optional<Line> line_at(std::uint64_t offset) const;
  // The first line with a name that begins at `offset` or later.
  std::optional<Line> record_from(std::uint64_t offset) const;
  std::uint64_t first_not_below(const std::string& name) const;
  std::string_view name_in(const Line& line) const;

  const std::string path_;
  UniqueFd file_;
  std::uint64_t size_ = 0, body_ = 0;  // `body_`: where the header ends
  unsigned mode_ = 0666;
  bool is_sorted_ = false;
  mutable std::string piece_;  // what was read last, and where it begins
  mutable std::uint64_t piece_begin_ = 0;
};

}  // namespace escrow::storage
