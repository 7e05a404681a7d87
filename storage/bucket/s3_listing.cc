#include "storage/bucket/s3_listing.h"

#include <pugixml.hpp>

#include <string_view>

#include "session/base/error.h"

namespace escrow::storage {

S3Listing parse_listing(const std::string& xml) {
  pugi::xml_document document;
  const bool is_xml = static_cast<bool>(document.load_buffer(xml.data(), xml.size()));
  const pugi::xml_node result = document.child("ListBucketResult");
  if (!is_xml || !result) {
    throw session::Error(session::Errc::input_output,
                         "the S3 service answered a request for a list of objects with something else");
  }
  S3Listing listing;
  for (const pugi::xml_node& node : result.children("Contents"))
    listing.objects.push_back({node.child_value("Key"), node.child("Size").text().as_ullong()});
  if (std::string_view(result.child_value("IsTruncated")) == "true") {
    listing.continuation = result.child_value("NextContinuationToken");
    if (listing.continuation.empty()) {
      throw session::Error(session::Errc::input_output,
                           "the S3 service cut a list of objects short and does not say how it goes on");
    }
  }
  return listing;
}

std::string parse_error_code(const std::string& xml) {
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size())) return "";
  return document.child("Error").child_value("Code");
}

}  // namespace escrow::storage
