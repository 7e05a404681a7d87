#include "tests/support/slow_policy.h"

#include <map>
#include <regex>
#include <sstream>

namespace escrow::support {
namespace {

using session::Action;
using session::Actions;
using session::PolicyDocument;
using session::PolicyRule;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, '/');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

bool component_matches(const std::string& glob, const std::string& name) {
  static std::map<std::pair<std::string, std::string>, bool> known;
  const auto before = known.find({glob, name});
  if (before != known.end()) return before->second;
  std::string expression;
  bool in_class = false;
  for (std::size_t i = 0; i < glob.size(); ++i) {
    const char c = glob[i];
    if (in_class) {
      expression += c == '!' && glob[i - 1] == '[' ? '^' : c;
      in_class = c != ']';
    } else if (c == '[') {
      expression += c;
      in_class = true;
    } else if (c == '*') {
      expression += ".*";
    } else if (c == '?') {
      expression += '.';
    } else if (c == '\\') {
      expression += std::string("\\") + glob[++i];
    } else {
      if (std::string("^$.+(){}|").find(c) != std::string::npos) expression += '\\';
      expression += c;
    }
  }
  return known[{glob, name}] = std::regex_match(name, std::regex(expression));
}

// Every way to lay the pattern's components over the path's.
bool lies_over(const std::vector<std::string>& globs, std::size_t g, const std::vector<std::string>& names,
               std::size_t n) {
  if (g == globs.size()) return n == names.size();
  if (globs[g] == "**") {
    // At the end it is everything inside, so not nothing; elsewhere any number of directories.
    if (g + 1 == globs.size()) return n < names.size() || globs.size() == 1;
    for (std::size_t next = n; next <= names.size(); ++next)
      if (lies_over(globs, g + 1, names, next)) return true;
    return false;
  }
  return n < names.size() && component_matches(globs[g], names[n]) && lies_over(globs, g + 1, names, n + 1);
}

// The pattern says this very path.
bool names_it(std::string pattern, const std::vector<std::string>& names, bool is_directory) {
  if (names.empty()) return pattern == "/" || pattern == "**";
  if (pattern == "/") return false;
  if (pattern.back() == '/') {
    if (!is_directory) return false;
    pattern.pop_back();
  }
  const bool anchored = pattern.find('/') != std::string::npos;
  const std::vector<std::string> globs = split(pattern);
  if (anchored) return lies_over(globs, 0, names, 0);
  return component_matches(globs[0], names.back());
}

// It, or a directory above it.
bool covers(const std::string& pattern, const std::vector<std::string>& names, bool is_directory) {
  for (std::size_t length = 0; length <= names.size(); ++length) {
    const std::vector<std::string> above(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(length));
    if (names_it(pattern, above, length < names.size() || is_directory)) return true;
  }
  return false;
}

bool speaks_of(const PolicyRule& rule, const std::vector<std::string>& names, bool is_directory, Action action) {
  if (!rule.actions.has(action)) return false;
  for (const std::string& pattern : rule.paths)
    if (covers(pattern, names, is_directory)) return true;
  return false;
}

std::string pick(std::mt19937_64& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

}  // namespace

const std::vector<std::string> kPolicyNames = {"a", "b", "c", "x.key", "y.txt"};

bool SlowPolicy::allows(const std::string& path, bool is_directory, Action action) const {
  const std::vector<std::string> names = split(path);
  for (const PolicyDocument& document : documents_) {
    bool is_allowed = document.allows_by_default, is_denied = false;
    for (const PolicyRule& rule : document.rules) {
      if (!speaks_of(rule, names, is_directory, action)) continue;
      (rule.allows ? is_allowed : is_denied) = true;
    }
    if (is_denied || !is_allowed) return false;
  }
  return true;
}

Actions SlowPolicy::allowed(const std::string& path, bool is_directory) const {
  Actions result;
  for (const Action action : session::kAllActions)
    if (allows(path, is_directory, action)) result.add(action);
  return result;
}

bool SlowPolicy::allows_something_below(const std::string& path) const {
  const auto before = known_below_.find(path);
  if (before != known_below_.end()) return before->second;
  return known_below_[path] = finds_something_below(path);
}

bool SlowPolicy::finds_something_below(const std::string& path) const {
  std::vector<std::string> level{path};
  for (int depth = 0; depth < 3; ++depth) {
    std::vector<std::string> next;
    for (const std::string& directory : level)
      for (const std::string& name : kPolicyNames) {
        const std::string below = directory.empty() ? name : directory + "/" + name;
        if (!allowed(below, false).empty() || !allowed(below, true).empty()) return true;
        next.push_back(below);
      }
    level = std::move(next);
  }
  return false;
}

std::string random_pattern(std::mt19937_64& random) {
  static const std::vector<std::string> globs = {"a", "b", "c", "x.key", "y.txt", "*.key", "*.txt", "?", "[ab]",
                                                 "[!a]", "*", "?.*", "x*y", "\\a"};
  switch (random() % 12) {
    case 0: return "/";
    case 1: return "**";
    case 2: return "**/" + pick(random, globs);
    case 3: return pick(random, kPolicyNames) + "/**";
    case 4: return pick(random, globs) + "/**/" + pick(random, globs);
    case 5: return "/" + pick(random, globs) + (random() % 2 ? "/" : "");
    case 6: return pick(random, kPolicyNames) + "/" + pick(random, globs);
    case 7: return pick(random, globs) + "/";
    case 8: return pick(random, kPolicyNames) + "/" + pick(random, globs) + "/";
    default: return pick(random, random() % 2 ? kPolicyNames : globs);
  }
}

std::vector<PolicyDocument> random_policies(std::mt19937_64& random) {
  std::vector<PolicyDocument> documents(1 + (random() % 3 == 0 ? random() % 3 : 0));
  for (PolicyDocument& document : documents) {
    document.allows_by_default = random() % 3 != 0;
    const std::size_t rules = random() % 7;
    for (std::size_t i = 0; i < rules; ++i) {
      PolicyRule rule;
      rule.allows = random() % 3 == 0 || (!document.allows_by_default && random() % 3 != 0);
      for (const Action action : session::kAllActions)
        if (random() % 3 == 0) rule.actions.add(action);
      if (rule.actions.empty() || random() % 5 == 0) rule.actions = Actions::all();
      for (std::size_t path = 0; path <= random() % 3; ++path) rule.paths.push_back(random_pattern(random));
      document.rules.push_back(rule);
    }
  }
  return documents;
}

std::string describe(const std::vector<PolicyDocument>& documents) {
  std::ostringstream out;
  for (const PolicyDocument& document : documents) {
    out << "default " << (document.allows_by_default ? "allow" : "deny") << "\n";
    for (const PolicyRule& rule : document.rules) {
      out << "  " << (rule.allows ? "allow" : "deny");
      for (const Action action : session::kAllActions)
        if (rule.actions.has(action)) out << ' ' << session::name_of(action);
      out << ":";
      for (const std::string& path : rule.paths) out << " '" << path << "'";
      out << "\n";
    }
  }
  return out.str();
}

}  // namespace escrow::support
