# liblockstep_mlx: the part of the MLX backend that needs MLX's headers, a library of its own that the program opens at run
# time. So a program with it starts as quickly as one without, and runs where MLX is not. It is built against one wheel of
# `mlx` and keeps the way to it: MLX's C++ has no stable binary interface, another version's library would not do.
if(NOT LOCKSTEP_MLX OR LOCKSTEP_SANITIZE OR LOCKSTEP_FUZZ)
  return()
endif()
set(LOCKSTEP_MLX_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "a Python that has the wheel mlx")
set(LOCKSTEP_MLX_FOLDER "" CACHE PATH "the folder of MLX's CMake package, where no Python can be asked for it")
set(mlx_folder ${LOCKSTEP_MLX_FOLDER})
set(mlx_failed OFF)
if(NOT mlx_folder)
  execute_process(COMMAND ${LOCKSTEP_MLX_PYTHON} -m mlx --cmake-dir OUTPUT_VARIABLE mlx_folder
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE mlx_failed)
endif()
if(mlx_failed)
  message(STATUS "skipped: the MLX part, for want of the wheel mlx (${LOCKSTEP_MLX_PYTHON} -m pip install 'mlx[cpu]')")
  return()
endif()
find_package(MLX 0.32.4 CONFIG QUIET PATHS ${mlx_folder} NO_DEFAULT_PATH)
if(NOT MLX_FOUND)
  message(STATUS "skipped: the MLX part, for ${mlx_folder} has no MLX of version 0.32.4 or later")
  return()
endif()
# The wheel for Macs names Apple's frameworks by their paths on the machine that built it. The library knows them itself.
set_target_properties(mlx PROPERTIES INTERFACE_LINK_LIBRARIES "")
file(GLOB mlx_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/mlx/leaf/*.cpp)
add_library(lockstep_mlx SHARED ${mlx_sources})
set_target_properties(lockstep_mlx PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                              LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
                                              INSTALL_RPATH_USE_LINK_PATH ON)
target_include_directories(lockstep_mlx PRIVATE ${CMAKE_SOURCE_DIR}/src)
# Headers of an imported target are the system's: warnings in them are not ours.
target_link_libraries(lockstep_mlx PRIVATE mlx)
add_dependencies(lockstep lockstep_mlx)
# Tied to a folder of this machine, so it is installed only when it is asked for: cmake --install build --component mlx.
install(TARGETS lockstep_mlx LIBRARY DESTINATION lib/lockstep COMPONENT mlx EXCLUDE_FROM_ALL)
message(STATUS "MLX ${MLX_VERSION} of ${mlx_folder}")
