# benchmarks/<name>.cpp is one program bench_<name>; it prints ratios and is never part of the tests.
find_package(benchmark REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/benchmarks/*.cpp)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(bench_${name} ${source})
  if(name MATCHES "^cuda_")  # for a machine that only runs models: nothing of the debugger above recording
    target_link_libraries(bench_${name} PRIVATE lockstep_pipeline lockstep_capture)
  else()
    target_link_libraries(bench_${name} PRIVATE lockstep_cli benchmark::benchmark)
  endif()
endforeach()
