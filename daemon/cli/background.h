// Carries on in a background process while the command returns to its caller.
#pragma once

#include <functional>
#include <string>

namespace escrow::daemon {

// Told once, when what was started is ready: the caller prints `output` and returns. From then on the background
// process has no terminal, its standard streams are /dev/null and its working directory is "/".
using Announce = std::function<void(const std::string& output)>;

// Forks; must be called before any thread exists. The child leads a new session (setsid) and runs `work`; the parent
// returns what is to be printed as soon as `work` announces it, or throws the Error that `work` threw before. Does
// not return in the child.
std::string run_in_background(const std::function<int(const Announce&)>& work);

}  // namespace escrow::daemon
