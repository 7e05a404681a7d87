#include "tests/support/slow_policy.h"

#include <algorithm>
#include <bitset>
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

// What one element of a glob stands for: any number of characters, or one out of a set.
struct Element {
  bool is_star = false;
  std::bitset<256> characters;
};

unsigned char taken(const std::string& glob, std::size_t& at) {
  if (glob[at] == '\\') ++at;
  return static_cast<unsigned char>(glob[at++]);
}

// `[` with its `]`, at glob[at]; a `]` that comes first stands for itself.
std::bitset<256> class_at(const std::string& glob, std::size_t& at) {
  std::bitset<256> characters;
  const bool is_negated = glob[++at] == '!' || glob[at] == '^';
  if (is_negated) ++at;
  do {
    const unsigned char low = taken(glob, at);
    unsigned char high = low;
    if (glob[at] == '-' && glob[at + 1] != ']') high = taken(glob, ++at);
    for (unsigned c = low; c <= high; ++c) characters.set(c);
  } while (glob[at] != ']');
  ++at;
  return is_negated ? ~characters : characters;
}

std::vector<Element> elements_of(const std::string& glob) {
  std::vector<Element> elements;
  for (std::size_t at = 0; at < glob.size();) {
    Element element;
    if (glob[at] == '*') {
      element.is_star = true;
      ++at;
    } else if (glob[at] == '?') {
      element.characters.set();
      ++at;
    } else if (glob[at] == '[') {
      element.characters = class_at(glob, at);
    } else {
      element.characters.set(taken(glob, at));
    }
    elements.push_back(element);
  }
  return elements;
}

// Row by row over the pattern: at how many of the text's things it can end so far. `matches(p, t)` is one of each;
// `repeats(p)` says that p stands for any number of them.
bool lies_over(std::size_t patterns, std::size_t things, const auto& repeats, const auto& matches) {
  std::vector<char> ends(things + 1);
  ends[0] = true;
  for (std::size_t p = 0; p < patterns; ++p) {
    std::vector<char> next(things + 1);
    for (std::size_t t = 0; t <= things; ++t) {
      if (repeats(p))
        next[t] = ends[t] || (t > 0 && next[t - 1]);
      else
        next[t] = t > 0 && ends[t - 1] && matches(p, t - 1);
    }
    ends = next;
  }
  return ends[things];
}

bool component_matches(const std::string& glob, const std::string& name) {
  const std::vector<Element> elements = elements_of(glob);
  return lies_over(
      elements.size(), name.size(), [&](std::size_t e) { return elements[e].is_star; },
      [&](std::size_t e, std::size_t c) { return elements[e].characters[static_cast<unsigned char>(name[c])]; });
}

// Of any number of directories; as in git, more stars say no more than two.
bool is_deep(const std::string& glob) { return glob.size() > 1 && glob.find_first_not_of('*') == std::string::npos; }

bool lies_over_path(const std::vector<std::string>& globs, const std::vector<std::string>& names) {
  // `**` at the end is everything inside, so not nothing; elsewhere it is any number of directories.
  std::vector<std::string> all = globs;
  if (all.size() > 1 && is_deep(all.back())) all.emplace_back("*");
  return lies_over(
      all.size(), names.size(), [&](std::size_t g) { return is_deep(all[g]); },
      [&](std::size_t g, std::size_t n) { return component_matches(all[g], names[n]); });
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
  if (anchored) return lies_over_path(globs, names);
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

bool speaks_of(const PolicyRule& rule, const std::vector<std::string>& names, bool is_directory) {
  for (const std::string& pattern : rule.paths)
    if (covers(pattern, names, is_directory)) return true;
  return false;
}

// Whether a document allows the action on a path. Its rules are those that match the path, and no others.
bool is_allowed_by(const PolicyDocument& document, Action action) {
  bool is_allowed = document.allows_by_default, is_denied = false;
  for (const PolicyRule& rule : document.rules)
    if (rule.actions.has(action)) (rule.allows ? is_allowed : is_denied) = true;
  return is_allowed && !is_denied;
}

std::string pick(std::mt19937_64& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

}  // namespace

const std::vector<std::string> kPolicyNames = {"a", "b", "c", "x.key", "y.txt"};

bool SlowPolicy::allows(const std::string& path, bool is_directory, Action action) const {
  return allowed(path, is_directory).has(action);
}

Actions SlowPolicy::allowed(const std::string& path, bool is_directory) const {
  const std::vector<std::string> names = split(path);
  std::vector<PolicyDocument> documents = documents_;
  for (PolicyDocument& document : documents)
    std::erase_if(document.rules, [&](const PolicyRule& rule) { return !speaks_of(rule, names, is_directory); });
  Actions result;
  for (const Action action : session::kAllActions) {
    const auto allows = [&](const PolicyDocument& document) { return is_allowed_by(document, action); };
    if (std::all_of(documents.begin(), documents.end(), allows)) result.add(action);
  }
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

std::vector<PolicyDocument> random_hiding_policies(std::mt19937_64& random) {
  constexpr Action kOthers[] = {Action::create, Action::remove, Action::rename, Action::metadata};
  std::vector<PolicyDocument> documents(1 + random() % 2);
  for (PolicyDocument& document : documents) {
    document.allows_by_default = true;
    for (std::size_t i = 0; i <= random() % 4; ++i) {
      PolicyRule rule;
      for (const Action action : kOthers)
        if (random() % 2 == 0) rule.actions.add(action);
      if (rule.actions.empty() || random() % 2 == 0) rule.actions = Actions::all();
      // Where everything is denied at the root, a run tells nothing.
      do rule.paths = {random_pattern(random)};
      while (rule.paths[0] == "/" || rule.paths[0] == "**");
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
