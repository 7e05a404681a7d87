#include "session/decorators/access_policy.h"

#include <algorithm>
#include <bit>

#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::session {
namespace {

constexpr std::size_t kMaxPattern_bytes = 4096;

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> components_of(std::string_view glob) {
  std::vector<std::string> components;
  while (!glob.empty()) {
    const std::size_t slash = std::min(glob.find('/'), glob.size());
    components.emplace_back(glob.substr(0, slash));
    glob.remove_prefix(std::min(slash + 1, glob.size()));
  }
  return components;
}

[[noreturn]] void refuse(const std::string& pattern, const std::string& why) {
  throw Error(Errc::bad_request, "the pattern \"" + pattern + "\" " + why);
}

// Whether every '[' has its ']', as a Glob reads them.
bool has_closed_classes(std::string_view glob) {
  for (std::size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == '\\') {
      ++i;
    } else if (glob[i] == '[') {
      ++i;
      if (i < glob.size() && (glob[i] == '!' || glob[i] == '^')) ++i;
      for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false, ++i)
        if (glob[i] == '\\') ++i;
      if (i >= glob.size()) return false;
    }
  }
  return true;
}

bool ends_escaping(std::string_view glob) {
  const std::size_t last = glob.find_last_not_of('\\');
  return (glob.size() - (last == std::string_view::npos ? 0 : last + 1)) % 2 == 1;
}

}  // namespace

const char* name_of(Action action) {
  switch (action) {
    case Action::read: return "read";
    case Action::list: return "list";
    case Action::write: return "write";
    case Action::create: return "create";
    case Action::remove: return "delete";
    case Action::rename: return "rename";
    case Action::metadata: return "metadata";
  }
  return "unknown";
}

std::optional<Action> action_from_name(std::string_view name) {
  for (const Action action : kAllActions)
    if (name == name_of(action)) return action;
  return std::nullopt;
}

Action Actions::first() const { return static_cast<Action>(std::countr_zero(bits_)); }

void check_policy_pattern(const std::string& pattern) {
  if (pattern.empty()) throw Error(Errc::bad_request, "a path is empty; \"/\" is everything");
  if (pattern == "/") return;
  if (pattern.size() > kMaxPattern_bytes) refuse(pattern.substr(0, 40) + "...", "is longer than 4096 bytes");
  if (pattern.find('\0') != std::string::npos) refuse(pattern, "has a NUL byte, which no path can have");
  if (pattern.front() == '!') refuse(pattern, "begins with '!': write a rule with the other effect instead");
  std::string_view glob = pattern;
  if (glob.front() == '/') glob.remove_prefix(1);
  if (!glob.empty() && glob.back() == '/') glob.remove_suffix(1);
  if (glob.empty() || glob.front() == '/' || glob.back() == '/' || glob.find("//") != std::string_view::npos)
    refuse(pattern, "has an empty component: no path matches it");
  for (const std::string& component : components_of(glob)) {
    if (component == "." || component == "..")
      refuse(pattern, "has the component \"" + component + "\": paths are those of the repository, without it");
    if (ends_escaping(component))
      refuse(pattern, "has a component that ends with a backslash, which escapes no character of a name");
    if (!has_closed_classes(component))
      refuse(pattern, "has a '[' without its ']' in the same component; escape it with a backslash");
  }
}

AccessPolicy::AccessPolicy(const std::vector<PolicyDocument>& documents) {
  if (documents.size() > kMaxPolicies)
    throw Error(Errc::bad_request, "more than " + std::to_string(kMaxPolicies) +
                                       " policies for one session; put rules of several into one file");
  for (std::size_t policy = 0; policy < documents.size(); ++policy) {
    const PolicyDocument& document = documents[policy];
    allows_by_default_.push_back(document.allows_by_default);
    if (!document.allows_by_default)
      deniable_ = deniable_on_seen_files_ = deniable_on_seen_directories_ = Actions::all();
    for (std::size_t number = 0; number < document.rules.size(); ++number) {
      const PolicyRule& rule = document.rules[number];
      if (!rule.allows) note_denial(rule);
      for (const std::string& text : rule.paths) add(text, rule, policy, number);
    }
  }
  note_what_is_allowed_below();
}

void AccessPolicy::note_denial(const PolicyRule& rule) {
  deniable_ = deniable_ | rule.actions;
  if (rule.actions != Actions::all()) {
    deniable_on_seen_files_ = deniable_on_seen_files_ | rule.actions;
    deniable_on_seen_directories_ = deniable_on_seen_directories_ | rule.actions;
    return;
  }
  // A pattern that speaks of directories only hides no name: there could be a file. What is below is hidden.
  for (const std::string& text : rule.paths)
    if (text.size() > 1 && text.back() == '/') deniable_on_seen_directories_ = Actions::all();
}

void AccessPolicy::add(const std::string& text, const PolicyRule& rule, std::size_t policy, std::size_t number) {
  check_policy_pattern(text);
  Pattern pattern;
  pattern.text = text;
  pattern.policy = policy;
  pattern.rule = number;
  pattern.allows = rule.allows;
  pattern.actions = rule.actions;
  std::string_view glob = text;
  if (glob.size() > 1 && glob.back() == '/') {
    pattern.directories_only = true;
    glob.remove_suffix(1);
  }
  const bool is_anchored = glob.find('/') != std::string_view::npos;
  if (glob.front() == '/') glob.remove_prefix(1);

  const auto at = static_cast<std::uint32_t>(patterns_.size());
  if (text == "/" || text == "**") root_.push_back(at);
  if (!glob.empty()) tree_.add(glob, is_anchored, at);
  patterns_.push_back(std::move(pattern));
}

void AccessPolicy::note_what_is_allowed_below() {
  allowed_below_.resize(tree_.nodes());
  for (std::uint32_t node = 0; node < tree_.nodes(); ++node) {
    for (const std::uint32_t number : tree_.patterns_below(node)) {
      const Pattern& pattern = patterns_[number];
      if (!pattern.allows) continue;
      Actions& allowed = allowed_below_[node][pattern.policy];
      allowed = allowed | pattern.actions;
    }
  }
}

// Patterns that match `name` in the directory that `directory` leads to, whatever they do above it.
template <typename Visit>
PatternTree::States AccessPolicy::visit_own_matches(const PatternTree::States& directory, std::string_view name,
                                                    bool is_directory, Visit visit) const {
  return tree_.below(directory, name, [&](std::uint32_t number) {
    const Pattern& pattern = patterns_[number];
    if (is_directory || !pattern.directories_only) visit(number, pattern);
  });
}

// Also those that match a directory above it.
template <typename Visit>
PatternTree::States AccessPolicy::visit_matches(std::string_view path, bool is_directory, Visit visit) const {
  for (const std::uint32_t number : root_) visit(number, patterns_[number]);
  PatternTree::States states = tree_.root();
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const bool is_last = slash == path.size();
    states = visit_own_matches(states, path.substr(0, slash), is_directory || !is_last, visit);
    path.remove_prefix(is_last ? slash : slash + 1);
  }
  return states;
}

void AccessPolicy::say(Place& place, const Pattern& pattern) {
  Actions& said = pattern.allows ? place.said_[pattern.policy].allowed : place.said_[pattern.policy].denied;
  said = said | pattern.actions;
}

AccessPolicy::Place AccessPolicy::at(std::string_view path, bool is_directory) const {
  Place place;
  place.states_ =
      visit_matches(path, is_directory, [&](std::uint32_t, const Pattern& pattern) { say(place, pattern); });
  return place;
}

AccessPolicy::Place AccessPolicy::below(const Place& directory, std::string_view path, bool is_directory) const {
  Place place;
  place.said_ = directory.said_;
  place.states_ = visit_own_matches(directory.states_, name_in(path), is_directory,
                                    [&](std::uint32_t, const Pattern& pattern) { say(place, pattern); });
  return place;
}

Actions AccessPolicy::allowed(const Place& place) const {
  Actions result = Actions::all();
  for (std::size_t policy = 0; policy < allows_by_default_.size(); ++policy) {
    const Actions allowed = allows_by_default_[policy] ? Actions::all() : place.said_[policy].allowed;
    result = result & (allowed - place.said_[policy].denied);
  }
  return result;
}

bool AccessPolicy::may_differ_below(std::string_view path) const {
  std::vector<bool> covers(patterns_.size());
  const PatternTree::States states =
      visit_matches(path, true, [&](std::uint32_t number, const Pattern&) { covers[number] = true; });
  return std::any_of(states.begin(), states.end(), [&](std::uint32_t node) {
    const auto& below = tree_.patterns_below(node);
    return std::any_of(below.begin(), below.end(), [&](std::uint32_t number) { return !covers[number]; });
  });
}

Actions AccessPolicy::may_be_allowed_below(const Place& directory) const {
  Place below = directory;
  for (const std::uint32_t node : directory.states_) {
    for (std::size_t policy = 0; policy < allows_by_default_.size(); ++policy)
      below.said_[policy].allowed = below.said_[policy].allowed | allowed_below_[node][policy];
  }
  return allowed(below);
}

AccessPolicy::Decision AccessPolicy::decide(std::string_view path, bool is_directory, Action action) const {
  // By policy, the number of the pattern of its first rule that allows, or denies.
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::array<std::uint32_t, kMaxPolicies> allowing, denying;
  allowing.fill(kNone);
  denying.fill(kNone);
  visit_matches(path, is_directory, [&](std::uint32_t number, const Pattern& pattern) {
    if (!pattern.actions.has(action)) return;
    std::uint32_t& first = (pattern.allows ? allowing : denying)[pattern.policy];
    first = std::min(first, number);  // numbers are in the order of the rules
  });
  const auto decision = [&](std::size_t policy, bool is_allowed, std::uint32_t number) {
    Decision result{is_allowed, policy, std::nullopt, {}};
    if (number != kNone) {
      result.rule = patterns_[number].rule;
      result.pattern = patterns_[number].text;
    }
    return result;
  };
  for (std::size_t policy = 0; policy < allows_by_default_.size(); ++policy) {
    if (denying[policy] != kNone) return decision(policy, false, denying[policy]);
    if (!allows_by_default_[policy] && allowing[policy] == kNone) return decision(policy, false, kNone);
  }
  for (std::size_t policy = 0; policy < allows_by_default_.size(); ++policy)
    if (allowing[policy] != kNone) return decision(policy, true, allowing[policy]);
  return decision(0, true, kNone);
}

std::string AccessPolicy::describe(const Decision& decision) {
  const std::string effect = decision.allowed ? "allow" : "deny";
  const std::string policy = "policy " + std::to_string(decision.policy + 1);
  if (!decision.rule) return policy + ", default: " + effect;
  return policy + ", rule " + std::to_string(*decision.rule + 1) + ": " + effect + " " + quote_path(decision.pattern);
}

}  // namespace escrow::session
