#include "diagnose/rotary/rotary_recorded.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

bool sounds_rotary(const std::string& name) {
  std::string word;
  for (const char c : name + ".") {
    if (c != '_' && c != '.' && c != '-') {
      word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      continue;
    }
    if (word.find("rotary") != std::string::npos || word.find("rope") != std::string::npos || word == "freqs")
      return true;
    word.clear();
  }
  return name.find("pos_embed") != std::string::npos || name.find("position_embeddings") != std::string::npos;
}

// [.., tokens, pairs, 2]
RotaryTable complex_table(const Values& x) {
  RotaryTable out;
  out.pairs = x.dim(-2), out.rows = x.size() / 2 / std::max<int64_t>(1, out.pairs);
  for (size_t i = 0; i + 1 < x.v.size(); i += 2) out.cos.push_back(x.v[i]), out.sin.push_back(x.v[i + 1]);
  return out;
}

// Two of [.., tokens, d]
RotaryTable real_table(const Values& first, const Values& second) {
  const int64_t d = first.last(), rows = first.rank() == 3 ? first.dim(-2) : first.rows();
  RotaryTable out{{first.v.begin(), first.v.begin() + rows * d},
                  {second.v.begin(), second.v.begin() + rows * d},
                  rows,
                  d / 2,
                  true,
                  false};
  // cos begins with 1 at position 0, sin with 0: put them right if they came the other way round.
  double from_one = 0, other_from_one = 0;
  for (size_t j = 0; j < static_cast<size_t>(d); ++j)
    from_one += std::fabs(out.cos[j] - 1), other_from_one += std::fabs(out.sin[j] - 1);
  if (other_from_one < from_one) std::swap(out.cos, out.sin);
  const size_t last = static_cast<size_t>((rows - 1) * d);
  out.interleaved =
      d > 2 && out.cos[last] == out.cos[last + 1] && out.cos[last] != out.cos[last + static_cast<size_t>(d / 2)];
  return out;
}

}  // namespace

int64_t RotaryTable::column(int64_t pair, int64_t turned, const Turning& p) const {
  if (p.columns == Columns::kSpread) return pair * pairs / std::max<int64_t>(1, turned);
  if (p.columns == Columns::kReversed) return turned - 1 - pair;
  return p.columns == Columns::kLast ? pairs - turned + pair : pair;
}

double RotaryTable::step_of(int64_t first, int64_t width) const {
  if (rows < 3) return 0;
  const auto angle = [&](int64_t row) {
    const size_t at = static_cast<size_t>(row * width + first);
    return std::atan2(sin[at], cos[at]);
  };
  const double step = angle(1) - angle(0), next = angle(2) - angle(1);
  return std::fabs(std::remainder(next - step, 6.283185307179586)) < 1e-4 ? step : 0;
}

double RotaryTable::angle(int64_t row, int64_t pair) const {
  const size_t at =
      static_cast<size_t>(full_width ? row * 2 * pairs + (interleaved ? 2 * pair : pair) : row * pairs + pair);
  return std::atan2(sin[at], cos[at]);
}

bool RotaryTable::rotate(std::vector<double>& x, int64_t row, const Turning& p) const {
  const int64_t half = static_cast<int64_t>(x.size()) / 2;
  if (rows == 0 || pairs != half) return false;
  const int64_t beyond = row - std::clamp<int64_t>(row, 0, rows - 1);
  row -= beyond;
  const int64_t width = full_width ? 2 * pairs : pairs;
  const int64_t turned = static_cast<int64_t>(p.share * static_cast<double>(half));
  // Pairs reach over the whole head, or over the part that turns.
  const int64_t reach = p.own_pairs ? turned : half;
  const int64_t begin = !p.at_end                                             ? 0
                        : p.rotation == Rotation::kInterleaved || p.own_pairs ? 2 * (half - turned)
                                                                              : half - turned;
  const auto turn = [&](int64_t i) {
    // Tables of full width repeat each angle: side by side, or in the second half.
    const int64_t first = full_width && interleaved ? 2 * i : i;
    const size_t at = static_cast<size_t>(row * width + first);
    double c = cos[at], s = sin[at];
    if (beyond != 0) {
      const double angle = std::atan2(s, c) + static_cast<double>(beyond) * step_of(first, width);
      c = std::cos(angle), s = std::sin(angle);
    }
    if (p.turns != 1 || p.from_zero) {
      const size_t zero = static_cast<size_t>(first);
      const double angle = p.turns * (std::atan2(s, c) - (p.from_zero ? std::atan2(sin[zero], cos[zero]) : 0));
      c = std::cos(angle), s = std::sin(angle);
    }
    c = in_format(c, p.held), s = in_format(s, p.held);
    if (p.cos_sin) std::swap(c, s);
    return std::pair(c, p.cos_alone ? 0 : p.sign * s);
  };
  for (int64_t i = 0; i < turned; ++i) {
    int64_t a = begin + (p.rotation == Rotation::kInterleaved ? 2 * i : i);
    int64_t b = p.rotation == Rotation::kInterleaved ? a + 1 : a + reach;
    for (const PairBlock& block : p.halved)
      if (i >= block.first && i < block.first + block.count) a = block.first + i, b = a + block.count;
    const auto of_other = [&](int64_t at) { return p.rotation == Rotation::kInterleaved ? at % half : at / 2; };
    const int64_t own = column(i, turned, p);
    const auto [ca, sa] = turn(p.mixed ? of_other(a) : own);
    const auto [cb, sb] = p.mixed ? turn(of_other(b)) : std::pair(ca, sa);
    const double x0 = x[static_cast<size_t>(a)], x1 = x[static_cast<size_t>(b)];
    x[static_cast<size_t>(a)] = p.plus ? x0 * ca + x1 * sa : x0 * ca - x1 * sa;
    x[static_cast<size_t>(b)] = x0 * sb + x1 * cb;
  }
  return true;
}

std::vector<RotaryTable> recorded_tables(Case& failing, bool candidate, size_t before) {
  // Complex tables are recorded as [tokens, pairs, 2]; cos and sin as two tensors of [.., tokens, d].
  const RunView& run = failing.reference_run();
  std::vector<const Values*> found;
  for (size_t i = before, seen = 0; i-- > 0 && found.size() < 4 && seen < 3000; ++seen) {
    const RecordedTensor& record = run.records[i];
    const TensorKey& key = run.records[before].key;
    if (!sounds_rotary(record.key.name) || !record.load || record.key.tags != key.tags || record.key.step != key.step)
      continue;
    if (record.shape.size() < 2) continue;
    const size_t partner = failing.partner ? failing.partner(i) : SIZE_MAX;
    const Values* values =
        candidate && partner != SIZE_MAX ? &failing.load_candidate(partner) : &failing.load_reference(i);
    if (values->empty()) continue;
    const bool repeated = std::any_of(found.begin(), found.end(), [&](const Values* t) { return t->v == values->v; });
    if (!repeated) found.push_back(values);
  }
  std::vector<RotaryTable> out;
  for (const Values* table : found)
    if (table->last() == 2 && table->rank() >= 3) out.push_back(complex_table(*table));
  for (size_t i = 0; i + 1 < found.size(); ++i) {
    const Values *a = found[i + 1], *b = found[i];  // latest first: sin was recorded after cos
    if (a->shape == b->shape && a->last() > 2 && a->last() % 2 == 0) out.push_back(real_table(*a, *b));
  }
  return out;
}

RotaryTable standard_table(int64_t rows, int64_t pairs, double theta) {
  RotaryTable table;
  table.rows = rows, table.pairs = pairs;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < pairs; ++i) {
      // In f32, as programs compute it: at large positions the rounding of the frequency shows.
      const float frequency =
          1 / std::pow(static_cast<float>(theta), static_cast<float>(i) / static_cast<float>(pairs));
      const float angle = static_cast<float>(row) * frequency;
      table.cos.push_back(std::cos(angle)), table.sin.push_back(std::sin(angle));
    }
  return table;
}

}  // namespace lockstep
