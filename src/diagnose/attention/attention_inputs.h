// q, k, v and the position tables of one attention call, recognised among the recorded tensors by what modules are
// called, by whose output they take, and else by their order.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/rotary/rotary_variants.h"

namespace lockstep {

struct AttentionStream {
  const Values* q = nullptr;  // null: the candidate has not called what makes it in the reference
  const Values* k = nullptr;
  const Values* v = nullptr;
  const Values* early_q = nullptr;  // before their norms
  const Values* early_k = nullptr;
  const Values* fused = nullptr;  // [tokens, 3 * width] that q, k and v are parts of
  RotaryTable table;
  // Of the reference, where they are outputs of modules.
  size_t q_record = SIZE_MAX, k_record = SIZE_MAX, v_record = SIZE_MAX;
  size_t early_q_record = SIZE_MAX, early_k_record = SIZE_MAX;

  const Values* some_q() const { return q ? q : early_q; }
  bool complete() const { return some_q() && (k || early_k) && v; }
};

// The same attention at an earlier time or for another item of the batch: its keys and values, in the order of the
// streams.
struct OtherCall {
  std::string when;  // "step 0 (pass=cond)", "item 1 of the batch"
  bool is_of_batch = false;
  std::vector<AttentionStream> streams;
};

class AttentionInputs {
 public:
  AttentionInputs(Case& failing, bool candidate);
  bool complete() const { return own >= 0; }
  bool has_tables() const;
  // No table was recorded, because the program computes it on the way: turn by the standard one.
  void assume_table(double theta, int64_t head_size);
  int64_t tokens_of(const Values& x, int64_t head_size) const;
  int64_t key_heads(int64_t head_size) const;
  std::vector<int64_t> head_sizes(int64_t width) const;  // to try, most likely first

  std::vector<AttentionStream> streams;  // in the order they are joined
  int own = -1;                          // the stream whose output the bad tensor is
  bool picture = false;                  // channels are axis 1 of a picture
  // Weights of the norms inside this attention, of one head's width.
  std::vector<std::pair<std::string, std::vector<float>>> norm_weights;
  int64_t item = 0, batch = 1;             // of a batch one item is looked at
  std::vector<OtherCall> others;           // items of the batch, then calls, latest first
  void find_other_calls(Case& failing);    // of the candidate
  const RotaryVariants& variants() const;  // made when first asked for

 private:
  void add_projections(Case& failing, bool candidate);
  void add_fused(Case& failing, bool candidate);
  void add_tables(Case& failing, bool candidate);
  void find_other_items();
  void find_earlier_calls(Case& failing);
  RotaryTable table_for(const Values& operand, const std::vector<RotaryTable>& tables) const;
  void add_norm_weights(const Case& failing, bool candidate);
  void keep_one_item(const Case& failing);
  std::vector<int64_t> norm_widths_;
  std::deque<Values> owned_;                                           // its elements stay where they are
  std::vector<std::pair<const Values*, const Values*>> of_all_items_;  // k and v of each stream
  mutable std::unique_ptr<const RotaryVariants> variants_;
};

}  // namespace lockstep
