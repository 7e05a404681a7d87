// The parts of an event's document (openapi.yaml, x-events) that decide who may be told of it. Pure.
#pragma once

#include <functional>
#include <string>

namespace escrow::api {

// Of a branch, or of a session's branch; empty: of none.
std::string branch_of_event(const std::string& document);
// The document with those paths, and denials of those paths, that `may_read` takes; that there are more is said.
std::string event_with_paths(const std::string& document, const std::function<bool(const std::string& path)>& may_read);

}  // namespace escrow::api
