// The good tensors near a bad one.
#pragma once
#include "diagnose/case/case.h"

namespace lockstep {

// The good tensors the record was, or may have been, made from; nearest first. `is_good` answers for a reference
// record, and so does `is_assumed`: which ones may stand for tensors that the candidate did not record.
std::vector<Item> gather_items(const RunView& reference, const Structure& structure, size_t record,
                               const std::function<size_t(size_t)>& partner, const std::function<bool(size_t)>& is_good,
                               const std::function<bool(size_t)>& is_assumed = {});

}  // namespace lockstep
