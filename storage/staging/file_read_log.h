// A ReadLog as the file <session>/reads: a header that says in which era (disk/disk_era.h) it was written, then what
// was appended. For the holder of the session's lock; peek() for anybody.
#pragma once

#include <optional>
#include <string>

#include "session/interfaces/read_log.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class FileReadLog final : public session::ReadLog {
 public:
  explicit FileReadLog(const std::string& session_directory);

  void create() override;
  Loaded load() override;
  void append(std::string_view events) override;
  void give_up() override;
  void close() override;

  // As load(), of a log that another process may be appending to. nullopt: there is none.
  static std::optional<Loaded> peek(const std::string& session_directory);

 private:
  void open();
  void put_era(std::uint64_t era);

  const std::string directory_, path_;
  UniqueFd file_;
  std::uint64_t end_ = 0;      // where the next events go
  bool is_closed_ = false;     // the header says that all is on disk
  bool is_given_up_ = false;
};

}  // namespace escrow::storage
