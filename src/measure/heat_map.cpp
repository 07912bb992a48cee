#include "measure/heat_map.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/interrupt.h"
#include "measure/float_reader.h"
#include "measure/sample.h"

namespace lockstep {
namespace {

constexpr int64_t kFloatsAtOnce = 1 << 15;
constexpr double kMostPages = 1 << 14;  // of long rows: each cell has one of its own

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Which values of the window are read: of each cell the same number, neighbours in the middle of it.
struct CellPlan {
  int64_t tensor_columns = 1, top = 0, left = 0, rows = 0, columns = 0;  // the window
  int64_t height = 0, width = 0;
  int64_t rows_a_cell = 0;     // at most
  int64_t columns_a_cell = 0;  // 0: whole rows are read
  bool sampled = false;

  int64_t read_columns() const { return columns_a_cell ? columns_a_cell * width : columns; }
  int64_t first_row(int64_t cell) const { return ceil_div(cell * rows, height); }
  // Of a row of cells: the rows of the window that are read.
  Neighbours rows_of(int64_t cell) const {
    const int64_t from = first_row(cell), count = first_row(cell + 1) - from, taken = std::min(count, rows_a_cell);
    return {from + (count - taken) / 2, taken};
  }
  int64_t begin_of(int64_t row) const { return (top + row) * tensor_columns + left; }
  int64_t column_of(int64_t cell) const {
    const int64_t from = cell * columns / width, size = (cell + 1) * columns / width - from;
    return from + (size - columns_a_cell) / 2;
  }
  int64_t looked_at() const {
    int64_t all = 0;
    for (int64_t cell = 0; cell < height; ++cell) all += rows_of(cell).count;
    return all * read_columns();
  }
};

CellPlan plan_for(const Tensor& tensor, const MapWindow& window, int64_t height, int64_t width) {
  CellPlan plan;
  plan.tensor_columns = tensor.rank() ? tensor.dim(-1) : 1;
  const int64_t all_rows = plan.tensor_columns ? tensor.numel() / plan.tensor_columns : 0;
  plan.top = window.top, plan.left = window.left;
  plan.rows = window.rows ? window.rows : all_rows - window.top;
  plan.columns = window.columns ? window.columns : plan.tensor_columns - window.left;
  const bool inside = plan.top >= 0 && plan.left >= 0 && plan.rows > 0 && plan.columns > 0 && plan.top < all_rows &&
                      plan.left < plan.tensor_columns && plan.rows <= all_rows - plan.top &&
                      plan.columns <= plan.tensor_columns - plan.left;
  if (!inside)
    fail(Code::kBadInput, "heat map", "the window lies outside the tensor",
         {.expected = std::to_string(all_rows) + " rows and " + std::to_string(plan.tensor_columns) + " columns"});
  plan.height = std::min(plan.rows, height), plan.width = std::min(plan.columns, width);
  const int64_t most_elements = values_to_read(tensor, plan.rows, plan.columns);
  if (plan.columns > most_elements / plan.height) {  // a row of a billion values
    const int64_t pages = plan.columns * static_cast<int64_t>(dtype_bytes(tensor.dtype())) / 4096 + 1;
    const double wanted = static_cast<double>(plan.height) * static_cast<double>(std::min(plan.width, pages));
    if (wanted > kMostPages) {  // fewer cells
      const double part = std::sqrt(kMostPages / wanted);
      for (int64_t* side : {&plan.height, &plan.width})
        *side = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(*side) * part));
    }
    plan.columns_a_cell = std::max<int64_t>(1, most_elements / (plan.height * plan.width));
    plan.columns_a_cell = std::min(plan.columns_a_cell, plan.columns / plan.width);
  }
  plan.rows_a_cell = ceil_div(plan.rows, plan.height);
  if (most_elements == plan.rows * plan.columns) return plan;  // all
  const int64_t most = std::max<int64_t>(1, most_elements / (plan.height * plan.read_columns()));
  plan.sampled = plan.columns_a_cell > 0 || most < plan.rows_a_cell;
  plan.rows_a_cell = std::min(plan.rows_a_cell, most);
  return plan;
}

// The values of a planned row, side by side.
void read_row(FloatReader& reader, const CellPlan& plan, int64_t row, float* out) {
  if (!plan.columns_a_cell) return reader.read(plan.begin_of(row), plan.columns, out);
  for (int64_t cell = 0; cell < plan.width; ++cell)
    reader.read(plan.begin_of(row) + plan.column_of(cell), plan.columns_a_cell, out + cell * plan.columns_a_cell);
}

void fetch_rows(const Tensor& tensor, const CellPlan& plan) {
  std::vector<Neighbours> elements;
  for (int64_t cell = 0; cell < plan.height; ++cell) {
    const Neighbours rows = plan.rows_of(cell);
    if (plan.columns == plan.tensor_columns && !plan.columns_a_cell) {
      elements.push_back({plan.begin_of(rows.begin), rows.count * plan.columns});
      continue;
    }
    for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row)
      for (int64_t k = 0; k < (plan.columns_a_cell ? plan.width : 1); ++k)
        elements.push_back({plan.begin_of(row) + (plan.columns_a_cell ? plan.column_of(k) : 0),
                            plan.columns_a_cell ? plan.columns_a_cell : plan.columns});
  }
  fetch_soon(tensor, elements);
}

// Per column the extremes of the rows that fall into one row of cells. Branch free over a row, so that it vectorises.
class CellExtremes {
 public:
  explicit CellExtremes(const CellPlan& plan) : columns_(plan.read_columns()), width_(plan.width) {
    cells_.resize(static_cast<size_t>(plan.height * plan.width));
    high_.assign(static_cast<size_t>(columns_), 0), low_ = high_, odd_ = high_;
  }

  void add(const float* row) {
    float *high = high_.data(), *low = low_.data(), *odd = odd_.data();
    for (int64_t j = 0; j < columns_; ++j) {
      const float value = row[j];
      high[j] = value > high[j] ? value : high[j];
      low[j] = value < low[j] ? value : low[j];
      odd[j] += value - value;  // NaN once a value was not finite, else 0
    }
  }

  void end_cells(int64_t cell_row) {
    for (int64_t cell = 0; cell < width_; ++cell) {
      const int64_t from = cell * columns_ / width_, to = (cell + 1) * columns_ / width_;
      float high = 0, low = 0, odd = 0;
      for (int64_t j = from; j < to; ++j) {
        const auto at = static_cast<size_t>(j);
        high = std::max(high, high_[at]), low = std::min(low, low_[at]), odd += odd_[at];
      }
      cells_[static_cast<size_t>(cell_row * width_ + cell)] = std::isnan(odd) ? NAN : high > -low ? high : low;
    }
    std::fill(high_.begin(), high_.end(), 0.0f), std::fill(low_.begin(), low_.end(), 0.0f);
    std::fill(odd_.begin(), odd_.end(), 0.0f);
  }

  HeatMap map(const CellPlan& plan, int64_t all_rows) && {
    return {all_rows,         plan.tensor_columns, {plan.top, plan.left, plan.rows, plan.columns},
            plan.height,      plan.width,          plan.sampled,
            plan.looked_at(), std::move(cells_)};
  }

 private:
  int64_t columns_, width_;
  std::vector<float> cells_, high_, low_, odd_;
};

// Hands out the planned rows of one or two tensors, and says when a row of cells is whole.
template <typename Each, typename End>
void walk_cells(const Tensor& first, const Tensor* second, const CellPlan& plan, Each&& each, End&& end) {
  FloatReader a(first);
  std::unique_ptr<FloatReader> b = second ? std::make_unique<FloatReader>(*second) : nullptr;
  const int64_t columns = plan.read_columns();
  if (plan.sampled) {
    fetch_rows(first, plan);
    if (second) fetch_rows(*second, plan);
  }
  const bool together = plan.columns == plan.tensor_columns && !plan.columns_a_cell;  // rows lie one behind the other
  const int64_t at_once = together ? std::max<int64_t>(1, kFloatsAtOnce / columns) : 1;
  std::vector<float> x(static_cast<size_t>(at_once * columns)), y(second ? x.size() : 0);
  for (int64_t cell = 0; cell < plan.height; ++cell) {
    check_interrupt("heat map");
    const Neighbours rows = plan.rows_of(cell);
    for (int64_t k = 0; k < rows.count; k += at_once) {
      const int64_t now = std::min(at_once, rows.count - k), row = rows.begin + k;
      if (together) {
        a.read(plan.begin_of(row), now * columns, x.data());
        if (b) b->read(plan.begin_of(row), now * columns, y.data());
      } else {
        read_row(a, plan, row, x.data());
        if (b) read_row(*b, plan, row, y.data());
      }
      for (int64_t i = 0; i < now; ++i) each(x.data() + i * columns, b ? y.data() + i * columns : nullptr);
    }
    end(cell);
  }
}

int64_t rows_of(const Tensor& tensor) {
  const int64_t columns = tensor.rank() ? tensor.dim(-1) : 1;
  return columns ? tensor.numel() / columns : 0;
}

}  // namespace

float HeatMap::limit() const {
  float most = 0;
  for (const float cell : cells)
    if (std::isfinite(cell)) most = std::max(most, std::fabs(cell));
  return most;
}

HeatMap heat_map(const Tensor& tensor, const MapWindow& window, int64_t height, int64_t width) {
  if (tensor.numel() == 0) return {};
  const CellPlan plan = plan_for(tensor, window, height, width);
  CellExtremes cells(plan);
  walk_cells(
      tensor, nullptr, plan, [&](const float* x, const float*) { cells.add(x); },
      [&](int64_t row) { cells.end_cells(row); });
  return std::move(cells).map(plan, rows_of(tensor));
}

HeatMaps heat_maps(const Tensor& reference, const Tensor& candidate, const MapWindow& window, int64_t height,
                   int64_t width) {
  if (reference.numel() == 0) return {};
  const CellPlan plan = plan_for(reference, window, height, width);
  CellExtremes r(plan), c(plan), d(plan);
  std::vector<float> difference(static_cast<size_t>(plan.read_columns()));
  walk_cells(
      reference, &candidate, plan,
      [&](const float* x, const float* y) {
        for (size_t j = 0; j < difference.size(); ++j)  // two infinities or two NaNs are the same
          difference[j] = x[j] == y[j] || (x[j] != x[j] && y[j] != y[j]) ? 0 : y[j] - x[j];
        r.add(x), c.add(y), d.add(difference.data());
      },
      [&](int64_t row) { r.end_cells(row), c.end_cells(row), d.end_cells(row); });
  const int64_t rows = rows_of(reference);
  return {std::move(r).map(plan, rows), std::move(c).map(plan, rows), std::move(d).map(plan, rows)};
}

}  // namespace lockstep
