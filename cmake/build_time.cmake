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

# Every file reads headers and generates code for templates that its neighbours read and generate too: two thirds of the
# time. Files that are compiled together do it once. A name inside a folder's anonymous namespaces is therefore used once in
# the folder; the build with clang compiles each file alone, so that none can lean on its neighbours.
set(LOCKSTEP_JOIN_FILES 0 CACHE STRING "how many files of a folder are compiled together, about; 0: each alone")
function(join_files target)
  if(NOT LOCKSTEP_JOIN_FILES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  math(EXPR most "${LOCKSTEP_JOIN_FILES} * 3 / 2")
  set(folder_before "")
  foreach(source IN LISTS sources)
    # Highway's files include themselves once for each vector target; httplib's warns of a type that only it can see; the C
    # ABI is compiled into a library of its own as well, which must not bring its neighbours along.
    file(STRINGS ${source} alone LIMIT_COUNT 1 REGEX "hwy/foreach_target\\.h|httplib::Server \\{|lockstep/lockstep\\.h")
    if(alone)
      continue()
    endif()
    # A group ends before a file whose name says so, or when it is full. So a new file makes one or two groups new, and
    # ccache keeps the others.
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    cmake_path(GET name PARENT_PATH folder)
    string(MD5 hash ${name})
    string(SUBSTRING ${hash} 0 4 hash)
    math(EXPR ends "0x${hash} % ${LOCKSTEP_JOIN_FILES}")
    if(NOT folder STREQUAL folder_before OR ends EQUAL 0 OR count EQUAL most)
      string(REGEX REPLACE "[/.]" "_" group ${name})
      set(count 0)
    endif()
    math(EXPR count "${count} + 1")
    set(folder_before ${folder})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# Commands spend their time in the layers below: half of what optimising them costs is saved.
function(optimise_little target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
endfunction()
