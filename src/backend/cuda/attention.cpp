#include "backend/cuda/attention.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kWorthProducts = int64_t{1} << 22;  // scores of one head: fewer are done by our own kernel
constexpr int64_t kScoreBytes = int64_t{256} << 20;   // of f32 scores at a time

bool suits_products(const AttentionArgs& args) {
  const int64_t unit = 16 / static_cast<int64_t>(dtype_bytes(args.q.dtype()));
  for (const Tensor* tensor : {&args.q, &args.k, &args.v, static_cast<const Tensor*>(&args.out)})
    if (tensor->strides()[3] != 1 || tensor->strides()[1] % unit != 0) return false;
  return args.q.dim(1) * args.k.dim(1) >= kWorthProducts && args.q.dim(3) % unit == 0 && args.k.dim(1) % unit == 0;
}

// One head of one batch after the other, as many queries at a time as the scores' buffer holds.
bool by_products(Device& device, const AttentionArgs& args, const AttentionTask& task) {
  const int64_t queries = args.q.dim(1), keys = args.k.dim(1), width = args.q.dim(3);
  const int64_t chunk = std::clamp<int64_t>(kScoreBytes / (4 * keys), 1, queries);
  Tensor scores = device.allocate(DType::kF32, {chunk, keys}), weights = device.allocate(args.q.dtype(), {chunk, keys});
  const auto at = [](const Tensor& tensor, const View& view, int64_t b, int64_t s, int64_t h) {
    const int64_t offset = b * view.strides[0] + s * view.strides[1] + h * view.strides[2];
    return static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  };
  for (int64_t b = 0; b < args.q.dim(0); ++b)
    for (int64_t h = 0; h < args.q.dim(2); ++h)
      for (int64_t s = 0; s < queries; s += chunk) {
        const int64_t rows = std::min(chunk, queries - s), g = h / (args.q.dim(2) / args.k.dim(2));
        MatmulTask first{};
        first.x = at(args.q, task.q, b, s, h);
        first.w = at(args.k, task.k, b, 0, g);
        first.out = device.address(scores, "attention");
        first.operand_dtype = task.q.dtype;
        first.out_dtype = static_cast<int>(DType::kF32);
        first.m = rows;
        first.n = keys;
        first.k = width;
        first.batch = 1;
        first.x_row = task.q.strides[1];
        first.w_row = task.k.strides[1];
        first.out_row = keys;
        first.alpha = args.scale;
        const bool supported = device.try_issue("attention", {&args.q, &args.k}, {&scores}, rows, [&](Stream stream) {
          return device.leaf().matmul(device.context(), &first, !device.capturing(), stream);
        });
        if (!supported) return false;
        SoftmaxTask soft{};
        soft.scores = static_cast<const float*>(device.address(scores, "attention"));
        soft.weights = device.address(weights, "attention");
        soft.dtype = task.q.dtype;
        soft.rows = rows;
        soft.keys = keys;
        soft.first_query = s;
        soft.causal = task.causal;
        soft.causal_reach = keys - queries;
        soft.key_mask =
            task.key_mask ? static_cast<const std::byte*>(task.key_mask) + b * task.key_mask_batch : nullptr;
        soft.segment_ends = task.segment_ends;
        soft.segments = task.segments;
        device.issue("attention", {&scores, args.key_mask}, {&weights}, rows,
                     [&](Stream stream) { return device.leaf().softmax(&soft, stream); });
        MatmulTask second{};
        second.x = soft.weights;
        second.w = at(args.v, task.v, b, 0, g);
        second.out = at(args.out, task.out, b, s, h);
        second.operand_dtype = second.out_dtype = task.q.dtype;
        second.m = rows;
        second.n = width;
        second.k = keys;
        second.batch = 1;
        second.x_row = keys;
        second.w_row = task.v.strides[1];
        second.out_row = task.out.strides[1];
        second.w_is_k_by_n = 1;
        second.alpha = 1;
        device.issue("attention", {&weights, &args.v}, {&args.out}, rows, [&](Stream stream) {
          return device.leaf().matmul(device.context(), &second, !device.capturing(), stream);
        });
      }
  return true;
}

}  // namespace

void attention(Device& device, const AttentionArgs& args) {
  if (args.out.numel() == 0 || rehearsing()) return;
  AttentionTask task{};
  task.q = device.view(args.q, "attention");
  task.k = device.view(args.k, "attention");
  task.v = device.view(args.v, "attention");
  task.out = device.view(args.out, "attention");
  task.scale = args.scale;
  task.causal = args.causal;
  if (args.key_mask) {
    task.key_mask = device.address(*args.key_mask, "attention");
    task.key_mask_batch = args.key_mask->strides()[0];
  }
  Tensor ends;
  if (!args.segment_ends.empty()) {
    const Tensor host = Tensor::from<int64_t>({static_cast<int64_t>(args.segment_ends.size())}, args.segment_ends);
    ends = device.allocate(DType::kI64, host.shape());
    device.upload(host, ends);
    task.segment_ends = static_cast<const int64_t*>(device.address(ends, "attention"));
    task.segments = static_cast<int>(args.segment_ends.size());
  }
  const int64_t rows = args.q.dim(0) * args.q.dim(1) + kQueues * (int64_t{1} << 20);  // never beside another kernel
  if (device.try_issue("attention", {&args.q, &args.k, &args.v}, {&args.out}, rows, [&](Stream stream) {
        return device.leaf().attention_by_library(device.context(), &task, stream);
      }))
    return;
  if (suits_products(args) && by_products(device, args, task)) return;
  device.issue("attention", {&args.q, &args.k, &args.v, args.key_mask}, {&args.out}, rows,
               [&](Stream stream) { return device.leaf().attention(&task, stream); });
}

}  // namespace lockstep::cuda
