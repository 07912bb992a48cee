# The debugger's extension for each Python from 3.10 to 3.14 whose headers are found. The package works without one, slower.
# LOCKSTEP_PYTHONS adds interpreters by path, LOCKSTEP_PYTHON_HEADERS folders that hold Python.h alone.
set(LOCKSTEP_PYTHONS "" CACHE STRING "further Python interpreters to build the debugger's extension for")
set(LOCKSTEP_PYTHON_HEADERS "" CACHE STRING "folders with headers of Pythons to build the debugger's extension for")
file(GLOB agent_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/agent/*.cpp)
list(FILTER agent_sources EXCLUDE REGEX "${other_platforms}")
set(agent_versions "")
set(agent_targets "")

macro(add_agent minor headers suffix)
  if(${minor} GREATER_EQUAL 10 AND ${minor} LESS_EQUAL 14 AND NOT ${minor} IN_LIST agent_versions AND EXISTS ${headers}/Python.h)
    list(APPEND agent_versions ${minor})
    set(agent lockstep_agent_3${minor})
    list(APPEND agent_targets ${agent})
    add_library(${agent} MODULE ${agent_sources})
    target_include_directories(${agent} PRIVATE ${CMAKE_SOURCE_DIR}/include)
    # Debian's pyconfig.h leads to another one, which it names from the folder above.
    target_include_directories(${agent} SYSTEM PRIVATE ${headers} ${headers}/..)
    # Its own copy of the C++ library: a program's environment may bring an older one. Nothing of it is visible outside.
    if(APPLE)  # where the system has the C++ library, and the interpreter what the extension asks for
      target_link_options(${agent} PRIVATE -Wl,-undefined,dynamic_lookup ${LOCKSTEP_EXPORT_ONLY}_PyInit__lockstep_agent)
    else()
      target_link_options(${agent} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
                          -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/python_agent.map)
    endif()
    set_target_properties(${agent} PROPERTIES PREFIX "" OUTPUT_NAME _lockstep_agent SUFFIX "${suffix}" CXX_VISIBILITY_PRESET hidden)
    # Python's type tables are filled in as C programs do it.
    target_compile_options(${agent} PRIVATE -Wno-missing-field-initializers -Wno-pedantic)
    add_dependencies(lockstep ${agent})
  endif()
endmacro()

file(GLOB agent_candidates /usr/bin/python3 /usr/bin/python3.1[0-4] /usr/local/bin/python3.1[0-4]
     /opt/homebrew/bin/python3.1[0-4] $ENV{HOME}/.pyenv/versions/3.1[0-4]*/bin/python3 $ENV{HOME}/.local/share/uv/python/cpython-3.1[0-4]*/bin/python3
     ${CMAKE_SOURCE_DIR}/.venv/bin/python)
if(CMAKE_CROSSCOMPILING)
  set(agent_candidates "")  # they are of this machine
endif()
foreach(candidate IN LISTS LOCKSTEP_PYTHONS agent_candidates)
  execute_process(
    COMMAND ${candidate} -IS -c
            "import sys, sysconfig as c; v = c.get_config_vars(); print(';'.join([str(sys.version_info[1]), v['INCLUDEPY'], v['EXT_SUFFIX'], str(v.get('Py_GIL_DISABLED') or 0)]))"
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    continue()
  endif()
  list(GET answer 0 minor)
  list(GET answer 1 headers)
  list(GET answer 2 suffix)
  list(GET answer 3 free_threaded)
  if(NOT free_threaded)
    add_agent(${minor} ${headers} ${suffix})
  endif()
endforeach()
foreach(headers IN LISTS LOCKSTEP_PYTHON_HEADERS)
  file(STRINGS ${headers}/patchlevel.h minor REGEX "^#define PY_MINOR_VERSION")
  string(REGEX MATCH "[0-9]+" minor "${minor}")
  add_agent(${minor} ${headers} .cpython-3${minor}-${CMAKE_LIBRARY_ARCHITECTURE}.so)
endforeach()
list(TRANSFORM agent_versions PREPEND "3.")
message(STATUS "the debugger's extension is built for Python ${agent_versions}")
