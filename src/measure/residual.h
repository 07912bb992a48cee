// What a formula leaves unexplained of a tensor: ||made - y|| / ||y||, one element at a time.
#pragma once
#include <cmath>

namespace lockstep {

class Residual {
 public:
  Residual() = default;
  explicit Residual(double squares_of_y) : of_(squares_of_y) {}  // known before: then `add_off` alone

  void add(double made, double y) { add_off(made - y), of_ += y * y; }
  void add_off(double off) { off_ += off * off; }
  void add_squares(double off, double of) { off_ += off, of_ += of; }
  void add_all(const Residual& other) { add_squares(other.off_, other.of_); }

  // Infinite where there is nothing to explain, or where something is not finite.
  double relative() const { return of_ > 0 && std::isfinite(off_) ? std::sqrt(off_ / of_) : INFINITY; }
  double relative_or(double of_nothing) const { return of_ > 0 ? relative() : of_nothing; }
  // Where all of y is known this only becomes more true: a sum of squares grows.
  bool is_beyond(double limit) const { return off_ > limit * limit * of_; }

 private:
  double off_ = 0, of_ = 0;  // sums of squares
};

}  // namespace lockstep
