// What the configuration of a TCP listener is checked with, before anything listens. Pure but for reading the files.
#pragma once

#include <string>

namespace escrow::api {

enum class TcpAddressKind { none, loopback, network };
// Of a numeric ADDRESS:PORT, IPv6 in brackets; `none`: it is something else.
TcpAddressKind kind_of_tcp_address(const std::string& text);

// Throws Error{bad_request} naming the file that cannot be used, or that does not fit the other.
void check_tls_files(const std::string& certificate, const std::string& key);

}  // namespace escrow::api
