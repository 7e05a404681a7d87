// Where the record of what a session read is kept while it is open: <session>/reads, a file that only grows.
//
// Used by one thread at a time. Storage implements it. What is appended survives a kill of the process, and a power
// loss only after close(): load() says when something may be missing.
#pragma once

#include <string>
#include <string_view>

namespace escrow::session {

class ReadLog {
 public:
  virtual ~ReadLog() = default;

  // Of a session that is being opened: nothing was read so far.
  virtual void create() = 0;

  struct Loaded {
    std::string events;        // all that was appended, in order
    bool is_complete = false;  // false: the power may have taken some, or they could not be appended
  };
  // Before the first append of a process.
  virtual Loaded load() = 0;
  // Throws Error{no_space} and the like; then give_up() or nothing.
  virtual void append(std::string_view events) = 0;
  // From here on load() says that the record is not complete. Needs no room on the disk.
  virtual void give_up() = 0;
  // All is on disk: until the next append the record is complete whatever happens.
  virtual void close() = 0;
};

}  // namespace escrow::session
