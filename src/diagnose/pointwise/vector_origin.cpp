#include "diagnose/pointwise/vector_origin.h"
#include "diagnose/case/thresholds.h"
#include "measure/residual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep {
namespace {

constexpr int64_t kFewestRead = 16;      // channels: fewer are found anywhere
constexpr int64_t kLongest = 1 << 17;    // of a source
constexpr size_t kMostLongVectors = 64;  // recorded vectors that are read
constexpr size_t kMostCheckpoint = 800;  // vectors of the checkpoint
constexpr size_t kFirstLook = 8;         // channels that rule most pairs out

// How `channels` numbers may lie in a vector of `length` that holds them several times. Windows may begin anywhere;
// readings along another axis begin where that axis does.
std::vector<VectorReading> readings(size_t source, int64_t channels, int64_t length) {
  const int64_t parts = length / channels;
  std::vector<VectorReading> out;
  const auto add = [&](int64_t start, int64_t stride, int64_t run, int64_t jump, int64_t wrap) {
    out.push_back({source, start, stride, run, jump, wrap, 1, 0, INFINITY});
  };
  for (int64_t part = 0; part < parts; ++part) add(part * channels, 1, channels, 0, length);
  for (int64_t p = 2; p <= parts; ++p)  // the parts are the innermost axis, of all or of a share of them
    for (int64_t start = 0; start < length && parts % p == 0; ++start)
      if (start % (p * channels) < p) add(start, p, channels, 0, length);
  for (int64_t d = 2; d <= channels / 2; ++d) {
    if (channels % d) continue;
    for (int64_t part = 0; part < parts; ++part) {
      if (parts > 1 && d >= 4) add(part * d, 1, d, parts * d, length);  // the parts lie within each head
      add(part * channels, channels / d, d, 1, length);                 // [a, b] for [b, a]
    }
  }
  for (int64_t start = 0; start < length; ++start) {
    add(start, 1, channels, 0, length);
    add(start, -1, channels, 0, length);
    add(start, 1, channels, 0, channels);  // a part rolled within itself
  }
  return out;
}

}  // namespace

VectorSources::VectorSources(Case& failing, int64_t channels) : channels_(channels) {
  const RunView& run = failing.reference_run();
  const int64_t worst = worst_item(failing);
  const size_t own = failing.reference_record();
  std::vector<size_t> order;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (i == own || !record.load || !is_floating(record.dtype) || record.shape.empty()) continue;
    const int64_t last = record.shape.back(), count = checked_numel(record.shape);
    if (last < channels || last % channels || last > kLongest || count > 8 * last) continue;
    order.push_back(i);
  }
  // Those of the same call first, the latest first; then other steps and blocks.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto key = [&](size_t i) { return std::pair(!same_call(run, i, own), i > own ? i : own - i); };
    return key(a) < key(b);
  });
  std::set<std::string> seen;
  for (const size_t i : order) {
    if (sources_.size() >= kMostLongVectors) break;
    const RecordedTensor& record = run.records[i];
    if (!record.checksum.empty() && !seen.insert(record.checksum).second) continue;
    const Values& values = failing.load_reference(i);
    const int64_t last = record.shape.back(), rows = values.size() / last;
    const int64_t first = rows > 1 && rows == failing.r.shape[0] ? worst : 0;
    for (int64_t row = 0; row < rows; ++row) {  // the item that is looked at, then the others of the batch
      const int64_t taken = (first + row) % rows;
      const auto begin = values.v.begin() + taken * last;
      sources_.push_back({to_string(record.key) + (rows > 1 ? fmt::format(" (item {})", taken) : ""),
                          std::vector<float>(begin, begin + last)});
    }
  }
}

std::optional<VectorReading> VectorSources::find(const std::vector<double>& wanted) const {
  if (channels_ < kFewestRead || static_cast<int64_t>(wanted.size()) != channels_) return std::nullopt;
  double sum = 0, squares = 0;
  for (const double value : wanted) sum += value, squares += value * value;
  const double n = static_cast<double>(channels_), spread = std::sqrt(std::max(0.0, squares / n - sum * sum / n / n));
  if (!(spread > 1e-3 * std::sqrt(squares / n))) return std::nullopt;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const std::vector<float>& v = sources_[s].v;
    double most = kReadingLimit * kReadingLimit * spread * spread * n;
    std::optional<VectorReading> best;  // of a source: readings that are nearly the same differ in a channel or two
    for (VectorReading reading : readings(s, channels_, static_cast<int64_t>(v.size())))
      for (const std::pair<double, double>& form : {std::pair{1.0, 1.0}, {1.0, 0.0}, {-1.0, 0.0}}) {
        reading.sign = form.first, reading.offset = form.second;
        const auto misfit = [&](int64_t begin, int64_t end, double limit) {
          double dd = 0;
          for (int64_t j = begin; j < end && dd <= limit; ++j) {
            const double value = reading.offset + reading.sign * v[static_cast<size_t>(reading.at(j))];
            dd += (value - wanted[static_cast<size_t>(j)]) * (value - wanted[static_cast<size_t>(j)]);
          }
          return dd;
        };
        const int64_t few = static_cast<int64_t>(kFirstLook);
        if (misfit(0, few, kReadingFarOff * spread * spread) > kReadingFarOff * spread * spread)
          continue;  // most are, at once
        const double dd = misfit(0, channels_, most);
        if (dd > most || (best && dd >= most)) continue;
        reading.residual = std::sqrt(dd / n) / spread;
        best = reading, most = dd;
      }
    if (best) return best;
  }
  return std::nullopt;
}

std::vector<float> VectorSources::values(const VectorReading& reading) const {
  std::vector<float> out;
  for (int64_t j = 0; j < channels_; ++j) out.push_back(sources_[reading.source].v[static_cast<size_t>(reading.at(j))]);
  return out;
}

std::string VectorSources::words(const VectorReading& reading) const {
  const LongVector& source = sources_[reading.source];
  const int64_t length = static_cast<int64_t>(source.v.size()), parts = length / channels_;
  if (reading.run == channels_ && reading.stride == 1)
    return reading.start % channels_ == 0
               ? (parts == 1 ? source.name
                             : fmt::format("{}[part {} of {}]", source.name, reading.start / channels_ + 1, parts))
               : fmt::format("{} from element {} on", source.name, reading.start);
  if (reading.run == channels_ && reading.stride == -1) return fmt::format("{} in reverse", source.name);
  if (reading.run == channels_)
    return fmt::format("every {} element of {} from {} on", ordinal(static_cast<size_t>(reading.stride)), source.name,
                       reading.start);
  return fmt::format("{} from element {} on, in {} steps of {} that lie {} apart", source.name, reading.start,
                     reading.run, reading.stride, reading.jump);
}

namespace {

struct OriginVector {
  std::string name;
  std::vector<float> v;
  bool recorded = false, near = false;  // near: it belongs to the same caller or block
};

enum class VectorForm { kNone, kPlain, kOnePlus };

double of(VectorForm form, const OriginVector* v, size_t channel) {
  return form == VectorForm::kNone ? 1 : v->v[channel] + (form == VectorForm::kOnePlus ? 1.0 : 0.0);
}

std::string words(VectorForm form, const OriginVector* v) {
  return form == VectorForm::kNone ? "1" : form == VectorForm::kOnePlus ? "(1 + " + v->name + ")" : v->name;
}

// "transformer.blocks.1" of "transformer.blocks.1.attn.to_q": what is repeated is where a port takes the wrong one.
std::string block_of(std::string name) {
  while (!name.empty() && leaf_of(name).find_first_not_of("0123456789") != std::string::npos) name = parent_of(name);
  return name;
}

std::vector<OriginVector> known_vectors(Case& failing, int64_t channels) {
  std::vector<OriginVector> out;
  std::set<std::string> names;
  for (const NamedVector& word : vector_dictionary(failing, channels)) {
    const bool recorded = !failing.weights_r || !failing.weights_r->shapes().contains(word.name);
    if (names.insert(word.name).second) out.push_back({word.name, word.c, recorded, true});
  }
  if (!failing.weights_r) return out;
  const std::string block = block_of(failing.module);
  size_t loads = 0;
  for (const auto& [name, shape] : failing.weights_r->shapes()) {
    if (checked_numel(shape) != channels || !names.insert(name).second || ++loads > kMostCheckpoint) continue;
    if (const auto values = failing.weight_r(name))
      out.push_back({name, values->v, false, !block.empty() && is_inside(name, block)});
  }
  return out;
}

struct Ratio {
  const OriginVector *over = nullptr, *under = nullptr;
  VectorForm over_form = VectorForm::kNone, under_form = VectorForm::kNone;
  double error = INFINITY;
  int cost() const { return (over ? 1 : 0) + (under ? 1 : 0); }
};

// a * under = over.
Ratio find_ratio(const std::vector<double>& a, const std::vector<OriginVector>& known, double limit) {
  Ratio best;
  const size_t n = a.size();
  const auto consider = [&](const OriginVector* over, VectorForm over_form, const OriginVector* under,
                            VectorForm under_form) {
    if (!over && !under) return;
    if (over && under && (over->recorded != under->recorded || (over == under && over_form == under_form))) return;
    Residual apart;
    for (size_t j = 0; j < n; ++j) {
      const double y = of(over_form, over, j), d = a[j] * of(under_form, under, j) - y;
      apart.add_squares(d * d, y * y);
      if (j + 1 == std::min(kFirstLook, n) && apart.is_beyond(4 * limit)) return;
    }
    const double error = apart.relative();
    Ratio next{over, under, over_form, under_form, error};
    if (error > limit) return;
    // Fewer vectors first; of equally many the one that leaves less by far, then the nearer one.
    const bool better =
        best.error == INFINITY || next.cost() < best.cost() || (next.cost() == best.cost() && error < 0.5 * best.error);
    if (better) best = next;
  };
  const VectorForm forms[] = {VectorForm::kPlain, VectorForm::kOnePlus};
  for (const OriginVector& v : known)
    for (const VectorForm form : forms) {
      consider(&v, form, nullptr, VectorForm::kNone);
      consider(nullptr, VectorForm::kNone, &v, form);
    }
  if (best.error < INFINITY) return best;
  for (const OriginVector& under : known) {
    if (!under.near) continue;  // what the reference used belongs to the place; what yours used may be anyone's
    for (const OriginVector& over : known)
      for (const VectorForm over_form : forms)
        for (const VectorForm under_form : forms) consider(&over, over_form, &under, under_form);
  }
  return best;
}

struct Difference {
  const OriginVector *added = nullptr, *taken = nullptr;
  double error = INFINITY;
};

// b = added - a * taken.
Difference find_difference(const std::vector<double>& a, const std::vector<double>& b,
                           const std::vector<OriginVector>& known, double limit) {
  Difference best;
  const auto consider = [&](const OriginVector* added, const OriginVector* taken) {
    if (added == taken || (added && taken && added->recorded != taken->recorded)) return;
    Residual apart;
    for (size_t j = 0; j < b.size(); ++j) {
      const double d = (added ? added->v[j] : 0.0) - (taken ? a[j] * taken->v[j] : 0.0) - b[j];
      apart.add_squares(d * d, b[j] * b[j]);
      if (j + 1 == std::min(kFirstLook, b.size()) && apart.is_beyond(4 * limit)) return;
    }
    const double error = apart.relative();
    if (error <= limit && error < 0.5 * best.error) best = {added, taken, error};
  };
  for (const OriginVector& v : known) consider(&v, nullptr), consider(nullptr, &v);
  if (best.error < INFINITY) return best;
  for (const OriginVector& taken : known)
    if (taken.near)
      for (const OriginVector& added : known) consider(&added, &taken);
  return best;
}

bool is_bias(const OriginVector& v) {
  return !v.recorded && leaf_of(v.name) == "bias";
}

// What a ratio of vectors is called.
Cause name_of(const Ratio& ratio) {
  const OriginVector& any = ratio.over ? *ratio.over : *ratio.under;
  if (!any.recorded) {
    if (!ratio.over)
      return ratio.under_form == VectorForm::kOnePlus ? Cause("norm.one_plus_weight") : Cause("norm.weight_missing");
    if (!ratio.under) return any.near ? Cause("norm.weight_use") : Cause("norm.weight_added");
    return ratio.over == ratio.under ? Cause("norm.one_plus_weight") : Cause("norm.other_weight");
  }
  const bool scale = (ratio.over && ratio.over_form == VectorForm::kOnePlus) ||
                     (ratio.under && ratio.under_form == VectorForm::kOnePlus);
  if (!ratio.over) return scale ? Cause("modulate.scale_missing") : Cause("gate.missing");
  if (!ratio.under) return scale ? Cause("modulate.added") : Cause("gate.added");
  if (ratio.over == ratio.under)
    return ratio.over_form == VectorForm::kPlain ? Cause("modulate.one_plus_missing") : Cause("gate.form");
  return scale ? Cause("modulate.other_part") : Cause("gate.other_part");
}

Cause name_of(const Difference& difference) {
  const OriginVector& any = difference.added ? *difference.added : *difference.taken;
  if (any.recorded)
    return !difference.added   ? Cause("modulate.shift_missing")
           : !difference.taken ? Cause("modulate.shift")
                               : Cause("modulate.other_part");
  if (!difference.added) return is_bias(any) ? Cause("linear.bias_missing") : Cause("affine.channel_offset");
  return is_bias(any) ? Cause("linear.other_bias") : Cause("affine.channel_offset");
}

// y (1 + scale) + shift with the two in each other's place.
bool is_exchange(const Ratio& ratio, const Difference& difference) {
  return ratio.over && ratio.under && difference.added && difference.taken && ratio.over_form == VectorForm::kOnePlus &&
         ratio.under_form == VectorForm::kOnePlus && ratio.over->name == difference.taken->name &&
         ratio.under->name == difference.added->name;
}

std::string formula_of(const Ratio& ratio, const Difference& difference) {
  std::string out = "y";
  if (ratio.over || ratio.under) {
    out += " * " + words(ratio.over_form, ratio.over);
    if (ratio.under) out += " / " + words(ratio.under_form, ratio.under);
  }
  if (difference.taken)
    out += fmt::format(" - {}{}", difference.taken->name, ratio.over || ratio.under ? " times that factor" : "");
  if (difference.added) out += " + " + difference.added->name;
  return out;
}

}  // namespace

std::optional<Finding> origin_of(Case& failing, const ChannelRelation& relation) {
  const size_t n = relation.a.size();
  if (n < 4) return std::nullopt;
  const std::vector<OriginVector> known = known_vectors(failing, static_cast<int64_t>(n));
  if (known.empty()) return std::nullopt;
  double away = 0;  // how far the factors are from 1: what an origin leaves must be small against it
  for (const double value : relation.a) away += (value - 1) * (value - 1);
  away = std::sqrt(away / static_cast<double>(n));
  const double fine = std::max(20 * failing.tolerance, 5e-4);
  Ratio ratio;
  if (relation.has_factor) {
    ratio = find_ratio(relation.a, known, std::min(fine, 0.05 * away));
    if (ratio.error == INFINITY) return std::nullopt;
  }
  Difference difference;
  if (relation.has_offset) {
    difference = find_difference(relation.a, relation.b, known, std::max(fine, 5e-3));
    if (difference.error == INFINITY) return std::nullopt;
  }
  const bool factor = relation.has_factor;
  const Cause cause = factor ? name_of(ratio) : name_of(difference);
  if (cause.is_effect()) return std::nullopt;
  if (is_exchange(ratio, difference))
    return Finding{
        .cause = "modulate.shift_scale_exchanged",
        .explanation = fmt::format("reference: y; yours, channel by channel: {}", formula_of(ratio, difference)),
        .fix = fmt::format("exchange shift and scale: multiply by (1 + {}) and add {}", ratio.under->name,
                           difference.taken->name),
        .residual = relation.residual,
        .complexity = 1.6};
  // The factor and the offset of one place moved alike.
  if (factor && relation.has_offset && cause == "norm.other_weight" && !(difference.added && difference.taken))
    return std::nullopt;
  const bool weights = failing.is_leaf && failing.role == Role::kOutput && cause == "norm.other_weight";
  const OriginVector* right = factor ? ratio.under : difference.taken;
  const OriginVector* used = factor ? ratio.over : difference.added;
  std::string fix = right && used ? fmt::format("use {} here, not {}", right->name, used->name)
                    : right       ? fmt::format("apply {} once, as the reference does", right->name)
                                  : fmt::format("{} does not belong here, or once less", used->name);
  return Finding{
      .cause = cause,
      .explanation = fmt::format("reference: y; yours, channel by channel: {}", formula_of(ratio, difference)),
      .fix = std::move(fix),
      .residual = relation.residual,
      .complexity = 1.6,
      .blame = weights ? Blame::kWeights : Blame::kNone};
}

}  // namespace lockstep
