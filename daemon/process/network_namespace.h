// A network of its own with nothing but a loopback, for a command that is to have none (--network none).
//
// Between fork and exec, single-threaded. Throws nothing; 0 or an errno. Sources: network_namespaces(7),
// user_namespaces(7), capabilities(7), netdevice(7).
#pragma once

namespace escrow::daemon {

// This process, and all it starts, leaves the network. An ordinary user gets a user namespace for it.
int leave_network();

// For a command that stays root: gives up, for good, every capability with which root would be back in the network by
// one call, such as setns(2), mount(2), ptrace(2) or a virtual device with an end outside. What is left is what docker
// gives a container, without CAP_MKNOD. A root that means to can still let others work for it, by the files it may
// write: only a confined command cannot.
int give_up_ways_back();

// Tries it, in a child: 0 or the errno.
int try_to_leave_network();

}  // namespace escrow::daemon
