// An error of the machine that passes, as when no descriptor is left for a moment: nothing is concluded from it.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "session/base/error.h"
#include "storage/database/sqlite_session_catalog.h"
#include "tests/support/sample_record.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::SessionRecord;
using support::SystemCall;

// SQLite then opens it for reading, and has no errno to give: nobody may be told that he has no right.
TEST(PassingErrors, ADatabaseThatCouldNotBeOpenedForWritingIsNotReadOnly) {
  const support::TemporaryDirectory directory;
  const std::string path = directory.path() + "/catalog.db";
  const SessionRecord first = support::sample_record(session::SessionId::generate());
  SqliteSessionCatalog(path).insert(first);
  for (const std::string& file : {path, path + "-wal"}) {
    const support::WatchedSystemCalls once(
        [&, is_struck = false](const SystemCall& call) mutable {
          if (is_struck || call.name != "open" || call.path != file) return 0;
          is_struck = true;
          return EMFILE;
        });
    try {
      SqliteSessionCatalog(path).insert(support::sample_record(session::SessionId::generate()));
      ADD_FAILURE() << file << " was opened all the same";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::input_output) << error.what();
    }
  }
  EXPECT_TRUE(SqliteSessionCatalog(path).find(first.id));
}

}  // namespace
}  // namespace escrow::storage
