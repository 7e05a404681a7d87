#include "storage/bucket/s3_credentials.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "session/base/error.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string first_of(std::initializer_list<const char*> names, const std::string& otherwise) {
  for (const char* name : names) {
    if (std::string value = variable(name); !value.empty()) return value;
  }
  return otherwise;
}

std::string without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

std::string home_directory() {
  if (std::string home = variable("HOME"); !home.empty()) return home;
  const passwd* user = ::getpwuid(::getuid());
  return user != nullptr ? user->pw_dir : "";
}

// Of one profile.
std::map<std::string, std::string> read_profile(const std::string& path, const std::string& profile) {
  std::map<std::string, std::string> found;
  bool is_here = false;
  for_each_line(path, [&](std::string_view raw) {
    const std::string line = without_blanks(raw);
    if (line.starts_with('[')) is_here = line == "[" + profile + "]";
    const std::size_t equals = line.find('=');
    if (!is_here || line.empty() || line[0] == '#' || line[0] == '[' || equals == std::string::npos) return;
    found[without_blanks(line.substr(0, equals))] = without_blanks(line.substr(equals + 1));
  });
  return found;
}

}  // namespace

S3Service s3_service_from_environment() {
  S3Service service;
  service.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, "us-east-1");
  service.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"},
                              "https://s3." + service.region + ".amazonaws.com");
  while (service.endpoint.ends_with('/')) service.endpoint.pop_back();
  if (!service.endpoint.starts_with("http://") && !service.endpoint.starts_with("https://")) {
    throw Error(Errc::bad_request, "the address of the S3 service, '" + service.endpoint +
                                       "', does not begin with https:// or http://; correct AWS_ENDPOINT_URL");
  }
  service.access_key = variable("AWS_ACCESS_KEY_ID");
  service.secret_key = variable("AWS_SECRET_ACCESS_KEY");
  service.session_token = variable("AWS_SESSION_TOKEN");
  if (service.access_key.empty() || service.secret_key.empty()) {
    const std::string path = first_of({"AWS_SHARED_CREDENTIALS_FILE"}, home_directory() + "/.aws/credentials");
    auto profile = read_profile(path, first_of({"AWS_PROFILE"}, "default"));
    service.access_key = profile["aws_access_key_id"];
    service.secret_key = profile["aws_secret_access_key"];
    service.session_token = profile["aws_session_token"];
    if (service.access_key.empty() || service.secret_key.empty()) {
      throw Error(Errc::access_denied,
                  "there are no credentials for the S3 service " + service.endpoint +
                      "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to " + path);
    }
  }
  return service;
}

}  // namespace escrow::storage
