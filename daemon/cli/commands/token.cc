#include <CLI/CLI.hpp>
#include <memory>

#include "api/bearer_token.h"
#include "api/http_client.h"
#include "api/json_document.h"
#include "api/text_bytes.h"
#include "api/token_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/client/service_client.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/duration.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

struct TokenArguments {
  std::string principal, expires_in, note, id;
  bool all = false;
  bool json = false;
};

ServiceClient service_of(const GlobalOptions& options) {
  const std::string host = service_host(options);
  if (host.empty()) {
    throw session::Error(session::Errc::bad_request, "tokens are an escrowd's: name it with --host, or ESCROW_HOST");
  }
  return ServiceClient(host, options);
}

// The service gets the hash alone.
int create(const GlobalOptions& options, const TokenArguments& arguments) {
  const std::string token = api::make_token();
  api::JsonObject body;
  body.text("hash", api::hash_token(token));
  if (!arguments.principal.empty()) body.text("principal", arguments.principal);
  if (!arguments.note.empty()) body.text("note", arguments.note);
  if (!arguments.expires_in.empty()) {
    const auto term = session::parse_duration(arguments.expires_in, "--expires-in");
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(term).count();
    body.number("expires_in_s", static_cast<std::uint64_t>(seconds));
  }
  const api::RemoteToken made = api::token_from_json(service_of(options).post("/v1/tokens", body));
  if (arguments.json) {
    print_line(api::to_json(made, token));
    return kExitSuccess;
  }
  print_line(token);
  tell("escrow: token " + made.id + " of " + made.principal + ", until " + human_time(made.expires.seconds, 0) +
       "; it is shown this once");
  return kExitSuccess;
}

std::string target_after(const TokenArguments& arguments, const std::string& cursor) {
  std::string target = std::string("/v1/tokens?with_ended=") + (arguments.all ? "true" : "false");
  if (!arguments.principal.empty()) target += "&principal=" + api::percent_encoded(arguments.principal);
  if (!cursor.empty()) target += "&cursor=" + api::percent_encoded(cursor);
  return target;
}

int list_tokens(const GlobalOptions& options, const TokenArguments& arguments) {
  ServiceClient service = service_of(options);
  std::vector<api::RemoteToken> tokens;
  std::string cursor;
  do {
    api::RemoteTokens page = api::tokens_from_json(service.get(target_after(arguments, cursor)));
    tokens.insert(tokens.end(), page.tokens.begin(), page.tokens.end());
    cursor = std::move(page.next);
  } while (!cursor.empty());
  if (arguments.json) {
    print_line(api::to_json(tokens));
    return kExitSuccess;
  }
  if (tokens.empty()) {
    print_line("There are no tokens.");
    return kExitSuccess;
  }
  std::vector<std::vector<std::string>> rows = {{"TOKEN", "PRINCIPAL", "STATE", "EXPIRES", "MADE BY", "NOTE"}};
  for (const api::RemoteToken& token : tokens) {
    rows.push_back({token.id, token.principal, token.state, human_time(token.expires.seconds, 0), token.created_by,
                    token.note});
  }
  print(table(rows));
  return kExitSuccess;
}

int revoke(const GlobalOptions& options, const TokenArguments& arguments) {
  ServiceClient service = service_of(options);
  const auto answer = service.ask("DELETE", "/v1/tokens/" + api::percent_encoded(arguments.id));
  if (api::is_refused(answer)) throw api::Problem(api::problem_of(answer));
  const api::RemoteToken ended = api::token_from_json(answer.body);
  print_line("Token " + ended.id + " of " + ended.principal + " is " + ended.state + ".");
  return kExitSuccess;
}

using Verb = int (*)(const GlobalOptions& options, const TokenArguments& arguments);

void choose(CLI::App& command, const GlobalOptions& options, Action& chosen, Verb verb,
            const std::shared_ptr<TokenArguments>& arguments) {
  command.callback([&options, &chosen, verb, arguments] {
    chosen = [&options, verb, arguments] { return verb(options, *arguments); };
  });
}

}  // namespace

void register_token(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  CLI::App* token = app.add_subcommand("token", "Make, list and revoke the bearer tokens of an escrowd");
  token->require_subcommand(1);
  token->footer(
      "A token is made here, printed once, and sent as its hash; it counts at once. Over the socket a principal makes\n"
      "its own; operators make and see everybody's.\n"
      "\n"
      "Examples:\n"
      "  escrow --host unix:///run/escrowd/escrowd.sock token create agent:ci --expires-in 30d --note nightly\n"
      "  escrow --host unix:///run/escrowd/escrowd.sock token revoke 3f9c0a1b2c3d4e5f\n");
  const auto creating = std::make_shared<TokenArguments>();
  CLI::App* one = token->add_subcommand("create", "Make a token and print it");
  one->add_option("PRINCIPAL", creating->principal, "Whose it is, user:NAME, agent:NAME or role:NAME (default: yours)");
  one->add_option("--expires-in", creating->expires_in, "How long it counts (default: 90d)")->type_name("TIME");
  one->add_option("--note", creating->note, "One line that says what it is for")->type_name("TEXT");
  one->add_flag("--json", creating->json, "Print one JSON object");
  choose(*one, options, chosen, create, creating);
  const auto listing = std::make_shared<TokenArguments>();
  CLI::App* all = token->add_subcommand("list", "List the tokens that count");
  all->add_option("PRINCIPAL", listing->principal, "Only this principal's");
  all->add_flag("--all", listing->all, "Also those that expired or were revoked");
  all->add_flag("--json", listing->json, "Print one JSON object");
  choose(*all, options, chosen, list_tokens, listing);
  const auto revoking = std::make_shared<TokenArguments>();
  CLI::App* end = token->add_subcommand("revoke", "End a token at once");
  end->add_option("TOKEN", revoking->id, "Its id, as `escrow token list` shows it")->required();
  choose(*end, options, chosen, revoke, revoking);
}

}  // namespace escrow::daemon
