#include "storage/objects/unplaced_blob.h"

#include <algorithm>
#include <cstring>

#include "session/base/error.h"
#include "session/base/still_wanted.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

void UnplacedBlob::read_piece(Pass& pass) const {
  session::require_still_wanted("reading the blob " + id_.hex());
  std::vector<std::byte> piece(kPiece_bytes);
  const BlobCache::Pull pull = std::exchange(pass.pull, {});  // a pass that fails is over
  piece.resize(pull(piece));
  pass.pull = pull;
  pass.pieces.push_back(std::move(piece));
  if (pass.pieces.size() <= kKept_bytes / kPiece_bytes) return;
  pass.pieces.pop_front();
  pass.kept_from += kPiece_bytes;
}

std::size_t UnplacedBlob::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= size_bytes_) return 0;
  out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_bytes_ - offset)));
  const auto pass = pass_.lock();
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t at = offset + done;
    if (!pass->pull || at < pass->kept_from) *pass = Pass{begin_(), 0, {}};
    const std::uint64_t index = (at - pass->kept_from) / kPiece_bytes;
    if (index >= pass->pieces.size()) {
      read_piece(*pass);
      continue;
    }
    const std::vector<std::byte>& piece = pass->pieces[index];
    const std::size_t skipped = static_cast<std::size_t>((at - pass->kept_from) % kPiece_bytes);
    if (skipped >= piece.size())
      throw Error(Errc::input_output, "the blob " + id_.hex() + " is damaged: it ends at byte " + std::to_string(at));
    const std::size_t count = std::min(out.size() - done, piece.size() - skipped);
    std::memcpy(out.data() + done, piece.data() + skipped, count);
    done += count;
  }
  return out.size();
}

}  // namespace escrow::storage
