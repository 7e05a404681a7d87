// Making, adopting and finding repositories with Escrow's state. Functions; safe between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/bucket/bucket.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// The layout of <gitdir>/escrow/ that this version reads and writes; <state>/version holds it.
inline constexpr std::int64_t kStateVersion = 1;

// Throws Error{no_repository} without state, Error{newer_state}, Error{damaged_repository}.
void check_state_version(const std::string& git_directory);

// Throws Error{damaged_repository} when <state>/catalog.db is not there or empty: a catalog that is made anew knows no
// session.
void check_catalog_is_there(const std::string& state);

// A repository in object storage, with what this machine keeps of it: another repository, which Repository::open() then
// opens, and its catalog of sessions as Repository::init() says. Throws Error{no_repository} when the bucket has none.
std::unique_ptr<Bucket> open_bucket(const std::string& place,
                                    Repository::Catalog catalog = Repository::Catalog::keep);

}  // namespace escrow::storage
