// Files and directories that survive a power loss, and the one mapping of errno to Error in this folder.
// Functions only; thread-safe. Sources: fsync(2), rename(2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "session/base/error.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

// The code for an errno of a file operation; what has no better word is input_output.
session::Errc errc_of(int error) noexcept;

// Error{errc_of(error)} with "cannot <doing>: <what errno says, and for a full disk what to do>".
session::Error system_error(int error, const std::string& doing);

// open(2) with O_CLOEXEC, repeated on EINTR. `doing` is for the message.
UniqueFd open_or_throw(int directory_fd, const char* path, int flags, unsigned mode, const std::string& doing);

// Puts `content` at `path` by way of the file `temporary`: whole or not at all, and on disk, but for its name.
void put_file(const std::string& path, const std::string& temporary, std::string_view content, unsigned mode);

// The same with its name on disk, too, when it returns (fsync of the directory).
void write_file_durably(const std::string& path, std::string_view content, unsigned mode);

// The first `most_bytes` of the file's content, or all of it; nullopt: there is no such file. Throws Error where the
// file cannot be read.
std::optional<std::string> read_if_there(const std::string& path, std::uint64_t most_bytes = UINT64_MAX);
// All of `bytes` at `offset`: pwrite(2), as often as it takes. `path` is for the message.
void write_at(int fd, std::string_view bytes, std::uint64_t offset, const std::string& path);
// fdatasync(2), repeated on EINTR; false with errno set.
bool sync_data(int fd) noexcept;

// What was created, renamed or removed in the directory so far is on disk when it returns.
void sync_directory(const std::string& path);

// syncfs(2): everything below the directory, and whatever else its file system has, is on disk when it returns.
void sync_file_system(const std::string& directory);

// "/a/b" of "/a/b/c"; "." without a slash.
std::string parent_of(const std::string& path);

}  // namespace escrow::storage
