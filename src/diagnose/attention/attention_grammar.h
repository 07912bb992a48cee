// How changes of an attention's formula are written down. A change of an operand is made to q, k or v, of both streams
// or of one: code for two streams is written twice.
#pragma once
#include <functional>
#include <vector>

#include "diagnose/attention/attention_formula.h"

namespace lockstep {

using OperandChange = std::function<void(OperandFormula&)>;

inline constexpr unsigned kQ = 1, kK = 2, kV = 4, kQK = kQ | kK, kKV = kK | kV, kQKV = kQK | kV;
inline constexpr unsigned kBothStreams = 3;

// Keys hidden by another rule than the reference's, and what mending it means.
EditName other_mask(const MaskFormula& reference);
EditName other_hiding(const MaskFormula& reference);
EditName other_scale(double reference, int64_t head_size);
EditName zero_keys();

class AttentionGrammar {
 public:
  AttentionGrammar(const AttentionFormula& base, const AttentionInputs& inputs, int64_t d, int64_t width)
      : base_(base), in_(inputs), d_(d), width_(width), two_(inputs.streams.size() == 2) {
    text_ = static_cast<int>(in_.tokens_of(*in_.streams[0].v, d_));
    all_ = text_ + (two_ ? static_cast<int>(in_.tokens_of(*in_.streams[1].v, d_)) : 0);
  }
  std::vector<AttentionEdit> list;

 protected:
  void add(const EditName& name, const std::function<void(AttentionFormula&)>& change) {
    AttentionFormula p = base_;
    change(p);
    if (!(p == base_)) list.push_back({name, change});
  }
  void on(const EditName& name, unsigned streams, unsigned operands, const OperandChange& change) {
    add(name, [=](AttentionFormula& p) {
      for (size_t s = 0; s < 2; ++s)
        for (size_t o = 0; o < 3; ++o)
          if ((streams >> s & 1) && (operands >> o & 1)) change(p.of[s][o]);
    });
  }
  // In one stream alone, for a joint attention.
  void on_each_stream(const EditName& name, unsigned operands, const OperandChange& change) {
    if (two_) on(name, 1, operands, change), on(name, 2, operands, change);
  }
  void everywhere(const EditName& name, unsigned operands, const OperandChange& change) {
    on(name, kBothStreams, operands, change);
    on_each_stream(name, operands, change);
  }
  void mask(const EditName& name, const std::function<void(MaskFormula&)>& change) {
    add(name, [=](AttentionFormula& p) { change(p.mask); });
  }
  static std::string first_of(unsigned operands) { return operands & kQ ? "q" : operands & kK ? "k" : "v"; }
  static EditName in_format(Cause cause) { return {cause, "compute the attention in the reference's precision"}; }
  const Turning& turning() const { return base_.of[0][0].turning; }
  bool turns() const { return turning().rotation != Rotation::kNone; }

  AttentionFormula base_;
  const AttentionInputs& in_;
  int64_t d_, width_;
  bool two_;
  int text_ = 0, all_ = 0;  // tokens
};

}  // namespace lockstep
