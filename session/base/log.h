// Logging as the core sees it; the composition root gives it a real logger (spdlog). Thread-safe.
#pragma once

#include <string>

namespace escrow::session {

enum class LogLevel { debug, info, warning, error };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, const std::string& message) = 0;
};

// Drops everything.
class NullLog final : public Log {
 public:
  void write(LogLevel, const std::string&) override {}
};

}  // namespace escrow::session
