// Looking at what may or may not be there. Only ENOENT and ENOTDIR mean that it is not: every other error (no
// descriptor left, a failing disk, no right) is thrown as system_error(). Whoever takes an error for absence commits an
// empty session, or collects what a list that it could not read holds. Functions only; thread-safe.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::storage {

// Of the name itself, not of what a symbolic link leads to; nullopt: there is none.
std::optional<struct stat> status_of(const std::string& path);

bool is_there(const std::string& path);

// Or a symbolic link to one.
bool is_directory(const std::string& path);

// Throws Error{damaged_repository} unless it is a directory, not a link, of root, of this user or of whoever owns the
// directory that it lies in: others who may write there have put it in the place of the right one.
void check_own_directory(const std::string& path);

// Throws Error{damaged_repository} if `path` is a symbolic link: another user may have put it in the place of a file of
// Escrow.
void check_no_link(const std::string& path);

// What a directory holds, but for "." and "..", in no order; empty: there is no such directory.
std::vector<std::string> names_in(const std::string& directory);

// Everything below a directory, each directory before what it holds; links are not followed.
void for_each_below(const std::string& directory,
                    const std::function<void(const std::string& path, const struct stat& status)>& visit);

// Without blanks at its end; "": it is empty, or there is no such file.
std::string first_line_of(const std::string& path);

// Each line without its end; false: there is no such file.
bool for_each_line(const std::string& path, const std::function<void(std::string_view line)>& take);

}  // namespace escrow::storage
