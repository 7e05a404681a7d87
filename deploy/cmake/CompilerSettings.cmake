# C++20, warnings as errors, and the sanitizers of the presets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(Threads REQUIRED)

set(ESCROW_SANITIZE "" CACHE STRING "Value for -fsanitize, for example address,undefined")
add_library(escrow_settings INTERFACE)
target_compile_options(escrow_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Wno-missing-field-initializers -Werror)
# GCC 12 sees overlapping copies in operator+(const char*, std::string&&) at -O3 where there are none (GCC PR 105651).
target_compile_options(escrow_settings INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
target_compile_definitions(escrow_settings INTERFACE _FILE_OFFSET_BITS=64 _GNU_SOURCE)
target_include_directories(escrow_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(escrow_settings INTERFACE Threads::Threads)
if(ESCROW_SANITIZE)
  target_compile_options(escrow_settings INTERFACE -fsanitize=${ESCROW_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  # GCC's manual, -fsanitize=address: with it, GCC may warn falsely of maybe uninitialized values (it does in <regex>).
  target_compile_options(escrow_settings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(escrow_settings INTERFACE -fsanitize=${ESCROW_SANITIZE})
endif()
