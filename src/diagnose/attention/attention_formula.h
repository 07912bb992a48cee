// One formula of attention, out = softmax(rope(q) rope(k)^T * scale + mask) v, with everything about it that may
// differ: what each stream does to each of q, k and v; which keys are seen; what becomes of the scores; how heads and
// streams are put together. And how far it is from a recorded result.
#pragma once
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "diagnose/attention/attention_inputs.h"
#include "diagnose/attention/attention_mask.h"
#include "diagnose/search/edits.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {

// Of the scores. kAcrossHeads: the heads of one token attend to each other, as where [tokens, heads] is taken for
// [heads, tokens]. kAcrossItems: what stands at one place in the items of the batch does. kMaskedLate: softmax over all
// keys, those to be hidden struck out of its result. kByStream: a softmax for each stream's keys, the results summed.
// kPowers: exp(score - largest), not divided by their sum. kOverChannels: q^T k over the channels of a head in place of
// its tokens.
enum class Weighting {
  kSoftmax,
  kPlain,
  kSigmoid,
  kOverQueries,
  kOverHeads,
  kMaskedLate,
  kByStream,
  kPowers,
  kRelu,
  kTwice,
  kEqual,
  kOverChannels,
  kTransposed,
  kOwnValue,
  kAcrossHeads,
  kAcrossItems
};
// [tokens, heads * d] as heads: one behind the other; one element of each in turn; the memory taken for
// [heads, tokens, d], each stream by itself or both joined.
enum class HeadCut { kBlocks, kStrided, kByShape, kByShapeJoint };
// The key head of a query head: h / repeat; h % groups; the first.
enum class KeyGroups { kConsecutive, kTiled, kFirst, kReversed };
// Where q, k and v lie in one projection for all three: one behind the other; in turn, element by element; or head by
// head.
enum class Fused { kParts, kInTurn, kByHead };
// What has a step of its own where numbers are held in steps: each token's head; each head; each channel of a head; the
// whole.
enum class Steps { kNone, kByRow, kByHead, kByChannel, kByTensor };
enum class Unit { kNone, kRms, kLength, kLayer, kRmsOfAllHeads };

// What one stream does to its q, k or v.
struct OperandFormula {
  int source = 0;  // which of the three it is: 0 q, 1 k, 2 v
  Fused fused = Fused::kParts;
  bool early = false;  // taken before its norm
  Unit unit = Unit::kNone;
  int weight = -1;  // which norm's weight it is multiplied by
  double factor = 1;
  Format held = nullptr, held_turned = nullptr;  // a poorer format, before and after it is rotated
  Steps steps = Steps::kNone;  // `in_steps`, after it is rotated, in units that its largest number chooses
  Format in_steps = nullptr;   // null: whole numbers of 8 bits
  int call = 0;                // which other call's it is; 0: its own
  Turning turning;
  int variant = -1;                // of the table
  bool other_table = false;        // the other stream's positions
  bool joint_table = false;        // of one table for both, the image's part first
  int64_t turned_heads = 0;        // so many heads alone are rotated; 0: all
  bool by_head = false;            // the head's number taken for the token's
  int shift = 0;                   // of the table's rows: positions off by so many
  bool wraps = false;              // rows shifted past the end come in at the beginning
  int repeats = 0;                 // the table's first rows again and again
  int until = 0;                   // the table's first rows, the last of which stands for the rest
  bool backwards = false;          // the table's rows in reverse order
  HeadCut cut = HeadCut::kBlocks;  // into heads
  bool cut_first = false;          // before it is rotated
  KeyGroups groups = KeyGroups::kConsecutive;
  int head_shift = 0;
  int repeat = 0;       // query heads to a key head; 0: as many as it takes
  int token_shift = 0;  // of the joint sequence, coming round
  int64_t columns = 0;  // of a grid that the tokens are read from column by column; -1: read backwards

  friend bool operator==(const OperandFormula&, const OperandFormula&) = default;
};

struct AttentionFormula {
  std::array<std::array<OperandFormula, 3>, 2> of;  // [stream][q, k, v]
  double scale = 0;                                 // 0: 1/sqrt(head size)
  double cap = 0;                                   // scores held by cap * tanh(score / cap)
  MaskFormula mask;
  Weighting weighting = Weighting::kSoftmax;
  double zero_keys = 0;                 // keys and values of zeros that take part
  std::array<double, 2> counted{1, 1};  // times each stream's keys are there
  int keys_of_call = 0;                 // another call's keys and values are seen too; 0: none
  double result_factor = 1;
  int64_t head_size = 0;  // 0: the reference's
  HeadCut merge = HeadCut::kBlocks;
  int row_shift = 0;     // of the joint result, coming round
  int merged_shift = 0;  // of its heads
  bool merged_backwards = false;
  // Held in a poorer format: the scores; what exp made of them; the weights that sum to one; the result.
  Format scores = nullptr, powers = nullptr, weights = nullptr, result = nullptr;

  AttentionFormula() {
    for (auto& stream : of)
      for (int operand = 0; operand < 3; ++operand) stream[static_cast<size_t>(operand)].source = operand;
  }
  friend bool operator==(const AttentionFormula&, const AttentionFormula&) = default;
};

double largest_in(std::span<const double> x);  // without its sign
// Whole numbers of 8 bits, or a format of 8 bits, times a step by which the largest just fits.
void round_in_steps(std::span<double> x, double largest, Format format);

// Of a result [tokens, heads * d]: what is looked at.
struct AttentionSample {
  std::vector<int64_t> rows, heads;
};
// Spread evenly, with those among them in which the two results differ most.
AttentionSample attention_sample(const Values& a, const Values& b, int64_t head_size, int64_t rows, int64_t heads);

// The recorded inputs and result of one call.
class Attention {
 public:
  Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size, AttentionSample sample);
  double measure(const AttentionFormula& p) const;  // relative error; infinite where the formula cannot be applied
  std::vector<float> result(
      const AttentionFormula& p) const;  // of all rows and heads; empty where it cannot be applied
  int64_t work() const;                  // multiplications of one `measure`, roughly
  // The same with other keys hidden from all queries, whichever fit best; infinitely wrong where too little is looked
  // at to tell.
  EditedForm<AttentionFormula> with_hidden_keys(const AttentionFormula& p, Budget& budget) const;
  const JointTokens& tokens() const { return tokens_; }

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<double>;  // [joint tokens, head size]
  struct Place {                     // in the result of the attention
    int64_t head, token, channel;
  };
  struct Made {
    size_t operand;
    int64_t head, head_size;
    std::array<OperandFormula, 2> how;
    std::shared_ptr<const Rows> rows;  // null: cannot be made
  };

  int64_t head_size(const AttentionFormula& p) const { return p.head_size ? p.head_size : d_; }
  int64_t heads(const AttentionFormula& p) const { return y_.last() / head_size(p); }
  int64_t key_head(const AttentionFormula& p, size_t stream, size_t operand, int64_t head) const;
  const AttentionStream& stream_of(const OperandFormula& how, size_t stream) const {
    return how.call ? in_.others[static_cast<size_t>(how.call - 1)].streams[stream] : in_.streams[stream];
  }
  const Values* values(const OperandFormula& how, size_t stream) const;
  Place place(const AttentionFormula& p, int64_t row, int64_t column) const;
  // One head of a token's q, k or v, ready for the product.
  bool make_row(const AttentionFormula& p, size_t operand, int64_t head, int64_t token, Row& out) const;
  bool turned_block(const OperandFormula& how, size_t stream, int64_t head, int64_t token, int64_t position,
                    int64_t turned_head, Row& out) const;
  std::shared_ptr<const Rows> all_rows(const AttentionFormula& p, size_t operand, int64_t head) const;
  bool scores(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool totals(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool attend(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool transposed_weights(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool query_row(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  void hold_in_steps(const AttentionFormula& p, size_t operand, Rows& rows) const;
  double largest_of(const AttentionFormula& p, size_t operand) const;
  bool attend_heads(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool attend_items(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool attend_earlier(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool attend_channels(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const;
  bool weigh(const AttentionFormula& p, int64_t head, int64_t query, Row& scores) const;

  const AttentionInputs& in_;
  const Values& y_;
  int64_t d_;
  JointTokens tokens_;
  std::array<int64_t, 2> begin_{}, count_{};  // of each stream's tokens
  int64_t own_begin_ = 0;
  AttentionSample sample_;
  // Most changes leave k and v as they are.
  mutable std::vector<Made> made_;
  size_t most_made_ = 8;
  mutable size_t next_made_ = 0;
  mutable std::map<int64_t, Row> totals_by_key_, by_head_;  // of the formula in hand
  mutable std::map<int64_t, std::array<Rows, 2>> earlier_;  // keys and values of another call, by head
};

// The first of the forms that references have which makes the recorded result, else the nearest.
EditedForm<AttentionFormula> reference_formula(const AttentionInputs& inputs, const Attention& attention,
                                               double tolerance);

using AttentionEdit = Edit<AttentionFormula>;
// Everything that may be different, the likeliest first; and what is to be tried when none of it fits.
std::vector<AttentionEdit> attention_edits(const AttentionFormula& reference, const AttentionInputs& inputs,
                                           int64_t head_size, int64_t width);
std::vector<AttentionEdit> rarer_attention_edits(const AttentionFormula& reference, const AttentionInputs& inputs,
                                                 int64_t head_size, int64_t width);
std::string words_of(const AttentionFormula& formula, int64_t head_size);
// What the candidate's formula does otherwise than the reference's.
std::string difference_words(const AttentionFormula& reference, const AttentionFormula& candidate,
                             const AttentionInputs& inputs, int64_t head_size);

}  // namespace lockstep
