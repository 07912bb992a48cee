// A recorded program run once more, with every operation of one call traced.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "capture/run_reader.h"
#include "zoom/fed_inputs.h"
#include "zoom/tape.h"

namespace lockstep::zoom {

struct Call {
  std::string module;     // as it is named in its run
  int64_t step = -1;      // -1: outside the loop, or whichever comes first
  int64_t hit = -1;       // -1: whichever comes first
  std::string pass = {};  // empty: whichever comes first
};

// The official pipeline's program that makes what the engine made in this run; nothing where the run is not the
// engine's, or was made in a way that the official pipeline does not have.
std::optional<std::vector<std::string>> official_in_place_of(const Run& run);

// The tape of that call: from the run itself where it was recorded with --operations, else from running its program
// again. Error{kUnsupported} where the run says of no Python program how it was started, and what to do instead.
Tape tape_of(const Run& run, const Call& call, const fs::path& home, bool quiet);

// The tape of that call given these inputs in the place of its own: its program is run once more. The paths of those
// that it was really given are in the tape.
Tape tape_given(const Run& run, const Call& call, const std::vector<FedInput>& inputs, const fs::path& home,
                bool quiet);

}  // namespace lockstep::zoom
