#include <algorithm>
#include <limits>

#include "backend/mlx/leaf/kernels.h"

namespace lockstep::mlx {
namespace {

// Whether MLX has a kernel that keeps the scores in f32. Elsewhere they would be rounded to the tensors' dtype, and a
// score of 40 in bf16 is off by 0.1: such heads are computed in f32.
bool has_kernel(int64_t width) {
  return on_gpu() && (width == 64 || width == 80 || width == 128);
}

// 0 where a key is seen and minus infinity where it is not: a query that sees nothing is NaN, as in torch.
mx::array hidden_unless(const mx::array& seen, mx::Dtype type) {
  return mx::where(seen, mx::array(0.0f, type), mx::array(-std::numeric_limits<float>::infinity(), type));
}

// Which segment a token belongs to: those beyond the last end are one more.
mx::array segments_of(const AttentionTask& task, int64_t tokens) {
  std::vector<int32_t> numbers(static_cast<size_t>(tokens));
  size_t segment = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    while (segment < task.segments && token >= task.segment_ends[segment]) ++segment;
    numbers[static_cast<size_t>(token)] = static_cast<int32_t>(segment);
  }
  return mx::array(numbers.begin(), {mx::safe_cast(tokens)}, mx::int32);
}

// [B or 1, 1, S or 1, T]
std::optional<mx::array> seen_keys(const AttentionTask& task, bool segments) {
  const int64_t queries = task.q->shape[1], keys = task.k->shape[1];
  std::optional<mx::array> seen;
  const auto also = [&](mx::array more) { seen = seen ? mx::logical_and(*seen, more) : std::move(more); };
  if (task.key_mask) also(mx::expand_dims(read(*task.key_mask), {1, 2}));
  if (segments)
    also(mx::equal(mx::expand_dims(segments_of(task, queries), {0, 1, 3}),
                   mx::expand_dims(segments_of(task, keys), {0, 1, 2})));
  if (seen && task.causal) {
    const mx::array query = mx::reshape(mx::arange(0, mx::safe_cast(queries)), {1, 1, -1, 1});
    const mx::array key = mx::reshape(mx::arange(0, mx::safe_cast(keys)), {1, 1, 1, -1});
    also(mx::less_equal(key, mx::add(query, mx::array(mx::safe_cast(keys - queries)))));
  }
  return seen;
}

mx::array attend(const AttentionTask& task, const mx::array& q, const mx::array& k, const mx::array& v,
                 const std::optional<mx::array>& mask) {
  return mx::fast::scaled_dot_product_attention(q, k, v, task.scale,
                                                mask          ? "array"
                                                : task.causal ? "causal"
                                                              : "",
                                                mask);
}

}  // namespace

void attention(const AttentionTask& task) {
  const int64_t queries = task.q->shape[1], keys = task.k->shape[1];
  const mx::Dtype given = type_of(task.q->dtype);
  const mx::Dtype type = has_kernel(task.q->shape[3]) ? given : mx::float32;
  const auto heads_first = [&](const View& view) { return mx::astype(mx::transpose(read(view), {0, 2, 1, 3}), type); };
  const mx::array q = heads_first(*task.q), k = heads_first(*task.k), v = heads_first(*task.v);

  // Segments of the same tokens on both sides are calls of their own: the work between them is never done.
  const bool apart = task.segments > 0 && queries == keys && !task.key_mask;
  mx::array out = q;
  if (apart) {
    std::vector<mx::array> parts;
    int64_t begin = 0;
    for (size_t i = 0; i <= task.segments && begin < queries; ++i) {
      const int64_t end = i < task.segments ? std::clamp(task.segment_ends[i], begin, queries) : queries;
      if (end == begin) continue;
      const auto part = [&](const mx::array& all) {
        return mx::slice(all, {0, 0, mx::safe_cast(begin), 0},
                         {all.shape(0), all.shape(1), mx::safe_cast(end), all.shape(3)});
      };
      parts.push_back(attend(task, part(q), part(k), part(v), std::nullopt));
      begin = end;
    }
    out = parts.size() == 1 ? parts.front() : mx::concatenate(parts, 2);
  } else {
    const std::optional<mx::array> seen = seen_keys(task, task.segments > 0);
    out = attend(task, q, k, v, seen ? std::optional(hidden_unless(*seen, type)) : std::nullopt);
  }
  write(*task.out, mx::transpose(out, {0, 2, 1, 3}));
}

}  // namespace lockstep::mlx
