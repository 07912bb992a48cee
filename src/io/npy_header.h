// The text header of a .npy file: a Python dictionary literal, read without Python.
#pragma once
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace lockstep {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

NpyHeader parse_npy_header(std::string_view text, std::string_view origin);

}  // namespace lockstep
