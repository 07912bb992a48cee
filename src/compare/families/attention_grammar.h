// How changes of an attention's formula are written down. A change of an operand is made to q, k or v, of both streams
// or of one: code for two streams is written twice.
#pragma once
#include <functional>
#include <vector>

#include "compare/families/attention_formula.h"

namespace lockstep {

using OperandChange = std::function<void(OperandFormula&)>;

inline constexpr unsigned kQ = 1, kK = 2, kV = 4, kQK = kQ | kK, kKV = kK | kV, kQKV = kQK | kV;
inline constexpr unsigned kBothStreams = 3;

class AttentionGrammar {
 public:
  AttentionGrammar(const AttentionFormula& base, const AttentionInputs& inputs, int64_t d, int64_t width)
      : base_(base), in_(inputs), d_(d), width_(width), two_(inputs.streams.size() == 2) {
    text_ = static_cast<int>(in_.tokens_of(*in_.streams[0].v, d_));
    all_ = text_ + (two_ ? static_cast<int>(in_.tokens_of(*in_.streams[1].v, d_)) : 0);
  }
  std::vector<AttentionChange> list;

 protected:
  void add(const AttentionChange& change) {
    AttentionFormula p = base_;
    change(p);
    if (!p.same_as(base_)) list.push_back(change);
  }
  void on(unsigned streams, unsigned operands, const OperandChange& change) {
    add([=](AttentionFormula& p) {
      for (size_t s = 0; s < 2; ++s)
        for (size_t o = 0; o < 3; ++o)
          if ((streams >> s & 1) && (operands >> o & 1)) change(p.of[s][o]);
    });
  }
  // In one stream alone, for a joint attention.
  void on_each_stream(unsigned operands, const OperandChange& change) {
    if (two_) on(1, operands, change), on(2, operands, change);
  }
  void everywhere(unsigned operands, const OperandChange& change) {
    on(kBothStreams, operands, change);
    on_each_stream(operands, change);
  }
  void mask(const std::function<void(MaskFormula&)>& change) {
    add([=](AttentionFormula& p) { change(p.mask); });
  }
  const Turning& turning() const { return base_.of[0][0].turning; }
  bool turns() const { return turning().rotation != Rotation::kNone; }

  AttentionFormula base_;
  const AttentionInputs& in_;
  int64_t d_, width_;
  bool two_;
  int text_ = 0, all_ = 0;  // tokens
};

}  // namespace lockstep
