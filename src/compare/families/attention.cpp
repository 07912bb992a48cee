// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compare/families/attention_inputs.h"
#include "compare/families/fit.h"

namespace lockstep {
namespace {

enum class Mask { kNone, kCausal, kStrict, kReverse, kOtherStream };
enum class Weighting { kSoftmax, kPlain, kSigmoid };  // of the scores
enum class Coarse { kNone, kBf16, kF16 };

struct Params {
  Rotation rotation = Rotation::kNone;
  int sign = 1;
  bool rotate_q = true, rotate_k = true, rotate_v = false;
  bool tables_exchanged = false;  // the streams take each other's tables
  int shift = 0;                  // of the table's rows: positions off by so many
  double scale = 0;               // 0: 1/sqrt(d)
  Mask mask = Mask::kNone;
  int hidden_first = 0, hidden_last = 0;  // keys left out at either end
  int padded = 0;                         // last keys of the first stream left out: a padded prompt
  int window = 0;                         // keys further off are left out
  bool tiled = false;                     // grouped keys: head h uses group h % groups instead of h / repeat
  bool early_q = false, early_k = false;  // taken before their norms
  int qkv = 0;                            // which of the three stand where, see kOrders
  bool own_stream = false;                // attends to its own tokens alone
  int only_stream = -1;                   // what is said of rotation, norms and q, k, v holds for this stream alone
  bool cos_sin = false;                   // of the table, exchanged
  bool backwards = false;                 // the table's rows in reverse order
  double rotated = 1;                     // share of each head that is rotated
  double turns = 1;                       // factor on the angles
  Weighting weighting = Weighting::kSoftmax;
  double cap = 0;  // scores held by cap * tanh(score / cap)
  int head_shift = 0;
  Coarse inputs = Coarse::kNone, weights = Coarse::kNone;
  double residual = INFINITY;

  friend bool operator==(const Params&, const Params&) = default;
  bool same_as(Params o) const {
    o.residual = residual;
    return *this == o;
  }
};

struct QkvOrder {
  int q, k, v;
  const char* words;
};
const QkvOrder kOrders[] = {{0, 1, 2, ""},
                            {1, 0, 2, "q and k exchanged"},
                            {2, 1, 0, "q and v exchanged"},
                            {0, 2, 1, "k and v exchanged"},
                            {1, 2, 0, "q, k, v taken from k, v, q"},
                            {2, 0, 1, "q, k, v taken from v, q, k"},
                            {0, 1, 1, "k in place of v"},
                            {0, 0, 2, "q in place of k"},
                            {1, 1, 2, "k in place of q"},
                            {0, 2, 2, "v in place of k"}};

double coarse(double x, Coarse format) {
  const float value = static_cast<float>(x);
  return format == Coarse::kBf16  ? float_from(bfloat16_from(value))
         : format == Coarse::kF16 ? float_from(half_from(value))
                                  : x;
}

class Attention {
 public:
  Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size)
      : in_(inputs), y_(target), d_(head_size), heads_(target.last() / head_size) {
    rows_ = sample_indices(target.rows(), 10);
    head_sample_ = sample_indices(heads_, 3);
  }

  // What holds for a stream that a change leaves alone.
  void start_from(const Params& base) { base_ = base; }

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
    int64_t tokens = 0, own_begin = 0, own_end = 0;
    int64_t first_stream = 0;  // tokens of it
  };

  bool gather(const Params& p, int64_t h, Stack& q, Stack& k, Stack& v) const {
    const int64_t repeat = std::max<int64_t>(1, heads_ / in_.key_heads(d_));
    const int64_t groups = in_.key_heads(d_), group = ((p.tiled ? h % groups : h / repeat) + p.head_shift) % groups;
    for (size_t s = 0; s < in_.streams.size(); ++s) {
      const AttentionStream& stream = in_.streams[s];
      if (p.own_stream && static_cast<int>(s) != in_.own) continue;
      const Params& of = p.only_stream < 0 || p.only_stream == static_cast<int>(s) ? p : base_;
      const Values* three[] = {of.early_q ? stream.early_q : stream.q, of.early_k ? stream.early_k : stream.k,
                               stream.v};
      const QkvOrder& order = kOrders[of.qkv];
      const Values *xq = three[order.q], *xk = three[order.k], *xv = three[order.v];
      if (!xq || !xk || !xv) return false;
      const bool uses_q = order.q != 0 || order.k == 0 || order.v == 0;  // where fewer key heads are not enough
      if (of.qkv && (stream.k->size() != stream.v->size() || (uses_q && stream.q->size() != stream.k->size())))
        return false;
      const size_t other = in_.streams.size() == 2 ? 1 - s : s;
      const RotaryTable& table = of.tables_exchanged ? in_.streams[other].table : stream.table;
      if (static_cast<int>(s) == in_.own) k.own_begin = k.tokens, k.own_end = k.tokens + in_.tokens_of(*xk, d_);
      if (static_cast<int>(s) == in_.own && !append(q, *xq, h, of.rotate_q ? &table : nullptr, of)) return false;
      if (s == 0) k.first_stream = in_.tokens_of(*xk, d_);
      if (!append(k, *xk, group, of.rotate_k ? &table : nullptr, of)) return false;
      if (!append(v, *xv, group, of.rotate_v ? &table : nullptr, of)) return false;
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
        x[static_cast<size_t>(j)] = coarse(from.v[static_cast<size_t>(t * width + head * d_ + j)], p.inputs);
      if (table && p.rotation != Rotation::kNone &&
          !table->rotate(x, p.backwards ? tokens - 1 - t : t + p.shift, p.rotation, p.sign, p.cos_sin, p.rotated,
                         p.turns))
        return false;
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
      const double score = p.cap > 0 ? p.cap * std::tanh(sum * scale / p.cap) : sum * scale;
      scores[static_cast<size_t>(t)] = is_hidden(p, k, row, t) ? -INFINITY : score;
      largest = std::max(largest, scores[static_cast<size_t>(t)]);
    }
    std::vector<double> out(static_cast<size_t>(d_));
    for (int64_t t = 0; t < k.tokens; ++t) {
      const double score = scores[static_cast<size_t>(t)];
      if (score == -INFINITY) continue;
      double weight = p.weighting == Weighting::kPlain     ? score
                      : p.weighting == Weighting::kSigmoid ? 1 / (1 + std::exp(-score))
                                                           : std::exp(score - largest);
      weight = coarse(weight, p.weights);
      total += weight;
      for (int64_t j = 0; j < d_; ++j) out[static_cast<size_t>(j)] += weight * v.rows[static_cast<size_t>(t * d_ + j)];
    }
    if (p.weighting == Weighting::kSoftmax)
      for (double& value : out) value /= total;
    return out;
  }

  static bool is_hidden(const Params& p, const Stack& k, int64_t row, int64_t key) {
    const int64_t own = k.own_begin + row;
    const bool mine = key >= k.own_begin && key < k.own_end;
    if (p.hidden_first && key < p.hidden_first) return true;
    if (p.hidden_last && key >= k.tokens - p.hidden_last) return true;
    if (p.padded && key < k.first_stream && key >= k.first_stream - p.padded) return true;
    if (p.window && std::abs(key - own) >= p.window) return true;
    return (p.mask == Mask::kCausal && key > own) || (p.mask == Mask::kStrict && key >= own && own > 0) ||
           (p.mask == Mask::kReverse && key < own) || (p.mask == Mask::kOtherStream && mine);
  }

  const AttentionInputs& in_;
  Params base_;
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
        p.rotation = rotation, p.mask = causal ? Mask::kCausal : Mask::kNone, p.scale = scale;
        p.residual = attention.measure(p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
  }
  // A prompt shorter than the batch's longest is padded, and what pads it is hidden.
  const Params whole = best;
  const int64_t text = inputs.batch > 1 ? inputs.tokens_of(*inputs.streams[0].k, 1) : 0;
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    for (const bool causal : {false, true})
      for (int padded = 1; padded < std::min<int64_t>(text, 64); ++padded) {
        if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
        Params p;
        p.rotation = rotation, p.mask = causal ? Mask::kCausal : Mask::kNone, p.padded = padded;
        p.residual = attention.measure(p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
  return best.residual < whole.residual ? best : whole;
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
    for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16}) add([&](Params& p) { p.shift = shift; });
    add([](Params& p) { p.cos_sin = true; });
    add([](Params& p) { p.backwards = true; });
    for (const double share : {0.5, 0.25, 0.75}) add([&](Params& p) { p.rotated = share; });
    for (const double turns : {2.0, 0.5, 3.0}) add([&](Params& p) { p.turns = turns; });
  }
  const double dd = static_cast<double>(d), dw = static_cast<double>(width);
  for (const double scale : {0.0, 1.0, 1 / dd, 1 / std::sqrt(dw), std::sqrt(dd), 1 / std::sqrt(dd / 2),
                             1 / std::sqrt(2 * dd), std::sqrt(1 / std::sqrt(dd))})
    add([&](Params& p) { p.scale = scale; });
  // Before the masks: hiding all keys of the other stream is the same, and less plain.
  add([](Params& p) { p.own_stream = true; });
  for (const Mask mask : {Mask::kNone, Mask::kCausal, Mask::kStrict, Mask::kReverse, Mask::kOtherStream})
    if (mask != Mask::kOtherStream || inputs.streams.size() == 2) add([&](Params& p) { p.mask = mask; });
  if (r.padded) add([](Params& p) { p.padded = 0; });
  for (const int keys : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}) {
    add([&](Params& p) { p.hidden_last = keys; });
    add([&](Params& p) { p.hidden_first = keys; });
    add([&](Params& p) { p.window = keys; });
  }
  if (inputs.streams.size() == 2) {
    const int text = static_cast<int>(inputs.tokens_of(*inputs.streams[0].k, d));
    add([&](Params& p) { p.hidden_first = text; });
  }
  for (const Weighting weighting : {Weighting::kPlain, Weighting::kSigmoid})
    add([&](Params& p) { p.weighting = weighting; });
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 5.0, 1.0}) add([&](Params& p) { p.cap = cap; });
  for (int64_t shift = 1; shift < std::min<int64_t>(inputs.key_heads(d), 4); ++shift)
    add([&](Params& p) { p.head_shift = static_cast<int>(shift); });
  for (const Coarse format : {Coarse::kBf16, Coarse::kF16}) {
    add([&](Params& p) { p.inputs = format; });
    add([&](Params& p) { p.weights = format; });
    add([&](Params& p) { p.inputs = p.weights = format; });
  }
  add([](Params& p) { p.tiled = true; });
  add([](Params& p) { p.early_q = true; });
  add([](Params& p) { p.early_k = true; });
  add([](Params& p) { p.early_q = p.early_k = true; });
  for (int order = 1; order < static_cast<int>(std::size(kOrders)); ++order) add([&](Params& p) { p.qkv = order; });
  if (inputs.streams.size() != 2) return out;
  // Code for two streams is written twice: any of this may be wrong in one of them.
  const std::vector<Params> both = out;
  for (const Params& change : both) {
    Params global = change;
    global.mask = r.mask, global.scale = r.scale, global.tiled = r.tiled, global.own_stream = r.own_stream;
    global.hidden_first = r.hidden_first, global.hidden_last = r.hidden_last, global.window = r.window;
    global.padded = r.padded;
    global.weighting = r.weighting, global.cap = r.cap, global.head_shift = r.head_shift, global.weights = r.weights;
    if (!global.same_as(change)) continue;  // a change of the attention as a whole
    for (const int stream : {0, 1}) {
      Params limited = change;
      limited.only_stream = stream;
      out.push_back(limited);
    }
  }
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
  static const char* const kMasks[] = {")", " + causal mask)", " + causal mask without itself)",
                                       " + reversed causal mask)", " + mask of its own stream)"};
  out += kMasks[static_cast<size_t>(p.mask)];
  out += p.rotate_v ? " rope(v)" : " v";
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
  if (p.qkv) out += fmt::format(", {}", kOrders[p.qkv].words);
  if (p.cos_sin) out += ", cos and sin exchanged";
  if (p.turns != 1) out += fmt::format(", by {:g} times the angle", p.turns);
  if (p.backwards) out += ", positions in reverse order";
  if (p.rotated < 1) out += fmt::format(", rope on {:g} of each head", p.rotated);
  if (p.only_stream >= 0) out += p.only_stream == 0 ? " (text stream alone)" : " (image stream alone)";
  if (p.hidden_first) out += fmt::format(", without the first {} keys", p.hidden_first);
  if (p.hidden_last) out += fmt::format(", without the last {} keys", p.hidden_last);
  if (p.padded) out += fmt::format(", the last {} keys of the prompt hidden", p.padded);
  if (p.window) out += fmt::format(", keys within {} alone", p.window);
  if (p.weighting != Weighting::kSoftmax)
    out += p.weighting == Weighting::kPlain ? ", scores used without softmax" : ", sigmoid in place of softmax";
  if (p.cap > 0) out += fmt::format(", scores capped at {:g}", p.cap);
  if (p.head_shift) out += fmt::format(", key heads moved by {}", p.head_shift);
  if (p.inputs != Coarse::kNone) out += p.inputs == Coarse::kBf16 ? ", q, k, v in bfloat16" : ", q, k, v in float16";
  if (p.weights != Coarse::kNone) out += p.weights == Coarse::kBf16 ? ", weights in bfloat16" : ", weights in float16";
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
  else if (c.cos_sin != r.cos_sin)
    set("rotary.cos_sin_exchanged", "cos turns the element itself, sin its partner");
  else if (c.backwards != r.backwards)
    set("rotary.offset", "positions run backwards");
  else if (c.turns != r.turns)
    set("rotary.factor", "rotate once, by the angle of the table");
  else if (c.rotated != r.rotated)
    set("rotary.partial", "rotate the whole head");
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
  else if (c.mask != r.mask || c.hidden_first != r.hidden_first || c.hidden_last != r.hidden_last ||
           c.window != r.window || c.padded != r.padded)
    set(r.padded && !c.padded                                           ? "attention.mask_missing"
        : r.mask == Mask::kCausal && c.mask == Mask::kNone && !c.window ? "attention.mask_missing"
        : r.mask == Mask::kNone                                         ? "attention.mask_added"
                                                                        : "attention.mask",
        r.mask == Mask::kCausal ? "mask the tokens that come later, no others" : "remove the mask");
  else if (c.weighting != r.weighting)
    set("attention.softmax", "take the softmax of the scores over the keys");
  else if (c.cap != r.cap)
    set("attention.cap", "do not cap the scores");
  else if (c.inputs != r.inputs || c.weights != r.weights)
    set(c.inputs == Coarse::kBf16 || c.weights == Coarse::kBf16 ? "precision.bf16" : "precision.f16",
        "compute the attention in the reference's precision");
  else if (c.tiled != r.tiled || c.head_shift != r.head_shift)
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

// Both changes of `r` together.
Params combined(const Params& r, const Params& a, const Params& b) {
  Params out = a;
  const auto take = [&](auto Params::*field) {
    if (b.*field != r.*field) out.*field = b.*field;
  };
  take(&Params::rotation), take(&Params::sign), take(&Params::rotate_q), take(&Params::rotate_k);
  take(&Params::rotate_v), take(&Params::tables_exchanged), take(&Params::shift), take(&Params::scale);
  take(&Params::mask), take(&Params::hidden_first), take(&Params::hidden_last), take(&Params::window),
      take(&Params::padded);
  take(&Params::tiled), take(&Params::early_q), take(&Params::early_k), take(&Params::qkv);
  take(&Params::own_stream), take(&Params::only_stream), take(&Params::cos_sin), take(&Params::backwards);
  take(&Params::rotated), take(&Params::weighting), take(&Params::cap), take(&Params::head_shift);
  take(&Params::inputs), take(&Params::weights), take(&Params::turns);
  return out;
}

// One change; else a scale of any size; else the most promising changes with one more each.
Params best_change(const Case& failing, const Attention& attention, std::vector<Params> changes, const Params& r) {
  const auto started = std::chrono::steady_clock::now();
  const auto late = [&] { return std::chrono::steady_clock::now() - started > std::chrono::seconds(2); };
  const auto by_residual = [](const Params& a, const Params& b) { return a.residual < b.residual; };
  for (Params& p : changes) p.residual = late() ? INFINITY : attention.measure(p);  // the likeliest come first
  Params best = *std::min_element(changes.begin(), changes.end(), by_residual);
  if (failing.explains_candidate(best.residual) || late()) return best;
  Params free = r;
  const auto try_scale = [&](double scale) {
    Params p = r;
    p.scale = scale, p.residual = attention.measure(p);
    if (p.residual < free.residual) free = p;
  };
  free.residual = INFINITY;
  for (double scale = 1e-3; scale < 1e3 && !late(); scale *= 1.3) try_scale(scale);
  for (double step = 1.15; step > 1.00002; step = std::sqrt(step)) {
    const double middle = free.scale;
    try_scale(middle * step), try_scale(middle / step);
  }
  if (free.residual < best.residual) best = free;
  if (failing.explains_candidate(best.residual)) return best;
  std::sort(changes.begin(), changes.end(), by_residual);
  const std::vector<Params> singles = changes;
  for (size_t i = 0; i < std::min<size_t>(singles.size(), 4); ++i)
    for (const Params& other : singles) {
      if (late()) return best;
      Params p = combined(r, singles[i], other);
      p.residual = attention.measure(p);
      if (p.residual < best.residual) best = p;
    }
  return best;
}

}  // namespace

void search_attention(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const AttentionInputs r_in(failing, false), c_in(failing, true);
  if (!r_in.complete() || !c_in.complete()) return;
  Values y_r = batch_item(failing.r, r_in.item, r_in.batch), y_c = batch_item(failing.c, r_in.item, r_in.batch);
  if (r_in.picture) y_r = channels_last(y_r, 1), y_c = channels_last(y_c, 1);
  const int64_t width = y_r.last();
  for (const int64_t d : r_in.head_sizes(width)) {
    Attention r_attention(r_in, y_r, d), c_attention(c_in, y_c, d);
    const Params r = fit_reference(r_in, r_attention, failing.tolerance);
    c_attention.start_from(r);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = c_attention.measure(r);
    if (failing.note_local(with_reference)) return;
    const Params best = best_change(failing, c_attention, alternatives(r, c_in, d, width), r);
    if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) return;
    Finding finding = describe(r, best, d);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
