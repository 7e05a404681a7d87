// The system calls that can be made to fail, or at which a process can be killed: where each names its file, which
// errors it may end with, and whether it changes anything. Sources: the manual pages of section 2, and what Linux file
// systems return beyond them (btrfs needs room to delete, network file systems answer anything with EIO).
#pragma once

#include <cstdint>
#include <string_view>

namespace escrow::test {

// How a call names the file that it is about.
enum class Names : std::uint8_t {
  descriptor,       // argument 0
  path,             // argument 0
  path_at,          // arguments 0 and 1
  path_at_second,   // arguments 1 and 2
  two_paths,        // arguments 0 and 1
  two_paths_at,     // arguments 0 and 1, 2 and 3
  output,           // a descriptor, argument 2: copy_file_range
  mapping,          // a descriptor, argument 4
  nothing,          // the call makes a descriptor or a process
};

struct Call {
  int number;
  std::string_view name;
  Names names;
  std::string_view errors;  // between blanks
  bool changes;             // what is on disk, or may be
};

// Null: it is never made to fail. Some are judged by their arguments too: see syscall_faults.cc.
const Call* find_call(int number);

// All of them, for the filter.
const Call* begin_calls();
const Call* end_calls();

}  // namespace escrow::test
