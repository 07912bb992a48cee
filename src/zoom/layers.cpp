#include "zoom/layers.h"

#include <cmath>

#include "base/error.h"

namespace lockstep::zoom {
namespace {

constexpr int64_t kMostResults = 1 << 24;  // of one result

[[noreturn]] void refuse(const char* what) {
  fail(Code::kUnsupported, "zoom", what);
}

std::vector<int64_t> sizes_from(const Step& step, const char* name, int64_t otherwise, size_t axes) {
  const auto at = step.arguments.find(name);
  if (at == step.arguments.end()) return std::vector<int64_t>(axes, otherwise);
  if (at->is_number_integer()) return std::vector<int64_t>(axes, at->get<int64_t>());
  if (!at->is_array() || at->empty()) refuse("an argument that is no number");
  std::vector<int64_t> out;
  for (const Json& one : *at) {
    if (!one.is_number_integer()) refuse("an argument that is no number");
    out.push_back(one.get<int64_t>());
  }
  if (out.size() == 1) out.resize(axes, out[0]);
  if (out.size() != axes) refuse("an argument for another number of axes");
  return out;
}

int64_t product(const std::vector<int64_t>& sizes, size_t from = 0) {
  int64_t out = 1;
  for (size_t i = from; i < sizes.size(); ++i) out *= sizes[i];
  return out;
}

// Of a flat index into these sizes: the place along each axis.
std::vector<int64_t> places(int64_t flat, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out(sizes.size());
  for (size_t axis = sizes.size(); axis-- > 0;) {
    out[axis] = flat % sizes[axis];
    flat /= sizes[axis];
  }
  return out;
}

}  // namespace

ConvolutionForm convolution_form(const Step& step, size_t axes) {
  ConvolutionForm form;
  form.stride = sizes_from(step, "stride", 1, axes);
  form.padding = sizes_from(step, "padding", 0, axes);
  form.dilation = sizes_from(step, "dilation", 1, axes);
  form.groups = sizes_from(step, "groups", 1, 1)[0];
  return form;
}

Numbers convolution(const Numbers& x, const Numbers& weight, const Numbers* bias, const ConvolutionForm& form) {
  const size_t axes = form.stride.size();
  if (x.shape.size() != axes + 2 || weight.shape.size() != axes + 2 || form.groups < 1)
    refuse("a convolution's shapes");
  const std::vector<int64_t> input(x.shape.begin() + 2, x.shape.end()),
      kernel(weight.shape.begin() + 2, weight.shape.end());
  std::vector<int64_t> output;
  for (size_t i = 0; i < axes; ++i) {
    if (form.stride[i] < 1 || form.dilation[i] < 1 || form.padding[i] < 0) refuse("a convolution's arguments");
    output.push_back((input[i] + 2 * form.padding[i] - form.dilation[i] * (kernel[i] - 1) - 1) / form.stride[i] + 1);
    if (output.back() < 1) refuse("a convolution without a result");
  }
  const int64_t batch = x.shape[0], channels = x.shape[1], outputs = weight.shape[0], part = weight.shape[1];
  if (part * form.groups != channels || outputs % form.groups != 0) refuse("a convolution's groups");
  if (bias && bias->count() != outputs) refuse("a convolution's bias");
  const int64_t pixels = product(output), taps = product(kernel), area = product(input);
  if (batch * outputs * pixels > kMostResults) refuse("a convolution this large");
  Numbers out{{batch, outputs}, {}};
  out.shape.insert(out.shape.end(), output.begin(), output.end());
  out.values.resize(static_cast<size_t>(batch * outputs * pixels));
  // For each pixel and tap the place in the input; -1: padding.
  std::vector<int64_t> from(static_cast<size_t>(pixels * taps), -1);
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const std::vector<int64_t> at = places(pixel, output);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const std::vector<int64_t> in_kernel = places(tap, kernel);
      int64_t flat = 0;
      bool inside = true;
      for (size_t i = 0; i < axes; ++i) {
        const int64_t place = at[i] * form.stride[i] - form.padding[i] + in_kernel[i] * form.dilation[i];
        inside &= place >= 0 && place < input[i];
        flat = flat * input[i] + place;
      }
      if (inside) from[static_cast<size_t>(pixel * taps + tap)] = flat;
    }
  }
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t first = o / (outputs / form.groups) * part;  // of the input's channels
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        double sum = bias ? bias->values[static_cast<size_t>(o)] : 0;
        for (int64_t c = 0; c < part; ++c) {
          const float* source = x.values.data() + (b * channels + first + c) * area;
          const float* factors = weight.values.data() + (o * part + c) * taps;
          const int64_t* place = from.data() + pixel * taps;
          for (int64_t tap = 0; tap < taps; ++tap)
            if (place[tap] >= 0) sum += static_cast<double>(source[place[tap]]) * factors[tap];
        }
        out.values[static_cast<size_t>((b * outputs + o) * pixels + pixel)] = static_cast<float>(sum);
      }
    }
  return out;
}

Numbers group_norm(const Numbers& x, int64_t groups, const Numbers* weight, const Numbers* bias, double eps) {
  if (x.shape.size() < 2 || groups < 1 || x.shape[1] % groups != 0 || x.count() == 0) refuse("a group norm's shapes");
  const int64_t channels = x.shape[1], area = product(x.shape, 2), size = channels / groups * area;
  if ((weight && weight->count() != channels) || (bias && bias->count() != channels)) refuse("a group norm's weights");
  Numbers out = x;
  for (int64_t start = 0; start < x.count(); start += size) {
    double sum = 0, squares = 0;
    for (int64_t i = start; i < start + size; ++i) sum += x.values[static_cast<size_t>(i)];
    const double centre = sum / static_cast<double>(size);
    for (int64_t i = start; i < start + size; ++i) {
      const double d = x.values[static_cast<size_t>(i)] - centre;
      squares += d * d;
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + eps);
    for (int64_t i = start; i < start + size; ++i) {
      const auto channel = static_cast<size_t>(i / area % channels);
      double value = (x.values[static_cast<size_t>(i)] - centre) * scale;
      if (weight) value *= weight->values[channel];
      if (bias) value += bias->values[channel];
      out.values[static_cast<size_t>(i)] = static_cast<float>(value);
    }
  }
  return out;
}

Numbers rows_of_table(const Numbers& table, const Numbers& indices) {
  if (table.shape.empty()) refuse("a table without rows");
  const int64_t rows = table.shape[0], width = product(table.shape, 1);
  if (indices.count() * width > kMostResults) refuse("a table this large");
  Numbers out{indices.shape, {}};
  out.shape.insert(out.shape.end(), table.shape.begin() + 1, table.shape.end());
  for (const float index : indices.values) {
    auto row = static_cast<int64_t>(index);
    if (row < 0) row += rows;
    if (row < 0 || row >= rows || static_cast<float>(static_cast<int64_t>(index)) != index)
      refuse("a row beyond the table");
    const auto first = table.values.begin() + row * width;
    out.values.insert(out.values.end(), first, first + width);
  }
  return out;
}

Numbers cumulative_sum(const Numbers& x, int axis) {
  const auto rank = static_cast<int>(x.shape.size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) refuse("an axis beyond the array's");
  const int64_t inner = product(x.shape, static_cast<size_t>(axis) + 1), size = x.shape[static_cast<size_t>(axis)];
  Numbers out = x;
  for (int64_t i = 0; i < x.count(); ++i)
    if (i / inner % size > 0) out.values[static_cast<size_t>(i)] += out.values[static_cast<size_t>(i - inner)];
  return out;
}

}  // namespace lockstep::zoom
