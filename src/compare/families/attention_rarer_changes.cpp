// What else may be different about an attention, tried when nothing simpler fits: other tables than the recorded ones,
// operands in poor formats, keys and values of another call.
#include "compare/families/attention_grammar.h"

namespace lockstep {
namespace {

class RarerGrammar : public AttentionGrammar {
 public:
  using AttentionGrammar::AttentionGrammar;
  void add_calls();
  void add_tables();
  void add_formats();
  void add_steps();
};

void RarerGrammar::add_calls() {
  for (int call = 1; call <= static_cast<int>(in_.earlier.size()); ++call) {
    add([=](AttentionFormula& p) { p.keys_of_call = call; });
    for (const unsigned operands : {kKV, kK, kV}) everywhere(operands, [=](OperandFormula& p) { p.call = call; });
  }
}

// Another table than the recorded one, in one place or in all.
void RarerGrammar::add_tables() {
  if (!turns()) return;
  const int count = static_cast<int>(in_.variants().list().size());
  for (const unsigned operands : {kQK, kQ, kK})
    for (int i = 0; i < count; ++i) everywhere(operands, [=](OperandFormula& p) { p.variant = i; });
}

void RarerGrammar::add_formats() {
  for (const NumberFormat& format : number_formats()) {
    const Format held = &format;
    for (const unsigned operands : {kKV, kK, kV, kQ, kQK, kQKV}) {
      everywhere(operands, [=](OperandFormula& p) { p.held_turned = held; });
      if (turns() && operands != kV) everywhere(operands, [=](OperandFormula& p) { p.held = held; });
    }
    for (const auto part : {&AttentionFormula::weights, &AttentionFormula::powers, &AttentionFormula::scores})
      add([=](AttentionFormula& p) { p.*part = held; });
    // The weights with the values, as the second product takes them; and with all that the first takes.
    for (const unsigned operands : {kV, kQKV})
      add([=](AttentionFormula& p) {
        p.weights = held;
        for (auto& stream : p.of)
          for (size_t o = 0; o < 3; ++o)
            if (operands >> o & 1) stream[o].held_turned = held;
      });
  }
}

void RarerGrammar::add_steps() {
  const std::span<const NumberFormat> formats = number_formats();
  for (const Format format : {Format{nullptr}, &formats[2], &formats[3]})
    for (const Steps steps : {Steps::kByRow, Steps::kByHead, Steps::kByTensor, Steps::kByChannel})
      for (const unsigned operands : {kKV, kK, kV, kQ, kQK, kQKV})
        on(kBothStreams, operands, [=](OperandFormula& p) { p.steps = steps, p.in_steps = format; });
}

}  // namespace

std::vector<AttentionChange> rarer_attention_changes(const AttentionFormula& r, const AttentionInputs& inputs,
                                                     int64_t d, int64_t width) {
  RarerGrammar grammar(r, inputs, d, width);
  grammar.add_calls(), grammar.add_formats(), grammar.add_tables(), grammar.add_steps();
  return std::move(grammar.list);
}

}  // namespace lockstep
