# liblockstep_capture.so: the C ABI for programs in any language. Only the functions of lockstep.h are visible, so that a
# host with its own copy of anything we use never meets ours.
add_library(lockstep_capture_shared SHARED ${CMAKE_SOURCE_DIR}/src/capture/c_api.cpp)
set_target_properties(lockstep_capture_shared PROPERTIES OUTPUT_NAME lockstep_capture CXX_VISIBILITY_PRESET hidden)
target_include_directories(lockstep_capture_shared INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
target_link_libraries(lockstep_capture_shared PRIVATE lockstep_capture)
if(APPLE)
  target_link_options(lockstep_capture_shared PRIVATE ${LOCKSTEP_EXPORT_ONLY}_lockstep_*)
else()
  target_link_options(lockstep_capture_shared PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
endif()
add_dependencies(lockstep lockstep_capture_shared)

# The examples are built and run by the tests, so that they keep working.
add_executable(example_c ${CMAKE_SOURCE_DIR}/examples/c/record.c)
add_executable(example_cpp ${CMAKE_SOURCE_DIR}/examples/cpp/record.cpp)
target_link_libraries(example_c PRIVATE lockstep_capture_shared)
target_link_libraries(example_cpp PRIVATE lockstep_capture_shared)
set_target_properties(example_c PROPERTIES C_STANDARD 11)
if(LOCKSTEP_TESTS)
  add_dependencies(lockstep example_c example_cpp)
endif()

# Counts the heap of a profiled program; put before it, so that it can be C alone.
add_library(lockstep_memory SHARED ${CMAKE_SOURCE_DIR}/python/memory/count_memory_${LOCKSTEP_PLATFORM}.c)
set_target_properties(lockstep_memory PROPERTIES C_STANDARD 11)
target_compile_options(lockstep_memory PRIVATE -fno-builtin -O2)
add_dependencies(lockstep lockstep_memory)

# The package works without this; with it a checkpoint that records nothing costs a branch.
if(CMAKE_CROSSCOMPILING)  # no interpreter of that system is here, but headers of one may be
  if(LOCKSTEP_PYTHON_HEADERS)
    list(GET LOCKSTEP_PYTHON_HEADERS 0 Python3_INCLUDE_DIRS)
    set(Python3_Development.Module_FOUND ON)
  endif()
else()
  find_package(Python3 COMPONENTS Interpreter Development.Module)
endif()
if(Python3_Development.Module_FOUND)
  add_library(lockstep_fast MODULE ${CMAKE_SOURCE_DIR}/python/native/fast.c)
  target_include_directories(lockstep_fast SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  set_target_properties(lockstep_fast PROPERTIES PREFIX "" SUFFIX ".abi3.so" C_VISIBILITY_PRESET hidden)
  # Python's own headers are not pedantic C.
  target_compile_options(lockstep_fast PRIVATE -Wno-pedantic)
  if(APPLE)
    target_link_options(lockstep_fast PRIVATE -Wl,-undefined,dynamic_lookup)  # the interpreter has what it asks for
  endif()
  add_dependencies(lockstep lockstep_fast)
endif()
