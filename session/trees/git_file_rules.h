// What `git fsck --strict` refuses: entries of trees by their names, .gitattributes and .gitmodules by what is in them.
//
// A server with receive.fsckObjects takes no push that has one, so none is ever put into a tree, nor shown from one.
// Where versions of git differ, what any of them refuses is refused. Functions, thread-safe. Sources: fsck.c,
// submodule-config.c, config.c (git_parse_source), urlmatch.c, credential.c of git 2.39 to 2.50; git-fsck(1).
#pragma once

#include <optional>
#include <string_view>

#include "session/base/omission.h"
#include "session/interfaces/object_store.h"

namespace escrow::session {

// An extended attribute of a .git directory that Escrow has put into a session: it is left out of the commit without a
// word. A mount takes and shows user.* only, so no program can set it.
inline constexpr const char* kOwnGitMark = "escrow.git";
// The same of every .git, a directory or a file: for whom the mount was through which it got its name (hidden_git.h).
inline constexpr const char* kGitMaker = "escrow.git_maker";

// By its name and mode alone.
bool git_refuses_entry(const TreeEntry& entry);

// The tree as everybody sees it: without the entries that git refuses by their names.
Tree read_shown_tree(const ObjectReader& objects, const ObjectId& id);

// Why an entry that is about to be put into a tree has to be left out; nullopt: it need not. Reads the blobs of
// .gitattributes and .gitmodules files, and no other.
std::optional<OmissionKind> why_git_refuses(const ObjectReader& objects, const TreeEntry& entry);

// The same of a regular file that is no object yet.
bool git_refuses_file(std::string_view name, const ByteSource& content);
// The contents alone.
bool git_refuses_attributes(std::string_view content);
bool git_refuses_modules(std::string_view content);

}  // namespace escrow::session
