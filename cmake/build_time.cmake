# What makes a build shorter and changes nothing that is built.

# g++ looks for garbage whenever its heap has doubled: a quarter of the time. What it needs at most without doing so is
# 700 MB for a file, so it is told not to where there is memory for that.
cmake_host_system_information(RESULT memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory_for_each "${memory_mb} / ${cores}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND memory_for_each GREATER 1500)
  add_compile_options("SHELL:--param ggc-min-heapsize=4194304" "SHELL:--param ggc-min-expand=1000")
endif()

# Outside headers that nearly every file reads, read once. None of our own is among them, so that no change of ours compiles
# everything anew. A file must not lean on them: clang on Linux goes without, and `./dev clang` fails on an include that is
# missing.
set(precompile ON)
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|AppleClang)$" OR CMAKE_CROSSCOMPILING)
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
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                                           "$<$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang>:SHELL:-Xclang -fno-pch-timestamp>")
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
  math(EXPR most "${LOCKSTEP_JOIN_FILES} * 3 / 2")
  set(joined_folder ${CMAKE_BINARY_DIR}/joined/${target})
  set(compiled "")  # the files that stand alone, and one for each group
  set(folder_before "")
  set(groups "")
  foreach(source IN LISTS sources)
    # Highway's files include themselves once for each vector target; httplib's warns of a type that only it can see; the C
    # ABI is compiled into a library of its own as well, which must not bring its neighbours along.
    file(STRINGS ${source} alone LIMIT_COUNT 1 REGEX "hwy/foreach_target\\.h|httplib::Server \\{|lockstep/lockstep\\.h")
    if(alone)
      list(APPEND compiled ${source})
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
      list(APPEND groups ${group})
      set(count 0)
    endif()
    math(EXPR count "${count} + 1")
    set(folder_before ${folder})
    # Not the path from the root: a second clone then finds what the first compiled without preprocessing it.
    file(RELATIVE_PATH from_group ${joined_folder} ${source})
    string(APPEND content_${group} "#include \"${from_group}\"\n")
  endforeach()
  foreach(group IN LISTS groups)
    file(CONFIGURE OUTPUT ${joined_folder}/${group}.cpp CONTENT "${content_${group}}" @ONLY)
    list(APPEND compiled ${joined_folder}/${group}.cpp)
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${compiled}")
endfunction()

# What only asks the layers below spends its time there: a third of what compiling it costs is saved.
function(optimise_little target)
  # Clang reads what was precompiled at the same level alone.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT LOCKSTEP_PRECOMPILE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
endfunction()
