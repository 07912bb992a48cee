# What makes a build shorter and changes nothing that is built.

# Outside headers that nearly every file reads, read once. None of our own is among them, so that no change of ours compiles
# everything anew. A file must not lean on them: clang and the build for ARM go without, and `./dev clang` fails on an include
# that is missing.
set(precompile ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CROSSCOMPILING)
  set(precompile OFF)
endif()
option(LOCKSTEP_PRECOMPILE "read common outside headers once for all files" ${precompile})
set(lockstep_common_headers
    <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits> <map>
    <memory> <mutex> <optional> <set> <span> <string> <string_view> <unordered_map> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# precompile_for(TARGET FROM HOLDER): TARGET uses what HOLDER precompiled. precompile_for(TARGET HEADER...): it precompiles.
function(precompile_for target)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  if(ARGV1 STREQUAL "FROM")
    if(NOT target STREQUAL ARGV2)
      target_precompile_headers(${target} REUSE_FROM ${ARGV2})
    endif()
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  # ccache can then keep what was compiled so.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()
