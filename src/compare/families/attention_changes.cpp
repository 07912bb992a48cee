// What may be different about an attention: one change each, the likeliest first, since time may run out on large ones.
#include <algorithm>

#include "compare/families/attention_grammar.h"
#include "compare/families/rotary_turning.h"

namespace lockstep {
namespace {

struct QkvOrder {
  int q, k, v;
};
constexpr QkvOrder kQkvOrders[] = {{1, 0, 2}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1},
                                   {0, 1, 1}, {0, 0, 2}, {1, 1, 2}, {0, 2, 2}, {0, 1, 0}};

class Grammar : public AttentionGrammar {
 public:
  using AttentionGrammar::AttentionGrammar;
  void add_rotations();
  void add_scores();
  void add_masks();
  void add_operands();
  void add_heads();
  void add_streams();
  void add_rarer_rotations();
  void add_rarer_streams();
  void add_rarer_masks();
  void add_rarer_operands();
  void add_formats();
};

void Grammar::add_rotations() {
  if (!in_.has_tables()) return;
  for (const Turning& other : changed_turnings(turning(), in_.variants().axes()))
    on(kBothStreams, kQK, [=](OperandFormula& p) { p.turning = other; });
  if (!turns()) return;
  for (const unsigned operand : {kQ, kK}) on(kBothStreams, operand, [](OperandFormula& p) { p.turning = {}; });
  on(kBothStreams, kV, [own = turning()](OperandFormula& p) { p.turning = own; });
  if (two_) {
    on(kBothStreams, kQK, [](OperandFormula& p) { p.other_table = true; });
    on(kBothStreams, kQK, [](OperandFormula& p) { p.joint_table = true; });
  }
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16, text_, -text_})
    on(kBothStreams, kQK, [=](OperandFormula& p) { p.shift = shift; });
  on(kBothStreams, kQK, [](OperandFormula& p) { p.by_head = true; });
  on(kBothStreams, kQK, [](OperandFormula& p) { p.backwards = true; });
}

// The same mistakes made with one of q, k, in one of the streams, and rows of the table that come round again.
void Grammar::add_rarer_rotations() {
  if (!in_.has_tables() || !turns()) return;
  std::vector<OperandChange> changes;
  for (const Turning& other : changed_turnings(turning(), in_.variants().axes()))
    if (other.share == 1 || (other.share == 0.5 && !other.at_end && other.columns == Columns::kFirst))
      changes.push_back([=](OperandFormula& p) { p.turning = other; });
  if (two_) changes.push_back([](OperandFormula& p) { p.other_table = true; });
  changes.push_back([](OperandFormula& p) { p.by_head = true; });
  changes.push_back([](OperandFormula& p) { p.backwards = true; });
  for (const bool wraps : {false, true})
    for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4})
      changes.push_back([=](OperandFormula& p) { p.shift = shift, p.wraps = wraps; });
  for (const OperandChange& change : changes) on_each_stream(kQK, change);
  on_each_stream(kV, [own = turning()](OperandFormula& p) { p.turning = own; });
  for (const unsigned operand : {kQ, kK})
    for (const OperandChange& change : changes) on(kBothStreams, operand, change), on_each_stream(operand, change);
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4})
    on(kBothStreams, kQK, [=](OperandFormula& p) { p.shift = shift, p.wraps = true; });
  const int64_t heads = width_ / d_;
  for (const int64_t count : {int64_t{1}, heads - 1, heads / 2, in_.key_heads(d_)})
    if (count > 0 && count < heads)
      for (const unsigned operands : {kQK, kQ, kK})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.turned_heads = count; });
  for (int rows = 1; rows <= std::min(all_, 64); ++rows)
    for (const unsigned streams : {kBothStreams, 1U, 2U}) {
      if (streams != kBothStreams && !two_) continue;
      on(streams, kQK, [=](OperandFormula& p) { p.repeats = rows; });
      on(streams, kQK, [=](OperandFormula& p) { p.until = rows; });
    }
}

// Of the attention as a whole: no stream can have it alone.
void Grammar::add_scores() {
  const double d = static_cast<double>(d_), width = static_cast<double>(width_);
  const double key_width = d * static_cast<double>(in_.key_heads(d_)), root = std::sqrt(d);
  for (const double scale : {0.0, 1.0, 1 / d, 1 / std::sqrt(width), root, 1 / std::sqrt(d / 2), 1 / std::sqrt(2 * d),
                             1 / std::sqrt(root), std::log(2.0) / root, 1 / std::log(2.0) / root,
                             1 / std::sqrt(key_width), 1 / std::sqrt(width / d), std::sqrt(width), 1 / width})
    add([=](AttentionFormula& p) { p.scale = scale; });
  for (const Weighting weighting :
       {Weighting::kPlain, Weighting::kSigmoid, Weighting::kOverQueries, Weighting::kOverHeads, Weighting::kPowers,
        Weighting::kEqual, Weighting::kRelu, Weighting::kTwice, Weighting::kOverChannels, Weighting::kTransposed,
        Weighting::kOwnValue})
    add([=](AttentionFormula& p) { p.weighting = weighting; });
  // Over the channels the sums run over the tokens, and so may the scale.
  add([tokens = static_cast<double>(all_)](AttentionFormula& p) {
    p.weighting = Weighting::kOverChannels, p.scale = 1 / std::sqrt(tokens);
  });
  if (two_) {
    add([](AttentionFormula& p) { p.weighting = Weighting::kByStream; });
    add([](AttentionFormula& p) { p.weighting = Weighting::kByStream, p.result_factor = 0.5; });
    for (const double times : {2.0, 3.0, 0.5}) {
      add([=](AttentionFormula& p) { p.counted[0] = times; });
      add([=](AttentionFormula& p) { p.counted[1] = times; });
    }
  }
  // The mask of the tokens, if there is one, falls on the heads, or is left out.
  add([](AttentionFormula& p) { p.weighting = Weighting::kAcrossHeads; });
  if (base_.mask.hides_something())
    add([](AttentionFormula& p) { p.weighting = Weighting::kAcrossHeads, p.mask = {}; });
  add([](AttentionFormula& p) { p.zero_keys = 1; });
  for (const int size : {8, 16, 32, 64, 128, 256, 512})
    for (const int tokens : {all_, text_, all_ - text_})
      if (tokens % size) add([=](AttentionFormula& p) { p.zero_keys = size - tokens % size; });
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 5.0, 1.0}) add([=](AttentionFormula& p) { p.cap = cap; });
  // The factor of the scores put on the result, or on both.
  const double factor = base_.scale == 0 ? 1 / root : base_.scale;
  add([=](AttentionFormula& p) { p.scale = 1, p.result_factor = factor; });
  add([=](AttentionFormula& p) { p.result_factor = factor; });
}

void Grammar::add_masks() {
  // Before the masks: hiding all keys of the other stream is the same, and less plain.
  if (two_) mask([](MaskFormula& m) { m.streams = SeenStreams::kOwn; });
  mask([](MaskFormula& m) { m.order = Order::kAny; });
  mask([](MaskFormula& m) { m.padded = 0; });
  mask([](MaskFormula& m) { m = {}; });
  for (const Order order : {Order::kCausal, Order::kReverse}) mask([=](MaskFormula& m) { m.order = order; });
  if (two_) {
    mask([](MaskFormula& m) { m.order = Order::kCausal, m.own_order = true; });
    mask([](MaskFormula& m) { m.streams = SeenStreams::kOther; });
  }
  const bool hides = base_.mask.hides_something();
  if (hides) {
    add([](AttentionFormula& p) { p.weighting = Weighting::kMaskedLate; });
    for (const double value : {0.0, -1.0, 1.0, -10.0, -100.0}) {
      mask([=](MaskFormula& m) { m.hiding = Hiding::kReplaced, m.value = value; });
      if (value != 0) mask([=](MaskFormula& m) { m.hiding = Hiding::kAdded, m.value = value; });
    }
    mask([](MaskFormula& m) { m.hiding = Hiding::kZeroed; });
    for (const EmptyRow empty : {EmptyRow::kMean, EmptyRow::kZeros, EmptyRow::kUnmasked}) {
      mask([=](MaskFormula& m) { m.inverted = true, m.empty = empty; });
      mask([=](MaskFormula& m) { m.transposed = true, m.empty = empty; });
    }
  }
  // Queries that see no key at all: what they get depends on how keys are hidden.
  for (const EmptyRow empty : {EmptyRow::kUnmasked, EmptyRow::kFirst, EmptyRow::kMean, EmptyRow::kZeros})
    mask([=](MaskFormula& m) { m.order = Order::kCausal, m.diagonal = -1, m.empty = empty; });
  for (const int ahead : {1, 2, 3, 4, -2, -3, -4})
    mask([=](MaskFormula& m) { m.order = Order::kCausal, m.diagonal = ahead; });
  for (const int keys : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}) {
    mask([=](MaskFormula& m) { m.hidden_last = keys; });
    mask([=](MaskFormula& m) { m.hidden_first = keys; });
    mask([=](MaskFormula& m) { m.window = keys; });
    mask([=](MaskFormula& m) { m.block = keys; });
    if (two_) mask([=](MaskFormula& m) { m.padded = keys; });
  }
}

void Grammar::add_rarer_masks() {
  for (int keys = 1; keys <= std::min(all_, 64); ++keys) {
    mask([=](MaskFormula& m) { m.window = keys; });
    mask([=](MaskFormula& m) { m.block = keys; });
    if (base_.mask.order != Order::kAny) mask([=](MaskFormula& m) { m.prefix = keys + 1; });
    if (keys > 1 && keys <= 8) mask([=](MaskFormula& m) { m.stride = keys; });
    if (two_) {
      mask([=](MaskFormula& m) { m.window = keys, m.own_order = true; });
      mask([=](MaskFormula& m) { m.block = keys, m.own_order = true; });
      mask([=](MaskFormula& m) { m.hidden_last = keys; });
    }
    if (keys < text_) {
      mask([=](MaskFormula& m) { m.padded = keys; });
      mask([=](MaskFormula& m) { m.padded = 0, m.padded_front = keys; });
    }
  }
  // Other keys hidden than those that pad the prompt: any run of them.
  if (!base_.mask.padded || text_ > 64) return;
  for (int from = 0; from < text_; ++from)
    for (int count = 1; count <= std::min(text_ - from + (two_ ? 1 : 0), 32); ++count)
      mask([=](MaskFormula& m) { m.padded = 0, m.hidden_from = from, m.hidden_count = count; });
  for (int count = 1; count <= std::min(all_, 64); ++count)
    mask([=](MaskFormula& m) { m.padded = 0, m.hidden_last = count; });
}

void Grammar::add_operands() {
  const auto early = [](OperandFormula& p) { p.early = true; };
  for (const unsigned operands : {kQ, kK, kQK}) on(kBothStreams, operands, early);
  for (const unsigned operands : {kQ, kK, kQK}) on_each_stream(operands, early);
  for (const unsigned streams : {kBothStreams, 1U, 2U})
    for (const QkvOrder& order : kQkvOrders)
      if (streams == kBothStreams || two_)
        add([=](AttentionFormula& p) {
          for (size_t s = 0; s < 2; ++s)
            if (streams >> s & 1) p.of[s][0].source = order.q, p.of[s][1].source = order.k, p.of[s][2].source = order.v;
        });
  // The same after the rotation: each is then rotated, or not, as what it really is.
  for (const unsigned streams : {kBothStreams, 1U, 2U})
    for (const QkvOrder& order : kQkvOrders)
      if (turns() && (streams == kBothStreams || two_))
        add([=, of = base_.of](AttentionFormula& p) {
          for (size_t s = 0; s < 2; ++s)
            for (size_t o = 0; o < 3 && (streams >> s & 1); ++o)
              p.of[s][o] = of[s][static_cast<size_t>(o == 0 ? order.q : o == 1 ? order.k : order.v)];
        });
  if (in_.streams[0].fused)
    for (const Fused fused : {Fused::kInTurn, Fused::kByHead})
      on(kBothStreams, 7, [=](OperandFormula& p) { p.fused = fused; });
}

void Grammar::add_rarer_operands() {
  for (const Unit unit : {Unit::kRms, Unit::kLength, Unit::kLayer})
    for (const unsigned operands : {kQ, kK, kV, kQK}) everywhere(operands, [=](OperandFormula& p) { p.unit = unit; });
  // Another norm than its own, or its own without the weight: -1; or over all heads together.
  for (const Unit unit : {Unit::kRms, Unit::kRmsOfAllHeads, Unit::kLayer})
    for (int weight = -1; weight < static_cast<int>(in_.norm_weights.size()); ++weight)
      for (const unsigned operands : {kQ, kK, kQK})
        everywhere(operands, [=](OperandFormula& p) { p.early = true, p.unit = unit, p.weight = weight; });
  if (!two_) return;  // on the one stream these are the scale, or a factor of the result
  const double d = static_cast<double>(d_);
  for (const double factor : {1 / std::sqrt(d), std::sqrt(d), 0.0, -1.0, 0.5, 2.0, 1 / d, d})
    for (const unsigned operands : {kQ, kK, kV}) everywhere(operands, [=](OperandFormula& p) { p.factor = factor; });
}

void Grammar::add_heads() {
  const int64_t groups = in_.key_heads(d_), heads = width_ / d_;
  if (groups < heads)
    for (const unsigned operands : {kKV, kK, kV})
      for (const KeyGroups other : {KeyGroups::kTiled, KeyGroups::kFirst, KeyGroups::kReversed})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.groups = other; });
  if (groups > 1 && groups < heads)
    for (int repeat = 1; repeat < heads; ++repeat)
      for (const unsigned operands : {kKV, kK, kV})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.repeat = repeat == heads / groups ? 0 : repeat; });
  for (int64_t shift = 1; shift < std::min<int64_t>(groups, 4); ++shift)
    for (const int step : {static_cast<int>(shift), -static_cast<int>(shift)})
      for (const unsigned operands : {kKV, kK, kV, kQ})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.head_shift = step; });
  if (groups == heads && heads > 1)
    for (const unsigned operands : {kKV, kK, kV, kQ})
      for (const KeyGroups other : {KeyGroups::kReversed, KeyGroups::kFirst})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.groups = other; });
  // More heads or fewer, with the scale of either.
  const double root = 1 / std::sqrt(static_cast<double>(d_));
  for (int64_t size = width_, tried = 0; size >= 2 && tried < 24; --size)
    if (width_ % size == 0 && size != d_ && groups * d_ % size == 0) {
      add([=](AttentionFormula& p) { p.head_size = size; });
      add([=](AttentionFormula& p) { p.head_size = size, p.scale = root; });
      ++tried;
    }
  const auto cut = [this](unsigned operands, HeadCut how, bool first, HeadCut merge) {
    add([=](AttentionFormula& p) {
      p.merge = merge;
      for (auto& stream : p.of)
        for (size_t o = 0; o < 3; ++o)
          if (operands >> o & 1) stream[o].cut = how, stream[o].cut_first = first;
    });
  };
  if (heads == 1 && groups == 1) return;
  std::vector<HeadCut> shapes{HeadCut::kByShape};
  if (two_) shapes.push_back(HeadCut::kByShapeJoint);
  for (const HeadCut merge : {HeadCut::kStrided, HeadCut::kByShape, HeadCut::kByShapeJoint})
    cut(0, HeadCut::kBlocks, false, merge);
  for (const unsigned operands : {7U, kQ, kK, kV, kQK, kKV, kQ | kV}) {
    for (const HeadCut merge : {HeadCut::kBlocks, HeadCut::kStrided}) cut(operands, HeadCut::kStrided, false, merge);
    for (const HeadCut how : shapes)
      for (const bool first : {false, true})
        for (const HeadCut merge : {HeadCut::kBlocks, HeadCut::kByShape, HeadCut::kByShapeJoint})
          cut(operands, how, first && turns(), merge);
  }
  for (const unsigned operands : {7U, kQ, kK, kV, kQK, kKV})
    on_each_stream(operands, [](OperandFormula& p) { p.cut = HeadCut::kStrided; });
  add([](AttentionFormula& p) { p.merged_backwards = true; });
  for (int shift = 1; shift < std::min<int64_t>(heads, 5); ++shift)
    for (const int step : {shift, -shift}) add([=](AttentionFormula& p) { p.merged_shift = step; });
}

// Streams joined, or their results parted, elsewhere.
void Grammar::add_streams() {
  for (const int shift : {two_ ? text_ : 0, two_ ? all_ - text_ : 0, 1, -1, 2, -2}) {
    add([=](AttentionFormula& p) { p.row_shift = shift; });
    for (const size_t operand : {size_t{2}, size_t{1}})
      add([=](AttentionFormula& p) { p.of[0][operand].token_shift = shift; });
  }
}

// Keys and values moved together: the same as a mask moved the other way, which is likelier.
void Grammar::add_rarer_streams() {
  for (const int shift : {1, -1, 2, -2, two_ ? text_ : 0, two_ ? all_ - text_ : 0})
    add([=](AttentionFormula& p) { p.of[0][1].token_shift = p.of[0][2].token_shift = shift; });
  // The tokens of a picture in another order than the others have.
  const size_t own = static_cast<size_t>(in_.own);
  const int64_t tokens = own == 0 ? text_ : all_ - text_;
  for (const unsigned operands : {kV, kK}) {
    on(1U << own, operands, [](OperandFormula& p) { p.columns = -1; });
    for (int64_t columns = 2; 2 * columns <= tokens; ++columns)
      if (tokens % columns == 0) on(1U << own, operands, [=](OperandFormula& p) { p.columns = columns; });
  }
}

void Grammar::add_formats() {
  for (const NumberFormat& format : half_formats()) {
    const Format held = &format;
    for (const auto part : {&AttentionFormula::weights, &AttentionFormula::scores, &AttentionFormula::powers})
      add([=](AttentionFormula& p) { p.*part = held; });
    add([=](AttentionFormula& p) { p.scores = p.weights = held; });
    // The whole of it in that format, by a kernel that sums in f32, or one step after the other.
    const auto inputs = [held](AttentionFormula& p) {
      for (auto& stream : p.of)
        for (OperandFormula& operand : stream) operand.held_turned = held;
    };
    add(inputs);
    add([=](AttentionFormula& p) { inputs(p), p.result = held; });
    add([=](AttentionFormula& p) { inputs(p), p.powers = p.result = held; });
    add([=](AttentionFormula& p) { inputs(p), p.scores = p.weights = p.result = held; });
    on(kBothStreams, kQK, [=](OperandFormula& p) { p.held_turned = held; });
    on_each_stream(kQK, [=](OperandFormula& p) { p.held_turned = held; });
    on(kBothStreams, 7, [=](OperandFormula& p) { p.held = held; });
    on_each_stream(7, [=](OperandFormula& p) { p.held = held; });
  }
}

}  // namespace

std::vector<AttentionChange> attention_changes(const AttentionFormula& r, const AttentionInputs& inputs, int64_t d,
                                               int64_t width) {
  Grammar grammar(r, inputs, d, width);
  grammar.add_rotations(), grammar.add_scores(), grammar.add_masks(), grammar.add_formats();
  grammar.add_operands(), grammar.add_heads(), grammar.add_streams();
  grammar.add_rarer_operands(), grammar.add_rarer_rotations(), grammar.add_rarer_masks(), grammar.add_rarer_streams();
  return std::move(grammar.list);
}

}  // namespace lockstep
