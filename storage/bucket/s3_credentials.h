// Where the S3 service is and who asks it, from what other programs read, too: the environment
// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3,
// AWS_ENDPOINT_URL, AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE) and ~/.aws/credentials. No state.
#pragma once

#include <string>

namespace escrow::storage {

struct S3Service {
  std::string endpoint;  // "https://host[:port]", without a slash at its end
  std::string region;
  std::string access_key, secret_key;
  std::string session_token;  // "": none
};

// Throws Error{bad_request} when an address cannot be used, Error{access_denied} when there are no credentials.
S3Service s3_service_from_environment();

}  // namespace escrow::storage
