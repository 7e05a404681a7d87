#include "daemon/host/spdlog_log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace escrow::daemon {
namespace {

spdlog::level::level_enum level_of(session::LogLevel level) {
  switch (level) {
    case session::LogLevel::debug:
      return spdlog::level::debug;
    case session::LogLevel::info:
      return spdlog::level::info;
    case session::LogLevel::warning:
      return spdlog::level::warn;
    case session::LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

class SpdlogLog final : public session::Log {
 public:
  explicit SpdlogLog(bool verbose) : logger_("escrow", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(verbose ? spdlog::level::debug : spdlog::level::warn);
    logger_.set_pattern("%n: %^%l%$: %v");
    if (verbose) logger_.set_pattern("%H:%M:%S.%e %n[%P]: %^%l%$: %v");
    logger_.flush_on(spdlog::level::debug);
  }

  void write(session::LogLevel level, const std::string& message) override {
    logger_.log(level_of(level), "{}", message);
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<session::Log> make_log(bool verbose) { return std::make_unique<SpdlogLog>(verbose); }

}  // namespace escrow::daemon
