// What zoom answers: regions of your program's steps, each with the reference's, in the words of both sources.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "zoom/agreement.h"
#include "zoom/side.h"

namespace lockstep::zoom {

enum class Kind {
  kOperation,    // the same operands, another operation
  kArgument,     // the same operation with another argument
  kMissingStep,  // the reference does something more
  kExtraStep,    // you do something more
  kWiring,       // a value that exists on both sides, used in the wrong place
  kParameter,    // another parameter, or a parameter with other numbers
  kLayout,       // the right elements in the wrong places
  kPrecision,    // the same operation in a narrower format
  kNotNarrowed,  // these steps together; which of them is not known
};

std::string_view kind_name(Kind kind);  // "operation", "argument", "missing step", ...

struct ArgumentDifference {
  std::string name, yours, reference;  // "absent" where a side does not give it
};

// An operand of your step and the reference's value it agrees with.
struct Partner {
  std::string parameter;
  int yours = -1, reference = -1;  // reference -1: nothing there agrees
  Agreement agreement;
};

// What a family of causes says about a region.
struct RegionCause {
  std::string id, explanation, fix;
  double residual = 0;  // what it leaves unexplained of your value, relative
};

using ValuePairs = std::vector<std::pair<int, int>>;  // yours, the reference's

struct Region {
  Kind kind = Kind::kNotNarrowed;
  std::vector<int> yours, reference;  // steps, in order of execution
  std::vector<ArgumentDifference> arguments;
  std::vector<Partner> partners;
  int yours_value = -1, reference_value = -1;  // the first pair that differs
  int reference_user = -1;                     // the step of the reference that takes its value; -1: it is an output
  double error = 0;                            // its relative distance
  ValuePairs other_executions;                 // of the lines that are wrong each time: what these made
  bool proven = false;                         // everything after it was replayed to your result
  bool same_function = false;  // both sides are told in the innermost function that is on both call chains
  // Of the call chains: 0 is the innermost line; more where that line is right elsewhere and its caller is not.
  int frame = 0, reference_frame = 0;
  std::vector<Place> passing;  // lines of yours without an operation: passing_lines.h
  std::optional<RegionCause> cause;
  std::string note;  // "yours takes to_k.weight, the reference to_q.weight"
};

// The lines of a region, each once, in order of execution: of your steps, or of the reference's.
std::vector<Place> lines_of(const Side& side, const std::vector<int>& steps, int frame);

std::vector<Place> yours_of(const Side& yours, const Region& region);

// Lines that are right in their other executions give way to their callers; regions that hold a smaller one go.
class Partners;
void tidy(std::vector<Region>& regions, const Side& reference, const Side& yours, Partners& partners);

}  // namespace lockstep::zoom
