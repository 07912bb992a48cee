// The error ledger: what each stage makes itself, what it was handed, and what it does with it. From two runs of the
// candidate: as it is, and with every recorded tensor replaced by the reference's after it was recorded.
#pragma once
#include <string>
#include <vector>

#include "base/text.h"
#include "compare/comparison.h"

namespace lockstep {

struct LedgerEntry {
  TensorKey key;
  Role role = Role::kOutput;
  double total = 0;      // as it is
  double local = 0;      // on the reference's inputs; NaN where it was not given them
  double inherited = 0;  // the difference between the two runs
  double gain = 0;       // total / the error of what it was made from; 0 when that was none
  double floor = 0;      // beyond which a local error counts
  std::string word;      // "source", "amplifier", "carrier", "healer", "clean"
};

struct Ledger {
  std::vector<LedgerEntry> entries;  // in the reference's order
  std::vector<size_t> sources;       // independent mistakes, in execution order
  std::vector<std::string> missing;  // tensors of the reference that the candidate did not record
  std::vector<std::string> notes;    // what could not be judged, and why
};

// `map`: names of the candidate to names of the reference.
Ledger make_ledger(const RunView& reference, const RunView& as_it_is, const RunView& substituted,
                   const std::vector<MapRule>& map = {});

Json json_from(const Ledger& ledger);
Text text_from(const Ledger& ledger, bool all, bool color);

}  // namespace lockstep
