// One walk over a tensor's values, block by block in cache: statistics, checksum and copy touch each byte once.
#pragma once
#include <functional>
#include <span>

#include "capture/record.h"

namespace lockstep {

struct PassWants {
  bool statistics = true;
  std::byte* copy_to = nullptr;                               // room for tensor.bytes(), packed row major
  std::function<void(std::span<const std::byte>)> sink = {};  // each packed block in order
};

struct PassResult {
  Statistics stats;
  std::string checksum;
};

PassResult pass_over_values(const Tensor& tensor, const PassWants& wants);

std::vector<double> preview_values(const Tensor& tensor);  // the first kPreviewValues in row-major order

}  // namespace lockstep
