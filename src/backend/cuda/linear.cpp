#include "backend/cuda/linear.h"

#include <algorithm>

#include "backend/check_weight.h"
#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kFewQuantisedRows = 2;  // so few rows read packed weights faster than unpacked ones are written

int64_t row_count(const Tensor& tensor) {
  return tensor.rank() == 0 || tensor.dim(-1) == 0 ? 0 : tensor.numel() / tensor.dim(-1);
}

}  // namespace

bool row_batches(const Tensor& tensor, RowBatches& found) {
  found = {};
  const size_t rank = tensor.rank();
  if (rank == 0 || (tensor.dim(-1) > 1 && tensor.strides().back() != 1)) return false;
  found.row_stride = tensor.dim(-1);
  int axes = 0;
  for (size_t i = rank - 1; i-- > 0;) {  // innermost first
    const int64_t size = tensor.shape()[i], stride = tensor.strides()[i];
    if (size == 1) continue;
    if (axes == 0 || (axes == 1 && stride == found.row_stride * found.rows)) {
      if (axes == 0) found.row_stride = stride;
      found.rows *= size;
      axes = 1;
    } else if (axes == 1 || stride == found.batch_stride * found.batch) {
      if (axes == 1) found.batch_stride = stride;
      found.batch *= size;
      axes = 2;
    } else {
      return false;
    }
  }
  return found.row_stride >= tensor.dim(-1) || found.rows == 1;
}

Tensor Linear::cast(const Tensor& tensor, DType dtype) const {
  if (!tensor.defined() || tensor.dtype() == dtype) return tensor;
  Tensor out = device_->allocate(dtype, tensor.shape());
  if (rehearsing()) return out;
  const View from = device_->view(tensor, "cast");
  View to = device_->view(out, "cast");
  device_->issue("cast", {&tensor}, {&out}, row_count(out),
                 [&](Stream stream) { return device_->leaf().copy_view(&from, &to, stream); });
  return out;
}

Tensor Linear::packed(const Tensor& tensor) const {
  if (tensor.is_contiguous()) return tensor;
  Tensor out = device_->allocate(tensor.dtype(), tensor.shape());
  if (rehearsing()) return out;
  const View from = device_->view(tensor, "contiguous");
  View to = device_->view(out, "contiguous");
  device_->issue("contiguous", {&tensor}, {&out}, row_count(out),
                 [&](Stream stream) { return device_->leaf().copy_view(&from, &to, stream); });
  return out;
}

void Linear::prepare(LinearWeight& weight, DType activations) const {
  check_weight(weight);
  const auto up = [&](const Tensor& tensor, DType dtype) {
    if (!tensor.defined() || !tensor.on_host()) return cast(tensor, dtype);
    // A narrower weight travels as it is and is widened there.
    const Tensor host = rehearsing() ? tensor : tensor.contiguous();
    Tensor on = device_->allocate(tensor.dtype(), tensor.shape());
    if (!rehearsing()) device_->upload_later(host, on);
    return cast(on, dtype);
  };
  auto made = std::make_shared<DeviceLinear>();
  const DType held = weight.bits ? DType::kU32 : weight.fp8 ? DType::kF8E4M3 : activations;
  made->room = stream_.stay(static_cast<size_t>(weight.weight.numel()) * dtype_bytes(held));
  // A weight that travels is brought into its form on the way, through the device where that is needed.
  const auto placed = [&](const Tensor& form) {
    if (made->room)
      made->weight = form.on_host() ? up(form, held) : form;
    else
      made->travelling = stream_.add(form);
  };
  if (weight.fp8) {
    if (!device_->multiplies_fp8())
      fail(Code::kUnsupported, "linear", device_->place() + " does not multiply in fp8",
           {.expected = "compute capability 8.9 or later", .hint = "--quantize 8, or none"});
    multiplies_fp8_ = true;
    const Fp8Rows rounded = to_fp8(up(weight.weight, DType::kBF16));
    placed(rounded.rows);
    made->scales = rounded.scales;
  } else if (weight.bits) {
    placed(weight.weight);
    made->scales = up(weight.scales, weight.scales.dtype());
    made->biases = up(weight.biases, weight.biases.dtype());
  } else {
    placed(made->room || weight.weight.dtype() == held ? weight.weight : up(weight.weight, held));
  }
  made->bias = up(weight.bias, activations);
  weight.prepared = std::move(made);
}

DeviceLinear Linear::on_device(const LinearWeight& weight, DType activations) const {
  if (weight.prepared) {
    DeviceLinear made = *static_cast<const DeviceLinear*>(weight.prepared.get());
    if (made.travelling) made.weight = stream_.fetch(made.travelling);
    if (!weight.bits && !weight.fp8) made.weight = cast(made.weight, activations);
    made.bias = cast(made.bias, activations);
    return made;
  }
  DeviceLinear made{weight.weight, cast(weight.bias, activations), weight.scales, weight.biases, {}, {}};
  if (!weight.bits) made.weight = packed(cast(weight.weight, activations));
  return made;
}

bool Linear::try_product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu,
                         const Tensor* residual, const Tensor* x_scales, const Tensor* w_scales) const {
  RowBatches from, to, added;
  if (!row_batches(x, from) || !row_batches(out, to) || (residual && !row_batches(*residual, added))) return false;
  if (from.batch != to.batch && from.batch != 1 && to.batch != 1) return false;
  if (residual && (added.batch != 1 || to.batch != 1)) return false;
  // One side in one batch of rows, the other in several: the single one is cut alike.
  const int64_t batch = std::max(from.batch, to.batch);
  const auto cut = [&](RowBatches& rows) {
    if (rows.batch == batch) return true;
    if (rows.rows % batch != 0) return false;
    rows.rows /= batch;
    rows.batch = batch;
    rows.batch_stride = rows.rows * rows.row_stride;
    return true;
  };
  if (!cut(from) || !cut(to) || from.rows != to.rows) return false;
  MatmulTask task{};
  task.x = device_->address(x, "linear");
  task.w = device_->address(w, "linear");
  task.bias = bias.defined() ? device_->address(bias, "linear") : nullptr;
  task.residual = residual ? device_->address(*residual, "linear") : nullptr;
  task.out = device_->address(out, "linear");
  task.operand_dtype = static_cast<int>(x.dtype());
  task.out_dtype = static_cast<int>(out.dtype());
  task.m = from.rows;
  task.n = out.dim(-1);
  task.k = x.dim(-1);
  task.batch = batch;
  task.x_row = from.row_stride;
  task.w_row = w.strides()[0];
  task.out_row = to.row_stride;
  task.residual_row = residual ? added.row_stride : 0;
  task.x_batch = from.batch_stride;
  task.out_batch = to.batch_stride;
  task.residual_batch = 0;
  task.gelu_tanh = gelu;
  task.alpha = 1;
  const auto scales = [&](const Tensor* of) {
    return of ? static_cast<const float*>(device_->address(*of, "linear")) : nullptr;
  };
  task.x_scale = scales(x_scales);
  task.w_scale = scales(w_scales);
  return device_->try_issue(
      "linear", {&x, &w, bias.defined() ? &bias : nullptr, residual, x_scales, w_scales}, {&out}, row_count(out),
      [&](Stream stream) { return device_->leaf().matmul(device_->context(), &task, !device_->capturing(), stream); });
}

void Linear::product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu,
                     const Tensor* residual) const {
  if (out.numel() == 0 || rehearsing()) return;
  if (x.dim(-1) > 0 && try_product(x, w, bias, out, gelu, residual)) return;
  // What the library has no kernel for: packed f32 operands, and the rest of the formula by our own kernel.
  const Tensor wide_x = packed(cast(x, DType::kF32)), wide_w = packed(cast(w, DType::kF32));
  Shape shape = out.shape();
  Tensor y = device_->allocate(DType::kF32, shape);
  if (x.dim(-1) == 0)
    device_->issue("linear", {}, {&y}, row_count(y), [&](Stream stream) {
      return device_->leaf().fill(device_->context(), device_->address(y, "linear"), 0, y.bytes(), stream);
    });
  else if (!try_product(wide_x, wide_w, {}, y, false, nullptr))
    fail(Code::kUnsupported, "linear", "cuBLASLt has no kernel for this product",
         {.got = to_string(x.shape()) + " by " + to_string(w.shape())});
  const auto add = [&](const Tensor& other) {
    const Tensor wide = cast(other, DType::kF32).broadcast_to(y.shape());
    const View a = device_->view(y, "linear"), b = device_->view(wide, "linear");
    View to = a;
    device_->issue("linear", {&y, &wide}, {&y}, row_count(y),
                   [&](Stream stream) { return device_->leaf().binary(0, &a, &b, &to, stream); });
  };
  if (bias.defined()) add(bias);
  const auto apply = [&](const Tensor* added, Tensor& to) {
    const View from = device_->view(y, "linear");
    View target = device_->view(to, "linear");
    View more{};
    if (added) more = device_->view(*added, "linear");
    device_->issue("linear", {&y, added}, {&to}, row_count(to), [&](Stream stream) {
      return device_->leaf().epilogue(&from, &target, gelu ? 1 : 0, nullptr, added ? &more : nullptr, nullptr, 1,
                                      stream);
    });
  };
  const Tensor same = residual ? cast(*residual, out.dtype()) : Tensor();
  apply(residual ? &same : nullptr, out);
}

Fp8Rows Linear::to_fp8(const Tensor& x) const {
  const Tensor from = packed(x);
  Fp8Rows made{device_->allocate(DType::kF8E4M3, from.shape()), device_->allocate(DType::kF32, {row_count(from)})};
  if (rehearsing() || from.numel() == 0) return made;
  const View view = device_->view(from, "fp8");
  device_->issue("fp8", {&from}, {&made.rows, &made.scales}, row_count(from), [&](Stream stream) {
    return device_->leaf().to_fp8_rows(&view, device_->address(made.rows, "fp8"),
                                       static_cast<float*>(device_->address(made.scales, "fp8")), stream);
  });
  return made;
}

const Fp8Rows& Linear::rows_in_fp8(const Tensor& x) const {
  const uint64_t version = device_->version(x);
  for (const Last& last : last_) {
    const bool same = !last.storage.owner_before(x.storage()) && !x.storage().owner_before(last.storage) &&
                      last.version == version && last.offset == x.offset_bytes() && last.shape == x.shape();
    if (same && !rehearsing()) return last.made;
  }
  last_[next_last_].made = {};  // its memory first
  remember(x, to_fp8(x));
  return last_[(next_last_ + last_.size() - 1) % last_.size()].made;
}

Fp8Rows Linear::room_for_fp8(const Tensor& x) const {
  if (!multiplies_fp8_ || !x.is_contiguous() || x.numel() == 0) return {};
  return {device_->allocate(DType::kF8E4M3, x.shape()), device_->allocate(DType::kF32, {row_count(x)})};
}

void Linear::remember(const Tensor& x, Fp8Rows rows) const {
  last_[next_last_] = {x.storage(), device_->version(x), x.offset_bytes(), x.shape(), std::move(rows)};
  next_last_ = (next_last_ + 1) % last_.size();
}

void Linear::fp8(const Tensor& x, const DeviceLinear& weight, const Tensor& bias, Tensor& out, bool gelu,
                 const Tensor* residual) const {
  const Fp8Rows& rows = rows_in_fp8(x);
  if (out.numel() == 0 || rehearsing()) return;
  if (try_product(rows.rows, weight.weight, bias, out, gelu, residual, &rows.scales, &weight.scales)) return;
  // For some shapes the library has no kernel: the same values, multiplied in the activations' dtype.
  const auto wide = [&](const Fp8Rows& from) {
    Tensor to = device_->allocate(x.dtype(), from.rows.shape());
    View view = device_->view(to, "fp8");
    device_->issue("fp8", {&from.rows, &from.scales}, {&to}, row_count(to), [&](Stream stream) {
      return device_->leaf().from_fp8_rows(device_->address(from.rows, "fp8"),
                                           static_cast<const float*>(device_->address(from.scales, "fp8")), &view,
                                           stream);
    });
    return to;
  };
  product(wide(rows), wide({weight.weight, weight.scales}), bias, out, gelu, residual);
}

void Linear::quantised(const Tensor& x, const LinearWeight& form, const DeviceLinear& weight, const Tensor& bias,
                       Tensor& out, bool gelu, const Tensor* residual) const {
  const int64_t n = form.outputs(), k = form.inputs();
  QuantisedTask task{};
  if (!rehearsing()) {
    task.words = static_cast<const uint32_t*>(device_->address(weight.weight, "linear"));
    task.scales = device_->view(weight.scales, "linear");
    task.biases = device_->view(weight.biases, "linear");
  }
  task.bits = form.bits;
  task.group_size = form.group_size;
  task.n = n;
  task.k = k;
  // Unpacked values have more digits than f16 keeps, and no model computes in it: its products are made in f32.
  const DType wide = x.dtype() == DType::kF16 ? DType::kF32 : x.dtype();
  const bool few =
      row_count(x) <= kFewQuantisedRows && !gelu && !residual && out.dtype() == x.dtype() && x.dtype() == wide;
  if (few) {
    if (rehearsing()) return;
    const View from = device_->view(x, "linear");
    View to = device_->view(out, "linear");
    device_->issue("linear", {&x, &weight.weight, &bias}, {&out}, row_count(out), [&](Stream stream) {
      return device_->leaf().quantised_rows(&task, &from, bias.defined() ? device_->address(bias, "linear") : nullptr,
                                            &to, stream);
    });
    return;
  }
  const bool packs = !residual && x.dtype() == DType::kBF16;
  if (const int parts = packs ? cuda::packed_parts_of(task, row_count(x)) : 0; parts > 0) {
    Tensor sums = device_->allocate(DType::kF32, {parts, row_count(x), n});
    if (rehearsing()) return;
    const View from = device_->view(x, "linear");
    View to = device_->view(out, "linear");
    if (device_->try_issue("linear", {&x, &weight.weight, &weight.scales, &weight.biases, &bias}, {&out, &sums},
                           row_count(out), [&](Stream stream) {
                             return device_->leaf().packed_product(
                                 &task, &from, bias.defined() ? device_->address(bias, "linear") : nullptr, gelu,
                                 static_cast<float*>(device_->address(sums, "linear")), &to, stream);
                           }))
      return;
  }
  Tensor dense = device_->allocate(wide, {n, k});
  if (!rehearsing()) {
    View to = device_->view(dense, "linear");
    device_->issue("linear", {&weight.weight}, {&dense}, row_count(out),
                   [&](Stream stream) { return device_->leaf().dequantise(&task, &to, stream); });
  }
  product(cast(x, wide), dense, bias, out, gelu, residual);
}

void Linear::run(const LinearArgs& args) const {
  check_weight(args.weight);
  if (args.x.rank() < 1 || args.x.dim(-1) != args.weight.inputs())
    fail(Code::kBadInput, "linear", "the last axis of x is not the weight's input width",
         {.expected = std::to_string(args.weight.inputs()), .got = to_string(args.x.shape())});
  const bool float_rows =
      args.x.dtype() == DType::kF32 || args.x.dtype() == DType::kBF16 || args.x.dtype() == DType::kF16;
  const DType dtype = float_rows ? args.x.dtype() : DType::kF32;
  Tensor x = cast(args.x, dtype);
  if (RowBatches rows; !row_batches(x, rows)) x = packed(x);
  const DeviceLinear weight = on_device(args.weight, dtype);
  const bool direct = args.out.dtype() == dtype;
  Tensor out = direct ? args.out : device_->allocate(dtype, args.out.shape());
  if (RowBatches rows; !row_batches(out, rows)) out = device_->allocate(dtype, args.out.shape());
  const Tensor residual = args.residual ? cast(*args.residual, dtype) : Tensor();
  // The library's GELU has the precision of a small float: enough for one, not for f32.
  const bool fuse_gelu =
      args.activation == Activation::kGeluTanh && !args.multiply && !args.residual && dtype != DType::kF32;
  const bool fuse_residual = args.activation == Activation::kNone && !args.multiply && !args.gate && args.residual;
  const bool whole =
      fuse_gelu || fuse_residual || (args.activation == Activation::kNone && !args.multiply && !args.residual);
  // What is multiplied afterwards is not rounded before: its error would be multiplied too.
  Tensor y = whole ? out : device_->allocate(args.multiply ? DType::kF32 : dtype, args.out.shape());
  const Tensor* added = fuse_residual ? &residual : nullptr;
  const Tensor bias = cast(weight.bias, y.dtype());
  if (args.weight.fp8)
    fp8(x, weight, bias, y, fuse_gelu, added);
  else if (args.weight.bits)
    quantised(x, args.weight, weight, bias, y, fuse_gelu, added);
  else
    product(x, weight.weight, bias, y, fuse_gelu, added);
  // A norm mostly follows a gated residual: it takes the sum along.
  const bool sum_later = !whole && args.residual && args.gate && args.activation == Activation::kNone &&
                         !args.multiply && y.dtype() == dtype && out.storage() == args.out.storage();
  if (sum_later && out.numel() > 0) {
    device_->defer({.x = residual,
                    .gate = cast(*args.gate, dtype),
                    .y = y,
                    .out = out,
                    .rows_per_batch = std::max<int64_t>(1, row_count(out) / args.gate->dim(0))});
  } else if (!whole && out.numel() > 0 && !rehearsing()) {
    const Tensor multiply = args.multiply ? cast(*args.multiply, dtype) : Tensor();
    const Tensor gate = args.gate ? cast(*args.gate, dtype) : Tensor();
    const auto optional = [&](const Tensor& tensor, View& view) {
      if (tensor.defined()) view = device_->view(tensor, "linear");
      return tensor.defined() ? &view : nullptr;
    };
    View multiply_view{}, residual_view{}, gate_view{}, to = device_->view(out, "linear");
    const View from = device_->view(y, "linear");
    const int64_t rows = row_count(out);
    device_->issue("linear", {&y, &multiply, &residual, &gate}, {&out}, rows, [&](Stream stream) {
      return device_->leaf().epilogue(&from, &to, static_cast<int>(args.activation), optional(multiply, multiply_view),
                                      optional(residual, residual_view), optional(gate, gate_view),
                                      args.gate ? std::max<int64_t>(1, rows / args.gate->dim(0)) : 1, stream);
    });
  }
  if (out.storage() != args.out.storage() && !rehearsing() && out.numel() > 0) {
    const View from = device_->view(out, "linear");
    View to = device_->view(args.out, "linear");
    device_->issue("linear", {&out}, {&args.out}, row_count(out),
                   [&](Stream stream) { return device_->leaf().copy_view(&from, &to, stream); });
  }
}

}  // namespace lockstep::cuda
