// What a repository's references reach: for gc, verify and the quarantine's tidying. Functions; thread-safe as long as
// each caller brings its own handle. Sources: git-gc(1) and git-prune(1) on what keeps an object alive.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "storage/git/git_handle.h"
#include "storage/git/reference_files.h"
#include "storage/objects/git_object_store.h"

namespace escrow::storage {

// Where a walk begins, and why: "refs/heads/main", "reflog of ...", "index".
struct Root {
  session::ObjectId id;
  std::string origin;
  bool required;  // a reflog or index may name what is gone
};

// Every reference, HEAD, every reflog, the index, and those of linked work trees. A damaged reference may have held any
// object: its Error is thrown, or given to `damaged`, whose caller then removes nothing.
std::vector<Root> all_roots(git_repository* repository, const TakeDamaged& damaged = nullptr);

// Whether a reference reaches the commit, other than refs/sessions/*: a result may yet be rejected. False for what is
// not a commit, and if only a damaged reference reaches it.
bool is_referenced(git_repository* repository, const session::ObjectId& commit);

// An object that a walk has come to.
struct Reached {
  session::ObjectId id;
  std::optional<ObjectType> expected;  // nullopt: a root may be anything
  const Root* root;
};

// Visits each object that `roots` reach and that is not in `seen` once, required roots first, and adds it to `seen`.
// `visit` returns the content to go on from, or nullopt: a blob, or what cannot be read. Submodules are not followed.
void walk_objects(std::vector<Root> roots, std::unordered_set<session::ObjectId>& seen,
                  const std::function<std::optional<RawObject>(const Reached&)>& visit);

}  // namespace escrow::storage
