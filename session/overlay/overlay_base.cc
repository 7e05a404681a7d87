// Where the base of an overlay has what its nodes show.
#include "session/overlay/overlay_impl.h"
#include "session/trees/git_file_rules.h"

namespace escrow::session {

std::optional<Overlay::BaseBlock> Overlay::base_block_with(NodeId node) const {
  const auto now = impl_->guarded.lock_shared();
  auto block = now->blocks.upper_bound(node.value);
  if (block == now->blocks.begin()) return std::nullopt;
  --block;
  if (node.value - block->first >= block->second.count) return std::nullopt;
  return BaseBlock{block->second.directory, NodeId{block->first}, block->second.count, block->second.tree};
}

std::optional<Overlay::BaseBlock> Overlay::base_block_of(NodeId directory) const {
  const auto now = impl_->guarded.lock_shared();
  const auto first = now->block_of_directory.find(directory);
  if (first == now->block_of_directory.end()) return std::nullopt;
  const Block& block = now->blocks.at(first->second.value);
  return BaseBlock{directory, first->second, block.count, block.tree};
}

std::string Overlay::base_name(NodeId node) {
  const BaseBlock block = base_block_with(node).value();
  const std::uint64_t index = node.value - block.first.value;
  {
    const auto now = impl_->guarded.lock_shared();
    const auto directory = now->nodes.find(block.directory);
    if (directory != now->nodes.end() && directory->second->is_directory()) {
      const Listing* listing = directory->second->directory->listing.get();
      if (listing != nullptr && listing->first() == block.first) return listing->entry(index).name;
    }
  }
  return read_shown_tree(impl_->objects, block.tree).at(index).name;
}

bool Overlay::base_has(NodeId directory, std::string_view name) {
  const auto now = impl_->lock_ready_shared(directory);
  const Listing* listing = now->nodes.at(directory)->directory->listing.get();
  return listing != nullptr && listing->find(name).has_value();
}

}  // namespace escrow::session
