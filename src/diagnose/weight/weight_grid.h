// A weight taken apart as quantisers do it: whole numbers (or those of a small format), and for each group of them a
// step and a lowest value.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/search/number_formats.h"
#include "measure/values.h"

namespace lockstep {

// Which numbers a quantiser may write. kAffine and kSymmetric are those of weight_relation.h; kFullRange also uses the
// lowest number; kWholeZero has a zero point that is one of the numbers; kExtreme makes the largest value the lowest
// number; the others are float formats and tables of four bits.
enum class QuantLevels {
  kAffine,
  kSymmetric,
  kFullRange,
  kWholeZero,
  kExtreme,
  kE4M3,
  kE5M2,
  kNf4,
  kE2M1,
  kFp4,
  kNf4Mirrored
};

// Which numbers share a scale. Where a row is no whole number of groups they are counted through all rows as they lie
// in memory, or each row begins anew and its last group is shorter.
struct WeightGroups {
  int64_t size = 32;
  bool through_rows = false;

  int64_t per_row(int64_t width) const { return (width + size - 1) / size; }
  int64_t of(int64_t row, int64_t i, int64_t width) const {
    return through_rows ? (row * width + i) / size : row * per_row(width) + i / size;
  }
  bool operator<(const WeightGroups& other) const {
    return std::pair(size, through_rows) < std::pair(other.size, other.through_rows);
  }
};

// All sizes that a weight's rows can be cut into: the usual ones first, then whatever divides a row, then powers of two
// that do not.
std::vector<WeightGroups> group_sizes(const Shape& weight);

// The lowest and the highest value of each group of a weight. A weight is large and few of its groups are asked for:
// each is looked at when it is.
class GroupEnds {
 public:
  GroupEnds(const Values& weight, WeightGroups groups);
  int64_t groups() const { return static_cast<int64_t>(ends_.size()); }
  std::pair<float, float> of(int64_t group);

 private:
  static constexpr std::pair<float, float> kNotYet{1, -1};
  const Values& weight_;
  WeightGroups groups_;
  std::vector<std::pair<float, float>> ends_;
};

// Those of the sizes asked for.
class EndsBySize {
 public:
  explicit EndsBySize(const Values& weight) : weight_(weight) {}
  GroupEnds& of(WeightGroups groups) { return sizes_.try_emplace(groups, weight_, groups).first->second; }

 private:
  const Values& weight_;
  std::map<WeightGroups, GroupEnds> sizes_;
};

struct Quantiser {
  int bits = 4;
  int64_t group = 32;
  QuantLevels levels = QuantLevels::kAffine;
  std::optional<std::pair<float, float>> range = {};  // one scale for all: its lowest and highest value
  bool through_rows = false;
  bool plain_only = false;      // too rare to be looked for put together wrongly as well
  Format arithmetic = nullptr;  // steps, quotients and products are rounded to this

  WeightGroups groups() const { return {group, through_rows}; }

  bool has_zero_points() const {
    return levels == QuantLevels::kAffine || levels == QuantLevels::kWholeZero || levels == QuantLevels::kExtreme;
  }
  bool is_usual() const {
    return (levels == QuantLevels::kAffine || levels == QuantLevels::kSymmetric) && !range && !through_rows;
  }

  // {step, low} of values between these two.
  std::pair<double, double> scale_of(double low, double high) const;
  double number_of(double x) const;  // of a value in steps above its low
  std::string words() const;
};

// All ways in which a weight of this size is quantised; `arithmetic`: by a model that is held in this format.
std::vector<Quantiser> quantisers(const Values& weight, Format arithmetic = nullptr);

// The weight taken apart: value = step * number + low. Numbers are made row by row when asked for.
class WeightGrid {
 public:
  WeightGrid(const Values& weight, const Quantiser& quantiser, GroupEnds& ends)
      : weight_(weight), quantiser_(quantiser), ends_(ends), per_row_(quantiser.groups().per_row(weight.last())) {}

  double number(int64_t row, int64_t i) {
    if (row != latest_row_) take_apart(row);
    return numbers_[static_cast<size_t>(i)];
  }
  double step(int64_t group) { return scale(group).first; }
  double low(int64_t group) { return scale(group).second; }
  int64_t group_of(int64_t row, int64_t i) const { return quantiser_.groups().of(row, i, weight_.last()); }
  // Steps that lie row by row, or one after the other, read as if the groups had another size.
  int64_t group_read(int64_t row, int64_t i, WeightGroups as) const {
    return as.through_rows ? (row * weight_.last() + i) / as.size : row * per_row_ + i / as.size;
  }
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
  // What the quantiser leaves of one number, or with the scale of another group.
  double value(int64_t row, int64_t i, int64_t group) {
    const auto [step, low] = scale(group);
    return in_format(step * number(row, i) + low, quantiser_.arithmetic);
  }
  Values rows(const std::vector<int64_t>& of);  // as the quantiser leaves them

 private:
  std::pair<double, double> scale(int64_t group) {
    if (group == latest_group_) return latest_scale_;
    const int64_t all = ends_.groups();
    const auto [low, high] = quantiser_.range ? *quantiser_.range : ends_.of((group % all + all) % all);
    latest_group_ = group, latest_scale_ = quantiser_.scale_of(low, high);
    latest_scale_.first = in_format(latest_scale_.first, quantiser_.arithmetic);
    return latest_scale_;
  }
  void take_apart(int64_t row) {
    latest_row_ = row;
    numbers_.resize(static_cast<size_t>(inputs()));
    for (int64_t i = 0; i < inputs(); ++i) {
      const auto [step, low] = scale(group_of(row, i));
      const double value = weight_.row(row)[static_cast<size_t>(i)];
      numbers_[static_cast<size_t>(i)] =
          step != 0 ? quantiser_.number_of(in_format((value - low) / step, quantiser_.arithmetic)) : 0;
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
