// The attention between its projections and its output layer.
#include <algorithm>
#include <memory>

#include "diagnose/attention/attention_formula.h"
#include "diagnose/attention/attention_grammar.h"
#include "diagnose/case/neighbours.h"
#include "diagnose/replay/stage_graph.h"
#include "diagnose/search/fit.h"

namespace lockstep {
namespace {

constexpr int64_t kMostAttentionWork = int64_t{1} << 26;
constexpr int64_t kSlower = 5;  // a multiplication here takes as long as so many of a linear layer's

// One call of the attention with its recorded inputs, some of which are put in place by others.
class AttentionCall {
 public:
  AttentionCall(StageSources& in, size_t record)
      : failing_(in.run(), in.run(), in.failing().structure(), record, record) {
    failing_.partner = [](size_t i) { return i; };
    failing_.items = gather_items(
        in.run(), in.failing().structure(), record, failing_.partner, [](size_t) { return true; }, nullptr);
    failing_.weights_r = in.failing().weights_c ? in.failing().weights_c : in.failing().weights_r;
    failing_.tolerance = in.failing().tolerance;
    inputs_ = std::make_unique<AttentionInputs>(failing_, false);
  }
  bool find_formula() {
    if (!inputs_->complete() || inputs_->picture) return false;
    for (const AttentionStream& stream : inputs_->streams)
      for (const auto& [values, record] :
           {std::pair{stream.q, stream.q_record}, {stream.k, stream.k_record}, {stream.v, stream.v_record}})
        if (!values || record == SIZE_MAX) return false;
    item_ = batch_item(failing_.r, inputs_->item, inputs_->batch);
    for (const int64_t d : inputs_->head_sizes(item_.last())) {
      const Attention attention(*inputs_, item_, d, attention_sample(item_, item_, d, 8, 4));
      const EditedForm<AttentionFormula> found = reference_formula(*inputs_, attention, failing_.tolerance);
      if (!failing_.explains(found.residual)) continue;
      head_size_ = d, own_ = found.form;
      work_ = attention.work() * std::max<int64_t>(1, failing_.r.size() / (std::min<int64_t>(8, item_.rows()) * d *
                                                                           std::min<int64_t>(4, item_.last() / d)));
      return work_ <= kMostAttentionWork;
    }
    return false;
  }
  std::vector<size_t> records() const {
    std::vector<size_t> out;
    for (const AttentionStream& stream : inputs_->streams)
      for (const size_t record :
           {stream.q_record, stream.k_record, stream.v_record, stream.early_q_record, stream.early_k_record})
        if (record != SIZE_MAX) out.push_back(record);
    return out;
  }
  Flat result(const AttentionFormula& formula, Sources from) {
    Flat out;
    for (int64_t item = 0; item < inputs_->batch; ++item) {
      const Flat one = result_of(item, formula, from);
      out.insert(out.end(), one.begin(), one.end());
    }
    return out;
  }
  const AttentionFormula& own() const { return own_; }
  const AttentionInputs& inputs() const { return *inputs_; }
  int64_t head_size() const { return head_size_; }
  int64_t work() const { return work_; }
  int64_t width() const { return item_.last(); }

 private:
  // Each item of the batch attends to itself.
  Flat result_of(int64_t item, const AttentionFormula& formula, Sources from) {
    const std::vector<AttentionStream> before = inputs_->streams;
    std::vector<Values> values;
    values.reserve(from.size());
    size_t next = 0;
    const auto place = [&](const Values*& operand, size_t record) {
      if (record == SIZE_MAX) return;
      const Flat& all = *from[next++];
      const auto size = static_cast<std::ptrdiff_t>(operand->v.size());
      const auto first = all.begin() + (all.size() == operand->v.size() ? 0 : item * size);
      values.push_back({operand->shape, Flat(first, first + size)});
      operand = &values.back();
    };
    for (AttentionStream& stream : inputs_->streams) {
      place(stream.q, stream.q_record), place(stream.k, stream.k_record), place(stream.v, stream.v_record);
      place(stream.early_q, stream.early_q_record), place(stream.early_k, stream.early_k_record);
    }
    const Attention attention(*inputs_, item_, head_size_, {});
    Flat out = attention.result(formula);
    inputs_->streams = before;
    return out;
  }

  Case failing_;
  std::unique_ptr<AttentionInputs> inputs_;
  Values item_;  // of the result: the one that the inputs hold
  AttentionFormula own_;
  int64_t head_size_ = 0, work_ = 0;
};

}  // namespace

std::optional<Stage> find_attention(StageSources& in, size_t record) {
  const RecordedTensor& tensor = in.run().records[record];
  const std::string& module = in.failing().structure().site(record).module;
  if (tensor.role != Role::kInput || module.empty() || tensor.shape.size() < 2) return std::nullopt;
  const auto call = std::make_shared<AttentionCall>(in, record);
  if (!call->find_formula()) return std::nullopt;
  // Both streams are made by one code.
  Stage out{.from = call->records(),
            .kind = "attention",
            .place = place_of_code(parent_of(module)),
            .formula = words_of(call->own(), call->head_size()),
            .work = kSlower * call->work()};
  const auto with = [call](const AttentionFormula& formula) {
    return [call, formula](Sources from) { return call->result(formula, from); };
  };
  out.apply = with(call->own());
  std::vector<const Flat*> given;
  for (const size_t from : out.from) given.push_back(&in.values(from));
  if (!in.explains(flat_distance(out.apply(given), in.values(record)))) return std::nullopt;
  out.numbers.push_back({"attention.scale", "scores times", other_scale(call->own().scale, call->head_size()).fix,
                         [call](Sources from, double scale) {
                           AttentionFormula formula = call->own();
                           formula.scale = scale;
                           return call->result(formula, from);
                         }});
  for (const auto list : {attention_edits, rarer_attention_edits})
    for (const AttentionEdit& edit : list(call->own(), call->inputs(), call->head_size(), call->width())) {
      AttentionFormula formula = call->own();
      edit.apply(formula);
      const bool rare = list == rarer_attention_edits;
      out.edits.push_back({edit.name.cause, difference_words(call->own(), formula, call->inputs(), call->head_size()),
                           edit.name.fix, rare ? 0.95 : 0.8, with(formula), edit.name.blame});
    }
  return out;
}

}  // namespace lockstep
