// What policies say, decided a second time: slowly, from the words of the documentation, and sharing no code with
// session/decorators/access_policy.cc. And random policies over few names, so that rules meet. Not thread-safe.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "session/decorators/access_policy.h"

namespace escrow::support {

class SlowPolicy {
 public:
  explicit SlowPolicy(std::vector<session::PolicyDocument> documents) : documents_(std::move(documents)) {}

  bool allows(const std::string& path, bool is_directory, session::Action action) const;
  session::Actions allowed(const std::string& path, bool is_directory) const;
  // Whether something is allowed at some path of kPolicyNames below the directory, at most three levels down.
  bool allows_something_below(const std::string& path) const;

 private:
  bool finds_something_below(const std::string& path) const;

  std::vector<session::PolicyDocument> documents_;
  mutable std::map<std::string, bool> known_below_;
};

// The names that random policies and trees are made of.
extern const std::vector<std::string> kPolicyNames;

std::string random_pattern(std::mt19937_64& random);
std::vector<session::PolicyDocument> random_policies(std::mt19937_64& random);
// Those whose rules deny all actions, or none that an open needs.
std::vector<session::PolicyDocument> random_hiding_policies(std::mt19937_64& random);
std::string describe(const std::vector<session::PolicyDocument>& documents);

}  // namespace escrow::support
