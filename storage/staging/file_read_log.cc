#include "storage/staging/file_read_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "session/base/error.h"
#include "storage/disk/disk_era.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

constexpr char kReadLogMagic[] = "escread1";
constexpr std::size_t kHeader_bytes = 16;
// In place of an era.
constexpr std::uint64_t kClosed = 0, kIncomplete = 2;  // eras are odd

std::string header_of(std::uint64_t era) {
  std::string header(kReadLogMagic, 8);
  for (int shift = 0; shift < 64; shift += 8) header += static_cast<char>(era >> shift);
  return header;
}

session::ReadLog::Loaded parsed(const std::string& content, const std::string& directory) {
  session::ReadLog::Loaded loaded;
  if (content.size() < kHeader_bytes || !content.starts_with(kReadLogMagic)) return loaded;
  std::uint64_t era = 0;
  for (std::size_t at = 0; at < 8; ++at) era |= std::uint64_t{static_cast<unsigned char>(content[8 + at])} << at * 8;
  loaded.is_complete = era == kClosed || era == disk_era(directory);
  loaded.events = content.substr(kHeader_bytes);
  return loaded;
}

}  // namespace

FileReadLog::FileReadLog(const std::string& session_directory)
    : directory_(session_directory), path_(session_directory + "/reads") {}

void FileReadLog::open() {
  if (!file_) file_ = open_or_throw(AT_FDCWD, path_.c_str(), O_RDWR | O_CREAT, 0600, "open " + path_);
}

void FileReadLog::put_era(std::uint64_t era) { write_at(file_.get(), header_of(era), 0, path_); }

void FileReadLog::create() {
  open();
  put_era(disk_era(directory_));
  end_ = kHeader_bytes;
}

session::ReadLog::Loaded FileReadLog::load() {
  const std::optional<std::string> content = read_if_there(path_);
  Loaded loaded;
  if (content) loaded = parsed(*content, directory_);
  open();
  if (!content || content->size() < kHeader_bytes) {
    put_era(kIncomplete);
    end_ = kHeader_bytes;
    return {};
  }
  end_ = content->size();
  is_given_up_ = !loaded.is_complete;
  is_closed_ = loaded.is_complete && content->compare(0, kHeader_bytes, header_of(kClosed)) == 0;
  if (is_given_up_) put_era(kIncomplete);
  return loaded;
}

void FileReadLog::append(std::string_view events) {
  if (is_given_up_) return;
  if (is_closed_) {
    // A header that a power loss brings back must not say that what follows is all.
    put_era(disk_era(directory_));
    if (!sync_data(file_.get())) throw system_error(errno, "sync " + path_);
    is_closed_ = false;
  }
  write_at(file_.get(), events, end_, path_);
  end_ += events.size();
}

void FileReadLog::give_up() {
  put_era(kIncomplete);
  is_given_up_ = true;
}

void FileReadLog::close() {
  if (is_given_up_ || is_closed_ || !file_) return;
  if (!sync_data(file_.get())) throw system_error(errno, "sync " + path_);
  sync_directory(directory_);
  put_era(kClosed);
  is_closed_ = true;
  if (!sync_data(file_.get())) throw system_error(errno, "sync " + path_);
}

std::optional<session::ReadLog::Loaded> FileReadLog::peek(const std::string& session_directory) {
  const std::optional<std::string> content = read_if_there(session_directory + "/reads");
  return content ? std::optional(parsed(*content, session_directory)) : std::nullopt;
}

}  // namespace escrow::storage
