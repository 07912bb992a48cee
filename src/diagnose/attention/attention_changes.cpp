// What may be different about an attention: one change each, the likeliest first, since time may run out on large ones.
#include <fmt/format.h>

#include <algorithm>

#include "diagnose/attention/attention_grammar.h"
#include "diagnose/rotary/rotary_turning.h"
#include "diagnose/search/fit.h"

namespace lockstep {
namespace {

struct QkvOrder {
  int q, k, v;
};
constexpr QkvOrder kQkvOrders[] = {{1, 0, 2}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1},
                                   {0, 1, 1}, {0, 0, 2}, {1, 1, 2}, {0, 2, 2}, {0, 1, 0}};

const EditName kOnValues{"rotary.on_values"}, kOtherStream{"rotary.streams_exchanged"},
    kByHead{"rotary.positions", "rotate by the token's position: the axis of the tokens, not that of the heads"},
    kBackwards{"rotary.offset", "positions run backwards"},
    kOverChannels{"layout.axes", "attend over the tokens: move the channels behind them before q k^T"},
    kCutOtherwise{"layout.heads",
                  "split the projection into [tokens, heads, d] and move the axes, before it is used by head"},
    kMergedOtherwise{"layout.heads", "put the heads together as [tokens, heads, d], in their order"};

EditName one_side(unsigned operand) {
  return {"rotary.one_side", fmt::format("rotate {} too", operand & kQ ? "q" : "k")};
}

EditName off_by(int shift) {
  return {"rotary.offset", fmt::format("positions are off by {}", shift)};
}

EditName moved_tokens(bool two_streams) {
  if (two_streams) return {"attention.streams", "join the streams of q, k and v in one order: text, then image"};
  return {"layout.rolled", "give each query the keys and values of the tokens that stand there"};
}

EditName other_norm(Unit unit, int weight, unsigned operands) {
  const char* const name = operands & kQ ? "q" : "k";
  if (weight < 0) return {"norm.weight_missing"};
  if (unit == Unit::kRms) return {"norm.other_weight", fmt::format("normalise {} by its own stream's norm", name)};
  return {"norm.kind", fmt::format("normalise each head of {} by its root mean square", name)};
}

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
  for (const ChangedTurning& other : changed_turnings(turning(), in_.variants().axes()))
    on(other.name, kBothStreams, kQK, [how = other.how](OperandFormula& p) { p.turning = how; });
  if (!turns()) return;
  for (const unsigned operand : {kQ, kK})
    on(one_side(operand), kBothStreams, operand, [](OperandFormula& p) { p.turning = {}; });
  on(kOnValues, kBothStreams, kV, [own = turning()](OperandFormula& p) { p.turning = own; });
  if (two_) {
    on(kOtherStream, kBothStreams, kQK, [](OperandFormula& p) { p.other_table = true; });
    on(kOtherStream, kBothStreams, kQK, [](OperandFormula& p) { p.joint_table = true; });
  }
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16, text_, -text_})
    on(off_by(shift), kBothStreams, kQK, [=](OperandFormula& p) { p.shift = shift; });
  on(kByHead, kBothStreams, kQK, [](OperandFormula& p) { p.by_head = true; });
  on(kBackwards, kBothStreams, kQK, [](OperandFormula& p) { p.backwards = true; });
}

// The same mistakes made with one of q, k, in one of the streams, and rows of the table that come round again.
void Grammar::add_rarer_rotations() {
  if (!in_.has_tables() || !turns()) return;
  std::vector<std::pair<EditName, OperandChange>> changes;
  for (const ChangedTurning& other : changed_turnings(turning(), in_.variants().axes()))
    if (other.how.share == 1 || (other.how.share == 0.5 && !other.how.at_end && other.how.columns == Columns::kFirst))
      changes.emplace_back(other.name, [how = other.how](OperandFormula& p) { p.turning = how; });
  if (two_) changes.emplace_back(kOtherStream, [](OperandFormula& p) { p.other_table = true; });
  changes.emplace_back(kByHead, [](OperandFormula& p) { p.by_head = true; });
  changes.emplace_back(kBackwards, [](OperandFormula& p) { p.backwards = true; });
  for (const bool wraps : {false, true})
    for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4})
      changes.emplace_back(off_by(shift), [=](OperandFormula& p) { p.shift = shift, p.wraps = wraps; });
  for (const auto& [name, change] : changes) on_each_stream(name, kQK, change);
  on_each_stream(kOnValues, kV, [own = turning()](OperandFormula& p) { p.turning = own; });
  for (const unsigned operand : {kQ, kK})
    for (const auto& [name, change] : changes)
      everywhere(name.cause == "rotary.missing" ? one_side(operand) : name, operand, change);
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4})
    on(off_by(shift), kBothStreams, kQK, [=](OperandFormula& p) { p.shift = shift, p.wraps = true; });
  const int64_t heads = width_ / d_;
  for (const int64_t count : {int64_t{1}, heads - 1, heads / 2, in_.key_heads(d_)})
    if (count > 0 && count < heads)
      for (const unsigned operands : {kQK, kQ, kK})
        on(operands == kQK ? EditName{"rotary.missing", "rotate every head"} : one_side(operands), kBothStreams,
           operands, [=](OperandFormula& p) { p.turned_heads = count; });
  for (int rows = 1; rows <= std::min(all_, 64); ++rows)
    for (const unsigned streams : {kBothStreams, 1U, 2U}) {
      if (streams != kBothStreams && !two_) continue;
      const EditName name{"rotary.positions", "give each token a row of its own in the table of positions"};
      on(name, streams, kQK, [=](OperandFormula& p) { p.repeats = rows; });
      on(name, streams, kQK, [=](OperandFormula& p) { p.until = rows; });
    }
}

// Of the attention as a whole: no stream can have it alone.
void Grammar::add_scores() {
  const double d = static_cast<double>(d_), width = static_cast<double>(width_);
  const double key_width = d * static_cast<double>(in_.key_heads(d_)), root = std::sqrt(d);
  for (const double scale : {0.0, 1.0, 1 / d, 1 / std::sqrt(width), root, 1 / std::sqrt(d / 2), 1 / std::sqrt(2 * d),
                             1 / std::sqrt(root), std::log(2.0) / root, 1 / std::log(2.0) / root,
                             1 / std::sqrt(key_width), 1 / std::sqrt(width / d), std::sqrt(width), 1 / width})
    add(scale == std::log(2.0) / root ? EditName{"attention.softmax", "take the softmax to the base e, not 2"}
                                      : other_scale(base_.scale, d_),
        [=](AttentionFormula& p) { p.scale = scale; });
  for (const Weighting weighting :
       {Weighting::kPlain, Weighting::kSigmoid, Weighting::kOverQueries, Weighting::kOverHeads, Weighting::kPowers,
        Weighting::kEqual, Weighting::kRelu, Weighting::kTwice, Weighting::kOverChannels, Weighting::kTransposed,
        Weighting::kOwnValue})
    add(weighting == Weighting::kOwnValue       ? EditName{"stage.replaced", "attend: the values alone are no result"}
        : weighting == Weighting::kOverChannels ? kOverChannels
                                                : EditName{"attention.softmax"},
        [=](AttentionFormula& p) { p.weighting = weighting; });
  // Over the channels the sums run over the tokens, and so may the scale.
  add(kOverChannels, [tokens = static_cast<double>(all_)](AttentionFormula& p) {
    p.weighting = Weighting::kOverChannels, p.scale = 1 / std::sqrt(tokens);
  });
  if (two_) {
    const EditName softmax{"attention.softmax"}, once{"attention.streams", "join each stream's keys and values once"};
    add(softmax, [](AttentionFormula& p) { p.weighting = Weighting::kByStream; });
    add(softmax, [](AttentionFormula& p) { p.weighting = Weighting::kByStream, p.result_factor = 0.5; });
    for (const double times : {2.0, 3.0, 0.5}) {
      add(once, [=](AttentionFormula& p) { p.counted[0] = times; });
      add(once, [=](AttentionFormula& p) { p.counted[1] = times; });
    }
  }
  // The mask of the tokens, if there is one, falls on the heads, or is left out.
  const EditName heads{"attention.heads",
                       "move the heads before the tokens: the kernel attends over the last axis but one"};
  add(heads, [](AttentionFormula& p) { p.weighting = Weighting::kAcrossHeads; });
  if (base_.mask.hides_something())
    add(heads, [](AttentionFormula& p) { p.weighting = Weighting::kAcrossHeads, p.mask = {}; });
  add(zero_keys(), [](AttentionFormula& p) { p.zero_keys = 1; });
  for (const int size : {8, 16, 32, 64, 128, 256, 512})
    for (const int tokens : {all_, text_, all_ - text_})
      if (tokens % size) add(zero_keys(), [=](AttentionFormula& p) { p.zero_keys = size - tokens % size; });
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 5.0, 1.0})
    add({"attention.cap"}, [=](AttentionFormula& p) { p.cap = cap; });
  // The factor of the scores put on the result, or on both.
  const double factor = base_.scale == 0 ? 1 / root : base_.scale;
  const EditName late{"attention.scale", "scale the scores before the softmax, not its result"};
  add(late, [=](AttentionFormula& p) { p.scale = 1, p.result_factor = factor; });
  add(late, [=](AttentionFormula& p) { p.result_factor = factor; });
}

void Grammar::add_masks() {
  // Before the masks: hiding all keys of the other stream is the same, and less plain.
  const EditName other = other_mask(base_.mask), missing{"attention.mask_missing", other.fix},
                 hiding = other_hiding(base_.mask);
  if (two_)
    mask({"attention.streams", "attend over both streams together"},
         [](MaskFormula& m) { m.streams = SeenStreams::kOwn; });
  mask(missing, [](MaskFormula& m) { m.order = Order::kAny; });
  mask(missing, [](MaskFormula& m) { m.padded = 0; });
  mask(missing, [](MaskFormula& m) { m = {}; });
  for (const Order order : {Order::kCausal, Order::kReverse}) mask(other, [=](MaskFormula& m) { m.order = order; });
  if (two_) {
    mask(other, [](MaskFormula& m) { m.order = Order::kCausal, m.own_order = true; });
    mask(other, [](MaskFormula& m) { m.streams = SeenStreams::kOther; });
  }
  const bool hides = base_.mask.hides_something();
  if (hides) {
    add({"attention.softmax"}, [](AttentionFormula& p) { p.weighting = Weighting::kMaskedLate; });
    for (const double value : {0.0, -1.0, 1.0, -10.0, -100.0}) {
      mask(hiding, [=](MaskFormula& m) { m.hiding = Hiding::kReplaced, m.value = value; });
      if (value != 0) mask(hiding, [=](MaskFormula& m) { m.hiding = Hiding::kAdded, m.value = value; });
    }
    mask(hiding, [](MaskFormula& m) { m.hiding = Hiding::kZeroed; });
    for (const EmptyRow empty : {EmptyRow::kMean, EmptyRow::kZeros, EmptyRow::kUnmasked}) {
      mask(other, [=](MaskFormula& m) { m.inverted = true, m.empty = empty; });
      mask(other, [=](MaskFormula& m) { m.transposed = true, m.empty = empty; });
    }
  }
  // Queries that see no key at all: what they get depends on how keys are hidden.
  for (const EmptyRow empty : {EmptyRow::kUnmasked, EmptyRow::kFirst, EmptyRow::kMean, EmptyRow::kZeros})
    mask(other, [=](MaskFormula& m) { m.order = Order::kCausal, m.diagonal = -1, m.empty = empty; });
  for (const int ahead : {1, 2, 3, 4, -2, -3, -4})
    mask(other, [=](MaskFormula& m) { m.order = Order::kCausal, m.diagonal = ahead; });
  for (const int keys : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}) {
    mask(other, [=](MaskFormula& m) { m.hidden_last = keys; });
    mask(other, [=](MaskFormula& m) { m.hidden_first = keys; });
    mask(other, [=](MaskFormula& m) { m.window = keys; });
    mask(other, [=](MaskFormula& m) { m.block = keys; });
    if (two_) mask(other, [=](MaskFormula& m) { m.padded = keys; });
  }
}

void Grammar::add_rarer_masks() {
  const EditName other = other_mask(base_.mask);
  for (int keys = 1; keys <= std::min(all_, 64); ++keys) {
    mask(other, [=](MaskFormula& m) { m.window = keys; });
    mask(other, [=](MaskFormula& m) { m.block = keys; });
    if (base_.mask.order != Order::kAny) mask(other, [=](MaskFormula& m) { m.prefix = keys + 1; });
    if (keys > 1 && keys <= 8) mask(other, [=](MaskFormula& m) { m.stride = keys; });
    if (two_) {
      mask(other, [=](MaskFormula& m) { m.window = keys, m.own_order = true; });
      mask(other, [=](MaskFormula& m) { m.block = keys, m.own_order = true; });
      mask(other, [=](MaskFormula& m) { m.hidden_last = keys; });
    }
    if (keys < text_) {
      mask(other, [=](MaskFormula& m) { m.padded = keys; });
      mask(other, [=](MaskFormula& m) { m.padded = 0, m.padded_front = keys; });
    }
  }
  // Other keys hidden than those that pad the prompt: any run of them.
  if (!base_.mask.padded || text_ > 64) return;
  for (int from = 0; from < text_; ++from)
    for (int count = 1; count <= std::min(text_ - from + (two_ ? 1 : 0), 32); ++count)
      mask(other, [=](MaskFormula& m) { m.padded = 0, m.hidden_from = from, m.hidden_count = count; });
  for (int count = 1; count <= std::min(all_, 64); ++count)
    mask(other, [=](MaskFormula& m) { m.padded = 0, m.hidden_last = count; });
}

void Grammar::add_operands() {
  const auto early = [](OperandFormula& p) { p.early = true; };
  const EditName norm{"attention.norm_missing"}, exchanged{"attention.qkv_exchanged"};
  for (const unsigned operands : {kQ, kK, kQK}) on(norm, kBothStreams, operands, early);
  for (const unsigned operands : {kQ, kK, kQK}) on_each_stream(norm, operands, early);
  for (const unsigned streams : {kBothStreams, 1U, 2U})
    for (const QkvOrder& order : kQkvOrders)
      if (streams == kBothStreams || two_)
        add(exchanged, [=](AttentionFormula& p) {
          for (size_t s = 0; s < 2; ++s)
            if (streams >> s & 1) p.of[s][0].source = order.q, p.of[s][1].source = order.k, p.of[s][2].source = order.v;
        });
  // The same after the rotation: each is then rotated, or not, as what it really is.
  for (const unsigned streams : {kBothStreams, 1U, 2U})
    for (const QkvOrder& order : kQkvOrders)
      if (turns() && (streams == kBothStreams || two_))
        add(exchanged, [=, of = base_.of](AttentionFormula& p) {
          for (size_t s = 0; s < 2; ++s)
            for (size_t o = 0; o < 3 && (streams >> s & 1); ++o)
              p.of[s][o] = of[s][static_cast<size_t>(o == 0 ? order.q : o == 1 ? order.k : order.v)];
        });
  if (in_.streams[0].fused)
    for (const Fused fused : {Fused::kInTurn, Fused::kByHead})
      on({"layout.interleaved", "take q, k and v as thirds of the fused projection, one behind the other"},
         kBothStreams, kQKV, [=](OperandFormula& p) { p.fused = fused; });
}

void Grammar::add_rarer_operands() {
  for (const Unit unit : {Unit::kRms, Unit::kLength, Unit::kLayer})
    for (const unsigned operands : {kQ, kK, kV, kQK})
      everywhere({"attention.norm_added"}, operands, [=](OperandFormula& p) { p.unit = unit; });
  // Another norm than its own, or its own without the weight: -1; or over all heads together.
  for (const Unit unit : {Unit::kRms, Unit::kRmsOfAllHeads, Unit::kLayer})
    for (int weight = -1; weight < static_cast<int>(in_.norm_weights.size()); ++weight)
      for (const unsigned operands : {kQ, kK, kQK})
        everywhere(other_norm(unit, weight, operands), operands,
                   [=](OperandFormula& p) { p.early = true, p.unit = unit, p.weight = weight; });
  if (!two_) return;  // on the one stream these are the scale, or a factor of the result
  const double d = static_cast<double>(d_);
  for (const double factor : {1 / std::sqrt(d), std::sqrt(d), 0.0, -1.0, 0.5, 2.0, 1 / d, d})
    for (const unsigned operands : {kQ, kK, kV})
      everywhere({"attention.scale", "remove the factor on " + first_of(operands)}, operands,
                 [=](OperandFormula& p) { p.factor = factor; });
}

void Grammar::add_heads() {
  const int64_t groups = in_.key_heads(d_), heads = width_ / d_;
  const auto moved = [&](unsigned operands) {
    return groups < heads && !(operands & kQ) ? EditName{"attention.key_groups"} : EditName{"attention.heads"};
  };
  if (groups < heads)
    for (const unsigned operands : {kKV, kK, kV})
      for (const KeyGroups other : {KeyGroups::kTiled, KeyGroups::kFirst, KeyGroups::kReversed})
        on(moved(operands), kBothStreams, operands, [=](OperandFormula& p) { p.groups = other; });
  if (groups > 1 && groups < heads)
    for (int repeat = 1; repeat < heads; ++repeat)
      for (const unsigned operands : {kKV, kK, kV})
        on(moved(operands), kBothStreams, operands,
           [=](OperandFormula& p) { p.repeat = repeat == heads / groups ? 0 : repeat; });
  for (int64_t shift = 1; shift < std::min<int64_t>(groups, 4); ++shift)
    for (const int step : {static_cast<int>(shift), -static_cast<int>(shift)})
      for (const unsigned operands : {kKV, kK, kV, kQ})
        on(moved(operands), kBothStreams, operands, [=](OperandFormula& p) { p.head_shift = step; });
  if (groups == heads && heads > 1)
    for (const unsigned operands : {kKV, kK, kV, kQ})
      for (const KeyGroups other : {KeyGroups::kReversed, KeyGroups::kFirst})
        on(moved(operands), kBothStreams, operands, [=](OperandFormula& p) { p.groups = other; });
  // More heads or fewer, with the scale of either.
  const double root = 1 / std::sqrt(static_cast<double>(d_));
  for (int64_t size = width_, tried = 0; size >= 2 && tried < 24; --size)
    if (width_ % size == 0 && size != d_ && groups * d_ % size == 0) {
      const EditName name{"attention.heads", fmt::format("cut q, k and v into heads of {}", d_)};
      add(name, [=](AttentionFormula& p) { p.head_size = size; });
      add(name, [=](AttentionFormula& p) { p.head_size = size, p.scale = root; });
      ++tried;
    }
  const auto cut = [this](unsigned operands, HeadCut how, bool first, HeadCut merge) {
    add(operands ? kCutOtherwise : kMergedOtherwise, [=](AttentionFormula& p) {
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
    on_each_stream(kCutOtherwise, operands, [](OperandFormula& p) { p.cut = HeadCut::kStrided; });
  add(kMergedOtherwise, [](AttentionFormula& p) { p.merged_backwards = true; });
  for (int shift = 1; shift < std::min<int64_t>(heads, 5); ++shift)
    for (const int step : {shift, -shift}) add(kMergedOtherwise, [=](AttentionFormula& p) { p.merged_shift = step; });
}

// Streams joined, or their results parted, elsewhere.
void Grammar::add_streams() {
  for (const int shift : {two_ ? text_ : 0, two_ ? all_ - text_ : 0, 1, -1, 2, -2}) {
    add(two_ ? EditName{"attention.streams"} : EditName{"layout.rolled", "keep the order of the tokens"},
        [=](AttentionFormula& p) { p.row_shift = shift; });
    for (const size_t operand : {size_t{2}, size_t{1}})
      add(moved_tokens(two_), [=](AttentionFormula& p) { p.of[0][operand].token_shift = shift; });
  }
}

// Keys and values moved together: the same as a mask moved the other way, which is likelier.
void Grammar::add_rarer_streams() {
  for (const int shift : {1, -1, 2, -2, two_ ? text_ : 0, two_ ? all_ - text_ : 0})
    add(moved_tokens(two_), [=](AttentionFormula& p) { p.of[0][1].token_shift = p.of[0][2].token_shift = shift; });
  // The tokens of a picture in another order than the others have.
  const size_t own = static_cast<size_t>(in_.own);
  const int64_t tokens = own == 0 ? text_ : all_ - text_;
  for (const unsigned operands : {kV, kK}) {
    const char* const fix = "flatten q, k and v in one order of rows and columns";
    on({"layout.reversed", fix}, 1U << own, operands, [](OperandFormula& p) { p.columns = -1; });
    for (int64_t columns = 2; 2 * columns <= tokens; ++columns)
      if (tokens % columns == 0)
        on({"layout.axes", fix}, 1U << own, operands, [=](OperandFormula& p) { p.columns = columns; });
  }
}

void Grammar::add_formats() {
  for (const NumberFormat& format : half_formats()) {
    const Format held = &format;
    const EditName name = in_format(format.cause);
    for (const auto part : {&AttentionFormula::weights, &AttentionFormula::scores, &AttentionFormula::powers})
      add(name, [=](AttentionFormula& p) { p.*part = held; });
    add(name, [=](AttentionFormula& p) { p.scores = p.weights = held; });
    // The whole of it in that format, by a kernel that sums in f32, or one step after the other.
    const auto inputs = [held](AttentionFormula& p) {
      for (auto& stream : p.of)
        for (OperandFormula& operand : stream) operand.held_turned = held;
    };
    add(name, inputs);
    add(name, [=](AttentionFormula& p) { inputs(p), p.result = held; });
    add(name, [=](AttentionFormula& p) { inputs(p), p.powers = p.result = held; });
    add(name, [=](AttentionFormula& p) { inputs(p), p.scores = p.weights = p.result = held; });
    everywhere(name, kQK, [=](OperandFormula& p) { p.held_turned = held; });
    everywhere(name, kQKV, [=](OperandFormula& p) { p.held = held; });
  }
}

}  // namespace

EditName other_scale(double reference, int64_t d) {
  return {"attention.scale",
          fmt::format("scale the scores by {}", reference == 0 ? fmt::format("1/sqrt({})", d) : number(reference))};
}

EditName zero_keys() {
  return {"attention.softmax", "sum over the tokens that are there: hide keys that fill up a size"};
}

EditName other_mask(const MaskFormula& r) {
  return {r.hides_something() ? Cause("attention.mask") : Cause("attention.mask_added"),
          r.padded                    ? "hide the keys that pad the prompt, no others"
          : r.order == Order::kCausal ? "mask the tokens that come later, no others"
                                      : "remove the mask"};
}

EditName other_hiding(const MaskFormula& r) {
  return {
      "attention.mask",
      other_mask(r).fix + ": a hidden key's score is minus infinity before the softmax, not a number like the others"};
}

std::vector<AttentionEdit> attention_edits(const AttentionFormula& r, const AttentionInputs& inputs, int64_t d,
                                           int64_t width) {
  Grammar grammar(r, inputs, d, width);
  grammar.add_rotations(), grammar.add_scores(), grammar.add_masks(), grammar.add_formats();
  grammar.add_operands(), grammar.add_heads(), grammar.add_streams();
  grammar.add_rarer_operands(), grammar.add_rarer_rotations(), grammar.add_rarer_masks(), grammar.add_rarer_streams();
  return std::move(grammar.list);
}

}  // namespace lockstep
