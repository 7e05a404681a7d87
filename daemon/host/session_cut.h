// One moment of a mounted session: what programs wrote before it is in, and nobody is refused anything.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "fuse/mount.h"
#include "session/base/ids.h"
#include "session/decorators/write_gate.h"

namespace escrow::daemon {

// As long as it lives, nothing changes.
struct SessionCut {
  explicit SessionCut(session::WriteGate& gate) : calls(gate) {}
  session::WriteGate::Hold calls;
  std::optional<session::WriteGate::Pause> everything;
};

// Brings the kernel's dirty pages to the session; false: not all of them in time.
using BringInPages = std::function<bool(std::chrono::milliseconds patience)>;

// A store through a mapping that came before a call in the cut is in the cut, too: calls wait first, then pages come
// in. That takes milliseconds once most pages are in. nullptr: the calls that wait keep the pages from being served
// (io_uring has one thread per processor; a writer may hold its file's lock), or with `writes_back` they go on coming.
std::unique_ptr<SessionCut> try_cut(session::WriteGate& gate, const fuse::Mount& mount, bool writes_back,
                                    const BringInPages& bring_in_pages);

// Error{busy}: there is no such moment.
[[noreturn]] void refuse_without_cut(const std::string& verb, const session::SessionId& id);
// Error{wrong_state}: the kernel keeps the size of a file that it writes back, whatever it is told.
[[noreturn]] void refuse_under_write_back(const std::string& verb, const session::SessionId& id);
[[noreturn]] void refuse_to_commit_without_cut(const session::SessionId& id);

}  // namespace escrow::daemon
