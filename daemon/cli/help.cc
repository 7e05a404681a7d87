#include "daemon/cli/help.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace escrow::daemon {
namespace {

// "N" of the type "N:UINT in [1 - 100]", "on|off" of "TEXT:{on,off}", as CLI11 writes names, checks and choices.
std::string argument_of(const CLI::Option& option) {
  std::string name = option.get_type_name();
  const std::size_t choices = name.find(":{");
  if (choices != std::string::npos) {
    name = name.substr(choices + 2, name.find('}', choices) - choices - 2);
    std::ranges::replace(name, ',', '|');
    return name;
  }
  return name.substr(0, name.find(':'));
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;
  for (const CLI::Option* option : options) names.insert(option->get_name());
  std::string text;
  for (const std::string& name : names) text += " " + name;
  return text;
}

bool takes_argument(const CLI::Option& option) { return option.get_type_size() != 0 && !argument_of(option).empty(); }

// Text for mdoc(7): no line of it is a request, and its letters stay ASCII (groff_char(7)).
std::string roff(std::string_view text) {
  std::string result;
  bool begins_line = true;
  for (const char letter : text) {
    if (begins_line && letter == '.') result += "\\&";
    begins_line = letter == '\n';
    switch (letter) {
      case '\\': result += "\\e"; break;
      case '\'': result += "\\(aq"; break;
      case '`': result += "\\(ga"; break;
      case '^': result += "\\(ha"; break;
      case '~': result += "\\(ti"; break;
      case '-': result += "\\-"; break;
      default: result += letter;
    }
  }
  return result;
}

// One argument of a macro, whatever it has in it.
std::string macro_argument(std::string_view text) {
  std::string result = "\"";
  for (const char letter : roff(text)) result += letter == '"' ? std::string("\\(dq") : std::string(1, letter);
  return result + "\"";
}

void write_options(std::ostream& out, const CLI::App& command, const HelpFormatter& formatter) {
  const auto is_listed = [&](const CLI::Option* option) {
    return option->nonpositional() && !option->get_group().empty() && option != command.get_help_ptr();
  };
  out << ".Bl -tag -width indent\n";
  for (const CLI::Option* option : command.get_options(is_listed)) {
    std::string separator;
    out << ".It";
    for (const std::string& name : option->get_snames()) out << std::exchange(separator, " ,") << " Fl " << name;
    for (const std::string& name : option->get_lnames())
      out << std::exchange(separator, " ,") << " Fl -" << name;
    if (takes_argument(*option)) out << " Ar " << macro_argument(argument_of(*option));
    out << "\n" << roff(formatter.make_option_desc(option)) << "\n";
  }
  out << ".El\n";
}

void write_command(std::ostream& out, const CLI::App& command, const std::string& name,
                   const HelpFormatter& formatter) {
  std::string usage = formatter.make_usage(&command, name);
  usage = usage.substr(usage.find(name));
  out << ".Ss \"" << name << "\"\n"
      << roff(command.get_description()) << ".\n.Bd -literal\n"
      << roff(usage.substr(0, usage.find('\n'))) << "\n.Ed\n";
  write_options(out, command, formatter);
  if (!command.get_footer().empty()) out << ".Bd -literal\n" << roff(command.get_footer()) << "\n.Ed\n";
  for (const CLI::App* one : command.get_subcommands({}))
    write_command(out, *one, name + " " + one->get_name(), formatter);
}

}  // namespace

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (takes_argument(*option)) text += " " + argument_of(*option);
  if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
  return text;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  if (option->nonpositional() && option->get_required()) text += " (required)";
  if (!option->get_needs().empty()) text += " (only with" + names_of(option->get_needs()) + ")";
  if (!option->get_excludes().empty()) text += " (not with" + names_of(option->get_excludes()) + ")";
  if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
  if (!option->get_envname().empty()) text += " (else $" + option->get_envname() + ")";
  return text;
}

std::string manual_of(const CLI::App& app) {
  const HelpFormatter formatter;
  std::ostringstream out;
  out << ".Sh OPTIONS\n";
  for (const CLI::App* command : app.get_subcommands({}))
    write_command(out, *command, app.get_name() + " " + command->get_name(), formatter);
  return out.str();
}

}  // namespace escrow::daemon
