// May this principal do this to this path? A session's policies, compiled once.
//
// Pure, constant after construction, thread-safe for reading. A policy is a list of rules, each allowing or denying
// some actions below some paths. Within a policy a deny wins over any allow, and what no rule names follows the
// policy's default; of several policies each must allow. Paths are as the repository sees them, a mount's prefix
// included; "" is the repository's root. Patterns are those of gitignore(5) without `!`: one that matches a directory
// covers everything below it; "/" and "**" are the root and so everything. Throws Error{bad_request} for what is none.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/decorators/pattern_tree.h"

namespace escrow::session {

enum class Action : std::uint8_t { read, list, write, create, remove, rename, metadata };
inline constexpr std::array<Action, 7> kAllActions = {Action::read,   Action::list,   Action::write,   Action::create,
                                                      Action::remove, Action::rename, Action::metadata};
const char* name_of(Action action);  // as policies spell it: remove is "delete"
std::optional<Action> action_from_name(std::string_view name);

// A set of actions.
class Actions {
 public:
  constexpr Actions() = default;
  constexpr Actions(std::initializer_list<Action> actions) {
    for (const Action action : actions) add(action);
  }
  static constexpr Actions all() { return Actions(0x7f); }
  constexpr void add(Action action) { bits_ = static_cast<std::uint8_t>(bits_ | 1u << static_cast<unsigned>(action)); }
  constexpr bool has(Action action) const { return (bits_ >> static_cast<unsigned>(action) & 1u) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  // The first action of the set; there must be one.
  Action first() const;
  friend constexpr Actions operator|(Actions a, Actions b) { return Actions(a.bits_ | b.bits_); }
  friend constexpr Actions operator&(Actions a, Actions b) { return Actions(a.bits_ & b.bits_); }
  friend constexpr Actions operator-(Actions a, Actions b) { return Actions(a.bits_ & ~b.bits_); }
  friend constexpr bool operator==(Actions, Actions) = default;

 private:
  explicit constexpr Actions(int bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  std::uint8_t bits_ = 0;
};

// A policy as it was written.
struct PolicyRule {
  bool allows = false;  // or denies
  Actions actions;
  std::vector<std::string> paths;
};
struct PolicyDocument {
  bool allows_by_default = false;
  std::vector<PolicyRule> rules;
};

inline constexpr std::size_t kMaxPolicies = 8;

// Throws Error{bad_request}: why `pattern` is none.
void check_policy_pattern(const std::string& pattern);

class AccessPolicy {
 public:
  // At most kMaxPolicies documents.
  explicit AccessPolicy(const std::vector<PolicyDocument>& documents);

  // What the rules say about a path and, where it is a directory, everything below it.
  class Place {
   public:
    Place() = default;

   private:
    friend class AccessPolicy;
    struct Said {
      Actions allowed, denied;
    };
    std::array<Said, kMaxPolicies> said_{};  // by document
    PatternTree::States states_;
  };
  Place at(std::string_view path, bool is_directory) const;
  // Of `path`, a name in the directory that `directory` is the place of.
  Place below(const Place& directory, std::string_view path, bool is_directory) const;
  Actions allowed(const Place& place) const;
  Actions allowed(std::string_view path, bool is_directory) const { return allowed(at(path, is_directory)); }

  // Whether something below the directory might be judged in another way than the directory itself. In doubt yes.
  bool may_differ_below(std::string_view path) const;
  // What might be allowed somewhere below the directory; in doubt more.
  Actions may_be_allowed_below(const Place& directory) const;
  // Whether the action is denied anywhere.
  bool can_deny(Action action) const { return deniable_.has(action); }
  // Whether it is denied on a file, or a directory, whose name may be seen all the same: a name at which all actions
  // are denied cannot be looked up, nor be made, nor be moved to. In doubt yes. Not asked of the root of a mount, which
  // nobody looks up.
  bool can_deny_on_seen_file(Action action) const { return deniable_on_seen_files_.has(action); }
  bool can_deny_on_seen_directory(Action action) const { return deniable_on_seen_directories_.has(action); }

  // What decided: in the first policy that denies the first rule that does, else the first rule that allows; without a
  // rule it was the policy's default.
  struct Decision {
    bool allowed = false;
    std::size_t policy = 0;           // from 0
    std::optional<std::size_t> rule;  // from 0
    std::string pattern;              // of the rule, the one that matched
  };
  Decision decide(std::string_view path, bool is_directory, Action action) const;
  // For people: "policy 1, rule 2: deny secret/**", "policy 1, default: deny".
  static std::string describe(const Decision& decision);

 private:
  struct Pattern {
    std::string text;
    std::size_t policy = 0, rule = 0;
    bool allows = false;
    Actions actions;
    bool directories_only = false;
  };
  using AllowedByPolicy = std::array<Actions, kMaxPolicies>;

  void note_denial(const PolicyRule& rule);
  void add(const std::string& text, const PolicyRule& rule, std::size_t policy, std::size_t number);
  void note_what_is_allowed_below();
  template <typename Visit>
  PatternTree::States visit_matches(std::string_view path, bool is_directory, Visit visit) const;
  template <typename Visit>
  PatternTree::States visit_own_matches(const PatternTree::States& directory, std::string_view name, bool is_directory,
                                        Visit visit) const;
  static void say(Place& place, const Pattern& pattern);

  // All constant.
  std::vector<bool> allows_by_default_;  // by policy
  std::vector<Pattern> patterns_;
  PatternTree tree_;                     // of their numbers
  std::vector<AllowedByPolicy> allowed_below_;  // by node of the tree
  std::vector<std::uint32_t> root_;      // those that match the root itself
  Actions deniable_;
  Actions deniable_on_seen_files_, deniable_on_seen_directories_;
};

}  // namespace escrow::session
