#include "daemon/host/session_cut.h"

#include <cstdint>

#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using namespace std::chrono_literals;

// How long each attempt holds calls back for the dirty pages. A cut normally takes milliseconds. Over io_uring a call
// that is held back can block the helper that brings the pages in; the next attempt may find another processor free.
constexpr std::chrono::milliseconds kPatience[] = {125ms, 250ms, 500ms, 1000ms, 2000ms};

// With a write-back cache what a program wrote first may come in last: only a round that brings in nothing shows one
// moment of all files.
bool is_one_moment(const fuse::Mount& mount, const BringInPages& bring_in_pages, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until) {
    const std::uint64_t before = mount.writes();
    if (!bring_in_pages(patience)) return false;
    if (mount.writes() == before) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<SessionCut> try_cut(session::WriteGate& gate, const fuse::Mount& mount, bool writes_back,
                                    const BringInPages& bring_in_pages) {
  for (const std::chrono::milliseconds patience : kPatience) {
    bring_in_pages(fuse::HelperProcess::kForEver);
    auto cut = std::make_unique<SessionCut>(gate);
    if (!bring_in_pages(patience) || (writes_back && !is_one_moment(mount, bring_in_pages, patience))) continue;
    cut->everything.emplace(gate);
    return cut;
  }
  return nullptr;
}

void refuse_without_cut(const std::string& verb, const session::SessionId& id) {
  throw session::Error(session::Errc::busy, "cannot " + verb + " session " + id.text() +
                                                ": programs go on writing to it, and there is no moment that has all "
                                                "they wrote; let them pause, and try again");
}

void refuse_under_write_back(const std::string& verb, const session::SessionId& id) {
  throw session::Error(session::Errc::wrong_state,
                       "cannot " + verb + " session " + id.text() +
                           " while it is mounted with --io writeback, where only programs in the mount can change "
                           "files; unmount it and try again");
}

void refuse_to_commit_without_cut(const session::SessionId& id) {
  throw session::Error(session::Errc::busy, "cannot commit session " + id.text() +
                                                ": programs go on writing to it, and with --io writeback there is no "
                                                "moment that has all they wrote; let them pause or end, and commit "
                                                "again");
}

}  // namespace escrow::daemon
