// Which values of the reference hold the same elements as a value of yours: the table that a search asks.
#pragma once
#include <map>
#include <vector>

#include "zoom/agreement.h"
#include "zoom/side.h"

namespace lockstep::zoom {

struct Match {
  int value = -1;
  Agreement agreement;
};

class Partners {
 public:
  Partners(Side& reference, Side& yours, double tolerance)
      : reference_(reference), yours_(yours), tolerance_(tolerance) {}

  const Agreement& agreement(int yours, int reference);
  bool agree(int yours, int reference) { return static_cast<bool>(agreement(yours, reference)); }
  const std::vector<Match>& of_yours(int yours);          // the strongest first
  const std::vector<Match>& of_reference(int reference);  // likewise, values of yours
  // Zeros, constants and a handful of numbers agree with much by chance: they prove nothing.
  bool is_neutral(const Side& side, int value) const;
  double tolerance() const { return tolerance_; }

 private:
  void forget_if_grown();

  Side& reference_;
  Side& yours_;
  double tolerance_;
  int counted_yours_ = 0, counted_reference_ = 0;
  std::map<std::pair<int, int>, Agreement> pairs_;
  std::map<int, std::vector<Match>> of_yours_, of_reference_;
};

}  // namespace lockstep::zoom
