# liblockstep_cuda.so: the part of the CUDA backend that needs CUDA's headers, a library of its own that the program opens
# at run time. Built where nvcc and the headers of cuBLASLt and cuDNN are found (`./dev setup --cuda` installs the
# headers); without them one line says what is missing, and the program runs on the CPU.
if(LOCKSTEP_SANITIZE OR LOCKSTEP_FUZZ OR CMAKE_CROSSCOMPILING)
  return()
endif()
find_program(LOCKSTEP_NVCC nvcc HINTS /usr/local/cuda/bin)
file(GLOB cuda_packages ${CMAKE_SOURCE_DIR}/.venv-cuda/lib/python3*/site-packages)
find_path(CUBLASLT_INCLUDE cublasLt.h HINTS /usr/local/cuda/include ${LOCKSTEP_CUDA_HEADERS} ${cuda_packages}
          PATH_SUFFIXES nvidia/cu13/include)
find_path(CUDNN_INCLUDE cudnn.h HINTS ${LOCKSTEP_CUDA_HEADERS} ${cuda_packages} PATH_SUFFIXES nvidia/cudnn/include)
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${LOCKSTEP_CUDA_HEADERS} ${cuda_packages} PATH_SUFFIXES include)
find_path(NVRTC_INCLUDE nvrtc.h HINTS /usr/local/cuda/include ${LOCKSTEP_CUDA_HEADERS} ${cuda_packages}
          PATH_SUFFIXES nvidia/cu13/include)
set(cuda_missing "")
foreach(need LOCKSTEP_NVCC CUBLASLT_INCLUDE CUDNN_INCLUDE CUDNN_FRONTEND_INCLUDE NVRTC_INCLUDE)
  if(NOT ${need})
    list(APPEND cuda_missing ${need})
  endif()
endforeach()
if(cuda_missing)
  list(JOIN cuda_missing ", " cuda_missing)
  message(STATUS "skipped: the CUDA part, for want of ${cuda_missing} (./dev setup --cuda)")
  return()
endif()

get_filename_component(nvcc_real ${LOCKSTEP_NVCC} REALPATH)
get_filename_component(cuda_root ${nvcc_real} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
if(NOT EXISTS ${cuda_root}/lib64/libcudart_static.a)
  set(cuda_root /usr/local/cuda)
endif()
set(cuda_includes ${CUBLASLT_INCLUDE} ${CUDNN_INCLUDE} ${CUDNN_FRONTEND_INCLUDE} ${NVRTC_INCLUDE} ${cuda_root}/include)
# Machine code for the chips of three generations, and PTX for those to come. One of them alone compiles in a quarter of
# the time: -DLOCKSTEP_CUDA_TARGETS=90a.
set(LOCKSTEP_CUDA_TARGETS "80;89;90a;90-virtual" CACHE STRING "compute capabilities the CUDA part is compiled for")
set(cuda_targets "")
foreach(target IN LISTS LOCKSTEP_CUDA_TARGETS)
  if(target MATCHES "^(.*)-virtual$")
    list(APPEND cuda_targets -gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
  else()
    list(APPEND cuda_targets -gencode=arch=compute_${target},code=sm_${target})
  endif()
endforeach()
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/leaf/*.cu)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/leaf/*.cpp)
file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/leaf/*.cuh)
set(cuda_objects "")
foreach(kernel IN LISTS cuda_kernels)
  get_filename_component(name ${kernel} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
    COMMAND ${LOCKSTEP_NVCC} -std=c++20 -O3 ${cuda_targets} -Xcompiler -fPIC,-fvisibility=hidden -I
            ${CMAKE_SOURCE_DIR}/src -c ${kernel} -o ${object}
    DEPENDS ${kernel} ${cuda_headers} ${CMAKE_SOURCE_DIR}/src/backend/cuda/leaf.h
            ${CMAKE_SOURCE_DIR}/src/tensor/checksum_blocks.h
    COMMENT "nvcc ${name}.cu"
    VERBATIM)
  list(APPEND cuda_objects ${object})
endforeach()
add_library(lockstep_cuda SHARED ${cuda_sources} ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
set_target_properties(lockstep_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX
                                               LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
target_include_directories(lockstep_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(lockstep_cuda SYSTEM PRIVATE ${cuda_includes})
# cuDNN's frontend takes a minute to compile, and three with everything optimised.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/leaf/cudnn.cpp PROPERTIES COMPILE_OPTIONS "-O1")
target_link_libraries(lockstep_cuda PRIVATE ${cuda_root}/lib64/libcudart_static.a dl rt pthread)
add_dependencies(lockstep lockstep_cuda)
install(TARGETS lockstep_cuda LIBRARY DESTINATION lib/lockstep)
