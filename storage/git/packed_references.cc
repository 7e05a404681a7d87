#include "storage/git/packed_references.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::uint64_t kPiece_bytes = 4096;
constexpr std::size_t kHexLength = 40;

}  // namespace

PackedReferences::PackedReferences(const std::string& git_directory) : path_(git_directory + "/packed-refs") {
  file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_ && errno == ENOENT) return;
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) throw system_error(errno, "read " + path_);
  size_ = static_cast<std::uint64_t>(status.st_size);
  mode_ = status.st_mode & 07777;
  while (const auto line = line_at(body_)) {
    if (!line->text.starts_with('#')) break;
    if ((line->text + ' ').find(" sorted ") != std::string::npos) is_sorted_ = true;
    body_ = line->end;
  }
}

std::string PackedReferences::read(std::uint64_t offset, std::uint64_t length) const {
  std::string bytes(std::min(length, size_ - std::min(offset, size_)), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count = ::pread(file_.get(), bytes.data() + have, bytes.size() - have,
                                  static_cast<off_t>(offset + have));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read " + path_);
    if (count == 0) throw Error(Errc::damaged_repository, "the file " + path_ + " is shorter than it was");
    have += static_cast<std::size_t>(count);
  }
  return bytes;
}

std::optional<PackedReferences::Line> PackedReferences::line_at(std::uint64_t offset) const {
  if (offset >= size_) return std::nullopt;
  for (std::uint64_t length = kPiece_bytes;; length *= 2) {
    if (offset < piece_begin_ || offset >= piece_begin_ + piece_.size()) piece_.clear();
    const std::size_t at = piece_.empty() ? 0 : offset - piece_begin_;
    const std::size_t newline = piece_.find('\n', at);
    if (newline != std::string::npos || (!piece_.empty() && piece_begin_ + piece_.size() == size_)) {
      const std::size_t end = std::min(newline, piece_.size());
      return Line{offset, std::min(piece_begin_ + end + 1, size_), piece_.substr(at, end - at)};
    }
    piece_ = read(offset, length);
    piece_begin_ = offset;
  }
}

// "<id> <name>"; "^<id>" before it says what the tag above names.
std::string_view PackedReferences::name_in(const Line& line) const {
  const std::string_view text = line.text;
  if (text.size() < kHexLength + 2 || text[kHexLength] != ' ' || !ObjectId::from_hex(text.substr(0, kHexLength)))
    throw Error(Errc::damaged_repository, "the file " + path_ + " is damaged: '" + line.text +
                                              "' is no reference; restore it from a clone or a backup");
  return text.substr(kHexLength + 1);
}

std::optional<PackedReferences::Line> PackedReferences::record_from(std::uint64_t offset) const {
  // In the middle of a line the next one counts.
  if (offset > body_ && read(offset - 1, 1) != "\n") {
    const auto rest = line_at(offset);
    offset = rest ? rest->end : size_;
  }
  auto line = line_at(offset);
  while (line && (line->text.starts_with('^') || line->text.starts_with('#'))) line = line_at(line->end);
  return line;
}

// Where the first record lies that does not come before `name`, in git's order (strcmp(3)).
std::uint64_t PackedReferences::first_not_below(const std::string& name) const {
  std::uint64_t low = body_, high = size_;  // it begins in [low, high]
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto line = record_from(middle);
    if (!line || line->begin >= high || name_in(*line) >= name) {
      high = middle;
    } else {
      low = line->end;
    }
  }
  return low;
}

void PackedReferences::visit_below(const std::string& prefix, const Visit& visit) const {
  if (!file_) return;
  const std::uint64_t begin = is_sorted_ ? first_not_below(prefix) : body_;
  for (auto line = record_from(begin); line; line = record_from(line->end)) {
    const std::string name(name_in(*line));
    if (name.starts_with(prefix)) {
      visit(name, *ObjectId::from_hex(std::string_view(line->text).substr(0, kHexLength)));
    } else if (is_sorted_ && name > prefix) {
      return;
    }
  }
}

std::optional<ObjectId> PackedReferences::find(const std::string& name) const {
  if (!file_) return std::nullopt;
  if (is_sorted_) {
    const auto line = record_from(first_not_below(name));
    if (!line || name_in(*line) != name) return std::nullopt;
    return ObjectId::from_hex(std::string_view(line->text).substr(0, kHexLength));
  }
  std::optional<ObjectId> found;
  visit_below(name, [&](const std::string& each, const ObjectId& id) {
    if (each == name) found = id;
  });
  return found;
}

std::string PackedReferences::without(const std::function<bool(std::string_view name)>& is_dropped) const {
  if (!file_) return {};
  const std::string whole = read(0, size_);
  std::string kept;
  kept.reserve(whole.size());
  bool drops = false;
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = std::min(whole.find('\n', begin), whole.size() - 1) + 1;
    Line line{begin, end, whole.substr(begin, end - begin)};
    if (line.text.ends_with('\n')) line.text.pop_back();
    // What a dropped tag names goes with it.
    if (line.text.starts_with('#')) drops = false;
    else if (!line.text.starts_with('^')) drops = is_dropped(name_in(line));
    if (!drops) kept.append(whole, begin, end - begin);
    begin = end;
  }
  return kept;
}

}  // namespace escrow::storage
