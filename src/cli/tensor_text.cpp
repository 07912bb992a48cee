#include "cli/tensor_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/number_text.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

// The indices of an axis that are shown; -1 stands for those left out.
std::vector<int64_t> shown_indices(int64_t size, int64_t edge) {
  std::vector<int64_t> shown;
  if (size <= 2 * edge + 1) {
    for (int64_t i = 0; i < size; ++i) shown.push_back(i);
    return shown;
  }
  for (int64_t i = 0; i < edge; ++i) shown.push_back(i);
  shown.push_back(-1);
  for (int64_t i = size - edge; i < size; ++i) shown.push_back(i);
  return shown;
}

class Writer {
 public:
  Writer(const Tensor& tensor, const TensorTextOptions& options) : tensor_(tensor), options_(options) {
    choose_edges();
    measure(0, tensor_.strided_data());
  }

  std::string text() {
    if (tensor_.rank() == 0) return element(tensor_.strided_data()) + "\n";
    write(0, tensor_.strided_data());
    return out_ + "\n";
  }

 private:
  // The largest edges with which the outer axes need at most `rows` lines and the last one at most `columns`.
  void choose_edges() {
    const size_t rank = tensor_.rank();
    if (rank == 0) return;
    edges_.assign(rank, 0);
    for (int64_t edge = 1; edge <= options_.rows; ++edge) {
      double lines = 1;
      for (size_t axis = 0; axis + 1 < rank; ++axis)
        lines *= static_cast<double>(shown_indices(tensor_.shape()[axis], edge).size());
      if (lines > options_.rows && edge > 1) break;
      for (size_t axis = 0; axis + 1 < rank; ++axis) edges_[axis] = edge;
      if (lines > options_.rows) {  // even one at each end is too much: the first axes show their first element only
        for (size_t axis = 0; axis + 1 < rank && lines > options_.rows; ++axis) {
          lines /= static_cast<double>(shown_indices(tensor_.shape()[axis], 1).size());
          edges_[axis] = 0;
        }
        break;
      }
    }
    edges_[rank - 1] = 3;
    measure(0, tensor_.strided_data());
    const int64_t fits = (options_.columns - 2 * static_cast<int64_t>(rank)) / (static_cast<int64_t>(width_) + 1);
    if (tensor_.shape()[rank - 1] <= fits)
      edges_[rank - 1] = fits;
    else
      edges_[rank - 1] = std::clamp<int64_t>((fits - 1) / 2, 1, 8);
  }

  std::vector<int64_t> indices(size_t axis) const {
    const int64_t size = tensor_.shape()[axis];
    if (edges_[axis] == 0) return size > 1 ? std::vector<int64_t>{0, -1} : shown_indices(size, 1);
    return shown_indices(size, edges_[axis]);
  }

  std::string element(const std::byte* at) const { return text_from_element(at, tensor_.dtype(), options_.digits); }

  const std::byte* at_index(const std::byte* at, size_t axis, int64_t index) const {
    return at + index * tensor_.strides()[axis] * static_cast<int64_t>(dtype_bytes(tensor_.dtype()));
  }

  void measure(size_t axis, const std::byte* at) {
    if (tensor_.numel() == 0) return;
    if (axis == tensor_.rank()) {
      width_ = std::max(width_, element(at).size());
      return;
    }
    for (const int64_t i : indices(axis))
      if (i >= 0) measure(axis + 1, at_index(at, axis, i));
  }

  void write(size_t axis, const std::byte* at) {
    const bool innermost = axis + 1 == tensor_.rank();
    out_ += '[';
    bool first = true;
    for (const int64_t i : indices(axis)) {
      if (!first) out_ += innermost ? std::string(" ") : "\n" + std::string(axis + 1, ' ');
      first = false;
      if (i < 0)
        out_ += innermost ? "..." : fmt::format("... {} of {}", "axis " + std::to_string(axis), tensor_.shape()[axis]);
      else if (innermost)
        out_ += fmt::format("{:>{}}", element(at_index(at, axis, i)), width_);
      else
        write(axis + 1, at_index(at, axis, i));
    }
    out_ += ']';
  }

  const Tensor& tensor_;
  const TensorTextOptions& options_;
  std::vector<int64_t> edges_;
  size_t width_ = 1;
  std::string out_;
};

}  // namespace

std::string text_from_element(const std::byte* at, DType dtype, int digits) {
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) -> std::string {
    T value;
    std::memcpy(&value, at, sizeof(T));
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "True" : "False";
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      const double number = element_as_double(at, dtype);
      return std::isfinite(number) ? fmt::format("{:.{}g}", number, digits) : text_from_number(number);
    }
  });
}

Text text_from_tensor(const Tensor& tensor, const TensorTextOptions& options) {
  if (tensor.numel() == 0) return Text::of("[] of shape {}\n", to_string(tensor.shape()));
  return Text::trusted(Writer(tensor, options).text());  // numbers alone
}

}  // namespace lockstep
