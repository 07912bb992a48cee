# The outside libraries as headers alone, in the folder LOCKSTEP_HEADERS: for `./dev macos`, which compiles for a system
# whose libraries are not here. What is linked so asks for them when it is started.
add_library(lockstep_headers INTERFACE)
target_include_directories(lockstep_headers SYSTEM INTERFACE ${LOCKSTEP_HEADERS})
target_compile_options(lockstep_headers INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_link_options(lockstep_headers INTERFACE -Wl,-undefined,dynamic_lookup)
find_package(Threads REQUIRED)
set(LOCKSTEP_LIBS_base lockstep_headers Threads::Threads)
