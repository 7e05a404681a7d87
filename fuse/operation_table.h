// The operations that libfuse calls, one per kind of request. Constant; the user data is a Service (reply.h).
#pragma once

#include "fuse/libfuse.h"

namespace escrow::fuse {

fuse_lowlevel_ops operation_table();

}  // namespace escrow::fuse
