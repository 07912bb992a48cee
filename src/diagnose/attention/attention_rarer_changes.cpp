// What else may be different about an attention, tried when nothing simpler fits: other tables than the recorded ones,
// operands in poor formats, keys and values of another call.
#include <fmt/format.h>

#include "diagnose/attention/attention_grammar.h"

namespace lockstep {
namespace {

class RarerGrammar : public AttentionGrammar {
 public:
  using AttentionGrammar::AttentionGrammar;
  void add_calls();
  void add_formats();
  void add_tables(unsigned operands);
  void add_parts_in_formats();
  void add_steps();
};

void RarerGrammar::add_calls() {
  if (in_.batch > 1)
    add({"layout.axes", "give the kernel the batch first: it takes another axis for the tokens"},
        [](AttentionFormula& p) { p.weighting = Weighting::kAcrossItems, p.mask = {}; });
  const int calls = static_cast<int>(in_.others.size());
  const auto is_item = [&](int call) { return in_.others[static_cast<size_t>(call - 1)].is_of_batch; };
  for (int call = 1; call <= calls; ++call)
    add({"attention.mask",
         is_item(call) ? "attend within each item of the batch: hide the tokens of the others"
                       : "attend to this call's own tokens alone: clear the keys and values that an earlier one left"},
        [=](AttentionFormula& p) { p.keys_of_call = call; });
  for (int call = 1; call <= calls; ++call)
    for (const unsigned operands : {kKV, kK, kV})
      everywhere({"stage.replaced",
                  fmt::format("take {} from this {}", first_of(operands),
                              is_item(call) ? "item of the batch" : "call: what an earlier one had is no longer true")},
                 operands, [=](OperandFormula& p) { p.call = call; });
}

// Another table than the recorded one, in one place or in all.
void RarerGrammar::add_tables(unsigned operands) {
  if (!turns()) return;
  const std::vector<TableVariant>& list = in_.variants().list();
  const int count = static_cast<int>(list.size());
  for (const unsigned streams : {kBothStreams, 2U, 1U})
    for (int i = 0; i < count; ++i)
      if (streams == kBothStreams || two_)
        on({list[static_cast<size_t>(i)].cause, list[static_cast<size_t>(i)].fix}, streams, operands,
           [=](OperandFormula& p) { p.variant = i; });
}

void RarerGrammar::add_formats() {
  for (const NumberFormat& format : number_formats()) {
    const Format held = &format;
    const EditName name = in_format(format.cause);
    for (const unsigned operands : {kKV, kK, kV, kQ, kQK, kQKV})
      on(name, kBothStreams, operands, [=](OperandFormula& p) { p.held_turned = held; });
    for (const auto part : {&AttentionFormula::weights, &AttentionFormula::powers, &AttentionFormula::scores})
      add(name, [=](AttentionFormula& p) { p.*part = held; });
    // The weights with the values, as the second product takes them; and with all that the first takes.
    for (const unsigned operands : {kV, kQKV})
      add(name, [=](AttentionFormula& p) {
        p.weights = held;
        for (auto& stream : p.of)
          for (size_t o = 0; o < 3; ++o)
            if (operands >> o & 1) stream[o].held_turned = held;
      });
  }
}

// In one stream, or before the rotation.
void RarerGrammar::add_parts_in_formats() {
  for (const NumberFormat& format : number_formats())
    for (const unsigned operands : {kKV, kK, kV, kQ, kQK, kQKV}) {
      on_each_stream(in_format(format.cause), operands, [held = &format](OperandFormula& p) { p.held_turned = held; });
      if (turns() && operands != kV)
        everywhere(in_format(format.cause), operands, [held = &format](OperandFormula& p) { p.held = held; });
    }
}

void RarerGrammar::add_steps() {
  const std::span<const NumberFormat> formats = number_formats();
  for (const Format format : {Format{nullptr}, &formats[2], &formats[3]})
    for (const Steps steps : {Steps::kByRow, Steps::kByHead, Steps::kByTensor, Steps::kByChannel})
      for (const unsigned operands : {kKV, kK, kV, kQ, kQK, kQKV})
        on(in_format(format ? format->cause : Cause("precision.integer")), kBothStreams, operands,
           [=](OperandFormula& p) { p.steps = steps, p.in_steps = format; });
}

}  // namespace

std::vector<AttentionEdit> rarer_attention_edits(const AttentionFormula& r, const AttentionInputs& inputs, int64_t d,
                                                 int64_t width) {
  RarerGrammar grammar(r, inputs, d, width);
  grammar.add_calls(), grammar.add_formats(), grammar.add_tables(kQK);
  grammar.add_steps(), grammar.add_parts_in_formats(), grammar.add_tables(kQ), grammar.add_tables(kK);
  return std::move(grammar.list);
}

}  // namespace lockstep
