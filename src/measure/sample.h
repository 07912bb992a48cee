// Which values of a tensor are looked at where all of them would take too long: runs of neighbours, evenly spread. A
// tensor of many gigabytes is a file, and a file is read in pages: values that lie apart would each cost a page, so
// that a few of them take as long as all.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

inline constexpr int64_t kWholeElements = 1 << 24;    // tensors up to this size are read whole
inline constexpr int64_t kSampledElements = 1 << 22;  // values that are read of a larger one
inline constexpr int64_t kSampledPlaces = 256;        // at which they lie

struct Neighbours {
  int64_t begin = 0, count = 0;
};

// Of `count` things in a row: all where they are at most `most`, else about `most` in at most `places` runs, each in
// the middle of its share.
std::vector<Neighbours> spread_runs(int64_t count, int64_t most, int64_t places);

// How many values of a window of `rows` x `columns` to read: all, or fewer. `whole` is the size up to which it is all.
// Values that do not lie side by side count for the pages that they cost.
int64_t values_to_read(const Tensor& tensor, int64_t rows, int64_t columns, int64_t whole = kWholeElements);

// The system fetches the pages of these elements of a mapped file together, rather than one by one as they are read.
void fetch_soon(const Tensor& tensor, const std::vector<Neighbours>& runs);

}  // namespace lockstep
