// Where clients come in: a Unix socket that the kernel vouches for, a TCP port, and the certificate shown there. Only
// for the .cc files of api/.
//
// Throws Error{unavailable} naming what cannot be listened on and why, Error{bad_request} for an address or a file of
// the configuration that cannot be used. Sources: unix(7), RFC 8446, BCP 195.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <string>

#include "api/byte_stream.h"

namespace escrow::api {

// Mode 0660; `group` empty: this process's. A socket that a dead server left is replaced, one that answers is not.
Acceptor listen_on_unix(boost::asio::io_context& io, const std::string& path, const std::string& group);
// A socket that listens at `path` already, made by the service manager: takes it over, with the same mode and group.
Acceptor listen_on_given(boost::asio::io_context& io, int socket, const std::string& path, const std::string& group);
// `address` is a numeric ADDRESS:PORT, IPv6 in brackets.
Acceptor listen_on_tcp(boost::asio::io_context& io, const std::string& address);
// Of a connected TCP socket: who may have many of them. Its IPv4 address, or the first half of its IPv6 address, which
// is what one customer has.
std::string remote_network_of(int socket);
// TLS 1.2 or later, with a certificate (or chain) and its key in PEM files.
boost::asio::ssl::context tls_context(const std::string& certificate, const std::string& key);

}  // namespace escrow::api
