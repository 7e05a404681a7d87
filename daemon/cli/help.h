// Two texts that are made from the parser of the command line: --help, and the options in the manual page escrow.1.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace escrow::daemon {

// --help as CLI11 lays it out, but an argument is its name or its choices, not the checks behind it.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// The section of escrow.1 that lists each command with its options, in mdoc(7). The build puts it into the page.
std::string manual_of(const CLI::App& app);

}  // namespace escrow::daemon
