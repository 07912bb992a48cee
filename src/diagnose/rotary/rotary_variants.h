// Tables that a port may rotate by in place of the recorded one: its axes in another order, at each other's places, one
// of them counted otherwise, other frequencies. All are made from the recorded table, read back as axes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "diagnose/rotary/rotary_recorded.h"

namespace lockstep {

struct TableVariant {
  Cause cause;
  std::string words, fix;
  std::function<double(size_t stream, int64_t row, int64_t pair)> angle;
};

class RotaryVariants {
 public:
  // One table for each stream, of the same columns. Without tables, or where they cannot be read: no variants.
  explicit RotaryVariants(const std::vector<const RotaryTable*>& tables);
  RotaryVariants(const RotaryVariants&) = delete;
  RotaryVariants& operator=(const RotaryVariants&) = delete;

  const std::vector<PairBlock>& axes() const { return axes_; }
  const std::vector<TableVariant>& list() const { return list_; }
  const RotaryTable& table(size_t variant, size_t stream) const;  // until another is asked for

 private:
  struct Axis {
    std::vector<double> frequencies;             // empty: unknown, no token of any stream moves along it
    std::vector<std::vector<double>> positions;  // by stream; empty: they are none of whole steps
  };
  struct Made {
    size_t variant = SIZE_MAX, stream = 0;
    std::shared_ptr<const RotaryTable> table;
  };
  void find_axes();
  void read_axes();
  void add_orders();
  void add_grids();
  void add_countings();
  void add_frequencies();
  size_t axis_of(int64_t pair) const;
  bool is_read(size_t axis) const { return !read_[axis].frequencies.empty() && !read_[axis].positions.empty(); }

  std::vector<const RotaryTable*> tables_;
  std::vector<PairBlock> axes_;
  std::vector<Axis> read_;
  std::vector<TableVariant> list_;
  mutable std::vector<Made> made_;
  mutable size_t next_made_ = 0;
};

}  // namespace lockstep
