#include "storage/bucket/curl_library.h"

#include <dlfcn.h>

#include <string>

#include "session/base/error.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error(Errc::unavailable, std::string("libcurl has no ") + name + "; install libcurl4");
}

CurlLibrary load() {
  void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(Errc::unavailable, std::string("repositories in object storage need libcurl: ") +
                                       (why != nullptr ? why : "it cannot be loaded") + "; install libcurl4");
  }
  CurlLibrary curl{};
  decltype(&::curl_global_init) global_init = nullptr;
  find(library, "curl_global_init", global_init);
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_reset", curl.easy_reset);
  find(library, "curl_easy_perform", curl.easy_perform);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw Error(Errc::unavailable, "libcurl cannot be started");
  return curl;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace escrow::storage
