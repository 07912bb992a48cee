// Where the files that come with the program are: in a build folder, under a prefix, or in a Python environment.
#pragma once
#include "base/file.h"

namespace lockstep {

fs::path python_package_folder();  // holds the package `lockstep`; Error{kNotFound} says where it was looked for

fs::path capture_library();  // liblockstep_capture.so beside the program; empty: not there

}  // namespace lockstep
