#include "daemon/host/policy_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "api/policy_json.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

[[noreturn]] void refuse_policy(const std::string& file, const std::string& why) {
  throw Error(Errc::bad_request, "cannot read the policy " + session::quote_path(file) + ": " + why);
}

// Not more than is taken for a policy.
std::string read_file(const std::string& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat values {};
  if (!opened || ::fstat(opened.get(), &values) != 0) refuse_policy(file, std::strerror(errno));
  if (S_ISDIR(values.st_mode)) refuse_policy(file, std::strerror(EISDIR));
  std::string text(api::kMaxPolicy_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(opened.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_policy(file, std::strerror(errno));
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

}  // namespace

std::vector<std::string> read_policies(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) texts.push_back(read_file(file));
  compile_policies(texts, files);
  return texts;
}

std::unique_ptr<session::AccessPolicy> compile_policies(const std::vector<std::string>& texts,
                                                        const std::vector<std::string>& names) {
  if (texts.empty()) return nullptr;
  std::vector<session::PolicyDocument> documents;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = i < names.size() ? session::quote_path(names[i]) : "policy " + std::to_string(i + 1);
    documents.push_back(api::parse_policy(texts[i], name));
  }
  return std::make_unique<session::AccessPolicy>(documents);
}

}  // namespace escrow::daemon
