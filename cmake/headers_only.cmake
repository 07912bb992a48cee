# The outside libraries as headers alone, in the folder LOCKSTEP_HEADERS: for `./dev macos`, which compiles for a system
# whose libraries are not here. What is linked so asks for them when it is started.
add_library(lockstep_headers INTERFACE)
target_include_directories(lockstep_headers SYSTEM INTERFACE ${LOCKSTEP_HEADERS})
target_compile_options(lockstep_headers INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_link_options(lockstep_headers INTERFACE -Wl,-undefined,dynamic_lookup)
find_package(Threads REQUIRED)
set(LOCKSTEP_LIBS_base lockstep_headers Threads::Threads)

# Test programs need a main() to be linked.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gtest_main.cpp CONTENT
     "#include <gtest/gtest.h>\nint main(int argc, char** argv) {\n  testing::InitGoogleTest(&argc, argv);\n  return RUN_ALL_TESTS();\n}\n")
add_library(lockstep_gtest_main STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/gtest_main.cpp)
target_link_libraries(lockstep_gtest_main PUBLIC lockstep_headers)
add_library(GTest::gtest ALIAS lockstep_headers)
add_library(GTest::gtest_main ALIAS lockstep_gtest_main)
