// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/attention_inputs.h"
#include "compare/families/fit.h"

namespace lockstep {
namespace {

struct Params {
  Rotation rotation = Rotation::kNone;
  int sign = 1;
  bool rotate_q = true, rotate_k = true, rotate_v = false;
  bool tables_exchanged = false;  // the streams take each other's tables
  int shift = 0;                  // of the table's rows: positions off by so many
  double scale = 0;               // 0: 1/sqrt(d)
  bool causal = false;
  bool tiled = false;                     // grouped keys: head h uses group h % groups instead of h / repeat
  bool early_q = false, early_k = false;  // taken before their norms
  int qkv = 0;                            // order of the three: 0 qkv, 1 kqv, 2 vkq, 3 qvk
  bool own_stream = false;                // attends to its own tokens alone
  double residual = INFINITY;

  bool same_as(const Params& o) const {
    return rotation == o.rotation && sign == o.sign && rotate_q == o.rotate_q && rotate_k == o.rotate_k &&
           rotate_v == o.rotate_v && tables_exchanged == o.tables_exchanged && shift == o.shift && scale == o.scale &&
           causal == o.causal && tiled == o.tiled && early_q == o.early_q && early_k == o.early_k && qkv == o.qkv &&
           own_stream == o.own_stream;
  }
};

class Attention {
 public:
  Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size)
      : in_(inputs), y_(target), d_(head_size), heads_(target.last() / head_size) {
    rows_ = sample_indices(target.rows(), 10);
    head_sample_ = sample_indices(heads_, 3);
  }

  double measure(const Params& p) const {
    double dd = 0, yy = 0;
    for (const int64_t h : head_sample_) {
      Stack q, k, v;
      if (!gather(p, h, q, k, v)) return INFINITY;
      for (const int64_t row : rows_) {
        const std::vector<double> got = attend(p, q, k, v, row);
        for (int64_t j = 0; j < d_; ++j) {
          const double target = y_.row(row)[static_cast<size_t>(h * d_ + j)], d = got[static_cast<size_t>(j)] - target;
          dd += d * d, yy += target * target;
        }
      }
    }
    return yy > 0 && std::isfinite(dd) ? std::sqrt(dd / yy) : INFINITY;
  }

 private:
  struct Stack {
    std::vector<double> rows;  // [tokens, d]
    int64_t tokens = 0, own_begin = 0;
  };

  bool gather(const Params& p, int64_t h, Stack& q, Stack& k, Stack& v) const {
    const int64_t repeat = std::max<int64_t>(1, heads_ / in_.key_heads(d_));
    const int64_t group = p.tiled ? h % in_.key_heads(d_) : h / repeat;
    for (size_t s = 0; s < in_.streams.size(); ++s) {
      const AttentionStream& stream = in_.streams[s];
      if (p.own_stream && static_cast<int>(s) != in_.own) continue;
      const Values *xq = p.early_q ? stream.early_q : stream.q, *xk = p.early_k ? stream.early_k : stream.k,
                   *xv = stream.v;
      if (!xq || !xk || !xv) return false;
      const bool square = xq->size() == xk->size() && xk->size() == xv->size();
      if (p.qkv && !square) return false;
      if (p.qkv == 1) std::swap(xq, xk);
      if (p.qkv == 2) std::swap(xq, xv);
      if (p.qkv == 3) std::swap(xk, xv);
      const size_t other = in_.streams.size() == 2 ? 1 - s : s;
      const RotaryTable& table = p.tables_exchanged ? in_.streams[other].table : stream.table;
      if (static_cast<int>(s) == in_.own) k.own_begin = k.tokens;
      if (static_cast<int>(s) == in_.own && !append(q, *xq, h, p.rotate_q ? &table : nullptr, p)) return false;
      if (!append(k, *xk, group, p.rotate_k ? &table : nullptr, p)) return false;
      if (!append(v, *xv, group, p.rotate_v ? &table : nullptr, p)) return false;
    }
    return q.tokens == y_.rows();
  }

  bool append(Stack& to, const Values& from, int64_t head, const RotaryTable* table, const Params& p) const {
    const int64_t width = from.size() / in_.tokens_of(from, d_);
    if ((head + 1) * d_ > width) return false;
    const int64_t tokens = from.size() / width;
    std::vector<double> x(static_cast<size_t>(d_));
    to.rows.reserve(to.rows.size() + static_cast<size_t>(tokens * d_));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < d_; ++j)
        x[static_cast<size_t>(j)] = from.v[static_cast<size_t>(t * width + head * d_ + j)];
      if (table && p.rotation != Rotation::kNone && !table->rotate(x, t + p.shift, p.rotation, p.sign)) return false;
      to.rows.insert(to.rows.end(), x.begin(), x.end());
    }
    to.tokens += tokens;
    return true;
  }

  std::vector<double> attend(const Params& p, const Stack& q, const Stack& k, const Stack& v, int64_t row) const {
    const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d_)) : p.scale;
    std::vector<double> scores(static_cast<size_t>(k.tokens));
    double largest = -INFINITY, total = 0;
    for (int64_t t = 0; t < k.tokens; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < d_; ++j)
        sum += q.rows[static_cast<size_t>(row * d_ + j)] * k.rows[static_cast<size_t>(t * d_ + j)];
      const bool hidden = p.causal && t > k.own_begin + row;
      scores[static_cast<size_t>(t)] = hidden ? -INFINITY : sum * scale;
      largest = std::max(largest, scores[static_cast<size_t>(t)]);
    }
    std::vector<double> out(static_cast<size_t>(d_));
    for (int64_t t = 0; t < k.tokens; ++t) {
      const double weight = std::exp(scores[static_cast<size_t>(t)] - largest);
      total += weight;
      for (int64_t j = 0; j < d_; ++j) out[static_cast<size_t>(j)] += weight * v.rows[static_cast<size_t>(t * d_ + j)];
    }
    for (double& value : out) value /= total;
    return out;
  }

  const AttentionInputs& in_;
  const Values& y_;
  int64_t d_, heads_;
  std::vector<int64_t> rows_, head_sample_;
};

// The reference: few forms exist.
Params fit_reference(const AttentionInputs& inputs, const Attention& attention, double tolerance) {
  Params best;
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone}) {
    if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
    for (const bool causal : {false, true})
      for (const double scale : {0.0, 1.0}) {
        Params p;
        p.rotation = rotation, p.causal = causal, p.scale = scale;
        p.residual = attention.measure(p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
  }
  return best;
}

std::vector<Params> alternatives(const Params& r, const AttentionInputs& inputs, int64_t d, int64_t width) {
  std::vector<Params> out;
  const auto add = [&](auto&& change) {
    Params p = r;
    change(p);
    if (!p.same_as(r)) out.push_back(p);
  };
  if (inputs.has_tables()) {
    for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
      add([&](Params& p) { p.rotation = rotation; });
    add([](Params& p) { p.sign = -1; });
    add([](Params& p) { p.rotate_q = false; });
    add([](Params& p) { p.rotate_k = false; });
    add([](Params& p) { p.rotate_v = true; });
    add([](Params& p) { p.tables_exchanged = true; });
    for (const int shift : {1, -1, 2, -2}) add([&](Params& p) { p.shift = shift; });
  }
  const double dd = static_cast<double>(d), dw = static_cast<double>(width);
  for (const double scale : {0.0, 1.0, 1 / dd, 1 / std::sqrt(dw), std::sqrt(dd), 1 / std::sqrt(dd / 2),
                             1 / std::sqrt(2 * dd), std::sqrt(1 / std::sqrt(dd))})
    add([&](Params& p) { p.scale = scale; });
  add([](Params& p) { p.causal = !p.causal; });
  add([](Params& p) { p.tiled = true; });
  add([](Params& p) { p.own_stream = true; });
  add([](Params& p) { p.early_q = true; });
  add([](Params& p) { p.early_k = true; });
  add([](Params& p) { p.early_q = p.early_k = true; });
  for (const int order : {1, 2, 3}) add([&](Params& p) { p.qkv = order; });
  return out;
}

std::string formula(const Params& p, int64_t d) {
  std::string out = "softmax(";
  out += p.rotation == Rotation::kNone ? "q k^T"
         : p.rotate_q && p.rotate_k    ? "rope(q) rope(k)^T"
         : p.rotate_q                  ? "rope(q) k^T"
         : p.rotate_k                  ? "q rope(k)^T"
                                       : "q k^T";
  out += p.scale == 0 ? fmt::format(" / sqrt({})", d) : fmt::format(" * {}", number(p.scale));
  out += p.causal ? " + causal mask)" : ")";
  out += p.rotate_v ? " rope(v)" : " v";
  static const char* const kOrders[] = {"", "q and k", "q and v", "k and v"};
  if (p.rotation != Rotation::kNone)
    out += p.rotation == Rotation::kInterleaved ? ", rope on neighbours (2i, 2i+1)" : ", rope on halves (i, i+d/2)";
  if (p.sign < 0) out += " by the negative angle";
  if (p.shift) out += fmt::format(", positions {:+d}", p.shift);
  if (p.tables_exchanged) out += ", the streams' positions exchanged";
  if (p.tiled) out += ", key heads tiled";
  if (p.early_q || p.early_k)
    out += fmt::format(", {}{}{} before the norm", p.early_q ? "q" : "", p.early_q && p.early_k ? " and " : "",
                       p.early_k ? "k" : "");
  if (p.own_stream) out += ", over its own stream alone";
  if (p.qkv) out += fmt::format(", {} exchanged", kOrders[p.qkv]);
  return out;
}

Finding describe(const Params& r, const Params& c, int64_t d) {
  Finding out{"",          fmt::format("reference: {}; yours: {}", formula(r, d), formula(c, d)),
              "",          "",
              r.residual,  c.residual,
              0.8,         0,
              Blame::kNone};
  const auto set = [&](const char* cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  if (c.rotation != r.rotation && c.rotation == Rotation::kNone)
    set("rotary.missing", "rotate q and k by the position table");
  else if (c.rotation != r.rotation && r.rotation == Rotation::kNone)
    set("rotary.added", "do not rotate q and k here");
  else if (c.rotation != r.rotation)
    set("rotary.style", r.rotation == Rotation::kInterleaved ? "pair neighbours (2i, 2i+1), not halves (i, i+d/2)"
                                                             : "pair halves (i, i+d/2), not neighbours (2i, 2i+1)");
  else if (c.sign != r.sign)
    set("rotary.sign", "turn the other way: x0 cos - x1 sin, x0 sin + x1 cos");
  else if (c.rotate_q != r.rotate_q || c.rotate_k != r.rotate_k)
    set("rotary.one_side", fmt::format("rotate {} too", c.rotate_q ? "k" : "q"));
  else if (c.rotate_v != r.rotate_v)
    set("rotary.on_values", "do not rotate v");
  else if (c.tables_exchanged != r.tables_exchanged)
    set("rotary.streams_exchanged", "give the text the text's positions and the image the image's");
  else if (c.shift != r.shift)
    set("rotary.offset", fmt::format("positions are off by {}", c.shift));
  else if (c.scale != r.scale)
    set("attention.scale",
        fmt::format("scale the scores by {}", r.scale == 0 ? fmt::format("1/sqrt({})", d) : number(r.scale)));
  else if (c.causal != r.causal)
    set(r.causal ? "attention.mask_missing" : "attention.mask_added",
        r.causal ? "mask the tokens that come later" : "remove the causal mask");
  else if (c.tiled != r.tiled)
    set("attention.key_groups",
        "repeat each key head for consecutive query heads (repeat_interleave), do not tile them");
  else if (c.own_stream != r.own_stream)
    set("attention.streams", "attend over both streams together");
  else if (c.early_q != r.early_q || c.early_k != r.early_k)
    set("attention.norm_missing", "use q and k as they leave their norms");
  else
    set("attention.qkv_exchanged", "take q, k and v in the reference's order");
  return out;
}

}  // namespace

void search_attention(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const AttentionInputs r_in(failing, false), c_in(failing, true);
  if (!r_in.complete() || !c_in.complete()) return;
  Values y_r = failing.r, y_c = failing.c;
  if (r_in.picture) y_r = channels_last(failing.r, 1), y_c = channels_last(failing.c, 1);
  const int64_t width = y_r.last();
  for (const int64_t d : r_in.head_sizes(width)) {
    const Attention r_attention(r_in, y_r, d), c_attention(c_in, y_c, d);
    const Params r = fit_reference(r_in, r_attention, failing.tolerance);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = c_attention.measure(r);
    if (failing.note_local(with_reference)) return;
    Params best;
    for (Params p : alternatives(r, c_in, d, width)) {
      p.residual = c_attention.measure(p);
      if (p.residual < best.residual) best = p;
    }
    if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) return;
    Finding finding = describe(r, best, d);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
