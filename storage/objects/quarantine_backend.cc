#include "storage/objects/quarantine_backend.h"

#include <git2/sys/odb_backend.h>

#include <cstring>
#include <optional>

#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

// A C structure that libgit2 owns and hands back to the functions below; none of them may throw.
struct Backend {
  git_odb_backend base;  // first: libgit2 knows only this
  const GitQuarantine* quarantine;
};

const GitQuarantine& quarantine_of(git_odb_backend* backend) {
  return *reinterpret_cast<Backend*>(backend)->quarantine;
}

int fail(const char* message) {
  git_error_set_str(GIT_ERROR_ODB, message);
  return GIT_ERROR;
}

int read(void** data, std::size_t* size, git_object_t* type, git_odb_backend* backend, const git_oid* id) {
  try {
    const auto object = quarantine_of(backend).read_own(from_git(*id));
    if (!object) return GIT_ENOTFOUND;
    *data = git_odb_backend_data_alloc(backend, object->content.size() + 1);
    if (*data == nullptr) return GIT_ERROR;
    std::memcpy(*data, object->content.c_str(), object->content.size() + 1);
    *size = object->content.size();
    *type = static_cast<git_object_t>(object->type);
    return 0;
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

int read_header(std::size_t* size, git_object_t* type, git_odb_backend* backend, const git_oid* id) {
  const auto header = quarantine_of(backend).own_header(from_git(*id));
  if (!header) return GIT_ENOTFOUND;
  *type = static_cast<git_object_t>(header->first);
  *size = static_cast<std::size_t>(header->second);
  return 0;
}

int exists(git_odb_backend* backend, const git_oid* id) {
  return quarantine_of(backend).own_header(from_git(*id)).has_value() ? 1 : 0;
}

void free_backend(git_odb_backend* backend) { delete reinterpret_cast<Backend*>(backend); }

}  // namespace

void add_quarantine_backend(git_odb* odb, const GitQuarantine& quarantine) {
  constexpr int kBeforeThePacks = 100;
  auto backend = std::make_unique<Backend>();
  check_git(git_odb_init_backend(&backend->base, GIT_ODB_BACKEND_VERSION), "preparing the session's objects");
  backend->quarantine = &quarantine;
  backend->base.read = read;
  backend->base.read_header = read_header;
  backend->base.exists = exists;
  backend->base.free = free_backend;
  check_git(git_odb_add_backend(odb, &backend->base, kBeforeThePacks), "adding the session's objects");
  backend.release();  // the database's now
}

}  // namespace escrow::storage
