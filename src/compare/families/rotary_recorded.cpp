#include "compare/families/rotary_recorded.h"

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

bool RotaryTable::rotate(std::vector<double>& x, int64_t row, Rotation rotation, int sign, bool exchanged, double share,
                         double turns, bool from_zero) const {
  const int64_t half = static_cast<int64_t>(x.size()) / 2;
  if (rows == 0 || pairs != half) return false;
  row = std::clamp<int64_t>(row, 0, rows - 1);
  const int64_t width = full_width ? 2 * pairs : pairs;
  const int64_t turned = static_cast<int64_t>(share * static_cast<double>(half));
  for (int64_t i = 0; i < turned; ++i) {
    // Tables of full width repeat each angle: side by side, or in the second half.
    const size_t at = static_cast<size_t>(row * width + (full_width && interleaved ? 2 * i : i));
    const size_t a = static_cast<size_t>(rotation == Rotation::kInterleaved ? 2 * i : i);
    const size_t b = static_cast<size_t>(rotation == Rotation::kInterleaved ? 2 * i + 1 : i + half);
    double turn_c = cos[at], turn_s = sin[at];
    if (turns != 1 || from_zero) {
      const size_t first = at - static_cast<size_t>(row * width);
      const double start = from_zero ? std::atan2(sin[first], cos[first]) : 0;
      const double angle = turns * (std::atan2(turn_s, turn_c) - start);
      turn_c = std::cos(angle), turn_s = std::sin(angle);
    }
    const double c = exchanged ? turn_s : turn_c, s = sign * (exchanged ? turn_c : turn_s), x0 = x[a], x1 = x[b];
    x[a] = x0 * c - x1 * s;
    x[b] = x0 * s + x1 * c;
  }
  return true;
}

std::vector<RotaryTable> recorded_tables(Case& failing, bool candidate) {
  // Complex tables are recorded as [tokens, pairs, 2]; cos and sin as two tensors of [.., tokens, d].
  const RunView& run = failing.reference_run();
  std::vector<const Values*> found;
  for (size_t i = failing.reference_record(), seen = 0; i-- > 0 && found.size() < 4 && seen < 3000; ++seen) {
    const RecordedTensor& record = run.records[i];
    const TensorKey& key = run.records[failing.reference_record()].key;
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

}  // namespace lockstep
