# One static library a layer, linked to exactly the layers that layers.txt names.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/layers.txt layer_lines REGEX "^[a-z]+:")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/layers.txt)
set(LOCKSTEP_LAYERS "")
foreach(line IN LISTS layer_lines)
  string(REGEX MATCH "^([a-z]+):(.*)$" _ "${line}")
  set(layer ${CMAKE_MATCH_1})
  string(STRIP "${CMAKE_MATCH_2}" may_include)
  string(REPLACE " " ";" may_include "${may_include}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/src/cli/main\\.cpp$|/src/backend/(cuda|mlx)/leaf/")  # the leaves: cmake/cuda.cmake, cmake/mlx.cmake
  set(scope PUBLIC)
  if(sources)
    add_library(lockstep_${layer} STATIC ${sources})
  else()
    add_library(lockstep_${layer} INTERFACE)  # a layer that has no code yet still passes on what lies below it
    set(scope INTERFACE)
  endif()
  target_include_directories(lockstep_${layer} ${scope} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  foreach(below IN LISTS may_include)
    target_link_libraries(lockstep_${layer} ${scope} lockstep_${below})
  endforeach()
  target_link_libraries(lockstep_${layer} ${scope} ${LOCKSTEP_LIBS_${layer}})
  if(layer STREQUAL "base")
    precompile_for(lockstep_base ${lockstep_common_headers})
  elseif(sources AND NOT layer STREQUAL "cli")
    precompile_for(lockstep_${layer} FROM lockstep_base)
  endif()
  # Not kernels, which change the compiler's target inside a file, nor the commands, which no test program links.
  if(sources AND NOT layer MATCHES "^(backend|cli)$")
    join_files(lockstep_${layer})
  endif()
  list(APPEND LOCKSTEP_LAYERS ${layer})
endforeach()
target_compile_definitions(lockstep_base PUBLIC LOCKSTEP_VERSION="${PROJECT_VERSION}")

# What the commands print, as a library of its own inside the layer: its tests are then built without the commands, which
# take longer to compile than all layers below them.
set(cli_text_sources table.cpp tensor_text.cpp terminal.cpp weights_tree.cpp)
list(TRANSFORM cli_text_sources PREPEND ${CMAKE_SOURCE_DIR}/src/cli/)
add_library(lockstep_cli_text STATIC ${cli_text_sources})
target_link_libraries(lockstep_cli_text PUBLIC lockstep_io)
get_target_property(cli_sources lockstep_cli SOURCES)
list(REMOVE_ITEM cli_sources ${cli_text_sources})
set_target_properties(lockstep_cli PROPERTIES SOURCES "${cli_sources}")
target_link_libraries(lockstep_cli PUBLIC lockstep_cli_text)

precompile_for(lockstep_cli_text FROM lockstep_base)
precompile_for(lockstep_cli ${lockstep_common_headers} <CLI/CLI.hpp>)  # five seconds to read, and every command needs it

add_executable(lockstep ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
target_link_libraries(lockstep PRIVATE lockstep_cli)
