// Which keys a query does not see, and what hiding them means.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

enum class Order { kAny, kCausal, kReverse };
enum class SeenStreams { kBoth, kOwn, kOther };
// What a query gets from which everything is hidden: the mean of all values (a large negative number was added), an
// attention without the mask, or nothing.
enum class EmptyRow { kMean, kUnmasked, kZeros, kFirst };
// kReplaced: the hidden score becomes `value`; kAdded: `value` is added to it; kZeroed: key and value are zeros.
enum class Hiding { kInfinite, kReplaced, kAdded, kZeroed };

struct MaskFormula {
  Order order = Order::kAny;
  int diagonal = 0;                       // keys seen beyond the query's own place
  bool own_order = false;                 // order, window and blocks hold within a stream, the other is seen
  int hidden_first = 0, hidden_last = 0;  // keys at either end
  int padded = 0;                         // last keys of the first stream: a padded prompt
  int padded_front = 0;                   // its first keys
  int hidden_from = 0, hidden_count = 0;  // a run of keys
  std::vector<int64_t> hidden_keys = {};  // any keys, in order
  int window = 0;                         // keys so far off, or further
  int block = 0;                          // keys of other blocks of that size
  int stride = 0;                         // keys that are no multiple of it away
  int prefix = 0;                         // keys that all queries see, whatever their order
  SeenStreams streams = SeenStreams::kBoth;
  bool inverted = false;
  bool transposed = false;  // queries hidden in place of keys
  EmptyRow empty = EmptyRow::kMean;
  Hiding hiding = Hiding::kInfinite;
  double value = 0;

  friend bool operator==(const MaskFormula&, const MaskFormula&) = default;
  bool hides_something() const;
};

// Where the streams lie in the joint sequence.
struct JointTokens {
  int64_t all = 0, first_stream = 0;  // keys; one stream: first_stream == all
  bool is_first(int64_t token) const { return token < first_stream || first_stream == all; }
};

bool is_hidden(const MaskFormula& mask, const JointTokens& tokens, int64_t query, int64_t key);

}  // namespace lockstep
