// One formula of attention, out = softmax(rope(q) rope(k)^T * scale + mask) v, with everything about it that may
// differ, and how far it is from a recorded result.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "compare/families/attention_inputs.h"
#include "compare/families/number_formats.h"

namespace lockstep {

enum class Mask { kNone, kCausal, kStrict, kStrictButFirst, kReverse, kOtherStream, kInverted };
// Of the scores. kMaskedLate: softmax over all keys, those to be hidden struck out of its result.
enum class Weighting { kSoftmax, kPlain, kSigmoid, kOverQueries, kMaskedLate };

struct AttentionFormula {
  Rotation rotation = Rotation::kNone;
  int sign = 1;
  bool rotate_q = true, rotate_k = true, rotate_v = false;
  bool tables_exchanged = false;  // the streams take each other's tables
  int shift = 0;                  // of the table's rows: positions off by so many
  bool wraps = false;             // rows shifted past the end come in at the beginning
  bool from_zero = false;         // the first token stands at 0 on every axis
  double scale = 0;               // 0: 1/sqrt(d)
  double q_factor = 1, k_factor = 1, v_factor = 1;
  int q_weight = -1, k_weight = -1;                     // which norm's weight stands behind that norm
  bool unit_q = false, unit_k = false, unit_v = false;  // normalised once more, without a weight
  Mask mask = Mask::kNone;
  int hidden_first = 0, hidden_last = 0;  // keys left out at either end
  int padded = 0;                         // last keys of the first stream left out: a padded prompt
  int hidden_from = 0, hidden_count = 0;  // a run of keys left out
  int window = 0;                         // keys further off are left out
  bool one_group = false;                 // all heads use the first key head
  bool tiled = false;                     // grouped keys: head h uses group h % groups instead of h / repeat
  bool early_q = false, early_k = false;  // taken before their norms
  int qkv = 0;                            // which of the three stand where, see kQkvOrders
  bool own_stream = false;                // attends to its own tokens alone
  int only_stream = -1;                   // what is said of rotation, norms and q, k, v holds for this stream alone
  int only_operand = -1;                  // what is said of rotation holds for q (0) or k (1) alone
  bool cos_sin = false;                   // of the table, exchanged
  bool backwards = false;                 // the table's rows in reverse order
  double rotated = 1;                     // share of each head that is rotated
  double turns = 1;                       // factor on the angles
  Weighting weighting = Weighting::kSoftmax;
  double cap = 0;  // scores held by cap * tanh(score / cap)
  int head_shift = 0;
  double result_factor = 1;
  int strided = 0;  // bits of q, k, v: the head's number runs fastest, not slowest
  // Held in a poorer format: q, k, v before and after they are rotated; the scores; what exp made of them; the weights
  // that sum to one; the result.
  Format inputs = nullptr, rotated_inputs = nullptr, scores = nullptr, powers = nullptr, weights = nullptr,
         result = nullptr;
  double residual = INFINITY;

  friend bool operator==(const AttentionFormula&, const AttentionFormula&) = default;
  bool same_as(AttentionFormula o) const {
    o.residual = residual;
    return *this == o;
  }
};

struct QkvOrder {
  int q, k, v;
  const char* words;
};
inline constexpr QkvOrder kQkvOrders[] = {{0, 1, 2, ""},
                                          {1, 0, 2, "q and k exchanged"},
                                          {2, 1, 0, "q and v exchanged"},
                                          {0, 2, 1, "k and v exchanged"},
                                          {1, 2, 0, "q, k, v taken from k, v, q"},
                                          {2, 0, 1, "q, k, v taken from v, q, k"},
                                          {0, 1, 1, "k in place of v"},
                                          {0, 0, 2, "q in place of k"},
                                          {1, 1, 2, "k in place of q"},
                                          {0, 2, 2, "v in place of k"}};

// The recorded inputs and result of one call, on a sample of rows and heads.
class Attention {
 public:
  Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size, int64_t rows = 10,
            int64_t heads = 3);
  // What holds for a stream that a change leaves alone.
  void start_from(const AttentionFormula& base) { base_ = base; }
  double measure(const AttentionFormula& p) const;  // relative error; infinite where the formula cannot be applied

 private:
  struct Stack {
    std::vector<double> rows;  // [tokens, d]
    int64_t tokens = 0, own_begin = 0, own_end = 0;
    int64_t first_stream = 0;  // tokens of it
  };
  struct Operand {
    const Values* values;
    int64_t head;
    const RotaryTable* table;      // null: not rotated
    const AttentionFormula& turn;  // says how
    double factor;
    bool unit, strided;
    int weight;
  };

  bool gather(const AttentionFormula& p, int64_t head, Stack& q, Stack& k, Stack& v) const;
  bool append(Stack& to, const Operand& operand, const AttentionFormula& p) const;
  std::vector<double> attend(const AttentionFormula& p, const Stack& q, const Stack& k, const Stack& v, int64_t row,
                             const std::vector<double>& by_key) const;
  double score(const AttentionFormula& p, const Stack& q, const Stack& k, int64_t row, int64_t key) const;
  std::vector<double> totals_by_key(const AttentionFormula& p, const Stack& q, const Stack& k) const;
  static bool is_hidden(const AttentionFormula& p, const Stack& k, int64_t row, int64_t key);

  const AttentionInputs& in_;
  AttentionFormula base_;
  const Values& y_;
  int64_t d_, heads_;
  std::vector<int64_t> rows_, head_sample_;
};

// Everything that may be different, one change each.
std::vector<AttentionFormula> attention_changes(const AttentionFormula& reference, const AttentionInputs& inputs,
                                                int64_t head_size, int64_t width);
std::string words_of(const AttentionFormula& formula, int64_t head_size);
// What the candidate's formula does otherwise than the reference's.
Finding describe(const AttentionFormula& reference, const AttentionFormula& candidate, int64_t head_size);

}  // namespace lockstep
