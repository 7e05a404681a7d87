// The files of SQLite databases: a VFS that is SQLite's own but for two points.
//
// A file is never opened for reading only unless its user has no right to write it. SQLite's VFS does so whatever the
// reason (os_unix.c: unixOpen(), unixOpenSharedMemory()), and a connection that is made while the process has no
// descriptor left could then never write.
//
// A transaction that could not be synced is taken out of the write-ahead log again. SQLite reports that it failed, and
// leaves it in the log whole, commit mark included. A process that reads the log anew, after a kill or when all
// connections have been closed, would take it for committed (wal.c: walFrames(), walIndexRecover()). The log is cut off
// before the commit mark, which works on a full disk, too. Only a power loss right then may bring the transaction back.
//
// Thread-safe. Sources: sqlite.org/vfs.html, sqlite.org/fileformat2.html section 4.
#pragma once

namespace escrow::storage {

// The name of the VFS, for sqlite3_open_v2().
const char* files_of_databases();

}  // namespace escrow::storage
