// The options of a SessionRequest on the command line, made from its table (session_request.h).
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/host/session_request.h"

namespace CLI {
class App;
}

namespace escrow::daemon {

class RequestArguments {
 public:
  // Adds the options of these parts. This object outlives the command.
  void add_to(CLI::App& command, std::initializer_list<RequestPart> parts);
  // --git, --no-git and --git-commits
  void add_git_to(CLI::App& command);
  // The request that the options add up to; reads the policy files. Throws Error{bad_request} naming the option.
  SessionRequest request() const;
  bool has(std::string_view name) const;

 private:
  struct Given {
    std::vector<std::string> texts;
    bool flag = false;
  };
  std::map<std::string_view, Given> given_;  // by the field's name
  bool git_ = false, no_git_ = false;
  std::string git_commits_;
};

// --trace
void add_trace_option(CLI::App& command, std::string& file);
// --with-changes
void add_with_changes_option(CLI::App& command, bool& given);

}  // namespace escrow::daemon
