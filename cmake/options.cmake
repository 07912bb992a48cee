add_compile_options(-Wall -Wextra -Wpedantic -Werror)
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
# Of a library on a Mac nothing is visible but what fits this pattern; elsewhere a library says so in other words.
set(LOCKSTEP_EXPORT_ONLY "-Wl,-exported_symbol,")
find_program(CCACHE ccache)
if(CCACHE)
  # Paths relative to the tree, so that a second clone finds what the first compiled; the rest lets ccache keep what
  # was compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
