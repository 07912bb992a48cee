// A weight taken apart as quantisers do it: whole numbers (or those of a small format), and for each group of them a
// step and a lowest value.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/values.h"

namespace lockstep {

// Which numbers a quantiser may write. kAffine and kSymmetric are those of weight_relation.h; kFullRange also uses the
// lowest number; kWholeZero has a zero point that is one of the numbers; kExtreme makes the largest value the lowest
// number; the others are float formats and tables of four bits.
enum class QuantLevels { kAffine, kSymmetric, kFullRange, kWholeZero, kExtreme, kE4M3, kE5M2, kNf4, kE2M1 };

// The lowest and the highest value of each group of a weight, groups counted through all rows as they lie in a file.
// A weight is large and few of its groups are asked for: each is looked at when it is.
class GroupEnds {
 public:
  GroupEnds(const Values& weight, int64_t group)
      : weight_(weight), group_(group), ends_(static_cast<size_t>(weight.size() / group), kNotYet) {}
  int64_t groups() const { return static_cast<int64_t>(ends_.size()); }
  std::pair<float, float> of(int64_t group);

 private:
  static constexpr std::pair<float, float> kNotYet{1, -1};
  const Values& weight_;
  int64_t group_;
  std::vector<std::pair<float, float>> ends_;
};

// Those of the sizes asked for.
class EndsBySize {
 public:
  explicit EndsBySize(const Values& weight) : weight_(weight) {}
  GroupEnds& of(int64_t group) { return sizes_.try_emplace(group, weight_, group).first->second; }

 private:
  const Values& weight_;
  std::map<int64_t, GroupEnds> sizes_;
};

struct Quantiser {
  int bits = 4;
  int64_t group = 32;
  QuantLevels levels = QuantLevels::kAffine;
  std::optional<std::pair<float, float>> range = {};  // one scale for all: its lowest and highest value

  bool has_zero_points() const {
    return levels == QuantLevels::kAffine || levels == QuantLevels::kWholeZero || levels == QuantLevels::kExtreme;
  }
  bool is_usual() const { return (levels == QuantLevels::kAffine || levels == QuantLevels::kSymmetric) && !range; }

  // {step, low} of values between these two.
  std::pair<double, double> scale_of(double low, double high) const;
  double number_of(double x) const;  // of a value in steps above its low
  std::string words() const;
};

// All ways in which a weight of this size is usually quantised.
std::vector<Quantiser> quantisers(const Values& weight);

// The weight taken apart: value = step * number + low. Numbers are made row by row when asked for.
class WeightGrid {
 public:
  WeightGrid(const Values& weight, const Quantiser& quantiser, GroupEnds& ends)
      : weight_(weight), quantiser_(quantiser), ends_(ends), per_row_(weight.last() / quantiser.group) {}

  double number(int64_t row, int64_t i) {
    if (row != latest_row_) take_apart(row);
    return numbers_[static_cast<size_t>(i)];
  }
  double step(int64_t group) { return scale(group).first; }
  double low(int64_t group) { return scale(group).second; }
  int64_t group_of(int64_t row, int64_t i) const { return row * per_row_ + i / quantiser_.group; }
  int64_t half_group_of(int64_t row, int64_t i) const { return 2 * row * per_row_ + 2 * i / quantiser_.group; }
  // Rows taken for columns.
  int64_t turned_group_of(int64_t row, int64_t i) const { return i * per_row_ + row / quantiser_.group % per_row_; }
  // The scales lie group by group and are read row by row, and the reverse.
  int64_t misread_group(int64_t group) const { return group % weight_.rows() * per_row_ + group / weight_.rows(); }
  int64_t mislaid_group(int64_t group) const { return group % per_row_ * weight_.rows() + group / per_row_; }
  int64_t first_group(int64_t group) const { return group / per_row_ * per_row_; }
  int64_t inputs() const { return weight_.last(); }
  int64_t group_size() const { return quantiser_.group; }
  int bits() const { return quantiser_.bits; }

 private:
  std::pair<double, double> scale(int64_t group) {
    if (group == latest_group_) return latest_scale_;
    const int64_t all = ends_.groups();
    const auto [low, high] = quantiser_.range ? *quantiser_.range : ends_.of((group % all + all) % all);
    latest_group_ = group, latest_scale_ = quantiser_.scale_of(low, high);
    return latest_scale_;
  }
  void take_apart(int64_t row) {
    latest_row_ = row;
    numbers_.resize(static_cast<size_t>(inputs()));
    for (int64_t i = 0; i < inputs(); ++i) {
      const auto [step, low] = scale(group_of(row, i));
      const double value = weight_.row(row)[static_cast<size_t>(i)];
      numbers_[static_cast<size_t>(i)] = step != 0 ? quantiser_.number_of((value - low) / step) : 0;
    }
  }
  const Values& weight_;
  const Quantiser quantiser_;
  GroupEnds& ends_;
  int64_t per_row_;
  std::vector<double> numbers_;
  int64_t latest_row_ = -1, latest_group_ = INT64_MIN;
  std::pair<double, double> latest_scale_;
};

}  // namespace lockstep
