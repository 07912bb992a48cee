// From the outputs that differ back to the first steps that do: which lines of yours, against which of the reference.
#pragma once
#include "zoom/fed_inputs.h"
#include "zoom/proof.h"
#include "zoom/region.h"

namespace lockstep::zoom {

// Where operands that agree make results that agree less than rounding explains, though the call's outputs still do: an
// eps hides so.
struct Jump {
  int yours = -1, reference = -1;  // steps; -1: there is none
  double error = 0;
};

struct Answer {
  std::vector<Region> regions;
  std::vector<FedInput> inputs;  // of your call that were not the reference's, and what became of them
  Proof proof = Proof::kOpen;    // of all regions together
  Jump jump;
  int compared = 0, matched = 0;  // your values, and those of them that agree with some value of the reference
  double output_error = 0, tolerance = 0;
  bool official_reference = false;  // the official pipeline was run in the place of the engine
  bool agrees = false;              // no divergence inside this call
  std::string incomplete;           // why an answer could not be found; empty: it could
};

// Both tapes are of the same call, given the same inputs where possible; `input_noise`: how far those that are the same
// thing still differ.
Answer search(Side& reference, Side& yours, double input_noise = 0);

}  // namespace lockstep::zoom
