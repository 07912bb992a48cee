# One test program a layer: tests/<layer>/*.cpp.
find_package(GTest REQUIRED)
include(GoogleTest)
find_library(RAPIDCHECK_LIBRARY rapidcheck)
if(NOT RAPIDCHECK_LIBRARY)
  set(RAPIDCHECK_LIBRARY "")
  message(STATUS "without RapidCheck the tests that use it are left out")
endif()

# tests/support/*.cpp: what the tests of the pipeline and its probes share.
file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.cpp)
add_library(lockstep_test_support STATIC ${support})
target_include_directories(lockstep_test_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(lockstep_test_support PUBLIC lockstep_pipeline)
precompile_for(lockstep_test_support FROM lockstep_base)
join_files(lockstep_test_support)

# A program of nothing but the headers of the tests: code for a program and for a library cannot share them.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "int main() {}")
add_executable(lockstep_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cpp)
target_link_libraries(lockstep_test_headers PRIVATE lockstep_base GTest::gtest)
precompile_for(lockstep_test_headers ${lockstep_common_headers} <gtest/gtest.h>)

foreach(layer IN LISTS LOCKSTEP_LAYERS)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${layer}/*.cpp)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} property_test LIMIT_COUNT 1 REGEX "rapidcheck\\.h")
    if(property_test AND NOT RAPIDCHECK_LIBRARY)
      list(REMOVE_ITEM sources ${source})
    endif()
  endforeach()
  if(NOT sources)
    continue()
  endif()
  add_executable(test_${layer} ${sources})
  target_include_directories(test_${layer} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  set(tested lockstep_${layer})
  if(layer STREQUAL "cli")
    set(tested lockstep_cli_text)  # the commands themselves are run by the Python tests
  elseif(layer STREQUAL "diagnose")
    set(tested lockstep_compare)  # a cause is asked for as a user does: two runs, one of them with a planted fault
  endif()
  target_link_libraries(test_${layer} PRIVATE ${tested} GTest::gtest_main ${RAPIDCHECK_LIBRARY})
  target_compile_definitions(test_${layer} PRIVATE LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                                   LOCKSTEP_BINARY_DIR="${CMAKE_BINARY_DIR}")
  precompile_for(test_${layer} FROM lockstep_test_headers)
  join_files(test_${layer})
  if(layer STREQUAL "pipeline")
    target_link_libraries(test_${layer} PRIVATE lockstep_test_support)
  endif()
  add_test(NAME ${layer} COMMAND test_${layer} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endforeach()

# tests/probes/<name>.cpp is a small program that Python tests and benchmarks drive.
file(GLOB probes CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/probes/*.cpp)
foreach(source IN LISTS probes)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE lockstep_cli)
endforeach()

# tests/bridges/<name>.cpp is a library that Python tests open, for what must happen inside one process.
file(GLOB bridges CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/bridges/*.cpp)
foreach(source IN LISTS bridges)
  get_filename_component(name ${source} NAME_WE)
  add_library(${name} MODULE ${source})
  set_target_properties(${name} PROPERTIES PREFIX "")
  target_link_libraries(${name} PRIVATE lockstep_tensor)
endforeach()
