// A quarantine as an object database backend, so that libgit2's diff sees objects that are not in the repository yet.
// The quarantine must outlive the database; used by one thread, like the handle it is added to.
#pragma once

#include "storage/git/git_handle.h"
#include "storage/objects/quarantine.h"

namespace escrow::storage {

// Throws Error{damaged_repository}.
void add_quarantine_backend(git_odb* odb, const GitQuarantine& quarantine);

}  // namespace escrow::storage
