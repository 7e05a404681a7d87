// libgit2's handles, each owned before anything can throw. Plain unique_ptrs: not shared between threads.
#pragma once

#include <git2.h>

#include <memory>

namespace escrow::storage {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    Free(handle);
  }
};

using GitRepository = std::unique_ptr<git_repository, FreeWith<git_repository_free>>;
using GitOdb = std::unique_ptr<git_odb, FreeWith<git_odb_free>>;
using GitOdbObject = std::unique_ptr<git_odb_object, FreeWith<git_odb_object_free>>;
using GitObject = std::unique_ptr<git_object, FreeWith<git_object_free>>;
using GitReference = std::unique_ptr<git_reference, FreeWith<git_reference_free>>;
using GitReflog = std::unique_ptr<git_reflog, FreeWith<git_reflog_free>>;
using GitSignature = std::unique_ptr<git_signature, FreeWith<git_signature_free>>;
using GitConfig = std::unique_ptr<git_config, FreeWith<git_config_free>>;
using GitConfigEntry = std::unique_ptr<git_config_entry, FreeWith<git_config_entry_free>>;
using GitConfigIterator = std::unique_ptr<git_config_iterator, FreeWith<git_config_iterator_free>>;
using GitTree = std::unique_ptr<git_tree, FreeWith<git_tree_free>>;
using GitCommit = std::unique_ptr<git_commit, FreeWith<git_commit_free>>;
using GitDiff = std::unique_ptr<git_diff, FreeWith<git_diff_free>>;
using GitPatch = std::unique_ptr<git_patch, FreeWith<git_patch_free>>;
using GitRevwalk = std::unique_ptr<git_revwalk, FreeWith<git_revwalk_free>>;
using GitIndex = std::unique_ptr<git_index, FreeWith<git_index_free>>;

}  // namespace escrow::storage
