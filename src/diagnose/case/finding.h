// What a diagnosis says: values with numbers in them, never text alone.
#pragma once
#include <string>

#include "diagnose/case/causes.h"

namespace lockstep {

enum class Blame { kNone, kWeights, kCapture };  // what the cause says about the kind of the divergence

struct Finding {
  Cause cause;
  std::string explanation{};      // one sentence with both formulas
  std::string fix{};              // one sentence; empty: what the table of causes says
  std::string look_at{};          // module path, file and line where known
  double residual_reference = 0;  // what the family leaves unexplained of each side, relative
  double residual = 0;
  double complexity = 1;  // parameters beyond the reference's own; the simplest explanation wins
  double confidence = 0;  // how much worse the next best explanation is, as a ratio
  Blame blame = Blame::kNone;
  bool seen = false;  // in what both programs noted of themselves: nothing was fitted, and the residual says nothing
};

}  // namespace lockstep
