# The debugger's extension for each Python from 3.10 on whose headers are found. The package works without one, slower.
# LOCKSTEP_PYTHONS adds interpreters by path.
set(LOCKSTEP_PYTHONS "" CACHE STRING "further Python interpreters to build the debugger's extension for")
file(GLOB agent_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/agent/*.cpp)
file(GLOB agent_candidates /usr/bin/python3 /usr/bin/python3.1[0-4] /usr/local/bin/python3.1[0-4]
     $ENV{HOME}/.pyenv/versions/3.1[0-4]*/bin/python3 $ENV{HOME}/.local/share/uv/python/cpython-3.1[0-4]*/bin/python3
     ${CMAKE_SOURCE_DIR}/.venv/bin/python)
set(agent_versions "")
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
  if(minor LESS 10 OR minor GREATER 14 OR minor IN_LIST agent_versions OR free_threaded OR NOT EXISTS ${headers}/Python.h)
    continue()
  endif()
  list(APPEND agent_versions ${minor})
  set(agent lockstep_agent_3${minor})
  add_library(${agent} MODULE ${agent_sources})
  target_include_directories(${agent} PRIVATE ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(${agent} SYSTEM PRIVATE ${headers})
  # Its own copy of the C++ library: a program's environment may bring an older one. Nothing of it is visible outside.
  target_link_options(${agent} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
                      -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/python_agent.map)
  set_target_properties(${agent} PROPERTIES PREFIX "" OUTPUT_NAME _lockstep_agent SUFFIX "${suffix}" CXX_VISIBILITY_PRESET hidden)
  # Python's type tables are filled in as C programs do it.
  target_compile_options(${agent} PRIVATE -Wno-missing-field-initializers -Wno-pedantic)
  add_dependencies(lockstep ${agent})
  install(TARGETS ${agent} LIBRARY DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python/lockstep/agent)
endforeach()
list(TRANSFORM agent_versions PREPEND "3.")
message(STATUS "the debugger's extension is built for Python ${agent_versions}")

# An installed program finds the package beside it (../share/lockstep/python), with its libraries inside.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python
        PATTERN __pycache__ EXCLUDE PATTERN "*.pyc" EXCLUDE)
install(TARGETS lockstep_capture_shared lockstep_memory LIBRARY DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python/lockstep)
if(TARGET lockstep_fast)
  install(TARGETS lockstep_fast LIBRARY DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python/lockstep)
endif()
