#include "nn/weights.h"

#include <algorithm>
#include <set>

#include "backend/quantize.h"
#include "base/error.h"
#include "base/names.h"
#include "tensor/convert.h"
#include "tensor/storage.h"

namespace lockstep::nn {
namespace {

constexpr int kQuantizeGroup = 64;  // MLX's default, and that of the published files

// A tensor that kernels read straight from the file: its pages are memory in use as much as a copy's would be.
Tensor counted(const Tensor& mapped) {
  const auto owner = std::make_shared<const Tensor>(mapped);
  return Tensor::wrap(mapped.strided_data(), mapped.dtype(), mapped.shape(),
                      count_borrowed_bytes(owner, mapped.bytes()), mapped.strides());
}

}  // namespace

struct Weights::Account {
  const Checkpoint& checkpoint;
  Backend& backend;
  WeightOptions options;
  std::set<std::string> used;
  std::vector<std::string> missing, misshapen, ignored;
  int64_t taken_bytes = 0, all_bytes = 0;

  // A tensor of another shape is noted under its name.
  bool fits(const std::string& name, const Tensor& tensor, const Shape& shape) {
    if (tensor.shape() == shape) return true;
    misshapen.push_back(name + " is " + to_string(tensor.shape()) + ", expected " + to_string(shape));
    return false;
  }
};

Weights::Weights(const Checkpoint& checkpoint, Backend& backend, WeightOptions options)
    : account_(new Account{checkpoint, backend, std::move(options), {}, {}, {}, {}}) {
  for (const TensorInfo& info : checkpoint.tensors()) account_->all_bytes += static_cast<int64_t>(info.size_bytes);
}

Weights Weights::operator/(std::string_view name) const {
  return Weights(account_, key(name));
}
Weights Weights::at(std::string_view list, int index) const {
  return Weights(account_, key(list) + "." + std::to_string(index));
}

std::string Weights::key(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

bool Weights::has(std::string_view name) const {
  const std::string canonical = key(name);
  return account_->checkpoint.find(account_->options.rename ? account_->options.rename(canonical) : canonical) !=
         nullptr;
}

Tensor Weights::take(std::string_view name) const {
  const std::string canonical = key(name);
  const std::string in_file = account_->options.rename ? account_->options.rename(canonical) : canonical;
  if (!account_->checkpoint.find(in_file)) {
    const auto& lacking = account_->options.may_lack;
    if (std::find(lacking.begin(), lacking.end(), canonical) == lacking.end()) account_->missing.push_back(in_file);
    return {};
  }
  account_->used.insert(in_file);
  Tensor tensor = account_->checkpoint.tensor(in_file);
  // What was taken before this tensor is done with: its packing went on after its own report.
  if (account_->options.progress) account_->options.progress(account_->taken_bytes, account_->all_bytes);
  account_->taken_bytes += static_cast<int64_t>(tensor.bytes());
  return tensor;
}

// The file's pages under a weight that was packed or copied would double the peak: they come back if read again.
void Weights::drop(const Weights& scope, std::string_view name) const {
  const std::string canonical = scope.key(name);
  account_->checkpoint.drop_pages(account_->options.rename ? account_->options.rename(canonical) : canonical);
}

Tensor Weights::in_dtype(Tensor tensor) const {
  if (!is_floating(tensor.dtype())) return tensor;
  // A narrower weight keeps its bytes: its values are the same in the wider dtype, and the kernels widen as they read.
  const bool widens = dtype_bytes(tensor.dtype()) < dtype_bytes(account_->options.dtype);
  return widens ? tensor : tensor.to(account_->options.dtype);
}

Tensor Weights::stored(std::string_view name, const Shape& shape) const {
  Tensor found = take(name);
  if (!found.defined()) return found;
  return account_->fits(key(name), found, shape) ? account_->backend.upload(found) : Tensor();
}

Tensor Weights::tensor(std::string_view name, const Shape& shape) const {
  const Tensor found = take(name);
  if (!found.defined() || !account_->fits(key(name), found, shape)) return {};
  return account_->backend.upload(found.to(account_->options.dtype));
}

Tensor Weights::flat(std::string_view name, int64_t numel) const {
  Tensor found = take(name);
  if (!found.defined()) return found;
  if (found.numel() != numel) {
    account_->misshapen.push_back(key(name) + " is " + to_string(found.shape()) + ", expected " +
                                  std::to_string(numel) + " values");
    return {};
  }
  return account_->backend.upload(found.contiguous().reshape({numel}).to(account_->options.dtype));
}

LinearWeight Weights::linear(std::string_view name, int64_t inputs, int64_t outputs, bool bias) const {
  const Weights scope = *this / name;
  LinearWeight linear;
  Tensor weight = scope.take("weight");
  if (bias) linear.bias = scope.tensor("bias", {outputs});
  if (bias && !linear.bias.defined() && !scope.has("bias")) {
    const auto& lacking = account_->options.may_lack;
    bias = std::find(lacking.begin(), lacking.end(), scope.key("bias")) == lacking.end();
  }
  const bool quantised = scope.has("scales");
  if (quantised) {
    linear.scales = scope.take("scales");
    linear.biases = scope.take("biases");
  }
  if (!weight.defined() || (bias && !linear.bias.defined()) ||
      (quantised && (!linear.scales.defined() || !linear.biases.defined())))
    return linear;
  if (quantised) {
    const int64_t groups = linear.scales.rank() == 2 ? linear.scales.dim(1) : 0;
    linear.bits = weight.rank() == 2 && inputs > 0 ? static_cast<int>(weight.dim(1) * 32 / inputs) : 0;
    linear.group_size = groups > 0 ? static_cast<int>(inputs / groups) : 0;
    const bool fits = weight.dtype() == DType::kU32 && linear.bits > 0 && linear.bits <= 8 && groups > 0 &&
                      weight.shape() == Shape{outputs, inputs * linear.bits / 32} &&
                      linear.scales.shape() == Shape{outputs, groups} &&
                      linear.biases.shape() == linear.scales.shape() && groups * linear.group_size == inputs;
    if (!fits) {
      account_->misshapen.push_back(key(name) + " is quantised as weight " + to_string(weight.shape()) + ", scales " +
                                    to_string(linear.scales.shape()) + ", which does not fit " +
                                    to_string({outputs, inputs}));
      return linear;
    }
    linear.weight = weight;
  } else {
    if (!account_->fits(scope.key("weight"), weight, {outputs, inputs})) return linear;
    linear.weight = in_dtype(weight);
    linear.fp8 = account_->options.linears.fp8 && inputs % 16 == 0 && outputs % 16 == 0;  // whole units of its kernels
    if (account_->options.linears.bits) quantize_in_place(linear, account_->options.linears.bits, kQuantizeGroup);
  }
  if (account_->backend.prepare(linear, account_->options.dtype)) {
    if (!linear.bits) linear.weight = weight;  // a converted copy would only lie beside the packed one
  } else {
    for (Tensor* part : {&linear.weight, &linear.scales, &linear.biases})
      if (account_->checkpoint.holds(*part)) *part = counted(*part);
  }
  if (!quantised) drop(scope, "weight");
  return linear;
}

LinearWeight Weights::convolution_of_patches(std::string_view name, int64_t inputs, int64_t outputs) const {
  const Weights scope = *this / name;
  LinearWeight linear;
  Tensor weight = scope.take("weight");
  if (!weight.defined()) return linear;
  if (weight.rank() == 5 && account_->options.channels_last_convolutions)
    weight = weight.permute({0, 4, 1, 2, 3});  // [o, kt, kh, kw, i] → [o, i, kt, kh, kw]
  if (weight.numel() != inputs * outputs || weight.rank() < 2 || weight.dim(0) != outputs) {
    account_->misshapen.push_back(scope.key("weight") + " is " + to_string(weight.shape()) + ", expected " +
                                  to_string({outputs, inputs}) + " values");
    return linear;
  }
  linear.weight = in_dtype(weight.contiguous().reshape({outputs, inputs}));
  if (!account_->backend.prepare(linear, account_->options.dtype) && account_->checkpoint.holds(linear.weight))
    linear.weight = counted(linear.weight);
  drop(scope, "weight");
  return linear;
}

ConvWeight Weights::conv(Tensor weight, std::string_view name, const Shape& shape, int64_t outputs) const {
  ConvWeight conv;
  conv.bias = (*this / name).tensor("bias", {outputs});
  if (!weight.defined() || !conv.bias.defined()) return conv;
  if (!account_->fits((*this / name).key("weight"), weight, shape)) return conv;
  conv.weight = in_dtype(weight).contiguous();
  if (!account_->backend.prepare(conv, account_->options.dtype) && account_->checkpoint.holds(conv.weight))
    conv.weight = counted(conv.weight);
  drop(*this / name, "weight");
  return conv;
}

DType Weights::dtype() const {
  return account_->options.dtype;
}

Tensor Weights::conv2d_kernel(std::string_view name) const {
  const Tensor weight = (*this / name).take("weight");
  return weight.defined() && weight.rank() == 4 && account_->options.channels_last_convolutions
             ? weight.permute({0, 3, 1, 2})  // [o, kh, kw, i] → [o, i, kh, kw]
             : weight;
}

ConvWeight Weights::conv2d(std::string_view name, int64_t inputs, int64_t outputs, int kernel) const {
  return conv(conv2d_kernel(name), name, {outputs, inputs, kernel, kernel}, outputs);
}

std::array<ConvWeight, 4> Weights::conv2d_of_doubled(std::string_view name, int64_t inputs, int64_t outputs) const {
  std::array<ConvWeight, 4> phases;
  const Tensor weight = conv2d_kernel(name), bias = (*this / name).tensor("bias", {outputs});
  if (!weight.defined() || !bias.defined()) return phases;
  if (!account_->fits((*this / name).key("weight"), weight, {outputs, inputs, 3, 3})) return phases;
  const Tensor nine = weight.to(DType::kF32).contiguous();
  const float* from = nine.data<float>();
  // Which of the two source rows a tap of the doubled picture falls on, by the parity of the result's row; columns
  // alike.
  constexpr int kSource[2][3] = {{0, 1, 1}, {0, 0, 1}};
  for (int phase = 0; phase < 4; ++phase) {
    const auto& rows = kSource[phase / 2];
    const auto& columns = kSource[phase % 2];
    Tensor four = Tensor::zeros(DType::kF32, {outputs, inputs, 2, 2});
    float* to = four.mutable_data<float>();
    for (int64_t pair = 0; pair < outputs * inputs; ++pair) {
      double sums[4] = {};
      for (int tap = 0; tap < 9; ++tap) sums[2 * rows[tap / 3] + columns[tap % 3]] += from[9 * pair + tap];
      for (int i = 0; i < 4; ++i) to[4 * pair + i] = static_cast<float>(sums[i]);
    }
    phases[static_cast<size_t>(phase)].weight = four.to(dtype());
    phases[static_cast<size_t>(phase)].bias = bias;
    account_->backend.prepare(phases[static_cast<size_t>(phase)], dtype());
  }
  drop(*this / name, "weight");
  return phases;
}

ConvWeight Weights::conv3d_newest_tap(std::string_view name, int64_t inputs, int64_t outputs, int kernel) const {
  Tensor weight = (*this / name).take("weight");
  if (weight.defined() && weight.rank() == 5) {
    if (account_->options.channels_last_convolutions)
      weight = weight.permute({0, 4, 1, 2, 3});                          // [o, kt, kh, kw, i] → [o, i, kt, kh, kw]
    if (weight.dim(2) == kernel) weight = weight.select(2, kernel - 1);  // [o, i, kh, kw]
  }
  return conv(weight, name, {outputs, inputs, kernel, kernel}, outputs);
}

void Weights::ignore(std::string_view glob) const {
  account_->ignored.emplace_back(glob);
}

void Weights::finish(std::string_view component) const {
  std::vector<std::string> unused, known;
  for (const TensorInfo& info : account_->checkpoint.tensors()) {
    known.push_back(info.name);
    bool settled = account_->used.count(info.name) > 0;
    for (const std::string& glob : account_->ignored) settled = settled || glob_match(glob, info.name);
    if (!settled) unused.push_back(info.name);
  }
  if (account_->missing.empty() && account_->misshapen.empty() && unused.empty()) {
    if (account_->options.progress) account_->options.progress(account_->all_bytes, account_->all_bytes);
    return;
  }
  constexpr size_t kMostSuggestions = 20;
  std::string text = std::string(component) + ": the checkpoint does not fit the config (" +
                     std::to_string(account_->missing.size()) + " missing, " + std::to_string(unused.size()) +
                     " unused, " + std::to_string(account_->misshapen.size()) + " misshapen)";
  size_t suggested = 0;
  for (const std::string& name : account_->missing) {
    text += "\n  missing: " + name;
    if (suggested++ < kMostSuggestions)
      for (const std::string& near : nearest_names(name, unused.empty() ? known : unused, 1))
        text += " (nearest: " + near + ")";
  }
  for (const std::string& name : unused) text += "\n  unused: " + name;
  for (const std::string& line : account_->misshapen) text += "\n  misshapen: " + line;
  fail(Code::kBadInput, "load", text);
}

}  // namespace lockstep::nn
