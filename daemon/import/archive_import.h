// Turns a tar archive into a git tree: what POST /v1/repositories/{repository}/imports commits.
//
// ustar, pax and GNU tar, sparse files too, uncompressed; read once from front to back by libarchive. Contents stream
// into the quarantine, names are kept in memory (archived_tree.h). Thread-safe. Throws Error{bad_request} for what is
// no whole archive or holds what no directory could, Problem{body_too_large}, what reading `archive` throws. Then
// the quarantine holds loose ends, and nothing else has changed.
#pragma once

#include <cstdint>

#include "daemon/import/import_filter.h"
#include "session/interfaces/object_store.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

// At most `most_bytes` of contents: of a sparse file an archive can claim more than it has.
session::BuiltTree import_archive(session::Quarantine& quarantine, const session::ByteSource& archive,
                                  std::uint64_t most_bytes, ImportFilter filter = {});

}  // namespace escrow::daemon
