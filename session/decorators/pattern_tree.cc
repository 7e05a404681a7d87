#include "session/decorators/pattern_tree.h"

#include <algorithm>

namespace escrow::session {
namespace {

bool has_wildcard(std::string_view glob) { return glob.find_first_of("*?[\\") != std::string_view::npos; }

// Two stars or more, as git reads them.
bool is_deep(std::string_view component) {
  return component.size() >= 2 && component.find_first_not_of('*') == std::string_view::npos;
}

// `*.x` with one dot: what such a name ends with finds it.
bool is_ending(std::string_view component) {
  return component.starts_with("*.") && component.rfind('.') == 1 && !has_wildcard(component.substr(1));
}

}  // namespace

std::uint32_t PatternTree::deep_of(std::uint32_t at) {
  if (nodes_[at].stays) return at;  // one `**` after the other
  if (!nodes_[at].deep) {
    nodes_[at].deep = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back().stays = true;
  }
  return *nodes_[at].deep;
}

std::uint32_t PatternTree::child_of(std::uint32_t at, std::string_view component) {
  Node& node = nodes_[at];
  const bool is_name = !has_wildcard(component), ends = is_ending(component);
  Index& index = is_name ? node.names : ends ? node.endings : node.globs;
  const std::string_view key = ends ? component.substr(1) : component;
  if (const auto found = index.find(key); found != index.end()) return found->second;
  const auto child = static_cast<std::uint32_t>(nodes_.size());
  index.emplace(key, child);
  if (!is_name && !ends) node.branches.push_back({Glob(component), child});
  nodes_.emplace_back();
  return child;
}

void PatternTree::add(std::string_view glob, bool anchored, std::uint32_t pattern) {
  std::uint32_t at = 0;
  nodes_[at].below.push_back(pattern);
  const auto go_to = [&](std::uint32_t node, bool is_end) {
    if (node != at && !is_end) nodes_[node].below.push_back(pattern);
    at = node;
  };
  if (!anchored && !is_deep(glob)) go_to(deep_of(at), false);
  for (;;) {
    const std::size_t slash = std::min(glob.find('/'), glob.size());
    const std::string_view component = glob.substr(0, slash);
    const bool is_last = slash == glob.size();
    if (is_deep(component)) {
      if (is_last) {
        nodes_[at].ends_open.push_back(pattern);
        return;
      }
      go_to(deep_of(at), false);
    } else {
      go_to(child_of(at, component), is_last);
      if (is_last) {
        nodes_[at].ends.push_back(pattern);
        return;
      }
    }
    glob.remove_prefix(slash + 1);
  }
}

PatternTree::States PatternTree::root() const {
  States states;
  push(states, 0);
  return states;
}

void PatternTree::push(States& states, std::uint32_t at) const {
  // Without anything below it, it leads nowhere.
  if (!nodes_[at].below.empty()) states.push_back(at);
  if (nodes_[at].deep) states.push_back(*nodes_[at].deep);
}

void PatternTree::sort(States& states) {
  if (states.size() < 2) return;
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
}

}  // namespace escrow::session
