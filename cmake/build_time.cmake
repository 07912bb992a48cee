# What makes a build shorter and changes nothing that is built.

# Outside headers that nearly every file reads, read once. None of our own is among them, so that no change of ours compiles
# everything anew. A file must not lean on them: clang goes without, and `./dev clang` and `./dev macos` fail on an include that is
# missing.
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

# The sanitizers make code generation the larger part, and much of it is the same in every file: members of our own types,
# templates of the library. Files that are compiled together generate it once. A name inside a folder's anonymous namespaces is
# therefore used once in the folder; the release build compiles each file alone, so that none can lean on its neighbours.
set(LOCKSTEP_JOIN_FILES 0 CACHE STRING "how many files of a layer are compiled together; 0: each alone")
function(join_files target)
  if(NOT LOCKSTEP_JOIN_FILES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS sources)
    # Highway's files include themselves once for each vector target; the other warns of a type that only it can see.
    file(STRINGS ${source} alone LIMIT_COUNT 1 REGEX "hwy/foreach_target\\.h|httplib::Server \\{")
    # The capture library takes this file by itself and the rest of its folder from the layer.
    if(alone OR source MATCHES "/capture/c_api\\.cpp$")
      continue()
    endif()
    # A file's group hangs on its own name and on how full its folder is: a file more makes one group new, and ccache
    # keeps the others.
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    cmake_path(GET name PARENT_PATH folder)
    file(GLOB neighbours ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(LENGTH neighbours count)
    set(groups 1)
    while(count GREATER LOCKSTEP_JOIN_FILES)
      math(EXPR groups "${groups} * 2")
      math(EXPR count "${count} / 2")
    endwhile()
    string(MD5 hash ${name})
    string(SUBSTRING ${hash} 0 4 hash)
    math(EXPR group "0x${hash} % ${groups}")
    string(REPLACE "/" "_" folder ${folder})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()
