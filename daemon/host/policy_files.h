// Policies from their files and back from a session's record. No state. Throws Error{bad_request} naming the file, line
// and column, or what could not be read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/decorators/access_policy.h"

namespace escrow::daemon {

// The texts of the files, each checked.
std::vector<std::string> read_policies(const std::vector<std::string>& files);

// One policy of all the documents, each of which can only narrow what the others allow; nullptr: there are none.
// `names` are what they are called in messages; without, "policy 1" and so on.
std::unique_ptr<session::AccessPolicy> compile_policies(const std::vector<std::string>& texts,
                                                        const std::vector<std::string>& names = {});

}  // namespace escrow::daemon
