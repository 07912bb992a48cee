// The line through points, by least squares; or the factor alone, or the offset alone.
#pragma once
#include <cmath>

namespace lockstep {

struct Line {
  double scale = 1, offset = 0;
  double at(double x) const { return scale * x + offset; }
};

class LineFit {
 public:
  void add(double x, double y) { ++n_, sx_ += x, sy_ += y, sxx_ += x * x, sxy_ += x * y; }
  double count() const { return n_; }
  // x varies by more than rounding does: `share` is of its square.
  bool has_slope(double share = 1e-12) const { return variance() > share * sxx_; }
  // y = a x + b; `flat` is the scale where x is one and the same number everywhere.
  Line line(double flat, double share = 1e-12) const {
    const double a = has_slope(share) ? (sxy_ - sx_ * sy_ / n_) / variance() : flat;
    return {a, (sy_ - a * sx_) / n_};
  }
  double factor(double of_nothing) const { return sxx_ > 0 ? sxy_ / sxx_ : of_nothing; }  // y = a x
  double offset() const { return (sy_ - sx_) / n_; }                                      // y = x + b

 private:
  double variance() const { return sxx_ - sx_ * sx_ / n_; }  // times the count
  double n_ = 0, sx_ = 0, sy_ = 0, sxx_ = 0, sxy_ = 0;
};

}  // namespace lockstep
