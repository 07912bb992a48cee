#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/attention_block.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "base/error.h"
#include "tensor/storage.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kQueryBlock = 96;  // rows of scores held at once; a multiple of the products' six
constexpr int64_t kKeyBlock = 256;   // columns of scores held at once

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A run of tokens that attend to a run of keys: everything, or one segment.
struct Span {
  int64_t query_begin, query_end, key_begin, key_end;
  int64_t packed_begin;  // where its keys start among the packed ones; a multiple of 64
};

// How scores and weighted sums are computed: f32 anywhere, bf16 where the processor multiplies it.
struct Engine {
  DType dtype;
  void (*multiply)(const PanelProduct&);
  void (*soften)(const ScoreBlock&);
  int64_t width_multiple;  // head widths are filled with zeros up to a multiple of this
};

// Rows this short cost nothing either way, and rounding their few weights to bf16 shows: a long row averages it out.
constexpr int64_t kExactKeys = 256;

Engine choose_engine(const AttentionArgs& args, Level level) {
  const bool bf16 = args.k.dim(1) > kExactKeys && args.q.dtype() == DType::kBF16 && args.k.dtype() == DType::kBF16 &&
                    args.v.dtype() == DType::kBF16;
  if (bf16 && level == Level::kAmx) return {DType::kBF16, multiply_bf16_amx, soften_bf16_avx512, 32};
  if (bf16 && level >= Level::kAvx512Bf16) return {DType::kBF16, multiply_bf16_avx512, soften_bf16_avx512, 2};
  return {DType::kF32, multiply_f32, soften_f32, 1};
}

struct Sizes {
  int64_t batch, queries, keys, heads, groups, width;
};

class Attention {
 public:
  Attention(const AttentionArgs& args, int threads, Level level)
      : args_(args), threads_(threads), engine_(choose_engine(args, level)) {
    const Tensor& q = args.q;
    sizes_ = {q.dim(0), q.dim(1), args.k.dim(1), q.dim(2), args.k.dim(2), q.dim(3)};
    item_ = static_cast<int64_t>(dtype_bytes(engine_.dtype));
    inner_ = round_up(sizes_.width, engine_.width_multiple);
    outer_ = round_up(sizes_.width, kPanel);
    make_spans();
  }

  void run() {
    if (sizes_.batch * sizes_.queries * sizes_.heads * sizes_.width == 0) return;
    pack();
    const int64_t blocks = static_cast<int64_t>(blocks_.size());
    const int64_t cost = std::min(kQueryBlock, sizes_.queries) * longest_ * sizes_.width / 4;
    const int64_t scratch_bytes = scratch_size();
    const std::shared_ptr<std::byte> scratch = allocate_bytes(static_cast<size_t>(threads_ * scratch_bytes));
    parallel_items(threads_, sizes_.batch * sizes_.heads * blocks, cost, [&](int64_t item, int worker) {
      const int64_t head = item / blocks % sizes_.heads, batch = item / blocks / sizes_.heads;
      query_block(batch, head, blocks_[static_cast<size_t>(item % blocks)], scratch.get() + worker * scratch_bytes);
    });
  }

 private:
  struct Block {
    size_t span;
    int64_t begin, end;  // queries
  };

  void make_spans() {
    int64_t begin = 0;
    const auto add = [&](Span span) {
      span.packed_begin = packed_keys_;
      packed_keys_ += round_up(span.key_end - span.key_begin, kPanel);
      longest_ = std::max(longest_, span.key_end - span.key_begin);
      const int64_t rows = span.query_end - span.query_begin;
      const int64_t parts = (rows + kQueryBlock - 1) / kQueryBlock;
      const int64_t each = parts ? round_up((rows + parts - 1) / parts, 6) : 0;
      for (int64_t at = span.query_begin; at < span.query_end; at += each)
        blocks_.push_back({spans_.size(), at, std::min(at + each, span.query_end)});
      spans_.push_back(span);
    };
    if (args_.segment_ends.empty()) return add({0, sizes_.queries, 0, sizes_.keys, 0});
    for (const int64_t end : args_.segment_ends) {
      const int64_t last = std::clamp(end, begin, sizes_.queries);
      if (last > begin) add({begin, last, begin, last, 0});
      begin = last;
    }
    if (begin < sizes_.queries) add({begin, sizes_.queries, begin, sizes_.keys, 0});
  }

  const std::byte* source(const Tensor& t, int64_t batch, int64_t token, int64_t head) const {
    const int64_t offset = batch * t.strides()[0] + token * t.strides()[1] + head * t.strides()[2];
    return t.strided_data() + offset * static_cast<int64_t>(dtype_bytes(t.dtype()));
  }

  // Keys [K panels of inner x 64] and values [width panels of all keys x 64] of one group.
  int64_t key_bytes() const { return packed_keys_ * inner_ * item_; }
  int64_t value_bytes() const { return packed_keys_ * outer_ * item_; }

  void pack() {
    keys_ = allocate_bytes(static_cast<size_t>(sizes_.batch * sizes_.groups * key_bytes()));
    values_ = allocate_bytes(static_cast<size_t>(sizes_.batch * sizes_.groups * value_bytes()));
    const int64_t panels = packed_keys_ / kPanel;
    parallel_items(threads_, sizes_.batch * sizes_.groups * panels, kPanel * sizes_.width * 4, [&](int64_t item, int) {
      const int64_t panel = item % panels, group = item / panels % sizes_.groups, batch = item / panels / sizes_.groups;
      size_t span = spans_.size() - 1;
      while (spans_[span].packed_begin > panel * kPanel) --span;
      if (engine_.dtype == DType::kBF16)
        pack_panel<BFloat16>(batch, group, panel, spans_[span]);
      else
        pack_panel<float>(batch, group, panel, spans_[span]);
    });
  }

  template <typename T>
  void pack_panel(int64_t batch, int64_t group, int64_t panel, const Span& span) {
    constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;  // consecutive k side by side
    const int64_t first = span.key_begin + panel * kPanel - span.packed_begin;
    const int64_t count = std::min(kPanel, span.key_end - first);
    const int64_t slot = batch * sizes_.groups + group;
    T* keys = reinterpret_cast<T*>(keys_.get() + slot * key_bytes()) + panel * kPanel * inner_;
    T* values = reinterpret_cast<T*>(values_.get() + slot * value_bytes());
    std::vector<T>& row = row_buffer<T>();
    row.assign(static_cast<size_t>(std::max(inner_, outer_)), T{});
    for (int64_t key = 0; key < kPanel; ++key) {
      if (key < count)
        convert_run(source(args_.k, batch, first + key, group), args_.k.dtype(), row.data(), engine_.dtype,
                    sizes_.width);
      else
        std::fill(row.begin(), row.end(), T{});
      for (int64_t d = 0; d < inner_; d += kPair)  // [inner / pair][64][pair]
        for (int64_t e = 0; e < kPair; ++e) keys[d * kPanel + key * kPair + e] = row[static_cast<size_t>(d + e)];
    }
    std::fill(row.begin(), row.end(), T{});
    for (int64_t key = 0; key < kPanel; ++key) {
      if (key < count)
        convert_run(source(args_.v, batch, first + key, group), args_.v.dtype(), row.data(), engine_.dtype,
                    sizes_.width);
      else
        std::fill(row.begin(), row.end(), T{});
      const int64_t packed = panel * kPanel + key;
      for (int64_t d = 0; d < outer_; ++d)  // [outer / 64][keys / pair][64][pair]
        values[d / kPanel * packed_keys_ * kPanel + packed / kPair * kPanel * kPair + d % kPanel * kPair +
               packed % kPair] = row[static_cast<size_t>(d)];
    }
  }

  template <typename T>
  static std::vector<T>& row_buffer() {
    static thread_local std::vector<T> row;
    return row;
  }

  // Per worker: the queries, the scores, the weights (bf16 only), the sums and two numbers a row.
  int64_t scratch_size() const {
    return round_up(kQueryBlock * inner_ * item_, 64) + kQueryBlock * kKeyBlock * (4 + item_) +
           kQueryBlock * outer_ * 4 + 2 * kQueryBlock * 4;
  }

  void query_block(int64_t batch, int64_t head, const Block& block, std::byte* scratch) const {
    const Span& span = spans_[block.span];
    const int64_t rows = block.end - block.begin, slot = batch * sizes_.groups + head / (sizes_.heads / sizes_.groups);
    std::byte* queries = scratch;
    float* scores = reinterpret_cast<float*>(queries + round_up(kQueryBlock * inner_ * item_, 64));
    std::byte* weights = reinterpret_cast<std::byte*>(scores + kQueryBlock * kKeyBlock);
    float* sums = reinterpret_cast<float*>(weights + kQueryBlock * kKeyBlock * item_);
    float* largest = sums + kQueryBlock * outer_;
    float* total = largest + kQueryBlock;
    std::fill_n(largest, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(total, rows, 0.0f);
    std::fill_n(sums, rows * outer_, 0.0f);
    load_queries(batch, head, block, queries);

    const std::byte* keys = keys_.get() + slot * key_bytes();
    const std::byte* values = values_.get() + slot * value_bytes();
    const int64_t diagonal = sizes_.keys - sizes_.queries;  // causal: query s sees keys up to s + diagonal
    int64_t end = span.key_end;
    if (args_.causal) end = std::clamp(block.end + diagonal, span.key_begin, span.key_end);
    for (int64_t key = span.key_begin; key < end; key += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, end - key), columns = round_up(count, kPanel);
      const int64_t packed = span.packed_begin + key - span.key_begin;
      for (int64_t column = 0; column < columns; column += kPanel)
        engine_.multiply({.a = queries,
                          .a_stride = inner_,
                          .panel = keys + (packed + column) * inner_ * item_,
                          .c = scores + column,
                          .c_stride = kKeyBlock,
                          .rows = rows,
                          .k = inner_,
                          .columns = kPanel,
                          .accumulate = false});
      hide(batch, block, key, count, columns, diagonal, scores);
      engine_.soften({.scores = scores,
                      .scores_stride = kKeyBlock,
                      .rows = rows,
                      .columns = columns,
                      .weights = weights,
                      .weights_stride = kKeyBlock,
                      .factor = std::fabs(args_.scale) * 1.44269504088896341f,
                      .largest = largest,
                      .total = total,
                      .sums = sums,
                      .sums_stride = outer_,
                      .width = outer_});
      for (int64_t d = 0; d < outer_; d += kPanel)
        engine_.multiply({.a = weights,
                          .a_stride = kKeyBlock,
                          .panel = values + (d * packed_keys_ + packed * kPanel) * item_,
                          .c = sums + d,
                          .c_stride = outer_,
                          .rows = rows,
                          .k = columns,
                          .columns = std::min(kPanel, sizes_.width - d),
                          .accumulate = true});
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* line = sums + row * outer_;
      const float inverse = 1 / total[row];
      for (int64_t d = 0; d < sizes_.width; ++d) line[d] *= inverse;
      convert_run(line, DType::kF32, const_cast<std::byte*>(source(args_.out, batch, block.begin + row, head)),
                  args_.out.dtype(), sizes_.width);
    }
  }

  void load_queries(int64_t batch, int64_t head, const Block& block, std::byte* queries) const {
    for (int64_t row = 0; row < block.end - block.begin; ++row) {
      std::byte* to = queries + row * inner_ * item_;
      convert_run(source(args_.q, batch, block.begin + row, head), args_.q.dtype(), to, engine_.dtype, sizes_.width);
      std::memset(to + sizes_.width * item_, 0, static_cast<size_t>((inner_ - sizes_.width) * item_));
      if (args_.scale < 0)  // the softmax works with a positive factor: turn the queries instead
        for (int64_t d = 0; d < sizes_.width; ++d) to[d * item_ + item_ - 1] ^= std::byte{0x80};
    }
  }

  // Scores that a query must not see become minus infinity.
  void hide(int64_t batch, const Block& block, int64_t key, int64_t count, int64_t columns, int64_t diagonal,
            float* scores) const {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    const int64_t rows = block.end - block.begin;
    for (int64_t row = 0; row < rows; ++row) {
      float* line = scores + row * kKeyBlock;
      int64_t seen = count;
      if (args_.causal) seen = std::clamp<int64_t>(block.begin + row + diagonal + 1 - key, 0, count);
      std::fill(line + seen, line + columns, kHidden);
    }
    if (!args_.key_mask) return;
    const Tensor& mask = *args_.key_mask;
    for (int64_t i = 0; i < count; ++i) {
      if (mask.strided_data()[batch * mask.strides()[0] + (key + i) * mask.strides()[1]] != std::byte{0}) continue;
      for (int64_t row = 0; row < rows; ++row) scores[row * kKeyBlock + i] = kHidden;
    }
  }

  const AttentionArgs& args_;
  int threads_;
  Engine engine_;
  Sizes sizes_{};
  int64_t item_ = 0;
  int64_t inner_ = 0;  // head width as the score product reads it
  int64_t outer_ = 0;  // head width as the weighted sum writes it
  int64_t packed_keys_ = 0, longest_ = 0;
  std::vector<Span> spans_;
  std::vector<Block> blocks_;
  std::shared_ptr<std::byte> keys_, values_;
};

}  // namespace

void attention(const AttentionArgs& args, int threads, Level level) {
  Attention(args, threads, level).run();
}

}  // namespace lockstep::cpu
