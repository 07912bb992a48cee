// Your value in the place of one of the reference's: what the reference makes of it says where to go on searching.
#pragma once
#include <set>

#include "zoom/evaluate.h"
#include "zoom/unmatched.h"

namespace lockstep::zoom {

constexpr int64_t kMostReplay = 1 << 22;  // elements of a value that is put in another's place

class Transplants : public Unmatched {
 public:
  using Unmatched::Unmatched;

 protected:
  // If the reference makes your result of your value, everything after that place is proven right, and the search goes
  // on before it.
  bool by_transplant(int c, int r, int user_c, int user_r);

  // Replaying a wide layer takes seconds: so much of it is done in one search, and no more.
  bool may_replay(int r, const std::set<int>& from, int times = 1);

 private:
  // A line that is wrong each time it is executed: the results of all its executions are put in the places of those of
  // one line of the reference, in order.
  bool by_transplant_of_all(int c, int r, int user_c, int user_r);
  bool by_executions(const std::vector<int>& of_c, const std::vector<int>& of_r, int r, const Numbers& result,
                     int user_c, int user_r);
  // Whether the reference makes `result` at r of your values in the places of its own, in one of the layouts they may
  // have.
  bool gives(const ValuePairs& places, int r, const Numbers& result);

  int tried_ = 0, tried_together_ = 0;
  double replay_left_ = kMostReplayWork;

  static constexpr double kMostReplayWork = 4e9;  // multiplications in one search
};

}  // namespace lockstep::zoom
