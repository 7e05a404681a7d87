// An entry of a session's mount table as people and programs are shown it: `escrow status`, results of runs.
#pragma once

#include <string>

namespace escrow::api {

struct MountEntryView {
  std::string path;    // below the mount's root
  std::string source;  // "host:DIR" or "scratch"
  std::string mode;    // "read-only" or "read-write"
  bool hides = false;  // something that the repository has at the path
  bool outside_transaction = false;  // what is written there stays, whatever becomes of the session
};

}  // namespace escrow::api
