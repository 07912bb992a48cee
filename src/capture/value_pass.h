// One walk over a tensor's values, block by block in cache: statistics, checksum and copy touch each byte once.
#pragma once
#include <functional>
#include <span>

#include "capture/record.h"
#include "tensor/value_digest.h"

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

// Statistics, checksum and first values of a record whose values a device went over.
void complete_from_digest(Record& record, const ValueDigest& digest);

std::vector<double> preview_values(const Tensor& tensor);  // the first kPreviewValues in row-major order

}  // namespace lockstep
