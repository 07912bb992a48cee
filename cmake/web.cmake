# web/ and the documents inside the program: every file plain and compressed, as two sources of the layer `web`.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(embed ${CMAKE_SOURCE_DIR}/tools/embed_web.py)

file(GLOB_RECURSE web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/*)
set(web_embedded ${CMAKE_BINARY_DIR}/web/embedded_files.cpp)
add_custom_command(
  OUTPUT ${web_embedded}
  COMMAND ${Python3_EXECUTABLE} ${embed} ${CMAKE_SOURCE_DIR}/web ${web_embedded} web
  COMMAND ${CMAKE_COMMAND} -E touch ${web_embedded}
  DEPENDS ${web_sources} ${embed} ${CMAKE_SOURCE_DIR}/tools/join_modules.py
  COMMENT "Embedding web/")

# What the pages link to (examples, schemas) is part of the site too.
file(GLOB docs_sources CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/*.md ${CMAKE_SOURCE_DIR}/docs/*.md ${CMAKE_SOURCE_DIR}/docs/*/* ${CMAKE_SOURCE_DIR}/examples/*/*
  ${CMAKE_SOURCE_DIR}/models/*/README.md ${CMAKE_SOURCE_DIR}/benchmarks/*/README.md)
set(docs_tools ${CMAKE_SOURCE_DIR}/tools/docs_site.py ${CMAKE_SOURCE_DIR}/tools/docs_markdown.py)
set(docs_embedded ${CMAKE_BINARY_DIR}/web/embedded_docs.cpp)
add_custom_command(
  OUTPUT ${docs_embedded}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/docs_site.py ${CMAKE_BINARY_DIR}/site
  COMMAND ${Python3_EXECUTABLE} ${embed} ${CMAKE_BINARY_DIR}/site ${docs_embedded} docs
  COMMAND ${CMAKE_COMMAND} -E touch ${docs_embedded}
  DEPENDS ${docs_sources} ${docs_tools} ${embed}
  COMMENT "Embedding the documents")

target_sources(lockstep_web PRIVATE ${web_embedded} ${docs_embedded})
