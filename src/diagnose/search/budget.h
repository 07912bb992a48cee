// How much a search may do, counted in work (multiplications, or elements looked at), never in seconds: an answer must
// not depend on how fast or how busy the machine is.
#pragma once
#include <cstdint>

namespace lockstep {

class Budget {
 public:
  explicit Budget(int64_t work) : left_(work) {}
  bool is_spent() const { return left_ <= 0; }
  // False: there was nothing left to do it with, and it is not done.
  bool spend(int64_t work) {
    if (is_spent()) return false;
    left_ -= work;
    return true;
  }
  void add(int64_t work) { left_ = (left_ > 0 ? left_ : 0) + work; }

 private:
  int64_t left_;
};

}  // namespace lockstep
