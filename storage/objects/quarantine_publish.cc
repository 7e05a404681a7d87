// The half of GitQuarantine that makes a session's objects the repository's, or gives them up.
#include <algorithm>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/lock_file.h"
#include "storage/disk/remove_tree.h"
#include "storage/objects/quarantine.h"
#include "storage/objects/reachable.h"

namespace escrow::storage {

using session::ObjectId;
using session::Tree;

// While it is there gc takes no .keep file for abandoned. When it goes, packs that a reference holds by then lose their
// .keep files.
class GitQuarantine::Guard final : public session::Quarantine::Published {
 public:
  explicit Guard(GitQuarantine& quarantine)
      : quarantine_(quarantine), gc_lock_(lock_file(quarantine.gc_lock_path_, LockKind::shared)) {}
  ~Guard() override {
    try {
      quarantine_.release_if_referenced();
    } catch (const std::exception&) {
      // The packs keep their .keep files and stay listed: nothing is lost, and the next one looks again.
    }
  }

 private:
  GitQuarantine& quarantine_;
  const UniqueFd gc_lock_;
};

// Each step may be taken again: what an earlier attempt published, for this root or another, is kept and counts.
std::unique_ptr<session::Quarantine::Published> GitQuarantine::publish(const ObjectId& root) {
  auto guard = std::make_unique<Guard>(*this);
  const std::vector<ObjectId> wanted = collect(root);
  // Before the pointers, so that nobody finds one whose object is not there.
  lfs_.publish(wanted);
  write_packs(wanted, root);
  // recent() looks once per tick of the clock: this listing shows it the new packs within the same tick, too.
  if (!wanted.empty()) store_.directory().packs();
  // Also when nothing is new: an earlier attempt may have failed just here.
  if (!wanted.empty() || !publications_.empty()) sync_directory(pool_.git_directory() + "/objects/pack");
  return guard;
}

// Visits what `root` reaches as far as it is the session's own. A tree's counterpart is the tree at the same path in
// the first parent: what both have is the repository's for good, because a reference or a pin holds that parent.
struct GitQuarantine::Walk {
  GitQuarantine& quarantine;
  std::vector<std::shared_ptr<const PackFile>> published;  // packs whose .keep still stands
  std::unordered_set<ObjectId> seen;
  std::vector<ObjectId> wanted;
  struct Pending {
    ObjectId id;
    std::optional<ObjectId> counterpart;
  };
  std::vector<Pending> pending;

  // Whether the session put `id`; what it borrowed becomes its own, so that the pack holds it. Any other object has to
  // be the repository's, or about to be: nothing is published that misses one.
  bool claim(const ObjectId& id) {
    if (!seen.insert(id).second) return false;
    if (!quarantine.find(id)) {
      if (!quarantine.contents_.lock()->borrowed.contains(id)) {
        // In this order: what another session holds is in the repository before it goes from there.
        if (quarantine.other_with(id) == nullptr && !quarantine.contains(id)) throw_missing(id);
        return false;
      }
      quarantine.store_again(id);
    }
    const bool done = std::any_of(published.begin(), published.end(), [&](const auto& pack) { return pack->find(id); });
    if (!done) wanted.push_back(id);
    return true;
  }

  [[noreturn]] static void throw_missing(const ObjectId& id) {
    throw session::Error(session::Errc::input_output, "the object " + id.hex() + ", which the commit needs, is neither "
                                                      "in the session nor in the repository; run escrow verify");
  }

  void visit(const Pending& item) {
    const auto header = quarantine.own_header(item.id);
    if (header->first == ObjectType::commit) visit_commit(item.id);
    if (header->first == ObjectType::tree) visit_tree(item);
  }

  void visit_commit(const ObjectId& id) {
    const session::Commit commit = quarantine.read_commit(id);
    std::optional<ObjectId> counterpart;
    for (const ObjectId& parent : commit.parents) {
      if (claim(parent)) pending.push_back({parent, std::nullopt});
      else if (!counterpart) counterpart = quarantine.read_commit(parent).tree;
    }
    if (counterpart != commit.tree && claim(commit.tree)) pending.push_back({commit.tree, counterpart});
  }

  void visit_tree(const Pending& item) {
    const Tree before = item.counterpart ? quarantine.read_tree(*item.counterpart) : Tree();
    std::unordered_map<std::string_view, const session::TreeEntry*> by_name;
    for (const auto& entry : before) by_name.emplace(entry.name, &entry);
    for (const auto& entry : quarantine.read_tree(item.id)) {
      if (entry.mode == session::GitMode::gitlink) continue;
      const auto found = by_name.find(entry.name);
      const bool was_there = found != by_name.end() && found->second->mode != session::GitMode::gitlink;
      if (was_there && found->second->id == entry.id) continue;
      if (!claim(entry.id) || entry.mode != session::GitMode::tree) continue;
      const bool was_tree = was_there && found->second->mode == session::GitMode::tree;
      pending.push_back({entry.id, was_tree ? std::optional(found->second->id) : std::nullopt});
    }
  }
};

std::vector<ObjectId> GitQuarantine::collect(const ObjectId& root) {
  Walk walk{*this, publications_.kept(), {}, {}, {}};
  if (walk.claim(root)) walk.pending.push_back({root, std::nullopt});
  while (!walk.pending.empty()) {
    const Walk::Pending item = walk.pending.back();
    walk.pending.pop_back();
    walk.visit(item);
  }
  return std::move(walk.wanted);
}

void GitQuarantine::store_again(const ObjectId& id) {
  const bool here = store_.contains(id);
  if (here && store_.header(id).second > kLargeBlobBytes) {
    const auto source = store_.open_blob(id);
    auto writer = std::make_shared<PackWriter>(next_path("tmp_large_"), 1);
    writer->add_blob(*source);
    store_large(std::move(writer), id, source->size());
    return;
  }
  const RawObject object = here ? store_.read_object(id) : read_borrowed(id);
  store(id, object.type, object.content);
}

void GitQuarantine::write_packs(const std::vector<ObjectId>& wanted, const ObjectId& root) {
  std::vector<std::pair<ObjectId, Stored>> small;
  for (const ObjectId& id : wanted) {
    const Stored stored = *find(id);
    if (!stored.own_pack) {
      small.emplace_back(id, stored);
      continue;
    }
    stored.own_pack->finish();
    publications_.install(stored.own_pack->stem(), root, true);
  }
  if (small.empty()) return;
  // In the order in which they lie in their files, so that copying reads forward.
  const auto place = [](const auto& one) { return std::pair(one.second.file->get(), one.second.offset); };
  std::sort(small.begin(), small.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  PackWriter writer(next_path("tmp_pack_"), static_cast<std::uint32_t>(small.size()));
  for (const auto& [id, stored] : small) {
    writer.add_copy(id, stored.file->get(), stored.offset, stored.length);
    if (writer.last_crc() != stored.crc)
      throw session::Error(session::Errc::input_output,
                           "the object " + id.hex() + " of the session was damaged on its way to the disk; mount the "
                           "session again and commit: it is then made anew from the session's files");
  }
  writer.finish();
  publications_.install(writer.stem(), root, false);
}

// When a reference holds one root, every pack may be needed, because later publications leave out what earlier ones
// hold. When none does, the packs stay protected for the next attempt. A result that may yet be rejected, under
// refs/sessions/, is no reason to let go.
void GitQuarantine::release_if_referenced() {
  const std::vector<Publications::Pack> packs = publications_.packs();
  if (packs.empty()) return;
  const auto repository = pool_.borrow();
  const bool referenced = std::any_of(packs.rbegin(), packs.rend(), [&](const Publications::Pack& one) {
    return is_referenced(repository.get(), one.root);
  });
  if (referenced) publications_.release();
}

// Nothing that git could see is removed: a push under way may rely on it, which has not stored what it found here. What
// was published is garbage from now on, and goes with gc.
void GitQuarantine::discard() {
  publications_.release();
  clear_files();
}

void GitQuarantine::clear_files() {
  auto contents = contents_.lock();
  *contents = Contents();
  lfs_.forget();
  remove_inside(directory_, {"published"});
}

}  // namespace escrow::storage
