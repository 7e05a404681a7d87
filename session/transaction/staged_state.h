// What a session has staged, as a series of parts, and a new session made of such a series: how a session moves to
// another copy of its repository.
//
// The parts are what differs from the session's base commit, by path: names, attributes, extended attributes, links and
// bytes. Savepoints, mount entries and names that git refuses are no part of it. Whoever reads the parts trusts nothing
// in them: each is checked as it comes, and what is made of them is no session before all of them were there.
// Not thread-safe. Throws what the overlay throws, and Error{bad_request} for parts that cannot be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/interfaces/session_record.h"
#include "session/overlay/overlay.h"
#include "session/transaction/session.h"

namespace escrow::session {

// A name of the session that the base does not have so. Parents come before what is in them.
struct StagedName {
  std::string path;        // from the mount's root, which is ""
  std::uint32_t mode = 0;  // with the type bits of <sys/stat.h>
  std::uint32_t uid = 0, gid = 0, rdev = 0;
  Timestamp accessed, modified;
  std::string target;       // of a symlink
  std::string same_as;      // the path of an earlier name of the same file; then nothing but the path counts
  std::optional<ObjectId> submodule;     // then only this and the path count
  std::optional<std::string> base_path;  // a file whose bytes are the base's there, below the mount's root
  std::uint64_t size_bytes = 0;          // of a file that has its own bytes: what no part gives is zeroes
  std::vector<std::pair<std::string, std::string>> xattrs;
};

class StagedParts {
 public:
  virtual ~StagedParts() = default;
  // First. Of the record: id, base, unresolved paths, message, and the options that are of the state.
  virtual void begin(const SessionRecord& record) = 0;
  // What the base has there is gone, with all below it. Before a name that takes its place.
  virtual void removed(const std::string& path) = 0;
  virtual void name(const StagedName& name) = 0;
  // Of the file that was named last, in ascending order.
  virtual void bytes(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // A name that git refuses, which is left out with all below it.
  virtual void left_out(const std::string& path) = 0;
  // Last.
  virtual void end() = 0;
};

// A session as it is, behind a savepoint that nobody asked for, to be sent while it goes on. `is_cut` is called once
// what comes later is no part of it: writers may go on. Throws as Session::create_savepoint() does, and
// Error{data_lost} with files that lack what programs stored in them, Error{wrong_state} for a serializable session.
class KeptToExport {
 public:
  KeptToExport(Session& session, const std::function<void()>& is_cut);
  // Drops the savepoint, unless the session has ended.
  ~KeptToExport();
  KeptToExport(const KeptToExport&) = delete;
  KeptToExport& operator=(const KeptToExport&) = delete;

  const SessionRecord& record() const { return record_; }
  Overlay& overlay() { return *overlay_; }

 private:
  Session& session_;
  const SessionRecord record_;
  const std::string savepoint_;
  std::unique_ptr<Overlay> overlay_;
};

// `overlay` is the session's, or what it was at a savepoint; nobody changes it meanwhile. Memory does not grow with the
// bytes.
void send_staged_state(Overlay& overlay, const SessionRecord& record, const ObjectReader& objects, StagedParts& to);

// Makes an open session, on `branch` or, when that is empty, on the branch that the parts name. `feed` sends the parts,
// and throws when they are not all there. The base commit and, unless there is none, the branch must exist. Whatever
// fails leaves nothing; the session is in the catalog once all of it is on disk. `who` is its committer.
std::unique_ptr<Session> open_from_staged_state(const Services& services, const std::string& branch,
                                                const std::string& who,
                                                const std::function<void(StagedParts& to)>& feed,
                                                const PrepareFor& prepare = {});

}  // namespace escrow::session
