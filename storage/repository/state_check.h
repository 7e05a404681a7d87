// What `escrow verify` asks of Escrow's own state: are the databases sound, does every row mean something, do rows
// and files agree. Nothing is changed. A fault is an entry of the answer, never an exception. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "storage/repository/repository.h"

namespace escrow::storage {

// <state>/catalog.db. A missing one is a problem.
std::vector<Problem> check_catalog(const std::string& database_path);

// <state>/times.db, an index: a missing one is none, and a damaged one is made anew by the next opening.
std::vector<Problem> check_times(const std::string& database_path);

// One session's directory: `lock`, `session.db`, and `staging/` against its rows. A session that a process holds is
// not looked into: it changes meanwhile. `session` is for the texts.
std::vector<Problem> check_session_directory(const std::string& directory, const std::string& session);

}  // namespace escrow::storage
