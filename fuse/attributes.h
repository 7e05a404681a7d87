// Attributes as the kernel's messages carry them: struct stat there, session::Attributes here. Pure functions.
#pragma once

#include <sys/stat.h>

#include "fuse/libfuse.h"
#include "fuse/mount.h"
#include "session/interfaces/file_system.h"

namespace escrow::fuse {

// For names, attributes and names that do not exist: nothing changes them behind the kernel's back, but for
// Mount::invalidate_*. libfuse and the kernel clamp it to what their clocks can hold.
inline constexpr double kForever_s = 365.0 * 86400.0;

// How long the kernel may believe them: for ever, or not at all where they change without a message. With a
// write-back cache a second: the blocks of a file change when it is written back, and the kernel does not count them.
double attributes_timeout_s(const session::Attributes& attributes, Data data);

struct stat stat_of(const session::Attributes& attributes);
fuse_entry_param entry_of(const session::Attributes& attributes, Data data);
// `to_set` are libfuse's FUSE_SET_ATTR_ bits, of which only those it names concern `values`.
session::AttributeChange change_of(const struct stat& values, int to_set);

}  // namespace escrow::fuse
