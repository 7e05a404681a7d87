#include "storage/git/object_source.h"

#include <git2/sys/odb_backend.h>

#include <exception>
#include <memory>

#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

// A C structure that libgit2 owns and hands back to the functions below; none of them may throw.
struct Backend {
  git_odb_backend base;  // first: libgit2 knows only this
  ObjectSource* source;
};

ObjectSource& source_of(git_odb_backend* backend) { return *reinterpret_cast<Backend*>(backend)->source; }

// "Not found" in any case that is no failure: libgit2 then looks for new packs, and finds what was brought.
int bring(git_odb_backend* backend, const git_oid* id) {
  try {
    source_of(backend).bring(from_git(*id));
    return GIT_ENOTFOUND;
  } catch (const std::exception& error) {
    git_error_set_str(GIT_ERROR_ODB, error.what());
    return GIT_ERROR;
  }
}

int read(void**, std::size_t*, git_object_t*, git_odb_backend* backend, const git_oid* id) {
  return bring(backend, id);
}

int read_header(std::size_t*, git_object_t*, git_odb_backend* backend, const git_oid* id) {
  return bring(backend, id);
}

int exists(git_odb_backend* backend, const git_oid* id) { return source_of(backend).has(from_git(*id)) ? 1 : 0; }

void free_backend(git_odb_backend* backend) { delete reinterpret_cast<Backend*>(backend); }

}  // namespace

void add_object_source(git_odb* odb, ObjectSource& source) {
  constexpr int kAfterTheRest = -100;
  auto backend = std::make_unique<Backend>();
  check_git(git_odb_init_backend(&backend->base, GIT_ODB_BACKEND_VERSION), "preparing the objects of the bucket");
  backend->source = &source;
  backend->base.read = read;
  backend->base.read_header = read_header;
  backend->base.exists = exists;
  backend->base.free = free_backend;
  check_git(git_odb_add_alternate(odb, &backend->base, kAfterTheRest), "adding the objects of the bucket");
  backend.release();  // the database's now
}

}  // namespace escrow::storage
