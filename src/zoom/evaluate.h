// A recorded step computed again, from other operands than it had: what would the reference have made of yours?
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "zoom/side.h"

namespace lockstep::zoom {

using OperandSource = std::function<std::shared_ptr<const Numbers>(int value)>;

// The step's first output; nothing where the step is of a kind that cannot be computed here, or its operands do not
// fit.
std::optional<Numbers> evaluate(const Side& side, const Step& step, int output, const OperandSource& operand);

// Values in the places of recorded ones: everywhere, or where one step takes them.
using Given = std::map<int, std::shared_ptr<const Numbers>>;
struct Substitutes {
  Given values;
  std::map<std::pair<int, int>, std::shared_ptr<const Numbers>> uses;  // {step, value}
};

// `value` computed with these in the places of its own: only steps that depend on them are computed.
std::optional<Numbers> replay(const Side& side, int value, const Substitutes& put);
std::optional<Numbers> replay(const Side& side, int value, const Given& given);
std::optional<Numbers> replay(const Side& side, int value, int changed, std::shared_ptr<const Numbers> given);

// How many multiplications that takes, about.
double replay_work(const Side& side, int value, const Substitutes& put);
double replay_work(const Side& side, int value, const std::set<int>& given);

// Arguments that are no tensors, where they are of that sort.
double number_or(const Step& step, const char* name, double otherwise);
bool flag_of(const Step& step, const char* name);

// What a variance divides by less than the count: 1 in torch unless told otherwise, 0 elsewhere.
double correction_of(const Step& step, const std::string& framework);

// Whether a norm is the root of a sum of squares.
bool is_euclidean(const Step& step);

// A step's axis or axes, whatever the framework called them.
std::vector<int> axes_of(const Step& step);

}  // namespace lockstep::zoom
