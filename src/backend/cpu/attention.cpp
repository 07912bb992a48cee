#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/attention_block.h"
#include "backend/cpu/attention_pack.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "base/error.h"
#include "tensor/storage.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kQueryBlock = 96;  // rows of scores held at once; a multiple of the products' twelve
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
  if (bf16 && level >= Level::kAvx512Bf16) return {DType::kBF16, multiply_bf16_avx512, soften_bf16_avx512, 8};
  if (bf16 && level == Level::kNeonBf16) return {DType::kBF16, multiply_bf16_neon, soften_bf16, 8};
  return {DType::kF32, multiply_f32, soften_f32, 4};
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
    line_ = outer_ + 16;  // lines a power of two apart would compete for the same cache sets
    make_spans();
  }

  void run() {
    if (sizes_.batch * sizes_.queries * sizes_.heads * sizes_.width == 0) return;
    pack();
    const int64_t blocks = static_cast<int64_t>(blocks_.size());
    const int64_t cost =
        2 * std::min(kQueryBlock, sizes_.queries) * longest_ * (sizes_.width + 16) / kProductsPerOperation;
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
      const int64_t each = parts ? round_up((rows + parts - 1) / parts, 12) : 0;
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

  static int64_t item_of(const Tensor& t) { return t.dtype() == DType::kF32 ? 4 : 2; }  // f32, bf16 or f16

  const std::byte* source(const Tensor& t, int64_t batch, int64_t token, int64_t head) const {
    const int64_t offset = batch * t.strides()[0] + token * t.strides()[1] + head * t.strides()[2];
    return t.strided_data() + offset * item_of(t);
  }

  // One head's rows lie a whole token apart: too far for the processor to guess the next one.
  static constexpr int64_t kAhead = 8;
  template <bool kForWriting = false>
  void prefetch(const Tensor& t, int64_t batch, int64_t token, int64_t head) const {
    const std::byte* row = source(t, batch, token, head);
    const int64_t bytes = sizes_.width * item_of(t);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, kForWriting);
  }

  // Keys [K panels of inner x 64] and values [width panels of all keys x 64] of one group.
  int64_t key_bytes() const { return packed_keys_ * inner_ * item_; }
  int64_t value_bytes() const { return packed_keys_ * outer_ * item_; }

  void pack() {
    keys_ = allocate_bytes(static_cast<size_t>(sizes_.batch * sizes_.groups * key_bytes()));
    values_ = allocate_bytes(static_cast<size_t>(sizes_.batch * sizes_.groups * value_bytes()));
    const int64_t panels = packed_keys_ / kPanel, lines_bytes = kPanel * line_ * item_;
    const std::shared_ptr<std::byte> scratch = allocate_bytes(static_cast<size_t>(threads_ * lines_bytes));
    const int64_t cost = kPanel * sizes_.width * 2;
    parallel_items(threads_, sizes_.batch * sizes_.groups * panels, cost, [&](int64_t item, int worker) {
      // Neighbouring heads of the same tokens one after the other: they share pages and arrive together.
      const int64_t group = item % sizes_.groups, panel = item / sizes_.groups % panels;
      const int64_t batch = item / sizes_.groups / panels;
      size_t span = spans_.size() - 1;
      while (spans_[span].packed_begin > panel * kPanel) --span;
      std::byte* lines = scratch.get() + worker * lines_bytes;
      const int64_t first = spans_[span].key_begin + panel * kPanel - spans_[span].packed_begin;
      const int64_t count = std::min(kPanel, spans_[span].key_end - first);
      std::byte* keys = keys_.get() + (batch * sizes_.groups + group) * key_bytes() + panel * kPanel * inner_ * item_;
      gather_lines(args_.k, batch, group, first, count, lines);
      const int64_t pair = 4 / item_;  // consecutive k side by side in 32 bits
      turn_64_rows(reinterpret_cast<uint32_t*>(lines), line_ / pair, inner_ / pair, reinterpret_cast<uint32_t*>(keys));
      gather_lines(args_.v, batch, group, first, count, lines);
      pack_values(lines, panel, values_.get() + (batch * sizes_.groups + group) * value_bytes());
    });
  }

  // `count` tokens of one head in the engine's dtype, each filled up with zeros; then lines of zeros up to 64.
  void gather_lines(const Tensor& t, int64_t batch, int64_t head, int64_t first, int64_t count,
                    std::byte* lines) const {
    for (int64_t i = 0; i < kPanel; ++i) {
      std::byte* to = lines + i * line_ * item_;
      const int64_t width = i < count ? sizes_.width : 0;
      if (i + kAhead < count) prefetch(t, batch, first + i + kAhead, head);
      if (width) convert_run(source(t, batch, first + i, head), t.dtype(), to, engine_.dtype, width);
      std::memset(to + width * item_, 0, static_cast<size_t>((line_ - width) * item_));
    }
  }

  void pack_values(const std::byte* lines, int64_t panel, std::byte* values) const {
    for (int64_t d = 0; d < outer_; d += kPanel) {  // [outer / 64][keys / pair][64][pair]
      std::byte* to = values + (d * packed_keys_ + panel * kPanel * kPanel) * item_;
      if (engine_.dtype == DType::kBF16) {
        const uint16_t* from = reinterpret_cast<const uint16_t*>(lines) + d;
        for (int64_t key = 0; key < kPanel; key += 2)
          pair_rows(from + key * line_, from + (key + 1) * line_, kPanel,
                    reinterpret_cast<uint32_t*>(to) + key / 2 * kPanel);
      } else {
        for (int64_t key = 0; key < kPanel; ++key)
          std::memcpy(to + key * kPanel * item_, lines + (key * line_ + d) * item_, kPanel * sizeof(float));
      }
    }
  }

  // f32 weights take the place of their scores.
  int64_t weights_bytes() const { return engine_.dtype == DType::kF32 ? 0 : kQueryBlock * kKeyBlock * item_; }

  // Per worker: the queries, the scores, the weights (bf16 only), the sums and two numbers a row.
  int64_t scratch_size() const {
    return round_up(kQueryBlock * inner_ * item_, 64) + kQueryBlock * kKeyBlock * 4 + weights_bytes() +
           kQueryBlock * outer_ * 4 + 2 * kQueryBlock * 4;
  }

  void query_block(int64_t batch, int64_t head, const Block& block, std::byte* scratch) const {
    const Span& span = spans_[block.span];
    const int64_t rows = block.end - block.begin, slot = batch * sizes_.groups + head / (sizes_.heads / sizes_.groups);
    std::byte* queries = scratch;
    float* scores = reinterpret_cast<float*>(queries + round_up(kQueryBlock * inner_ * item_, 64));
    std::byte* behind = reinterpret_cast<std::byte*>(scores + kQueryBlock * kKeyBlock);
    void* weights = weights_bytes() ? static_cast<void*>(behind) : scores;
    float* sums = reinterpret_cast<float*>(behind + weights_bytes());
    float* largest = sums + kQueryBlock * outer_;
    float* total = largest + kQueryBlock;
    std::fill_n(largest, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(total, rows, 0.0f);
    std::fill_n(sums, rows * outer_, 0.0f);
    load_queries(batch, head, block, queries);

    // Hidden scores are minus infinity: a scale of zero must not turn them into NaN.
    const float factor = std::max(std::fabs(args_.scale) * 1.44269504088896341f, 1e-30f);
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
                      .factor = factor,
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
      if (row + kAhead < rows) prefetch<true>(args_.out, batch, block.begin + row + kAhead, head);
      float* line = sums + row * outer_;
      scale_row(line, 1 / total[row], outer_);
      convert_run(line, DType::kF32, const_cast<std::byte*>(source(args_.out, batch, block.begin + row, head)),
                  args_.out.dtype(), sizes_.width);
    }
  }

  void load_queries(int64_t batch, int64_t head, const Block& block, std::byte* queries) const {
    for (int64_t row = 0; row < block.end - block.begin; ++row) {
      std::byte* to = queries + row * inner_ * item_;
      if (block.begin + row + kAhead < block.end) prefetch(args_.q, batch, block.begin + row + kAhead, head);
      convert_run(source(args_.q, batch, block.begin + row, head), args_.q.dtype(), to, engine_.dtype, sizes_.width);
      std::memset(to + sizes_.width * item_, 0, static_cast<size_t>((inner_ - sizes_.width) * item_));
      if (args_.scale < 0)  // the softmax works with a positive factor: turn the queries instead
        for (int64_t d = 0; d < sizes_.width; ++d) to[d * item_ + item_ - 1] ^= std::byte{0x80};
    }
  }

  // Scores that a query must not see become minus infinity.
  void hide(int64_t batch, const Block& block, int64_t key, int64_t count, int64_t columns, int64_t diagonal,
            float* scores) const {
    if (!args_.causal && !args_.key_mask && count == columns) return;
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
  int64_t line_ = 0;   // elements from line to line while packing
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
