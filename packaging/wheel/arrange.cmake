# From the layout of a prefix to that of a wheel: programs, the Python package, and the rest under the environment's prefix. All
# three come to lie as they do under a prefix, so that the program finds its libraries and models as ever: ../lib, ../share.
set(stage ${CMAKE_CURRENT_BINARY_DIR}/stage)
file(REMOVE_RECURSE ${stage})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${LOCKSTEP_BUILD} --prefix ${stage} --strip
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# bundle(FILE FOLDER): the libraries that FILE needs, into FOLDER
set(package ${stage}/share/lockstep/python/lockstep)
function(bundle file folder)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bundle_libraries.py --patchelf ${PATCHELF}
                          --licences ${stage}/licences ${file} ${folder} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
# Not in lib/: `pip install --target` drops what a wheel has there.
set(libraries ${stage}/share/lockstep/libraries)
bundle(${stage}/bin/lockstep ${libraries})
bundle(${stage}/lib/liblockstep_capture.so ${libraries})
bundle(${package}/liblockstep_capture.so ${package}/libraries)

file(INSTALL ${stage}/bin/lockstep DESTINATION ${SKBUILD_SCRIPTS_DIR} USE_SOURCE_PERMISSIONS)
file(INSTALL ${package} DESTINATION ${SKBUILD_PLATLIB_DIR} USE_SOURCE_PERMISSIONS)
file(REMOVE_RECURSE ${stage}/share/lockstep/python)
file(INSTALL ${stage}/include ${stage}/lib ${stage}/share DESTINATION ${SKBUILD_DATA_DIR} USE_SOURCE_PERMISSIONS)
file(INSTALL ${stage}/licences/ DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
