#include "daemon/import/archive_import.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "daemon/import/archived_tree.h"
#include "daemon/import/file_source.h"
#include "session/base/error.h"
#include "session/base/link_target.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::GitMode;
using session::OmissionKind;

namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
// Of one entry, with the map of a sparse file: the library has all of it in memory, many times as large.
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{4} << 20;

struct FreeArchive {
  void operator()(archive* handle) const noexcept { archive_read_free(handle); }
};

// The archive, entry by entry.
class ArchiveReader {
 public:
  explicit ArchiveReader(const session::ByteSource& bytes)
      : bytes_(bytes), buffer_(kPieceBytes), handle_(archive_read_new()) {
    if (!handle_) throw std::bad_alloc();
    check(archive_read_support_format_tar(handle_.get()));
    check(archive_read_open(handle_.get(), this, nullptr, pass_piece, nullptr));
  }

  // Null at the end. A warning is about a name that has no form in this process's locale: it comes as it is.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    // What was left out is skipped first, for it is no part of the next header.
    if (header_begin_) check(archive_read_data_skip(handle_.get()));
    header_begin_ = offset_;
    is_in_header_ = true;
    const int status = archive_read_next_header(handle_.get(), &entry);
    is_in_header_ = false;
    if (status != ARCHIVE_EOF) {
      check(status);
      return entry;
    }
    // Reading stops behind the mark; there were no bytes, where it had to be.
    if (has_ended_) refuse("it was cut short: the mark at its end is missing");
    return nullptr;
  }

  // Of the entry's content; fewer bytes at its end, or before a hole that goes up to the end.
  std::size_t read(std::byte* out, std::size_t size) {
    const la_ssize_t count = archive_read_data(handle_.get(), out, size);
    if (count < 0) check(ARCHIVE_FATAL);
    return static_cast<std::size_t>(count);
  }

 private:
  static la_ssize_t pass_piece(archive* handle, void* self, const void** piece) {
    auto& reader = *static_cast<ArchiveReader*>(self);
    try {
      if (reader.is_in_header_ && reader.offset_ - *reader.header_begin_ > kMaxHeaderBytes) {
        refuse("the header of an entry, or the map of a sparse file, is larger than 4 MiB");
      }
      const std::size_t count = reader.bytes_.read(reader.offset_, reader.buffer_);
      reader.offset_ += count;
      reader.has_ended_ = reader.has_ended_ || count == 0;
      *piece = reader.buffer_.data();
      return static_cast<la_ssize_t>(count);
    } catch (...) {
      reader.failure_ = std::current_exception();
      archive_set_error(handle, EIO, "it cannot be read");
      return ARCHIVE_FATAL;
    }
  }

  void check(int status) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (status == ARCHIVE_OK || status == ARCHIVE_WARN) return;
    const char* why = archive_error_string(handle_.get());
    refuse(why == nullptr ? "it is damaged" : why);
  }
  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(Errc::bad_request, "cannot import the archive, which is to be an uncompressed tar: " + why +
                                       "; nothing was changed");
  }

  const session::ByteSource& bytes_;
  std::uint64_t offset_ = 0;
  std::optional<std::uint64_t> header_begin_;  // nullopt: before the first
  bool is_in_header_ = false, has_ended_ = false;
  std::exception_ptr failure_;  // of reading bytes_: no exception may go through a C library
  std::vector<std::byte> buffer_;
  const std::unique_ptr<archive, FreeArchive> handle_;
};

// The content of the entry that the reader is at, from front to back; what was read last may be read again, as
// Quarantine::put_blob() does it. One thread only, unlike other sources.
class EntryContent final : public session::ByteSource {
 public:
  EntryContent(ArchiveReader& reader, std::uint64_t size) : reader_(reader), size_(size) {}
  std::uint64_t size() const override { return size_; }

  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size() && offset + done < size_) {
      const std::uint64_t at = offset + done;
      if (at == begin_ + piece_.size()) read_piece();
      if (at < begin_ || at >= begin_ + piece_.size()) {
        throw Error(Errc::input_output, "the content of an archive was not read from front to back");
      }
      const auto skipped = static_cast<std::size_t>(at - begin_);
      const std::size_t count = std::min(piece_.size() - skipped, out.size() - done);
      std::memcpy(out.data() + done, piece_.data() + skipped, count);
      done += count;
    }
    return done;
  }

 private:
  void read_piece() const {
    begin_ += piece_.size();
    piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size_ - begin_)));
    std::size_t filled = 0;
    while (filled < piece_.size()) {
      const std::size_t count = reader_.read(piece_.data() + filled, piece_.size() - filled);
      if (count == 0) break;
      filled += count;
    }
    std::fill(piece_.begin() + static_cast<std::ptrdiff_t>(filled), piece_.end(), std::byte{0});
  }

  ArchiveReader& reader_;
  const std::uint64_t size_;
  mutable std::uint64_t begin_ = 0;  // of the piece
  mutable std::vector<std::byte> piece_;
};

class ArchiveImport {
 public:
  ArchiveImport(session::Quarantine& quarantine, const session::ByteSource& archive, std::uint64_t most_bytes)
      : quarantine_(quarantine), reader_(archive), most_bytes_(most_bytes) {}

  session::BuiltTree run(ImportFilter filter) {
    while (archive_entry* entry = reader_.next()) add(entry);
    return tree_.build(quarantine_, std::move(filter));
  }

 private:
  void add(archive_entry* entry) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr) refuse("an entry", "it has no name");
    if (const char* target = archive_entry_hardlink(entry)) return tree_.add_hard_link(name, target);
    switch (archive_entry_filetype(entry)) {
      case AE_IFDIR:
        return tree_.add_directory(name);
      case AE_IFREG:
        return add_file(entry, name);
      case AE_IFLNK:
        return add_link(entry, name);
      case AE_IFIFO:
        return tree_.add_special(name, OmissionKind::fifo);
      case AE_IFSOCK:
        return tree_.add_special(name, OmissionKind::socket);
      case AE_IFBLK:
      case AE_IFCHR:
        return tree_.add_special(name, OmissionKind::device);
      default:
        refuse(name, "it is of a kind that is not known");
    }
  }

  void add_file(archive_entry* entry, const char* name) {
    const la_int64_t size = archive_entry_size(entry);
    if (size < 0) refuse(name, "its size is negative");
    if (static_cast<std::uint64_t>(size) > most_bytes_ - read_bytes_) {
      throw api::Problem(api::ProblemCode::body_too_large,
                         "the archive's files are larger than " + std::to_string(most_bytes_) +
                             " bytes together (max_content_bytes); nothing was changed");
    }
    read_bytes_ += static_cast<std::uint64_t>(size);
    const GitMode mode = (archive_entry_mode(entry) & S_IXUSR) != 0 ? GitMode::executable : GitMode::regular;
    tree_.add_leaf(name, mode, [&] {
      return quarantine_.put_blob(EntryContent(reader_, static_cast<std::uint64_t>(size)));
    });
  }

  void add_link(archive_entry* entry, const char* name) {
    const char* target = archive_entry_symlink(entry);
    if (target == nullptr || *target == '\0') refuse(name, "the symbolic link points to nothing");
    if (std::strlen(target) > session::kLongestTarget_bytes)
      refuse(name, "where it points to is longer than 4095 bytes");
    tree_.add_leaf(name, GitMode::symlink, [&] { return quarantine_.put_blob(StringSource(target)); });
  }

  [[noreturn]] static void refuse(const char* name, const std::string& why) {
    throw Error(Errc::bad_request,
                "cannot import " + session::quote_path(name) + " of the archive: " + why + "; nothing was changed");
  }

  session::Quarantine& quarantine_;
  ArchiveReader reader_;
  const std::uint64_t most_bytes_;
  std::uint64_t read_bytes_ = 0;
  ArchivedTree tree_;
};

}  // namespace

session::BuiltTree import_archive(session::Quarantine& quarantine, const session::ByteSource& archive,
                                  std::uint64_t most_bytes, ImportFilter filter) {
  return ArchiveImport(quarantine, archive, most_bytes).run(std::move(filter));
}

}  // namespace escrow::daemon
