// Any bytes as a policy: it is refused with a place and a reason, or it decides as the slow evaluator does, which
// shares no code with the fast one.
#include <cstdlib>
#include <string>
#include <string_view>

#include "api/policy_json.h"
#include "session/base/error.h"
#include "session/decorators/access_policy.h"
#include "tests/support/slow_policy.h"

namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using escrow::session::Errc;
  constexpr std::size_t kMaxBytes = 4096;  // the slow evaluator is slow
  if (size > kMaxBytes) return 0;
  escrow::session::PolicyDocument document;
  try {
    document = escrow::api::parse_policy({reinterpret_cast<const char*>(data), size}, "p.json");
  } catch (const escrow::session::Error& error) {
    expect(error.code() == Errc::bad_request && std::string_view(error.what()).starts_with("the policy p.json:"));
    return 0;
  }
  const escrow::session::AccessPolicy fast({document});
  const escrow::support::SlowPolicy slow({document});
  for (const std::string path : {"", "a", "b", "a/b", "a/b/c", "secrets", "secrets/key", "x.key", "src/x.lock"}) {
    for (const bool is_directory : {true, false}) {
      if (path.empty() && !is_directory) continue;
      expect(fast.allowed(path, is_directory) == slow.allowed(path, is_directory));
    }
  }
  return 0;
}
