# Toolchain file: the clang of PyPI's ziglang for Macs with ARM processors, laid out by tools/dev/macos.sh in
# build-macos. Nothing of it runs here.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
get_filename_component(tools ${CMAKE_CURRENT_LIST_DIR}/../build-macos/tools ABSOLUTE)
foreach(tool CC:C_COMPILER CXX:CXX_COMPILER AR:AR RANLIB:RANLIB INSTALL_NAME_TOOL:INSTALL_NAME_TOOL)
  string(REPLACE ":" ";" tool ${tool})
  list(GET tool 0 file)
  list(GET tool 1 variable)
  string(TOLOWER ${file} file)
  set(CMAKE_${variable} ${tools}/${file} CACHE FILEPATH "")
endforeach()
set(CMAKE_OSX_SYSROOT "" CACHE PATH "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")  # it stands in the target that the tools are given
set(CMAKE_FIND_ROOT_PATH ${tools})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
