#include "daemon/service/sessions/session_walk.h"

#include <charconv>
#include <cstdio>
#include <iterator>
#include <tuple>
#include <utility>

#include "api/problem.h"

namespace escrow::daemon {

using session::SessionRecord;
using storage::SessionOrder;

SessionWalk::SessionWalk(const std::vector<ServiceRepositories::Entry>& repositories,
                         const storage::SessionQuery& query)
    : order_(query.order) {
  for (const ServiceRepositories::Entry& repository : repositories) {
    if (repository.context) streams_.push_back({.repository = repository, .query = query, .batch = {}});
  }
}

void SessionWalk::fill(Stream& stream) {
  if (!stream.batch.empty() || stream.is_over) return;
  std::vector<SessionRecord> page = stream.repository.context->repository().sessions(stream.query);
  stream.is_over = page.size() < stream.query.limit;
  if (!page.empty()) stream.query.after = {page.back().created, page.back().id.text()};
  std::move(page.begin(), page.end(), std::back_inserter(stream.batch));
}

bool SessionWalk::comes_before(const SessionRecord& one, const SessionRecord& other) const {
  const auto age = [](const SessionRecord& record) { return std::tie(record.created, record.id); };
  switch (order_) {
    case SessionOrder::oldest_first:
      return age(one) < age(other);
    case SessionOrder::newest_first:
      return age(other) < age(one);
    case SessionOrder::by_id:
      return one.id < other.id;
  }
  return false;
}

std::optional<ServiceRepositories::Session> SessionWalk::next() {
  Stream* first = nullptr;
  for (Stream& stream : streams_) {
    fill(stream);
    if (stream.batch.empty()) continue;
    if (first == nullptr || comes_before(stream.batch.front(), first->batch.front())) first = &stream;
  }
  if (first == nullptr) return std::nullopt;
  ServiceRepositories::Session found{.repository = first->repository, .record = std::move(first->batch.front())};
  first->batch.pop_front();
  return found;
}

std::string list_position(const session::Timestamp& created, const session::SessionId& id) {
  char text[48];
  std::snprintf(text, sizeof text, "%020lld.%09u.", static_cast<long long>(created.seconds),
                static_cast<unsigned>(created.nanoseconds));
  return text + id.text();
}

storage::SessionPosition list_position_from(const std::string& text, bool is_by_id) {
  static constexpr std::size_t kSeconds = 20, kNanoseconds = 9, kId = kSeconds + 1 + kNanoseconds + 1;
  storage::SessionPosition position;
  const auto read = [&](std::size_t begin, std::size_t length, auto& value) {
    const char* const end = text.data() + begin + length;
    const auto [stopped, wrong] = std::from_chars(text.data() + begin, end, value);
    return wrong == std::errc() && stopped == end;
  };
  const bool has_time = is_by_id || (text.size() > kId && read(0, kSeconds, position.created.seconds) &&
                                     read(kSeconds + 1, kNanoseconds, position.created.nanoseconds));
  const auto id = has_time ? session::SessionId::parse(text.substr(is_by_id ? 0 : kId)) : std::nullopt;
  if (!id) {
    throw api::Problem(api::ProblemCode::invalid_value, "this is no cursor of this API", {{"field", "cursor"}});
  }
  position.id = id->text();
  return position;
}

}  // namespace escrow::daemon
