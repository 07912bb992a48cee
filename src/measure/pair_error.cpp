#include "measure/pair_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int64_t kBlock = 1 << 16;      // elements converted at a time
constexpr int64_t kMaxSlices = 1 << 16;  // rows beyond this are folded into groups
constexpr int64_t kMaxChannels = 1 << 15;

struct Sums {
  double dd = 0, rr = 0, cc = 0, rc = 0, d1 = 0, max_abs = 0;
  int64_t at = 0, nan_r = 0, nan_c = 0, inf_r = 0, inf_c = 0, one_sided = 0;
};

// A contiguous run of whole rows; the innermost loop must stay free of branches so that it vectorises.
void add_row(const float* c, const float* r, int64_t n, int64_t offset, Sums& sums, double& row_dd, double& row_rr,
             double* channel_dd, double* channel_rr) {
  double dd = 0, rr = 0, cc = 0, rc = 0, d1 = 0, largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double x = c[j], y = r[j], d = x - y, a = std::fabs(d);
    dd += d * d, rr += y * y, cc += x * x, rc += x * y, d1 += a;
    largest = a > largest ? a : largest;
  }
  if (!std::isfinite(dd + rr + cc)) {  // rare: count and leave the odd ones out
    dd = rr = cc = rc = d1 = largest = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double x = c[j], y = r[j];
      sums.nan_c += std::isnan(x), sums.nan_r += std::isnan(y);
      sums.inf_c += std::isinf(x), sums.inf_r += std::isinf(y);
      if (!std::isfinite(x) || !std::isfinite(y)) {
        sums.one_sided += !((std::isnan(x) && std::isnan(y)) || x == y);
        continue;
      }
      const double d = x - y, a = std::fabs(d);
      dd += d * d, rr += y * y, cc += x * x, rc += x * y, d1 += a;
      if (a > largest) largest = a;
    }
  } else if (channel_dd) {
    for (int64_t j = 0; j < n; ++j) {
      const double d = static_cast<double>(c[j]) - r[j];
      channel_dd[j] += d * d;
      channel_rr[j] += static_cast<double>(r[j]) * r[j];
    }
  }
  if (largest > sums.max_abs) {
    sums.max_abs = largest;
    for (int64_t j = 0; j < n; ++j)
      if (std::fabs(static_cast<double>(c[j]) - r[j]) == largest) {
        sums.at = offset + j;
        break;
      }
  }
  sums.dd += dd, sums.rr += rr, sums.cc += cc, sums.rc += rc, sums.d1 += d1;
  row_dd += dd, row_rr += rr;
}

double worst_slice(const std::vector<double>& dd, const std::vector<double>& rr, double total_rr) {
  if (dd.size() < 2) return 0;
  const double least = 0.0625 * total_rr / static_cast<double>(dd.size());  // a quarter of the average rms
  double worst = 0;
  for (size_t i = 0; i < dd.size(); ++i) {
    const double base = std::max(rr[i], least);
    if (base > 0) worst = std::max(worst, dd[i] / base);
  }
  return std::sqrt(worst);
}

}  // namespace

PairError pair_error(const Tensor& candidate, const Tensor& reference) {
  if (candidate.shape() != reference.shape())
    fail(Code::kBadInput, "compare", "the shapes differ",
         {.expected = to_string(reference.shape()), .got = to_string(candidate.shape())});
  const Tensor c = candidate.contiguous(), r = reference.contiguous();
  PairError out;
  const int64_t count = r.numel();
  if (count == 0) {
    out.identical = true;
    return out;
  }
  if (c.dtype() == r.dtype()) {
    const auto a = c.contiguous_bytes(), b = r.contiguous_bytes();
    out.identical = std::memcmp(a.data(), b.data(), a.size()) == 0;
  }
  const int64_t width = r.shape().empty() ? 1 : std::max<int64_t>(r.shape().back(), 1), rows = count / width;
  const int64_t group = (rows + kMaxSlices - 1) / kMaxSlices, groups = (rows + group - 1) / group;
  const bool channels = width <= kMaxChannels && rows > 1;
  std::vector<double> row_dd(static_cast<size_t>(groups)), row_rr(static_cast<size_t>(groups));
  std::vector<double> channel_dd(channels ? static_cast<size_t>(width) : 0), channel_rr(channel_dd.size());
  Sums total;
  std::mutex merging;
  const size_t bytes_c = dtype_bytes(c.dtype()), bytes_r = dtype_bytes(r.dtype());
  const std::byte *data_c = c.contiguous_bytes().data(), *data_r = r.contiguous_bytes().data();
  const int64_t rows_at_once = std::max<int64_t>(1, kBlock / width / group) * group;
  const int64_t blocks = (rows + rows_at_once - 1) / rows_at_once;
#pragma omp parallel if (count > (1 << 20))
  {
    Sums mine;
    std::vector<float> buffer_c(static_cast<size_t>(std::min(rows_at_once, rows) * width)), buffer_r(buffer_c.size());
    std::vector<double> my_dd(channel_dd.size()), my_rr(channel_dd.size());
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * rows_at_once, end = std::min(rows, begin + rows_at_once);
      const int64_t n = (end - begin) * width, offset = begin * width;
      convert_elements(data_c + static_cast<size_t>(offset) * bytes_c, c.dtype(), buffer_c.data(), DType::kF32, n);
      convert_elements(data_r + static_cast<size_t>(offset) * bytes_r, r.dtype(), buffer_r.data(), DType::kF32, n);
      for (int64_t row = begin; row < end; ++row)
        add_row(buffer_c.data() + (row - begin) * width, buffer_r.data() + (row - begin) * width, width, row * width,
                mine, row_dd[static_cast<size_t>(row / group)], row_rr[static_cast<size_t>(row / group)],
                channels ? my_dd.data() : nullptr, my_rr.data());
    }
    const std::lock_guard lock(merging);
    if (mine.max_abs > total.max_abs) total.max_abs = mine.max_abs, total.at = mine.at;
    total.dd += mine.dd, total.rr += mine.rr, total.cc += mine.cc, total.rc += mine.rc, total.d1 += mine.d1;
    total.nan_r += mine.nan_r, total.nan_c += mine.nan_c, total.inf_r += mine.inf_r, total.inf_c += mine.inf_c;
    total.one_sided += mine.one_sided;
    for (size_t j = 0; j < channel_dd.size(); ++j) channel_dd[j] += my_dd[j], channel_rr[j] += my_rr[j];
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double n = static_cast<double>(count);
  out.relative = total.dd == 0 ? 0 : total.rr == 0 ? kInfinity : std::sqrt(total.dd / total.rr);
  if (total.one_sided) out.relative = kInfinity;
  out.worst_slice = std::max(worst_slice(row_dd, row_rr, total.rr), worst_slice(channel_dd, channel_rr, total.rr));
  out.max_abs = total.max_abs, out.max_abs_at = total.at, out.mean_abs = total.d1 / n;
  const double norms = std::sqrt(total.rr) * std::sqrt(total.cc);
  out.cosine = norms > 0 ? std::min(1.0, total.rc / norms) : total.rr == total.cc ? 1 : 0;
  out.rms_reference = std::sqrt(total.rr / n), out.rms_candidate = std::sqrt(total.cc / n);
  out.nan_reference = total.nan_r, out.nan_candidate = total.nan_c;
  out.inf_reference = total.inf_r, out.inf_candidate = total.inf_c;
  return out;
}

}  // namespace lockstep
