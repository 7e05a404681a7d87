// The tables of Escrow's three kinds of SQLite databases in a repository, and how older ones become new ones.
//
// `user_version` counts the migrations that were applied, `application_id` tells our files from others'. Migrations
// only go forward, each database's in one transaction. Throws Error{newer_state}, Error{damaged_repository}.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "storage/database/sqlite.h"

namespace escrow::storage {

struct Schema {
  const char* title;                        // for messages: "session catalog"
  std::int32_t application_id;
  std::span<const char* const> migrations;  // [n] takes version n to n + 1
};

// <state>/catalog.db
const Schema& catalog_schema();
// <session>/session.db
const Schema& session_schema();
// <state>/times.db
const Schema& times_schema();

// Opens or creates a database whose transactions are on disk when they are committed: WAL, synchronous=FULL.
Database open_durable(const std::string& path, const Schema& schema);

// Brings `database` to the schema's newest version; an empty database gets all of it. Safe between processes.
void migrate(Database& database, const Schema& schema);

}  // namespace escrow::storage
