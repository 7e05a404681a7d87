#include "storage/database/session_query_sql.h"

#include <algorithm>
#include <vector>

namespace escrow::storage {
namespace {

using session::SessionId;

// 'g' sorts behind every hexadecimal digit.
constexpr char kBehindIds = 'g';

bool is_hexadecimal(const std::string& text) {
  return text.size() <= SessionId::kSize && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string quoted(const std::string& hexadecimal) { return "'" + hexadecimal + "'"; }

std::string order_of(const SessionQuery& query) {
  switch (query.order) {
    case SessionOrder::oldest_first:
      return " ORDER BY created_s, created_ns, id";
    case SessionOrder::newest_first:
      return " ORDER BY created_s DESC, created_ns DESC, id DESC";
    case SessionOrder::by_id:
      return " ORDER BY id";
  }
  return "";
}

std::string behind(const SessionQuery& query) {
  const SessionPosition& after = *query.after;
  if (query.order == SessionOrder::by_id) return "id > " + quoted(after.id);
  const char* const sign = query.order == SessionOrder::oldest_first ? " > (" : " < (";
  return "(created_s, created_ns, id)" + std::string(sign) + std::to_string(after.created.seconds) + ", " +
         std::to_string(after.created.nanoseconds) + ", " + quoted(after.id) + ")";
}

std::string conditions_of(const SessionQuery& query) {
  std::vector<std::string> all;
  // By its "+" SQLite leaves a column's index alone: the primary key has the order, which costs least.
  const std::string plus = query.order == SessionOrder::by_id ? "+" : "";
  if (query.issuer) all.push_back(plus + "issuer = ?1");
  if (query.state) all.push_back(plus + "state = '" + session::name_of(*query.state) + "'");
  if (query.has_ended || (query.state && !session::is_final(*query.state))) {
    all.push_back(query.has_ended.value_or(false) ? "NOT (" + std::string(kIsUnended) + ")" : std::string(kIsUnended));
  }
  if (!query.id_prefix.empty()) {
    all.push_back("id >= " + quoted(query.id_prefix) + " AND id < " + quoted(query.id_prefix + kBehindIds));
  }
  if (query.changed_since) {
    all.push_back("(changed_s, changed_ns) >= (" + std::to_string(query.changed_since->seconds) + ", " +
                  std::to_string(query.changed_since->nanoseconds) + ")");
  }
  if (query.after) all.push_back(behind(query));
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? " WHERE " : " AND ") + one;
  return text;
}

// Named, so that no statistics and no later SQLite choose another.
std::string index_of(const SessionQuery& query) {
  if (query.order == SessionOrder::by_id) return "";
  if (query.changed_since) return " INDEXED BY session_by_change";
  const bool is_unended = query.has_ended == false || (query.state && !session::is_final(*query.state));
  if (is_unended && query.has_ended != true) return " INDEXED BY session_unended";
  if (query.issuer && query.state) return " INDEXED BY session_by_issuer_and_state";
  if (query.issuer) return " INDEXED BY session_by_issuer";
  if (query.state) return " INDEXED BY session_by_state";
  return " INDEXED BY session_by_age";
}

// That no state is final and not at once.
bool is_contradiction(const SessionQuery& query) {
  return query.state && query.has_ended && session::is_final(*query.state) != *query.has_ended;
}

}  // namespace

std::optional<std::string> sql_of(const SessionQuery& query, std::string_view columns) {
  if (is_contradiction(query) || !is_hexadecimal(query.id_prefix)) return std::nullopt;
  if (query.after && !is_hexadecimal(query.after->id)) return std::nullopt;
  const std::string rest = conditions_of(query) + order_of(query) + " LIMIT " + std::to_string(query.limit);
  const std::string select = "SELECT " + std::string(columns) + " FROM session";
  // The whole rows of those alone that are on the page.
  if (query.changed_since) {
    return select + " WHERE id IN (SELECT id FROM session" + index_of(query) + rest + ")" + order_of(query);
  }
  return select + index_of(query) + rest;
}

// All but what never changes, so that the indexes of that stay as they are.
std::string sql_update(std::string_view columns) {
  std::string sql = "UPDATE session SET ";
  int number = 0;
  bool is_first = true;
  for (std::size_t start = 0; start < columns.size();) {
    const std::size_t end = std::min(columns.find(", ", start), columns.size());
    const std::string_view column = columns.substr(start, end - start);
    start = end + 2;
    ++number;
    if (column == "id" || column == "issuer" || column == "created_s" || column == "created_ns") continue;
    sql += (is_first ? "" : ", ") + std::string(column) + " = ?" + std::to_string(number);
    is_first = false;
  }
  return sql + " WHERE id = ?1";
}

}  // namespace escrow::storage
