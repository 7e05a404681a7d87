// The conversions that git makes when a file is checked in (gitattributes(5): text, eol, ident, working-tree-encoding,
// filter) and Escrow does not: which of them would give a file other bytes than it is committed with.
//
// A conversion that would change nothing is none: a file that has no CRLF keeps its bytes under `text`. Of a filter
// nobody knows what it changes, so that each counts but Git LFS, which Escrow applies. core.autocrlf is not looked at:
// it is the user's, and says nothing of the repository. Functions, thread-safe; they throw what the sources throw, and
// read of a content no more than they need. Sources: convert.c of git 2.39 to 2.50.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/omission.h"
#include "session/interfaces/object_store.h"
#include "session/trees/attribute_files.h"

namespace escrow::session {

using SaidAttributes = std::map<std::string, AttributeFile::Setting, std::less<>>;

// The attributes that decide about conversions, and about Git LFS.
std::span<const std::string_view> check_in_attributes();

// Of what AttributeLevel::settings_of() says about check_in_attributes().
bool is_for_lfs(const SaidAttributes& said);

// "filter=NAME" or "working-tree-encoding=NAME" where git stores other bytes than the file has, for all that is known;
// "" else, and for Git LFS.
std::string converting_attribute(const SaidAttributes& said);

// What git would convert of a file that is not for Git LFS. `open_tracked` opens what the base has in its place, or
// returns nullptr: git leaves line ends under text=auto alone where those that it has are CRLF.
std::vector<OmissionKind> missed_conversions(
    const SaidAttributes& said, const ByteSource& content,
    const std::function<std::shared_ptr<const ByteSource>()>& open_tracked);

}  // namespace escrow::session
