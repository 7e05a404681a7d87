#include "session/interfaces/session_record.h"

#include <array>
#include <string_view>

#include "session/base/error.h"

namespace escrow::session {
namespace {

constexpr std::size_t kLongestAuditValue = 1024;

constexpr std::array kStates = {State::open,      State::awaiting_approval, State::committing,
                                State::committed, State::commit_failed,     State::rolled_back};

constexpr std::array kReasons = {Reason::none,        Reason::success,   Reason::no_changes, Reason::conflict,
                                 Reason::exit_status, Reason::signal,    Reason::cancelled,  Reason::timed_out,
                                 Reason::oom,         Reason::not_started, Reason::requested, Reason::host_lost,
                                 Reason::rejected,    Reason::expired,   Reason::lease_expired};

template <typename Values>
auto value_named(const Values& values, std::string_view name) {
  for (const auto value : values)
    if (name == name_of(value)) return std::optional(value);
  return std::optional<typename Values::value_type>();
}

// ASCII controls, DEL, and the C1 controls as UTF-8 (c2 80 .. c2 9f), among them the "next line" of some terminals.
bool has_control_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

}  // namespace

const char* name_of(Isolation isolation) {
  switch (isolation) {
    case Isolation::snapshot: return "snapshot";
    case Isolation::serializable: return "serializable";
  }
  return "?";
}

std::optional<Isolation> isolation_from_name(std::string_view name) {
  return value_named(std::array{Isolation::snapshot, Isolation::serializable}, name);
}

const char* name_of(State state) {
  switch (state) {
    case State::open: return "open";
    case State::awaiting_approval: return "awaiting_approval";
    case State::committing: return "committing";
    case State::committed: return "committed";
    case State::commit_failed: return "commit_failed";
    case State::rolled_back: return "rolled_back";
  }
  return "?";
}

const char* name_of(Attachment attachment) {
  switch (attachment) {
    case Attachment::none: return "none";
    case Attachment::mounted: return "mounted";
    case Attachment::lost: return "lost";
  }
  return "?";
}

const char* name_of(Reason reason) {
  switch (reason) {
    case Reason::none: return "none";
    case Reason::success: return "success";
    case Reason::no_changes: return "no_changes";
    case Reason::conflict: return "conflict";
    case Reason::exit_status: return "exit_status";
    case Reason::signal: return "signal";
    case Reason::cancelled: return "cancelled";
    case Reason::timed_out: return "timed_out";
    case Reason::oom: return "oom";
    case Reason::not_started: return "not_started";
    case Reason::requested: return "requested";
    case Reason::host_lost: return "host_lost";
    case Reason::rejected: return "rejected";
    case Reason::expired: return "expired";
    case Reason::lease_expired: return "lease_expired";
  }
  return "?";
}

bool is_final(State state) {
  switch (state) {
    case State::open:
    case State::awaiting_approval:
    case State::committing: return false;
    case State::committed:
    case State::commit_failed:
    case State::rolled_back: return true;
  }
  return false;
}

void strengthen(SessionOptions& options, const BranchRule& rule) {
  options.require_approval = options.require_approval || rule.require_approval;
  std::int64_t& expires = options.approval_expires_s;
  if (rule.approval_expires_s > 0 && (expires == 0 || rule.approval_expires_s < expires))
    expires = rule.approval_expires_s;
}

std::optional<State> state_from_name(std::string_view name) { return value_named(kStates, name); }
std::optional<Reason> reason_from_name(std::string_view name) { return value_named(kReasons, name); }

void check_audit_value(std::string_view value, std::string_view what) {
  if (value.size() > kLongestAuditValue)
    throw Error(Errc::bad_request, std::string(what) + " is " + std::to_string(value.size()) +
                                       " bytes long; at most 1024 are allowed");
  if (has_control_character(value))
    throw Error(Errc::bad_request,
                std::string(what) + " holds a newline or another control character; give one line of plain text");
}

void note_container(Audit& audit, const Container& container) {
  check_audit_value(container.image, "the image");
  check_audit_value(container.trigger_id, "the trigger's id");
  if (!container.image.empty()) audit.image = container.image;
  if (!container.trigger_id.empty()) audit.trigger_id = container.trigger_id;
}

void check_principal(std::string_view principal, std::string_view what) {
  check_audit_value(principal, what);
  for (const std::string_view kind : {"user:", "agent:", "role:"}) {
    if (!principal.starts_with(kind)) continue;
    const std::string_view name = principal.substr(kind.size());
    // '<' and '>' would end the name in a git author line; git drops blanks at the ends.
    if (!name.empty() && name.find_first_of("<>") == name.npos && name.front() != ' ' && name.back() != ' ') return;
  }
  throw Error(Errc::bad_request, std::string(what) + " '" + std::string(principal) +
                                     "' is not user:NAME, agent:NAME or role:NAME (a NAME without '<' and '>')");
}

}  // namespace escrow::session
