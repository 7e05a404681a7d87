# C++20, warnings as errors, and the sanitizers of the presets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# ccache's manual, "Precompiled headers": with GCC it works on what -fpch-preprocess leaves. "Compiling in different
# directories": a base directory and no hash of the working directory, so that one clone finds what another compiled.
# "The depend mode": what is compiled for the first time is not preprocessed first. With Clang an object that used a
# precompiled header is not found again.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 ${CCACHE})
endif()

find_package(Threads REQUIRED)

set(ESCROW_SANITIZE "" CACHE STRING "Value for -fsanitize, for example address,undefined")
add_library(escrow_settings INTERFACE)
target_compile_options(escrow_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Wno-missing-field-initializers -Werror -pthread)
# GCC 12 sees overlapping copies, and reads and writes behind the end, in std::string where there are none (GCC PRs
# 105651, 105329); in a precompiled header it does not know either that this is the library's code.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(escrow_settings INTERFACE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
    -Wno-stringop-overread)
endif()
# A unity build includes the sources, which are headers to this warning of GCC then.
if(ESCROW_UNITY)
  target_compile_options(escrow_settings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
target_compile_definitions(escrow_settings INTERFACE _FILE_OFFSET_BITS=64 _GNU_SOURCE)
target_include_directories(escrow_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(escrow_settings INTERFACE Threads::Threads)
# A program loads only the libraries it calls: each costs every start of `escrow`.
target_link_options(escrow_settings INTERFACE -Wl,--as-needed)
# Links escrowd in 0.3 s, for which GNU ld takes 1.8 s.
find_program(LLD NAMES ld.lld)
if(LLD)
  target_link_options(escrow_settings INTERFACE -fuse-ld=lld)
endif()
if(ESCROW_SANITIZE)
  target_compile_options(escrow_settings INTERFACE -fsanitize=${ESCROW_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  # GCC's manual, -fsanitize=address: with it, GCC may warn falsely of maybe uninitialized values (it does in <regex>).
  # Boost.Asio has fences, which -fsanitize=thread does not see; its handlers are ordered by locks as well.
  target_compile_options(escrow_settings INTERFACE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-tsan>")
  target_link_options(escrow_settings INTERFACE -fsanitize=${ESCROW_SANITIZE})
endif()

# Half of a small file's compile time goes into these headers; every file still names what it uses, and the presets
# `asan` and `tsan` build without them.
set(ESCROW_COMMON_HEADERS <algorithm> <array> <atomic> <cerrno> <chrono> <condition_variable> <cstdint> <cstring>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view>
  <system_error> <thread> <unordered_map> <utility> <variant> <vector>)
target_compile_options(escrow_settings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
