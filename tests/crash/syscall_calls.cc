#include "tests/crash/syscall_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <iterator>

namespace escrow::test {
namespace {

constexpr std::string_view kRead = " EIO ";
constexpr std::string_view kLook = " EIO ENOMEM ";
constexpr std::string_view kOpen = " EMFILE ENOMEM EIO ENOSPC EDQUOT ";  // the last two only where it makes a file
constexpr std::string_view kWrite = " ENOSPC EDQUOT EIO ENOMEM SHORT ";
constexpr std::string_view kGrow = " ENOSPC EDQUOT EIO ENOMEM ";
constexpr std::string_view kSync = " EIO ENOSPC EDQUOT ";
constexpr std::string_view kMake = " EMFILE ENOMEM ";
constexpr std::string_view kLock = " ENOMEM ";

constexpr Call kCalls[] = {
    {SYS_openat, "openat", Names::path_at, kOpen, true},
    {SYS_read, "read", Names::descriptor, kRead, false},
    {SYS_pread64, "pread64", Names::descriptor, kRead, false},
    {SYS_readv, "readv", Names::descriptor, kRead, false},
    {SYS_preadv, "preadv", Names::descriptor, kRead, false},
    {SYS_getdents64, "getdents64", Names::descriptor, kLook, false},
    {SYS_fstat, "fstat", Names::descriptor, kRead, false},
    {SYS_newfstatat, "newfstatat", Names::path_at, kLook, false},
    {SYS_statx, "statx", Names::path_at, kLook, false},
    {SYS_faccessat, "faccessat", Names::path_at, kLook, false},
    {SYS_faccessat2, "faccessat2", Names::path_at, kLook, false},
    {SYS_readlinkat, "readlinkat", Names::path_at, kLook, false},
    {SYS_write, "write", Names::descriptor, kWrite, true},
    {SYS_pwrite64, "pwrite64", Names::descriptor, kWrite, true},
    {SYS_writev, "writev", Names::descriptor, kGrow, true},
    {SYS_pwritev, "pwritev", Names::descriptor, kGrow, true},
    {SYS_copy_file_range, "copy_file_range", Names::output, kGrow, true},
    {SYS_sendfile, "sendfile", Names::descriptor, kGrow, true},
    {SYS_fsync, "fsync", Names::descriptor, kSync, true},
    {SYS_fdatasync, "fdatasync", Names::descriptor, kSync, true},
    {SYS_sync_file_range, "sync_file_range", Names::descriptor, kSync, true},
    {SYS_syncfs, "syncfs", Names::descriptor, kSync, true},
    {SYS_ftruncate, "ftruncate", Names::descriptor, kGrow, true},
    {SYS_truncate, "truncate", Names::path, kGrow, true},
    {SYS_fallocate, "fallocate", Names::descriptor, kGrow, true},
    {SYS_mkdirat, "mkdirat", Names::path_at, kGrow, true},
    {SYS_mknodat, "mknodat", Names::path_at, kGrow, true},
    {SYS_symlinkat, "symlinkat", Names::path_at_second, kGrow, true},
    {SYS_linkat, "linkat", Names::two_paths_at, kGrow, true},
    {SYS_renameat2, "renameat2", Names::two_paths_at, kGrow, true},
    {SYS_unlinkat, "unlinkat", Names::path_at, kGrow, true},
    {SYS_fchmod, "fchmod", Names::descriptor, kGrow, true},
    {SYS_fchmodat, "fchmodat", Names::path_at, kGrow, true},
    {SYS_fchown, "fchown", Names::descriptor, kGrow, true},
    {SYS_fchownat, "fchownat", Names::path_at, kGrow, true},
    {SYS_utimensat, "utimensat", Names::path_at, kGrow, true},
    {SYS_flock, "flock", Names::descriptor, kLock, false},
    {SYS_fcntl, "fcntl", Names::descriptor, kLock, false},  // those that lock, and those that make a descriptor
    {SYS_mmap, "mmap", Names::mapping, kLock, false},
    {SYS_memfd_create, "memfd_create", Names::nothing, kMake, false},
    {SYS_pipe2, "pipe2", Names::nothing, kMake, false},
    {SYS_eventfd2, "eventfd2", Names::nothing, kMake, false},
    {SYS_epoll_create1, "epoll_create1", Names::nothing, kMake, false},
    {SYS_timerfd_create, "timerfd_create", Names::nothing, kMake, false},
    {SYS_inotify_init1, "inotify_init1", Names::nothing, kMake, false},
    {SYS_socket, "socket", Names::nothing, kMake, false},
    {SYS_socketpair, "socketpair", Names::nothing, kMake, false},
    {SYS_accept4, "accept4", Names::nothing, kMake, false},
    {SYS_dup, "dup", Names::nothing, " EMFILE ", false},
    {SYS_clone, "clone", Names::nothing, kLock, false},
    {SYS_clone3, "clone3", Names::nothing, kLock, false},
#ifdef SYS_open  // x86-64 still has what other machines have only with a directory
    {SYS_open, "open", Names::path, kOpen, true},
    {SYS_creat, "creat", Names::path, kOpen, true},
    {SYS_stat, "stat", Names::path, kLook, false},
    {SYS_lstat, "lstat", Names::path, kLook, false},
    {SYS_access, "access", Names::path, kLook, false},
    {SYS_readlink, "readlink", Names::path, kLook, false},
    {SYS_mkdir, "mkdir", Names::path, kGrow, true},
    {SYS_rmdir, "rmdir", Names::path, kGrow, true},
    {SYS_unlink, "unlink", Names::path, kGrow, true},
    {SYS_rename, "rename", Names::two_paths, kGrow, true},
    {SYS_link, "link", Names::two_paths, kGrow, true},
    {SYS_symlink, "symlink", Names::two_paths, kGrow, true},
    {SYS_chmod, "chmod", Names::path, kGrow, true},
    {SYS_chown, "chown", Names::path, kGrow, true},
    {SYS_lchown, "lchown", Names::path, kGrow, true},
    {SYS_pipe, "pipe", Names::nothing, kMake, false},
    {SYS_fork, "fork", Names::nothing, kLock, false},
    {SYS_vfork, "vfork", Names::nothing, kLock, false},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "renameat", Names::two_paths_at, kGrow, true},
#endif
};

}  // namespace

const Call* begin_calls() { return std::begin(kCalls); }
const Call* end_calls() { return std::end(kCalls); }

const Call* find_call(int number) {
  const Call* found = std::find_if(begin_calls(), end_calls(), [&](const Call& call) { return call.number == number; });
  return found == end_calls() ? nullptr : found;
}

}  // namespace escrow::test
