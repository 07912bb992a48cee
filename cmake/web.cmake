# web/ inside the program: every file plain and compressed, as one source of the layer `web`.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB_RECURSE web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/*)
set(web_embedded ${CMAKE_BINARY_DIR}/web/embedded_files.cpp)
add_custom_command(
  OUTPUT ${web_embedded}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/embed_web.py ${CMAKE_SOURCE_DIR}/web ${web_embedded}
  COMMAND ${CMAKE_COMMAND} -E touch ${web_embedded}
  DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/tools/embed_web.py ${CMAKE_SOURCE_DIR}/tools/join_modules.py
  COMMENT "Embedding web/")
target_sources(lockstep_web PRIVATE ${web_embedded})
