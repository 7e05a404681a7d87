#include "storage/repository/audit_proof.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/database/sqlite.h"

namespace escrow::storage {

using session::ObjectId;
using session::SessionId;

namespace {

constexpr std::string_view kAuditPrefix = "Escrow-";
constexpr std::string_view kSessionTrailer = "Escrow-Session";

}  // namespace

// The commits of a session: the last one, and its first parents until the one that it was made on.
struct AuditProof::Made {
  ObjectId last;
  std::optional<ObjectId> made_on;  // nullopt: the branch did not exist
};

struct AuditProof::Catalog {
  explicit Catalog(const std::string& path) : database(path, {}) { database.keep_log(); }

  // nullopt: the session is unknown or made no commit. The branch moves before a row says so: one that is committing
  // has made its commits.
  std::optional<Made> find(const SessionId& id) {
    auto run = read_commits.run(id.text());
    if (!run.next() || run.is_null(0)) return std::nullopt;
    const std::optional<ObjectId> last = ObjectId::from_hex(run.bytes(0));
    if (!last) return std::nullopt;  // a damaged row confirms nothing; verify names it
    return Made{*last, run.is_null(1) ? std::nullopt : ObjectId::from_hex(run.bytes(1))};
  }

  Database database;
  Statement read_commits{database,
                         "SELECT coalesce(\"commit\", swap_to), swap_from FROM session "
                         "WHERE id = ?1 AND state IN ('committing', 'committed')"};
};

AuditProof::AuditProof(const GitObjectStore& objects, std::string catalog_path)
    : objects_(objects), catalog_path_(std::move(catalog_path)) {}
AuditProof::~AuditProof() = default;

bool AuditProof::is_claimed(const LogEntry& entry) {
  const auto is_ours = [](const auto& trailer) { return trailer.first.starts_with(kAuditPrefix); };
  if (std::ranges::none_of(entry.trailers, is_ours)) return false;
  const auto named = std::ranges::find_if(entry.trailers, [](const auto& one) { return one.first == kSessionTrailer; });
  const auto session = named == entry.trailers.end() ? std::nullopt : SessionId::parse(named->second);
  if (!session) return true;
  if (session_ != session) {
    if (!catalog_) catalog_ = std::make_unique<Catalog>(catalog_path_);
    const std::optional<Made> made = catalog_->find(*session);
    commits_ = made ? all_of(*made, entry) : std::set<ObjectId>();
    session_ = session;
  }
  return !commits_.contains(entry.id);
}

// More than one with --git-commits keep. gc may have removed them when the branch was rewritten.
std::set<ObjectId> AuditProof::all_of(const Made& made, const LogEntry& known) const {
  std::set<ObjectId> commits{made.last};
  for (ObjectId at = made.last; at == known.id || objects_.contains(at);) {
    const std::vector<ObjectId> parents =
        at == known.id ? known.commit.parents : objects_.read_commit(at).parents;
    if (parents.size() != 1 || parents.front() == made.made_on) break;
    commits.insert(at = parents.front());
  }
  return commits;
}

}  // namespace escrow::storage
