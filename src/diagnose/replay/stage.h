// One thing that the reference computes: a recorded tensor as it is made from other recorded ones, and what a port may
// do otherwise there. Stages of all kinds are replayed by one graph and varied by one search.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "diagnose/case/causes.h"
#include "diagnose/case/finding.h"

namespace lockstep {

// Work is counted in multiplications of a linear layer, of which ten take a nanosecond. So many of them take as long as
// one element that is read, added to and written; and as one whose exponential is taken.
inline constexpr int64_t kElementWork = 10, kFunctionWork = 200;

using Flat = std::vector<float>;  // the elements of a recorded tensor, in order
using Sources = std::span<const Flat* const>;

struct StageEdit {
  Cause cause;
  std::string yours;  // the formula as it would then be
  std::string fix;
  double complexity = 0.8;
  std::function<Flat(Sources)> apply;  // empty result: cannot be done here
  Blame blame = Blame::kNone;
};

// A number of any size that the formula has none of, or another: solved for where no edit fits.
struct StageNumber {
  Cause cause;
  std::string what;  // "a scale of"
  std::string fix;
  std::function<Flat(Sources, double)> apply;
};

struct Stage {
  size_t record = 0;              // what it makes
  std::vector<size_t> from = {};  // records of the reference
  std::string kind{};             // "linear", "norm", ...: stages of one kind at one place of each layer are one code
  std::string place{};            // of that code, with layers counted as #
  std::string formula{};          // in words
  std::function<Flat(Sources)> apply{};
  int64_t work = 0;
  std::vector<StageEdit> edits = {};
  std::vector<StageNumber> numbers = {};
  bool is_recorded = false;  // by the candidate too: the stage is what happens to it afterwards
};

// "layers.0.attn" → "layers.#.attn": what all layers share.
std::string place_of_code(const std::string& name);

double flat_distance(const Flat& made, const Flat& recorded);  // ||made - recorded|| / ||recorded||

}  // namespace lockstep
