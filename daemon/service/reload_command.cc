#include "daemon/service/reload_command.h"

#include <cstdio>
#include <string>

#include "api/http_client.h"
#include "api/remote_documents.h"
#include "api/session_calls.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"

namespace escrow::daemon {

int reload_running_service(const EscrowdConfig& config) {
  api::HttpClient client("unix://" + config.socket, "");
  const api::HttpClient::Answer answer = client.ask("POST", "/v1/reload", "{}");
  if (api::is_refused(answer)) {
    const api::Problem problem = api::problem_of(answer);
    std::fprintf(stderr, "escrowd: the configuration stays as it was: %s\n", problem.what());
    return exit_status_of(problem);
  }
  const std::vector<std::string> later = api::at_next_start_from_json(answer.body);
  print_line("The configuration was read again.");
  for (const std::string& name : later) print_line("\"" + name + "\" counts from the next start on.");
  return kExitSuccess;
}

}  // namespace escrow::daemon
