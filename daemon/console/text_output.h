// What people read: aligned tables, sizes, ages, lists of paths as git quotes them. To standard output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/overlay/overlay.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_changes.h"

namespace escrow::daemon {

void print(std::string_view text);
void print_line(std::string_view text);
// To standard error.
void tell(std::string_view line);

// "4.2 MiB"
std::string human_size(std::uint64_t bytes);
// "3 minutes ago"
std::string human_age(const session::Timestamp& then, const session::Timestamp& now);
// "2026-11-21 04:14:00 +0000", of the offset given.
std::string human_time(std::int64_t time_s, int offset_minutes);
// "1 file", "2 files"
std::string plural(std::uint64_t count, const std::string& singular);
// "2 added, 1 modified", or "no changes"
std::string human_counts(const session::ChangeCounts& counts);
std::string short_id(const session::ObjectId& id);

// Columns as wide as their widest cell; the last one is not padded.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "  path: the session modified it, the branch deleted it", a line each.
std::string conflict_lines(const std::vector<session::Conflict>& conflicts);
// "awaits approval of its result R[, until WHEN]: " and what can be done about it.
std::string awaiting_words(const session::SessionId& session, const session::ObjectId& result,
                              const std::optional<session::Timestamp>& expires);
// What a commit leaves out, a line for each kind and its first names; empty when there is nothing.
std::string omission_lines(const std::vector<session::Omission>& omissions, bool is_verbose);

}  // namespace escrow::daemon
