// How large values may be at a stage of a known model family. Diffusion transformers carry tens of millions in their
// residual stream and normalise it away at the end: no alarm. The same size in a decoder is a bug.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct RangeCard {
  const char* family;
  const char* glob;  // of record names
  double largest;    // root mean square that is still normal there
};

// The card for a stage; the last one holds for every name.
const RangeCard& range_card(std::string_view name);

// What is odd about values of this root mean square, and empty when they are normal.
std::string range_alarm(std::string_view name, double rms);

}  // namespace lockstep
