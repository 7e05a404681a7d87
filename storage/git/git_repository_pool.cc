#include "storage/git/git_repository_pool.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"

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
// A repository of many packs must not need as many descriptors; a pack that is closed is opened again when it is read.
constexpr std::size_t kMostOpenPacks = 128;

struct Library {
  Library() {
    check_git(git_libgit2_init(), "starting libgit2");
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_SIZE, kMapWindowBytes);
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, kMapLimitBytes);
    git_libgit2_opts(GIT_OPT_SET_CACHE_MAX_SIZE, kObjectCacheBytes);
    git_libgit2_opts(GIT_OPT_SET_MWINDOW_FILE_LIMIT, kMostOpenPacks);
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
  std::vector<GitRepository> closed;  // after the lock
  {
    auto idle = idle_.lock();
    look(*idle, closed);
    generation = idle->generation;
    if (!idle->handles.empty()) {
      GitRepository handle = std::move(idle->handles.back());
      idle->handles.pop_back();
      return Borrowed(*this, std::move(handle), generation);
    }
  }
  Borrowed opened(*this, open_git_repository(git_directory_), generation);
  if (source_ != nullptr) add_object_source(opened.odb(), *source_);
  return opened;
}

void GitRepositoryPool::renew() {
  std::vector<GitRepository> closed;
  auto idle = idle_.lock();
  look(*idle, closed);
}

// Packs come with every commit: only one that is gone is a reason to open everything anew. Costs a stat(2) when
// nothing has changed, and a listing when something has.
void GitRepositoryPool::look(Idle& idle, std::vector<GitRepository>& closed) const {
  const std::string directory = git_directory_ + "/objects/pack";
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return;
  const std::int64_t stamp = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (stamp == idle.stamp) return;
  std::set<std::string> packs;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".pack") packs.insert(entry->path().filename());
  }
  if (error) return;  // no descriptor: next time
  if (!std::includes(packs.begin(), packs.end(), idle.packs.begin(), idle.packs.end())) {
    ++idle.generation;
    closed.swap(idle.handles);
  }
  idle.packs = std::move(packs);
  idle.stamp = stamp;
}

}  // namespace escrow::storage
