#include "storage/disk/file_lookup.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "storage/disk/durable_file.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {
namespace {

bool means_absent(int error) { return error == ENOENT || error == ENOTDIR; }

struct CloseDirectory {
  void operator()(DIR* stream) const noexcept { ::closedir(stream); }
};
struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
struct Line {
  char* text = nullptr;
  std::size_t room = 0;
  ~Line() { std::free(text); }
};

}  // namespace

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return status;
  if (means_absent(errno)) return std::nullopt;
  throw system_error(errno, "look at " + path);
}

bool is_there(const std::string& path) { return status_of(path).has_value(); }

void check_own_directory(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  if (!status) throw system_error(ENOENT, "look at " + path);
  const auto refuse = [&](const std::string& why) {
    throw session::Error(session::Errc::damaged_repository,
                         path + " " + why + "; nothing was touched: put back the directory that belongs there, or "
                         "give it to its owner (chown) if it is the right one");
  };
  if (S_ISLNK(status->st_mode)) refuse("is no directory, but a link");
  if (!S_ISDIR(status->st_mode)) refuse("is no directory");
  const uid_t owner = status->st_uid;
  if (owner == 0 || owner == ::geteuid()) return;
  const std::optional<struct stat> above = status_of(parent_of(path));
  if (!above || above->st_uid != owner)
    refuse("belongs to user " + std::to_string(owner) + ", who does not own the directory above it");
}

void check_no_link(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  if (!status || !S_ISLNK(status->st_mode)) return;
  throw session::Error(session::Errc::damaged_repository,
                       path + " is a link; nothing was touched: put back the file that belongs there, or remove the "
                       "link if it is a lock");
}

bool is_directory(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  if (means_absent(errno)) return false;
  throw system_error(errno, "look at " + path);
}

std::vector<std::string> names_in(const std::string& directory) {
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(directory.c_str()));
  if (stream == nullptr) {
    if (means_absent(errno)) return {};
    throw system_error(errno, "list " + directory);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno == ENOENT) return {};  // it was removed meanwhile
    if (entry == nullptr && errno != 0) throw system_error(errno, "list " + directory);
    if (entry == nullptr) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

void for_each_below(const std::string& directory,
                    const std::function<void(const std::string& path, const struct stat& status)>& visit) {
  for (const std::string& name : names_in(directory)) {
    const std::string path = directory + "/" + name;
    const auto status = status_of(path);
    if (!status) continue;  // removed meanwhile
    visit(path, *status);
    if (S_ISDIR(status->st_mode)) for_each_below(path, visit);
  }
}

std::string first_line_of(const std::string& path) {
  std::optional<std::string> first;
  for_each_line(path, [&first](std::string_view line) {
    if (!first) first = line;
  });
  std::string line = first.value_or("");
  while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
  return line;
}

bool for_each_line(const std::string& path, const std::function<void(std::string_view line)>& take) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) {
    if (means_absent(errno)) return false;
    throw system_error(errno, "open " + path);
  }
  Line line;
  for (;;) {
    errno = 0;
    const ssize_t length = ::getline(&line.text, &line.room, file.get());
    if (length < 0) {
      if (std::feof(file.get()) != 0) return true;
      throw system_error(errno == 0 ? EIO : errno, "read " + path);
    }
    std::string_view text(line.text, static_cast<std::size_t>(length));
    if (text.ends_with('\n')) text.remove_suffix(1);
    take(text);
  }
}

}  // namespace escrow::storage
