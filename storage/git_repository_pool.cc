#include "storage/git_repository_pool.h"

#include "storage/git_directory.h"
#include "storage/git_error.h"

// Debian's libgit2 reads the machine's 140 certificates when it starts (streams/mbedtls.c), a third of what a short
// command costs. Escrow asks nobody through libgit2, so it finds none: a program's own symbols come before those of its
// libraries (ld.so(8)). Other builds of libgit2 never call it.
extern "C" int mbedtls_x509_crt_parse_file(void*, const char*) {
  constexpr int kFileError = -0x2900;  // MBEDTLS_ERR_X509_FILE_IO_ERROR
  return kFileError;
}

namespace escrow::storage {
namespace {

// Resident memory stays below 256 MB whatever the packs' size: libgit2's defaults are a 1 GiB window and a 256 MB
// cache.
constexpr std::size_t kMapWindowBytes = std::size_t{8} << 20;
constexpr std::size_t kMapLimitBytes = std::size_t{64} << 20;
constexpr ssize_t kObjectCacheBytes = ssize_t{16} << 20;

struct Library {
  Library() {
    check_git(git_libgit2_init(), "starting libgit2");
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_SIZE, kMapWindowBytes);
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, kMapLimitBytes);
    git_libgit2_opts(GIT_OPT_SET_CACHE_MAX_SIZE, kObjectCacheBytes);
  }
};

}  // namespace

void start_libgit2() {
  // Never shut down: handles may outlive any scope, and the process's end frees everything.
  static const Library library;
  (void)library;
}

GitRepositoryPool::Borrowed::~Borrowed() {
  if (!handle_) return;
  auto idle = pool_->idle_.lock();
  if (idle->generation == generation_) idle->handles.push_back(std::move(handle_));
}

git_odb* GitRepositoryPool::Borrowed::odb() const {
  git_odb* odb = nullptr;
  check_git(git_repository_odb(&odb, get()), "opening the objects of " + pool_->git_directory_);
  GitOdb counted(odb);  // the repository keeps its own count
  return odb;
}

GitRepositoryPool::Borrowed GitRepositoryPool::borrow() {
  unsigned generation = 0;
  {
    auto idle = idle_.lock();
    generation = idle->generation;
    if (!idle->handles.empty()) {
      GitRepository handle = std::move(idle->handles.back());
      idle->handles.pop_back();
      return Borrowed(*this, std::move(handle), generation);
    }
  }
  return Borrowed(*this, open_git_repository(git_directory_), generation);
}

void GitRepositoryPool::renew() {
  std::vector<GitRepository> closed;
  auto idle = idle_.lock();
  ++idle->generation;
  closed.swap(idle->handles);
}

}  // namespace escrow::storage
