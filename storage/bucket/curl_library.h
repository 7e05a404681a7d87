// libcurl, loaded when the first bucket is opened: with the twenty libraries that it brings it would cost every other
// start of `escrow` a third more. Its functions, by their names without "curl_"; constants are curl.h's.
//
// Thread-safe. Stays loaded. Source: libcurl(3), dlopen(3).
#pragma once

#include <curl/curl.h>

namespace escrow::storage {

struct CurlLibrary {
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_strerror) easy_strerror;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...);
  CURLcode (*easy_getinfo)(CURL*, CURLINFO, ...);
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

// Throws Error{unavailable} naming the package that is missing.
const CurlLibrary& curl_library();

}  // namespace escrow::storage
