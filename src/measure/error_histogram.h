// Absolute errors counted on a logarithmic scale: eight bins an octave over the whole range of float, in fixed memory,
// whatever the number of elements. Quantiles read from it are right to within 1/16 of their value.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class ErrorHistogram {
 public:
  // A bin is the bits of a non-negative float without its low 20: 8 bits of exponent, 3 of mantissa. Bin 0 holds the
  // errors below 1.5e-39, which are taken as 0.
  static constexpr int kShift = 20;
  static constexpr size_t kBins = 1u << (31 - kShift);
  static size_t bin_of(double error);
  static double lower_bound(size_t bin);

  struct Row {
    double from, to;  // from <= error < to; the row from 0 to 0 counts the equal pairs
    int64_t count;
  };

  void add(double error) { ++counts_[bin_of(error)]; }
  void add_count(size_t bin, int64_t count) { counts_[bin] += count; }
  void merge(const ErrorHistogram& other);

  int64_t total() const;
  double quantile(double q) const;           // 0 where nothing was counted
  std::vector<Row> rows(size_t most) const;  // rows of equal width in octaves; empty ones at the ends are left out

 private:
  std::array<int64_t, kBins> counts_{};
};

}  // namespace lockstep
