// Which users and commands a session was served to: a list in the session's directory. Git runs the programs that a
// .git directory names, so a mount for one of them does not show a .git that another one made (hidden_git.h).
//
// Free functions, for the process that holds the session's lock. They throw what durable_file.h throws.
#pragma once

#include <string>
#include <vector>

namespace escrow::daemon {

// A program that works with the rights of this user.
std::string hand_of_user(unsigned uid);
// A confined command, or one in a container, that `principal` started: not a program of that user.
std::string hand_of_command(const std::string& principal);
// A mount that escrowd made for `principal`.
std::string hand_over_api(const std::string& principal);

// Whether it was served to anybody by this version of Escrow.
bool has_hands(const std::string& session_directory);
// Of an earlier version, or by no mount.
inline constexpr const char* kUnknownHand = "an unknown user";

// Notes that the session is served to `hand` from here on, and returns the others that it was served to, the last one
// last. Empty: to whom escrowd mounted it, who is known only if nobody else is in the list; else it is one more whom
// nobody knows, and never the same as an earlier one. With `is_durable` the note is on disk on return.
std::vector<std::string> note_hand(const std::string& session_directory, const std::string& hand, bool is_durable);

// A fork holds what its parent holds, so it has the parent's list. After the fork was filled: every host of the parent
// was in the list before it served. On disk on return.
void inherit_hands(const std::string& parent_directory, const std::string& fork_directory);

}  // namespace escrow::daemon
