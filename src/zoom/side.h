// One program's tape with the elements of its values at hand: loaded when asked for, kept while memory allows.
#pragma once
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "zoom/numbers.h"
#include "zoom/tape.h"

namespace lockstep::zoom {

class Side {
 public:
  explicit Side(Tape tape);

  const Tape& tape() const { return tape_; }
  const Value& value(int index) const { return tape_.values[static_cast<size_t>(index)]; }
  const Step& step(int index) const { return tape_.steps[static_cast<size_t>(index)]; }
  int value_count() const { return static_cast<int>(tape_.values.size()); }

  std::shared_ptr<const Numbers> numbers(int value) const;  // null where the value was not kept
  const Totals& totals(int value) const;

  // A value that was not recorded, with the simple step that makes it. Returns its index.
  int add_made(Numbers numbers, Step step);
  void set_expanded(int value, Step last);  // the last simple step of a fused one

  // A value without a producer that holds the elements of an earlier one that has one is a copy of it: operators that
  // nobody sees (NumPy's) have made it.
  void link_constants(double tolerance);

  bool is_ancestor(int older, int younger) const;  // through any number of steps
  // Steps on the ways from `older` to `younger`, in order of execution; fused steps, not their parts.
  std::vector<int> steps_between(int older, int younger) const;

 private:
  void load(int value) const;

  Tape tape_;
  mutable std::vector<std::shared_ptr<const Numbers>> held_;
  mutable std::list<int> loaded_;  // the oldest first; made ones are not listed, they cannot be loaded again
  mutable int64_t held_bytes_ = 0;
  mutable std::vector<std::optional<Totals>> totals_;
};

}  // namespace lockstep::zoom
