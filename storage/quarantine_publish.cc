// The half of GitQuarantine that makes a session's objects the repository's, or makes them vanish.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "session/error.h"
#include "storage/durable_file.h"
#include "storage/gc_lock.h"
#include "storage/git_error.h"
#include "storage/quarantine.h"
#include "storage/reachable.h"
#include "storage/still_needed.h"

#include <fcntl.h>

namespace escrow::storage {

namespace fs = std::filesystem;
using session::ObjectId;
using session::Tree;

// Holds gc off; when it goes, packs that a reference holds by then lose their .keep files, and copies of what the
// repository had before lose theirs in any case.
class GitQuarantine::Guard final : public session::Quarantine::Published {
 public:
  Guard(GitQuarantine& quarantine, UniqueFd gc_lock, std::vector<std::string> copies)
      : quarantine_(quarantine), gc_lock_(std::move(gc_lock)), copies_(std::move(copies)) {}
  ~Guard() override {
    quarantine_.settle(false);
    for (const std::string& stem : copies_) release_pack(stem);
  }

 private:
  GitQuarantine& quarantine_;
  const UniqueFd gc_lock_;
  const std::vector<std::string> copies_;  // stems
};

std::unique_ptr<session::Quarantine::Published> GitQuarantine::publish(const ObjectId& root) {
  UniqueFd gc_lock = take_gc_lock(gc_lock_path_, LockKind::shared);
  const std::vector<ObjectId> wanted = collect(root);
  // Apart: what the repository has already must stay when the session takes its own back.
  std::vector<ObjectId> own, copies;
  const auto packs = store_.directory().packs();
  for (const ObjectId& id : wanted) {
    const bool here = contents_.lock()->borrowed.contains(id) || store_.directory().is_in(packs, id);
    (here ? copies : own).push_back(id);
  }
  if (!wanted.empty()) begin_list();
  for (const std::string& stem : write_packs(own)) record_publication(stem, root);
  return std::make_unique<Guard>(*this, std::move(gc_lock), write_packs(copies));
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

  // Whether the session put `id`; what it borrowed becomes its own, so that the pack holds it.
  bool claim(const ObjectId& id) {
    if (!seen.insert(id).second) return false;
    if (!quarantine.find(id)) {
      if (!quarantine.contents_.lock()->borrowed.contains(id)) return false;
      quarantine.store_again(id);
    }
    const bool done = std::any_of(published.begin(), published.end(), [&](const auto& pack) { return pack->find(id); });
    if (!done) wanted.push_back(id);
    return true;
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
  Walk walk{*this, {}, {}, {}, {}};
  {
    const auto publications = publications_.lock();
    for (const Publication& publication : *publications) {
      // A pack that has lost its .keep may be taken away at any moment: it does not count.
      if (::access((publication.stem + ".keep").c_str(), F_OK) != 0) continue;
      walk.published.push_back(std::make_shared<const PackFile>(publication.stem));
    }
  }
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

std::vector<std::string> GitQuarantine::write_packs(const std::vector<ObjectId>& wanted) {
  std::vector<std::string> stems;
  const std::string objects = pool_.git_directory() + "/objects";
  std::vector<std::pair<ObjectId, Stored>> small;
  for (const ObjectId& id : wanted) {
    const Stored stored = *find(id);
    if (!stored.own_pack) {
      small.emplace_back(id, stored);
      continue;
    }
    stored.own_pack->finish();
    stems.push_back(install_pack(stored.own_pack->stem(), objects, list_path(), true));
  }
  if (small.empty()) return stems;
  // In the order in which they lie in their files, so that copying reads forward.
  const auto place = [](const auto& one) { return std::pair(one.second.file->get(), one.second.offset); };
  std::sort(small.begin(), small.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  PackWriter writer(next_path("tmp_pack_"), static_cast<std::uint32_t>(small.size()));
  for (const auto& [id, stored] : small) writer.add_copy(id, stored.file->get(), stored.offset, stored.length);
  writer.finish();
  stems.push_back(install_pack(writer.stem(), objects, list_path(), false));
  return stems;
}

void GitQuarantine::begin_list() {
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  if (!fs::exists(list_path())) write_keep_file(list_path());
}

// After the pack has its name: a crash in between leaves a pack with a .keep file that gc finds.
void GitQuarantine::record_publication(const std::string& stem, const ObjectId& root) {
  publications_.lock()->push_back({stem, root});
  std::ofstream out(list_path(), std::ios::app);
  out << root.hex() << ' ' << fs::path(stem).filename().string() << '\n';
}

void GitQuarantine::load_publications() {
  auto publications = publications_.lock();
  for (const auto& [root, name] : read_published(list_path()))
    publications->push_back({pool_.git_directory() + "/objects/pack/" + name, root});
}

// When a reference holds one root, every pack may be needed, because later publications leave out what earlier ones
// hold. When none does, the packs stay protected for the next attempt, or go when the session is discarded, but for
// what others came to need meanwhile. A result that may yet be rejected, under refs/sessions/, is no reason to let go.
void GitQuarantine::settle(bool discarding) noexcept {
  try {
    auto publications = publications_.lock();
    if (publications->empty()) return;
    const auto repository = pool_.borrow();
    const bool referenced = std::any_of(publications->rbegin(), publications->rend(), [&](const Publication& one) {
      return is_referenced(repository.get(), one.root, discarding ? Results::count : Results::do_not_count);
    });
    if (!referenced && !discarding) return;
    const bool needed = referenced || is_needed_by_others(repository.get(), *publications);
    if (!needed) remove_derived_files(pool_.git_directory() + "/objects");
    for (const Publication& publication : *publications) {
      if (needed) release_pack(publication.stem);
      else remove_pack(publication.stem);
    }
    publications->clear();
    ::unlink(list_path().c_str());
  } catch (const std::exception&) {
    // The packs keep their .keep files: nothing is lost, and gc tidies up.
  }
}

bool GitQuarantine::is_needed_by_others(git_repository* repository,
                                        const std::vector<Publication>& publications) const {
  std::vector<std::shared_ptr<const PackFile>> packs;
  for (const Publication& publication : publications)
    if (::access((publication.stem + ".idx").c_str(), F_OK) == 0)
      packs.push_back(std::make_shared<const PackFile>(publication.stem));
  if (packs.empty()) return false;
  // Nothing in the packs was in the repository when they came, so what was complete when the first came reaches none
  // of it. (The parent of a later one may have brought the same.)
  std::vector<ObjectId> known;
  if (const ObjectId& first = publications.front().root; store_.contains(first))
    known = store_.read_commit(first).parents;
  std::erase_if(known, [&](const ObjectId& id) { return !store_.contains(id); });
  return reaches_into(repository, store_, packs, known);
}

void GitQuarantine::discard() {
  settle(true);
  clear_files();
}

void GitQuarantine::clear_files() {
  auto contents = contents_.lock();
  *contents = Contents();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().filename() == "published") continue;
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
  }
}

// Lines of another kind, as that which makes the list a .keep file, say nothing of packs.
std::vector<std::pair<ObjectId, std::string>> read_published(const std::string& path) {
  std::vector<std::pair<ObjectId, std::string>> packs;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t space = std::min(line.find(' '), line.size());
    if (const auto root = ObjectId::from_hex(line.substr(0, space)); root && space + 1 < line.size())
      packs.emplace_back(*root, line.substr(space + 1));
  }
  return packs;
}

}  // namespace escrow::storage
