// What your call is given in the place of its own inputs: the reference's, in your layout, so that noise and errors
// from before the call do not count inside it.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "zoom/side.h"

namespace lockstep::zoom {

struct FedInput {
  std::string yours, reference;  // paths of the two inputs; reference empty: none answers it
  double distance = 0;           // between them, before
  std::string how;               // "", "axes permuted", ..., "by its name"
  std::string why_not;           // empty: it can be given
  Numbers values;                // the reference's, in your shape; empty where it cannot be given
};

// The floating-point inputs of your call that differ from the reference's by more than their own rounding.
std::vector<FedInput> inputs_to_feed(const Side& reference, const Side& yours);

// inputs.json and inputs.bin in this folder, for LOCKSTEP_OPERATIONS_FEED.
void write_fed_inputs(const std::vector<FedInput>& inputs, const fs::path& folder);

}  // namespace lockstep::zoom
