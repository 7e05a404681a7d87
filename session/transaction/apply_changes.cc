#include "session/transaction/apply_changes.h"

#include "session/base/error.h"

namespace escrow::session {
namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

std::optional<NodeId> node_at(FileSystem& files, std::string_view path) {
  NodeId node = kRootNode;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const auto found = files.lookup(node, path.substr(0, slash));
    if (!found) return std::nullopt;
    node = found->node;
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return node;
}

bool is_in(FileSystem& files, const std::string& path) {
  try {
    return node_at(files, path).has_value();
  } catch (const Error& error) {
    if (error.code() != Errc::input_output) throw;
    return true;
  }
}

std::vector<std::string> names_in(FileSystem& files, NodeId directory) {
  std::vector<std::string> names;
  files.list(directory, 0, [&names](const FileSystem::Entry& entry) {
    if (entry.name != "." && entry.name != "..") names.emplace_back(entry.name);
    return true;
  });
  return names;
}

void apply_changes(Overlay& overlay, const std::vector<PathChange>& changes,
                   const std::function<void(std::vector<Overlay::Stale>)>& is_stale) {
  for (const PathChange& change : changes) {
    is_stale(overlay.replace(change.path, change.after));
    if (change.did != Did::deleted) continue;
    for (std::string parent = directory_of(change.path); !parent.empty(); parent = directory_of(parent)) {
      const auto node = node_at(overlay, parent);
      if (!node || !names_in(overlay, *node).empty()) break;
      is_stale(overlay.replace(parent, std::nullopt));
    }
  }
}

}  // namespace escrow::session
