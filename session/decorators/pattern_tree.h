// Which of many patterns match a path: found from its root down, one component at a time.
//
// Patterns are gitignore(5)'s without `!`, one that ends with `/` given without it. They share the components that they
// begin with. A literal component, or `*.ending`, is found by its hash; one with other wildcards is matched only where
// the components before it have matched, and only to names that have its letters. Constant once all are added,
// thread-safe for reading.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/base/glob.h"

namespace escrow::session {

class PatternTree {
 public:
  // The nodes of the tree that a directory's path leads to, in order: what may match below it follows from them.
  using States = std::vector<std::uint32_t>;

  PatternTree() : nodes_(1) {}

  // `glob` is not empty and has no empty component; without a slash, unless it is `anchored`, it matches at any depth.
  void add(std::string_view glob, bool anchored, std::uint32_t pattern);

  // Of the root itself, which no pattern matches.
  States root() const;
  // Of `name` in the directory of `states`; calls visit(pattern) for each pattern that matches that path.
  template <typename Visit>
  States below(const States& states, std::string_view name, Visit visit) const {
    States result;
    const std::uint64_t letters = Glob::letters_of(name);
    const auto enter = [&](std::uint32_t at) {
      for (const std::uint32_t pattern : nodes_[at].ends) visit(pattern);
      push(result, at);
    };
    for (const std::uint32_t at : states) {
      const Node& node = nodes_[at];
      for (const std::uint32_t pattern : node.ends_open) visit(pattern);
      if (node.stays) push(result, at);
      if (const auto found = node.names.find(name); found != node.names.end()) enter(found->second);
      if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos && !node.endings.empty())
        if (const auto found = node.endings.find(name.substr(dot)); found != node.endings.end()) enter(found->second);
      for (const Branch& branch : node.branches)
        if ((branch.glob.letters() & ~letters) == 0 && branch.glob.match(name)) enter(branch.node);
    }
    sort(result);
    return result;
  }

  std::size_t nodes() const { return nodes_.size(); }
  // The patterns that could match a path below one that leads to the node.
  const std::vector<std::uint32_t>& patterns_below(std::uint32_t node) const { return nodes_[node].below; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Index = std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>>;
  struct Branch {
    Glob glob;
    std::uint32_t node;
  };
  struct Node {
    Index names, endings, globs;           // the nodes one component below; `globs` for those of the branches
    std::vector<Branch> branches;
    std::optional<std::uint32_t> deep;     // the node of a `**` that comes next, which is reached without a component
    bool stays = false;                    // is the node of a `**`, so that any component leads back to it
    std::vector<std::uint32_t> ends;       // patterns that match a path that leads here
    std::vector<std::uint32_t> ends_open;  // those that end with `**` behind it: any component below
    std::vector<std::uint32_t> below;
  };

  std::uint32_t deep_of(std::uint32_t at);
  std::uint32_t child_of(std::uint32_t at, std::string_view component);
  // With the `**` behind it.
  void push(States& states, std::uint32_t at) const;
  static void sort(States& states);

  std::vector<Node> nodes_;  // the first is the root
};

}  // namespace escrow::session
