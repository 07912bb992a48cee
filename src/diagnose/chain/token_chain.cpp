#include "diagnose/chain/token_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/norm/norm_form.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/functions.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {

struct TokenChain::Norm {
  size_t span = 1;  // elements normed together
  NormParams params;
  std::vector<float> weight, bias;

  Tokens operator()(const Tokens& x) const {
    Tokens out = x;
    if (params.kind == NormKind::kNone) return out;
    for (size_t at = 0; at + span <= x.v.size(); at += span) {
      normalise(&out.v[at], static_cast<int64_t>(span), 1, params);
      for (size_t i = 0; i < span; ++i) {
        double& y = out.v[at + i];
        if (!weight.empty()) y *= weight[i % weight.size()];
        if (!bias.empty()) y += bias[i % bias.size()];
      }
    }
    return out;
  }
};

namespace {

constexpr int64_t kMostTokens = 12;
constexpr size_t kMostSteps = 10, kMostSources = 24, kMostTerms = 8, kMostVectors = 24;
constexpr int64_t kMostWeight = int64_t{1} << 27;

Tokens each(const Tokens& x, const std::function<double(double, size_t)>& f) {
  Tokens out = x;
  const size_t width = static_cast<size_t>(x.width);
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] = f(x.v[i], i % width);
  return out;
}

Tokens linear(const Tokens& x, const Values& weight, const std::vector<float>& bias) {
  const size_t k = static_cast<size_t>(weight.last()), n = static_cast<size_t>(weight.rows()), count = x.v.size() / k;
  Tokens out{static_cast<int64_t>(n), std::vector<double>(count * n)};
  for (size_t i = 0; i < n; ++i)
    for (size_t t = 0; t < count; ++t) {
      double sum = bias.empty() ? 0 : bias[i];
      const float* w = weight.v.data() + i * k;
      for (size_t j = 0; j < k; ++j) sum += x.v[t * k + j] * w[j];
      out.v[t * n + i] = sum;
    }
  return out;
}

// y = a[channel] x + b[channel].
Tokens modulated(const Tokens& x, const std::vector<double>& a, const std::vector<double>& b) {
  return each(x, [&](double value, size_t c) { return a[c] * value + b[c]; });
}

Tokens sum(const Tokens& stream, const Tokens& branch, const std::vector<double>& gate, double sign = 1) {
  Tokens out = stream;
  for (size_t i = 0; i < out.v.size(); ++i) out.v[i] += sign * gate[i % gate.size()] * branch.v[i];
  return out;
}

}  // namespace

double distance(const Tokens& a, const Tokens& b) {
  if (a.v.size() != b.v.size()) return INFINITY;
  Residual apart;
  for (size_t i = 0; i < b.v.size(); ++i) apart.add(a.v[i], b.v[i]);
  return apart.relative();
}

TokenChain::TokenChain(Case& failing) : failing_(failing) {
  tokens_ = failing.r.rows();
  if (tokens_ == 0) return;
  sample_ = sample_indices(tokens_, kMostTokens);
  bad_r_ = tokens_of(failing.r), bad_c_ = tokens_of(failing.c);
  const RunView& run = failing.reference_run();
  size_t at = first_with_these_values(run, failing.reference_record());
  for (start_ = at; steps_.size() < kMostSteps; at = start_) {
    if (!add_step(at)) return;
    start_ = first_with_these_values(run, start_);
    if (failing.partner(start_) != SIZE_MAX) return;  // the candidate's own, and good: it came before the bad one
  }
}

Tokens TokenChain::tokens_of(const Values& x) const {
  Tokens out{x.size() / tokens_, {}};
  for (const int64_t token : sample_)
    out.v.insert(out.v.end(), x.v.begin() + token * out.width, x.v.begin() + (token + 1) * out.width);
  return out;
}

// Only the sampled rows are read: whole tensors of a large model would not fit.
Tokens TokenChain::tokens_of(size_t record) const {
  const Tensor whole = failing_.reference_run().records[record].load().contiguous();
  Tokens out{whole.numel() / tokens_, {}};
  const Tensor rows = whole.reshape({tokens_, out.width});
  for (const int64_t token : sample_) {
    const Values row = values_from(rows.slice(0, token, token + 1));
    out.v.insert(out.v.end(), row.v.begin(), row.v.end());
  }
  return out;
}

bool TokenChain::fits(size_t record, int64_t width) const {
  const RecordedTensor& tensor = failing_.reference_run().records[record];
  if (!tensor.load || !is_floating(tensor.dtype)) return false;
  const int64_t size = checked_numel(tensor.shape);
  return size > 0 && size % tokens_ == 0 && (width == 0 || size / tokens_ == width);
}

std::string TokenChain::name_of(size_t record) const {
  const RecordedTensor& tensor = failing_.reference_run().records[record];
  return (tensor.role == Role::kInput ? "input " : "") + tensor.key.name;
}

// What a module was given; for what lies between modules, everything made before it in the same call, latest first.
std::vector<size_t> TokenChain::sources_of(size_t record, int64_t width) const {
  const RunView& run = failing_.reference_run();
  const Structure& structure = failing_.structure();
  const std::string& module = structure.site(record).module;
  const bool inside = run.records[record].role == Role::kOutput && structure.is_container(module);
  std::vector<size_t> out;
  const auto add = [&](size_t i) {
    if (i >= record || out.size() >= kMostSources || !fits(i, width)) return;
    if (run.records[i].checksum == run.records[record].checksum && !run.records[i].checksum.empty()) return;
    const bool repeated = std::any_of(out.begin(), out.end(), [&](size_t other) {
      return !run.records[i].checksum.empty() && run.records[other].checksum == run.records[i].checksum;
    });
    if (!repeated) out.push_back(i);
  };
  if (module.empty()) return out;
  if (run.records[record].role == Role::kOutput)
    for (const size_t i : structure.records_of(module, Role::kInput, record)) add(i);
  if (!out.empty() && !inside) return out;
  const std::string scope = inside ? module : parent_of(module);
  // What the caller was given first: a residual adds to it, and much may have run since.
  for (std::string up = scope; !up.empty() && out.empty(); up = parent_of(up))
    for (const size_t i : structure.records_of(up, Role::kInput, record)) add(i);
  for (const size_t i : structure.records_inside(scope, record)) add(i);
  return out;
}

bool TokenChain::keep(size_t record, size_t source, std::string formula, std::function<Tokens(const Tokens&)> apply) {
  ChainStep step{record, std::move(formula), tokens_of(source), std::move(apply), 0, {}};
  step.work = static_cast<int64_t>(step.source.v.size());
  const double misfit = distance(step.apply(step.source), tokens_of(record));
  if (!failing_.explains(misfit)) return false;
  steps_.push_back(std::move(step));
  start_ = source;
  return true;
}

bool TokenChain::add_step(size_t record) {
  const RunView& run = failing_.reference_run();
  const Structure& structure = failing_.structure();
  if (!fits(record, 0)) return false;
  const std::string& module = structure.site(record).module;
  const int64_t width = checked_numel(run.records[record].shape) / tokens_;
  if (run.records[record].role == Role::kOutput && !structure.is_container(module))
    for (const size_t source : sources_of(record, 0))
      if (add_linear(record, source)) return true;
  const std::vector<size_t> sources = sources_of(record, width);
  for (const size_t source : sources)
    if (add_function(record, source) || add_norm(record, source)) return true;
  for (const size_t source : sources)
    if (add_modulation(record, source)) return true;
  const size_t terms = std::min(sources.size(), kMostTerms);
  for (size_t i = 0; i < terms; ++i)
    for (size_t j = 0; j < terms; ++j)
      if (i != j && (add_residual(record, sources[i], sources[j]) || add_product(record, sources[i], sources[j])))
        return true;
  return false;
}

bool TokenChain::add_linear(size_t record, size_t source) {
  const std::string& module = failing_.structure().site(record).module;
  const auto& weights = failing_.weights_c ? failing_.weights_c : failing_.weights_r;
  if (!weights) return false;
  const auto known = weights->shapes().find(module + ".weight");
  if (known == weights->shapes().end()) return false;
  const Shape& shape = known->second;  // looked at first: a source that cannot be its input costs no reading
  if (shape.size() != 2 || shape[0] * shape[1] > kMostWeight || !fits(source, shape[1]) || !fits(record, shape[0]))
    return false;
  const auto weight = failing_.weight_c(module + ".weight");
  if (!weight) return false;
  const auto bias = failing_.weight_c(module + ".bias");
  const std::vector<float> b = bias ? bias->v : std::vector<float>();
  const auto w = std::make_shared<const Values>(*weight);
  if (!keep(record, source, fmt::format("{}(x)", module), [w, b](const Tokens& x) { return linear(x, *w, b); }))
    return false;
  steps_.back().work = weight->rows() * static_cast<int64_t>(steps_.back().source.v.size());
  std::vector<StepVariation>& out = steps_.back().variations;
  if (!b.empty())
    out.push_back({"linear.bias_missing", "x W^T", fmt::format("add {}.bias", module), 0.8,
                   [w](const Tokens& x) { return linear(x, *w, {}); }});
  if (weight->rows() == weight->last()) {
    const auto turned = std::make_shared<const Values>(permuted(*weight, {1, 0}));
    out.push_back({"linear.transposed_weight", "x W + b", fmt::format("transpose {}.weight", module), 0.8,
                   [turned, b](const Tokens& x) { return linear(x, *turned, b); }});
  }
  return true;
}

bool TokenChain::add_function(size_t record, size_t source) {
  const auto functions = element_functions();
  for (size_t f = 1; f < functions.size(); ++f) {
    const auto apply = [](size_t g) {
      return [g](const Tokens& x) { return each(x, [g](double v, size_t) { return element_functions()[g].f(v); }); };
    };
    if (!keep(record, source, functions[f].name, apply(f))) continue;
    for (size_t g = 0; g < functions.size(); ++g)
      if (g != f && (g == 0 || functions[g].is_activation))
        steps_.back().variations.push_back({g == 0 ? Cause("activation.missing") : Cause("activation.kind"),
                                            functions[g].name, fmt::format("apply {}", functions[f].name),
                                            g == 0 ? 0.9 : 0.8, apply(g)});
    return true;
  }
  return false;
}

bool TokenChain::add_norm(size_t record, size_t source) {
  const RecordedTensor& tensor = failing_.reference_run().records[record];
  const std::string& module = failing_.structure().site(record).module;
  Norm norm;
  norm.span = static_cast<size_t>(tensor.shape.back());
  for (const char* name : {".weight", ".gamma"})
    if (const auto weight = failing_.weight_c(module + name); weight && weight->size() == tensor.shape.back())
      norm.weight = weight->v;
  if (const auto bias = failing_.weight_c(module + ".bias"); bias && bias->size() == tensor.shape.back())
    norm.bias = bias->v;
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit})
    for (const double eps : {1e-6, 1e-5, 1e-8, 1e-12}) {
      norm.params.kind = kind, norm.params.eps = eps;
      if (!keep(record, source, fmt::format("{}(x)", kind_name(kind)), norm)) continue;
      add_norm_variations(module, norm);
      return true;
    }
  return false;
}

void TokenChain::add_norm_variations(const std::string& module, const Norm& norm) {
  std::vector<StepVariation>& out = steps_.back().variations;
  const char* own = kind_name(norm.params.kind);
  const auto add = [&](Cause cause, std::string yours, std::string fix, double complexity, auto&& change) {
    Norm other = norm;
    change(other);
    out.push_back({cause, std::move(yours), std::move(fix), complexity, other});
  };
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit, NormKind::kCentred, NormKind::kSample,
                              NormKind::kMeanAbs, NormKind::kMeanKept, NormKind::kCentredRms})
    if (kind != norm.params.kind)
      add("norm.kind", fmt::format("{}(x)", kind_name(kind)), fmt::format("use {}", own), 0.8,
          [&](Norm& n) { n.params.kind = kind; });
  add("norm.missing", "x", fmt::format("apply {}", module), 0.8,
      [](Norm& n) { n.params.kind = NormKind::kNone, n.weight.clear(), n.bias.clear(); });
  for (const double wrong : {1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 0.0, 1e-2, 1e-1, 1.0})
    if (wrong != norm.params.eps)
      add("norm.eps", fmt::format("{}(x) with eps {:g}", own, wrong), fmt::format("use eps {:g}", norm.params.eps), 0.9,
          [&](Norm& n) { n.params.eps = wrong; });
  for (const NumberFormat& format : half_formats())
    for (const auto held : {&NormParams::squares, &NormParams::factor})
      add(format.cause, fmt::format("{}(x) computed in {}", own, format.name), "normalise in f32 and cast afterwards",
          0.9, [&](Norm& n) { n.params.*held = &format; });
  if (norm.weight.empty()) return;
  add("norm.weight_missing", fmt::format("{}(x) without its weight", own), fmt::format("multiply by {}.weight", module),
      0.8, [](Norm& n) { n.weight.clear(); });
  add("norm.one_plus_weight", fmt::format("{}(x) times (1 + weight)", own),
      fmt::format("multiply by {}.weight itself", module), 0.8, [](Norm& n) {
        for (float& w : n.weight) w += 1;
      });
}

bool TokenChain::add_modulation(size_t record, size_t source) {
  const Tokens x = tokens_of(source), y = tokens_of(record);
  const size_t width = static_cast<size_t>(x.width), count = x.v.size() / width;
  if (count < 5) return false;  // two numbers a channel fit anything
  std::vector<double> a(width), b(width);
  for (size_t c = 0; c < width; ++c) {
    LineFit points;
    for (size_t t = 0; t < count; ++t) points.add(x.v[t * width + c], y.v[t * width + c]);
    const Line line = points.line(0, 0);
    a[c] = line.scale, b[c] = line.offset;
  }
  const std::string from = name_of(source);
  const std::string right = fmt::format("{} * (1 + scale) + shift", from);
  if (!keep(record, source, right, [a, b](const Tokens& t) { return modulated(t, a, b); })) return false;
  std::vector<StepVariation>& out = steps_.back().variations;
  const auto add = [&](Cause cause, std::string yours, std::string fix, auto&& change) {
    std::vector<double> other_a = a, other_b = b;
    for (size_t c = 0; c < width; ++c) change(other_a[c], other_b[c]);
    out.push_back({cause, std::move(yours), std::move(fix), 0.8,
                   [other_a, other_b](const Tokens& t) { return modulated(t, other_a, other_b); }});
  };
  add("modulate.one_plus_missing", from + " * scale + shift", "use (1 + scale) in place of scale",
      [](double& s, double&) { s -= 1; });
  add("modulate.shift_scale_exchanged", from + " * (1 + shift) + scale", "exchange shift and scale: compute " + right,
      [](double& s, double& t) {
        const double scale = s - 1;
        s = 1 + t, t = scale;
      });
  add("modulate.shift_missing", from + " * (1 + scale)", "add the shift", [](double&, double& t) { t = 0; });
  add("modulate.scale_missing", from + " + shift", "multiply by (1 + scale)", [](double& s, double&) { s = 1; });
  add("modulate.missing", from, "modulate: compute " + right, [](double& s, double& t) { s = 1, t = 0; });
  add("modulate.form", from + " * (2 + scale) + shift", "use (1 + scale)", [](double& s, double&) { s += 1; });
  add("modulate.shift", from + " * (1 + scale) - shift", "add the shift", [](double&, double& t) { t = -t; });
  add_other_parts(from, right, a, b);
  return true;
}

// Parts of a modulation that stand elsewhere in it, or in the other stream's: one of the two, or both moved alike.
void TokenChain::add_other_parts(const std::string& from, const std::string& right, const std::vector<double>& a,
                                 const std::vector<double>& b) {
  const std::vector<NamedVector> words = vector_dictionary(failing_, static_cast<int64_t>(a.size()));
  const int count = static_cast<int>(std::min<size_t>(words.size(), kMostVectors));
  const auto nearest = [&](const std::vector<double>& wanted, double offset) {
    int best = -1;
    double least = 1e-2;
    for (int w = 0; w < count; ++w) {
      double dd = 0, ww = 1e-30;
      for (size_t c = 0; c < wanted.size(); ++c)
        dd += std::pow(words[static_cast<size_t>(w)].r[c] - wanted[c] + offset, 2), ww += wanted[c] * wanted[c];
      if (std::sqrt(dd / ww) < least) least = std::sqrt(dd / ww), best = w;
    }
    return best;
  };
  const int scale = nearest(a, 1), shift = nearest(b, 0);
  if (scale < 0 || shift < 0) return;
  const auto name = [&](int w) { return words[static_cast<size_t>(w)].name; };
  const auto try_parts = [&](int s, int t) {
    if (s < 0 || t < 0 || s >= count || t >= count || (s == scale && t == shift)) return;
    std::vector<double> other_a = a, other_b = b;
    for (size_t c = 0; c < a.size(); ++c)
      other_a[c] = 1 + words[static_cast<size_t>(s)].c[c], other_b[c] = words[static_cast<size_t>(t)].c[c];
    steps_.back().variations.push_back({"modulate.other_part",
                                        fmt::format("{} * (1 + {}) + {}", from, name(s), name(t)),
                                        fmt::format("take {} and {}: compute {}", name(scale), name(shift), right),
                                        0.85, [=](const Tokens& x) { return modulated(x, other_a, other_b); }});
  };
  for (int w = 0; w < count; ++w)
    if (w != shift && w != scale) try_parts(w, shift), try_parts(scale, w);
  for (int by = 1; by < count; ++by) try_parts(scale + by, shift + by), try_parts(scale - by, shift - by);
}

bool TokenChain::add_residual(size_t record, size_t stream, size_t branch) {
  const Tokens h = tokens_of(stream), f = tokens_of(branch);
  const Tokens y = tokens_of(record);
  const size_t width = static_cast<size_t>(h.width), count = h.v.size() / width;
  if (count < 4) return false;
  std::vector<double> gate(width);
  double away = 0;
  for (size_t c = 0; c < width; ++c) {
    double ff = 0, fy = 0;
    for (size_t i = c; i < f.v.size(); i += width) ff += f.v[i] * f.v[i], fy += f.v[i] * (y.v[i] - h.v[i]);
    gate[c] = ff > 0 ? fy / ff : 0;
    away = std::max(away, std::fabs(gate[c] - 1));
  }
  const bool gated = away > 1e-3;
  const std::string a = name_of(stream), b = name_of(branch), g = gated ? "gate * " : "";
  const std::string right = fmt::format("{} + {}{}", a, g, b);
  if (!gated && stream > branch) return false;  // of two plain addends the stream is what was there first
  // The rest of the chain goes on through what the candidate did not record.
  const bool through_stream = failing_.partner(stream) == SIZE_MAX || failing_.partner(branch) != SIZE_MAX;
  if (through_stream) {
    if (!keep(record, stream, right, [=](const Tokens& x) { return sum(x, f, gate); })) return false;
  } else if (!keep(record, branch, right, [=](const Tokens& x) { return sum(h, x, gate); })) {
    return false;
  }
  std::vector<StepVariation>& out = steps_.back().variations;
  const auto add = [&](Cause cause, std::string yours, std::string fix,
                       std::function<Tokens(const Tokens&, const Tokens&)> make) {
    out.push_back({cause, std::move(yours), std::move(fix), 0.8,
                   [=](const Tokens& x) { return through_stream ? make(x, f) : make(h, x); }});
  };
  const std::vector<double> ones(width, 1.0);
  if (gated)
    add("gate.missing", fmt::format("{} + {}", a, b), "multiply " + b + " by the gate",
        [=](const Tokens& x, const Tokens& z) { return sum(x, z, ones); });
  add("residual.missing", g + b, "add " + a, [=](const Tokens& x, const Tokens& z) {
    Tokens nothing = x;
    std::fill(nothing.v.begin(), nothing.v.end(), 0.0);
    return sum(nothing, z, gate);
  });
  add("residual.branch_missing", a, "add " + g + b, [](const Tokens& x, const Tokens&) { return x; });
  add("residual.sign", fmt::format("{} - {}{}", a, g, b), "add " + g + b + ", do not take it away",
      [=](const Tokens& x, const Tokens& z) { return sum(x, z, gate, -1); });
  for (const size_t another : sources_of(record, h.width))
    if (another != stream && another != branch && out.size() < 12) {
      const Tokens x = tokens_of(another);
      add("residual.other_input", fmt::format("{} + {}{}", name_of(another), g, b), "add " + a,
          [=](const Tokens&, const Tokens& z) { return sum(x, z, gate); });
    }
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    Norm norm;
    norm.span = width, norm.params.kind = kind;
    add("norm.added", fmt::format("{} + {}{} of {}", a, g, kind_name(kind), b), "add " + b + " as it is",
        [=](const Tokens& x, const Tokens& z) { return sum(x, norm(z), gate); });
  }
  std::vector<double> other = gate;
  const auto form = [&](const char* words, auto&& change) {
    for (size_t c = 0; c < width; ++c) other[c] = change(gate[c]);
    add("gate.form", fmt::format("{} + {} * {}", a, words, b), "use the gate as it is",
        [x_gate = other](const Tokens& x, const Tokens& z) { return sum(x, z, x_gate); });
  };
  if (gated) {
    form("(1 + gate)", [](double v) { return 1 + v; });
    form("gate^2", [](double v) { return v * v; });
    form("tanh(gate)", [](double v) { return std::tanh(v); });
    form("sigmoid(gate)", [](double v) { return sigmoid(v); });
    const std::vector<NamedVector> words = vector_dictionary(failing_, h.width);
    for (size_t w = 0; w < std::min<size_t>(words.size(), kMostVectors); ++w) {
      other.assign(words[w].c.begin(), words[w].c.end());
      add("gate.other_part", fmt::format("{} + {} * {}", a, words[w].name, b), "take the gate of this branch",
          [x_gate = other](const Tokens& x, const Tokens& z) { return sum(x, z, x_gate); });
    }
  }
  return true;
}

bool TokenChain::add_product(size_t record, size_t gate, size_t up) {
  const Tokens z = tokens_of(up);
  const auto times = [](size_t f, const Tokens& x, const Tokens& by) {
    Tokens out = x;
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] = element_functions()[f].f(x.v[i]) * by.v[i];
    return out;
  };
  const auto functions = element_functions();
  for (size_t f = 1; f < functions.size(); ++f) {
    if (!functions[f].is_activation) continue;
    const std::string right = fmt::format("{} * {} with x = {}", functions[f].name, name_of(up), name_of(gate));
    if (!keep(record, gate, right, [=](const Tokens& x) { return times(f, x, z); })) continue;
    std::vector<StepVariation>& out = steps_.back().variations;
    out.push_back({"activation.gate_up_exchanged",
                   fmt::format("{} * {} with x = {}", functions[f].name, name_of(gate), name_of(up)),
                   fmt::format("apply the activation to {}, not to {}", name_of(gate), name_of(up)), 0.8,
                   [=](const Tokens& x) { return times(f, z, x); }});
    out.push_back(
        {"activation.product_missing", functions[f].name, fmt::format("multiply by {}", name_of(up)), 0.8,
         [=](const Tokens& x) { return each(x, [f](double v, size_t) { return element_functions()[f].f(v); }); }});
    const auto both = [&](Cause cause, std::string yours, double (*value)(double (*)(double), double, double)) {
      out.push_back({cause, std::move(yours), "compute " + right, 0.85, [=](const Tokens& x) {
                       Tokens made = x;
                       for (size_t i = 0; i < made.v.size(); ++i)
                         made.v[i] = value(element_functions()[f].f, x.v[i], z.v[i]);
                       return made;
                     }});
    };
    const std::string product = fmt::format("{} * {}", name_of(gate), name_of(up));
    both("activation.other_input", fmt::format("{} with x = {}", functions[f].name, product),
         [](double (*act)(double), double x, double by) { return act(x * by); });
    both("activation.added", fmt::format("{} of both, and their product", functions[f].name),
         [](double (*act)(double), double x, double by) { return act(x) * act(by); });
    both("activation.product_missing", fmt::format("{} + {}", functions[f].name, name_of(up)),
         [](double (*act)(double), double x, double by) { return act(x) + by; });
    for (size_t g = 0; g < functions.size(); ++g)
      if (g != f && (g == 0 || functions[g].is_activation))
        out.push_back({g == 0 ? Cause("activation.missing") : Cause("activation.kind"),
                       fmt::format("{} * {}", functions[g].name, name_of(up)), "use " + std::string(functions[f].name),
                       0.85, [=](const Tokens& x) { return times(g, x, z); }});
    return true;
  }
  return false;
}

int64_t TokenChain::work_from(size_t at) const {
  int64_t out = 0;
  for (size_t i = 0; i <= at; ++i) out += steps_[i].work;
  return out;
}

Tokens TokenChain::outcome(size_t at, const std::function<Tokens(const Tokens&)>& apply) const {
  Tokens x = apply(steps_[at].source);
  for (size_t i = at; i-- > 0;) x = steps_[i].apply(x);
  return x;
}

}  // namespace lockstep
