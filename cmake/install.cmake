# What `cmake --install` puts where: one layout for a prefix, for the Debian package and, rearranged, for the wheel
# (packaging/wheel). Everything is found relative to the program or to the package files, so that a prefix can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_DATADIR}/lockstep/python/lockstep)
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/tiny ${CMAKE_SOURCE_DIR}/models/tiny-edit
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/models OPTIONAL)

# The Python package, with its libraries inside; the program finds it in ../share/lockstep/python.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python
        PATTERN __pycache__ EXCLUDE PATTERN "*.pyc" EXCLUDE)
install(TARGETS lockstep_capture_shared lockstep_memory LIBRARY DESTINATION ${package_folder})
if(TARGET lockstep_fast)
  install(TARGETS lockstep_fast LIBRARY DESTINATION ${package_folder})
endif()
if(agent_targets)
  install(TARGETS ${agent_targets} LIBRARY DESTINATION ${package_folder}/agent)
endif()

# The capture library for C, C++ and Rust: headers, find_package(lockstep), pkg-config.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set_target_properties(lockstep_capture_shared PROPERTIES EXPORT_NAME capture)
install(TARGETS lockstep_capture_shared EXPORT lockstep LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT lockstep FILE lockstepTargets.cmake NAMESPACE lockstep:: DESTINATION ${cmake_folder})
configure_package_config_file(${CMAKE_SOURCE_DIR}/packaging/lockstepConfig.cmake.in ${CMAKE_BINARY_DIR}/lockstepConfig.cmake
                              INSTALL_DESTINATION ${cmake_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake DESTINATION ${cmake_folder})
file(RELATIVE_PATH prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/packaging/lockstep.pc.in ${CMAKE_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/bindings/rust DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep PATTERN target EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# The manual page and the shells' completions, which the program itself writes.
if(NOT CMAKE_CROSSCOMPILING)
  set(written ${CMAKE_BINARY_DIR}/written)
  file(MAKE_DIRECTORY ${written})
  set(writes "")
  foreach(form_and_file "man lockstep.1" "bash lockstep" "zsh _lockstep" "fish lockstep.fish")
    separate_arguments(form_and_file)
    list(GET form_and_file 0 form)
    list(GET form_and_file 1 file)
    list(APPEND writes COMMAND lockstep docs ${form} > ${written}/${file})
  endforeach()
  add_custom_command(TARGET lockstep POST_BUILD ${writes} BYPRODUCTS ${written}/lockstep.1)
  install(FILES ${written}/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${written}/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${written}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${written}/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# The Debian package: `./dev deb`, or `cpack --config build/CPackConfig.cmake`.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Qwen-Image in C++, and a debugger for ports of diffusion models")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Lockstep authors")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)  # xz takes minutes for a few percent: most of it is weights
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_SOURCE_DIR}/dist)
include(CPack)
