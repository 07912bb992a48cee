#include "backend/reference/access.h"
#include "backend/reference/kernels.h"
#include "backend/reference/scalar_functions.h"

namespace lockstep::reference {
namespace {

// Row n of the weight as doubles. MLX affine: a row is a little-endian stream of `bits`-wide unsigned values.
std::vector<double> weight_row(const LinearWeight& w, int64_t n) {
  const int64_t k = w.inputs();
  std::vector<double> row(static_cast<size_t>(k));
  if (w.bits == 0) {
    for (int64_t i = 0; i < k; ++i) row[static_cast<size_t>(i)] = load(w.weight, {n, i});
    return row;
  }
  for (int64_t i = 0; i < k; ++i) {
    const int64_t bit = i * w.bits, word = bit / 32, shift = bit % 32;
    uint64_t stream = static_cast<uint64_t>(load(w.weight, {n, word}));
    if (shift + w.bits > 32) stream |= static_cast<uint64_t>(load(w.weight, {n, word + 1})) << 32;
    const double q = static_cast<double>(stream >> shift & ((uint64_t{1} << w.bits) - 1));
    row[static_cast<size_t>(i)] = load(w.scales, {n, i / w.group_size}) * q + load(w.biases, {n, i / w.group_size});
  }
  return row;
}

}  // namespace

void linear(const LinearArgs& args) {
  const std::vector<int64_t> x_rows = row_offsets(args.x), out_rows = row_offsets(args.out);
  const std::vector<int64_t> multiply_rows = args.multiply ? row_offsets(*args.multiply) : std::vector<int64_t>{};
  const std::vector<int64_t> residual_rows = args.residual ? row_offsets(*args.residual) : std::vector<int64_t>{};
  const int64_t k = args.weight.inputs(), n_out = args.weight.outputs();
  const int64_t rows_per_batch = args.gate ? static_cast<int64_t>(x_rows.size()) / args.gate->dim(0) : 1;
  std::vector<double> x(x_rows.size() * static_cast<size_t>(k));
  for (size_t m = 0; m < x_rows.size(); ++m)
    for (int64_t i = 0; i < k; ++i)
      x[m * static_cast<size_t>(k) + static_cast<size_t>(i)] = load_at(args.x, x_rows[m] + i);
  for (int64_t n = 0; n < n_out; ++n) {
    const std::vector<double> w = weight_row(args.weight, n);
    const double bias = args.weight.bias.defined() ? load(args.weight.bias, {n}) : 0;
    for (size_t m = 0; m < x_rows.size(); ++m) {
      double sum = 0;
      const double* row = x.data() + m * static_cast<size_t>(k);
      for (size_t i = 0; i < w.size(); ++i) sum += row[i] * w[i];
      double y = activate(args.activation, sum + bias);
      if (args.multiply) y *= load_at(*args.multiply, multiply_rows[m] + n);
      if (args.gate) y *= load(*args.gate, {static_cast<int64_t>(m) / rows_per_batch, n});
      if (args.residual) y += load_at(*args.residual, residual_rows[m] + n);
      store_at(args.out, out_rows[m] + n, y);
    }
  }
}

}  // namespace lockstep::reference
