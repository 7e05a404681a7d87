#include "daemon/service/volumes/volume_options.h"

#include "api/problem.h"
#include "session/base/duration.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

namespace {

[[noreturn]] void refuse_volume_option(const std::string& name, const std::string& why) {
  throw Problem(ProblemCode::invalid_value, why, {{"field", name}});
}

std::string known_options() {
  std::string known = "repository and timeout";
  for (const SessionRequestField& field : session_request_fields()) known = std::string(field.name) + ", " + known;
  return known;
}

}  // namespace

VolumeOptions read_volume_options(const std::map<std::string, std::string>& options) {
  VolumeOptions opening;
  opening.session.symlinks = "contained";
  for (const auto& [name, text] : options) {
    const std::string what = "the volume's option " + name;
    try {
      if (name == "repository") {
        opening.repository = text;
      } else if (name == "timeout") {
        opening.timeout_ms = static_cast<std::uint64_t>(session::parse_duration(text, what).count());
      } else if (!set_request_field(opening.session, name, text, "the volume's option")) {
        throw Problem(ProblemCode::unknown_field, "a volume has no option " + name + "; it has " + known_options(),
                      {{"field", name}});
      }
    } catch (const session::Error& error) {
      refuse_volume_option(name, error.what());
    }
  }
  if (opening.repository.empty())
    refuse_volume_option("repository",
                         "the volume's option repository is missing; give -o repository=NAME, as it is registered");
  return opening;
}

}  // namespace escrow::daemon
