// The terminal's page: verdict first, then the divergence, its cause, the error curve, the table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/comparison.h"
#include "compare/structure.h"

namespace lockstep {
namespace {

constexpr double kOffTheScale = 1e3;  // where infinite errors are drawn
constexpr size_t kPlotWidth = 72, kPlotHeight = 8, kTableRows = 24;

struct Paint {
  bool on = false;
  std::string operator()(const char* code, const std::string& text) const {
    return on ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  }
};

std::string error_text(double error) {
  return std::isfinite(error) ? fmt::format("{:.2e}", error) : "inf";
}

std::string plot(const std::vector<StagePoint>& curve, double factor) {
  if (curve.size() < 3) return "";
  const size_t width = std::min(kPlotWidth, curve.size());
  std::vector<double> columns(width, 0), floors(width, 0);
  for (size_t i = 0; i < curve.size(); ++i) {
    const size_t at = i * width / curve.size();
    columns[at] = std::max(columns[at], std::isfinite(curve[i].error) ? curve[i].error : kOffTheScale);
    floors[at] = std::max(floors[at], factor * curve[i].floor);
  }
  const auto height_of = [](double value, double low, double high) {
    if (value <= 0) return 0;
    const double share = (std::log10(value) - low) / std::max(1.0, high - low);
    return std::clamp(static_cast<int>(std::lround(share * (kPlotHeight - 1))), 0, static_cast<int>(kPlotHeight) - 1) +
           1;
  };
  double low = 0, high = -12;
  for (size_t i = 0; i < width; ++i)
    for (const double value : {columns[i], floors[i]})
      if (value > 0)
        low = std::min(low, std::floor(std::log10(value))), high = std::max(high, std::ceil(std::log10(value)));
  low = std::max(low, -9.0);
  const bool infinite = std::any_of(curve.begin(), curve.end(), [](const auto& p) { return !std::isfinite(p.error); });
  std::string out;
  double last = INFINITY;
  for (int row = kPlotHeight; row >= 1; --row) {
    // One label a power of ten: a second one would say what is not so.
    const double level = std::round(low + (high - low) * (row - 1) / (kPlotHeight - 1));
    out += infinite && row == kPlotHeight ? "  inf   |"
           : level == last                ? "        |"
                                          : fmt::format("  1e{:<+4d}|", static_cast<int>(level));
    last = level;
    for (size_t i = 0; i < width; ++i) {
      const int error = height_of(columns[i], low, high), floor = height_of(floors[i], low, high);
      out += error >= row ? (error > floor ? "#" : "+") : floor == row ? "-" : " ";
    }
    out += "\n";
  }
  out += "        " + std::string(width, '-') + "\n";
  out += fmt::format("        {} ... {}   (# beyond the noise, + within, - the limit)\n", curve.front().name,
                     curve.back().name);
  return out;
}

std::string headline(const Comparison& comparison, const RunView& reference, const Paint& paint) {
  if (comparison.verdict == "match")
    return paint("1;32", "MATCH") +
           fmt::format(": {} tensor{} up to rounding{}\n", comparison.compared,
                       comparison.compared == 1 ? " agrees" : "s agree",
                       comparison.growth.kind == "step" ? "; but " + comparison.growth.words : "");
  if (comparison.verdict == "nothing_compared") return paint("1;31", "NOTHING COMPARED") + "\n";
  const Divergence& first = *comparison.first;
  const TensorKey& key = reference.records[comparison.results[first.result].pair.reference].key;
  size_t bad = 0;
  for (const PairResult& result : comparison.results)
    bad += result.state == PairState::kBad || result.state == PairState::kIncomparable;
  return paint("1;31", "MISMATCH") + fmt::format(": first at {}{} ({} of {} tensors differ)\n", to_string(key),
                                                 comparison.causes.empty() ? "" : ": " + comparison.causes[0].cause,
                                                 bad, comparison.results.size());
}

std::string kind_words(const Divergence& first, const RecordedTensor& record, const PairResult& result) {
  if (!first.worked_back_from.empty() && first.kind == "glue") {
    std::string layers;
    for (const std::string& layer : first.worked_back_from)
      layers += (layers.empty() ? "" : ", ") +
                (is_inside(layer, first.parent) ? layer.substr(first.parent.size() + 1) : layer);
    return fmt::format("glue: the code of {} before {}; its input, worked back from {}, is wrong already", first.parent,
                       first.stage, layers);
  }
  if (first.kind == "module" && first.input_unknown)
    return fmt::format("module: {}, or the code that feeds it: your run has nothing in between", first.stage);
  if (first.kind == "glue") {
    const std::string whose = first.parent == "pipeline" ? "the pipeline's own code" : "the code of " + first.parent;
    const std::string what =
        first.parent == "pipeline" ? first.stage : fmt::format("the {} of {}", role_name(record.role), first.stage);
    return fmt::format("glue: {} {} {}", whose, first.good_inputs.empty() ? "before" : "between these good tensors and",
                       what);
  }
  if (first.kind == "module") return fmt::format("module: {} itself makes the error", first.stage);
  if (first.kind == "weights")
    return fmt::format("weights: {} computes the right formula with wrong numbers", first.stage);
  if (result.state == PairState::kIncomparable && !result.isolated)
    return "capture: not the same tensor, or not in the same form; what follows differs too, so the code may be at "
           "fault";
  return "capture: not the same tensor, or not in the same form; the model itself may be right";
}

std::string error_words(const PairResult& result) {
  const PairError& error = result.error;
  if (result.state == PairState::kIncomparable) return result.note;
  if (!std::isfinite(error.relative) &&
      error.nan_candidate + error.inf_candidate + error.nan_reference + error.inf_reference > 0)
    return fmt::format("{} NaN and {} infinities in yours, {} and {} in the reference; the rest: largest {:.4g}",
                       error.nan_candidate, error.inf_candidate, error.nan_reference, error.inf_reference,
                       error.max_abs);
  const std::string against =
      result.tolerance
          ? fmt::format("{:.3g} times its tolerance of {}", error.relative / *result.tolerance,
                        error_text(*result.tolerance))
          : fmt::format("{:.3g} times the noise floor of {}", result.in_floors, error_text(result.noise_floor));
  return fmt::format("{} relative, {}; largest {:.4g}, cosine {:.6f}", error_text(error.relative), against,
                     error.max_abs, error.cosine);
}

std::string divergence_text(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                            const Paint& paint) {
  const Divergence& first = *comparison.first;
  const PairResult& result = comparison.results[first.result];
  const RecordedTensor& r = reference.records[result.pair.reference];
  const RecordedTensor& c = candidate.records[result.pair.candidate];
  std::string out = "\n" + paint("1", "First divergence") + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<8} {}\n", name, value);
  };
  line("tensor", fmt::format("{} ({})", to_string(r.key), role_name(r.role)));
  line("kind", kind_words(first, r, result));
  line("error", error_words(result));
  if (result.state != PairState::kIncomparable && r.shape != c.shape) line("layout", result.note);
  line("region", first.region);
  line("shape", fmt::format("{} {}{}", dtype_name(r.dtype), to_string(r.shape),
                            r.shape == c.shape && r.dtype == c.dtype
                                ? ""
                                : fmt::format(", yours {} {}", dtype_name(c.dtype), to_string(c.shape))));
  if (result.isolated) line("after it", "nothing that follows is affected");
  std::string good;
  for (const std::string& name : first.good_inputs) good += (good.empty() ? "" : ", ") + name;
  line("good", good);
  line("where", c.where.empty() ? r.where : c.where);
  line("hint", first.hint);
  out += "\n" + paint("1", "Cause") + "\n";
  if (comparison.causes.empty()) out += "  no family explains both sides of this pair: no guess is made\n";
  for (size_t i = 0; i < comparison.causes.size(); ++i) {
    const Finding& cause = comparison.causes[i];
    out += fmt::format("  {}. {}  (leaves {} of yours unexplained)\n", i + 1, paint("1;33", cause.cause),
                       error_text(cause.residual));
    out += fmt::format("     {}\n     fix: {}\n     look at: {}\n", cause.explanation, cause.fix, cause.look_at);
  }
  return out;
}

std::string table_text(const Comparison& comparison, const RunView& reference, bool all, const Paint& paint) {
  // Without --all: the neighbourhood of the divergence, or the worst of a match.
  std::vector<size_t> rows;
  if (all || comparison.results.size() <= kTableRows) {
    for (size_t i = 0; i < comparison.results.size(); ++i) rows.push_back(i);
  } else if (comparison.first) {
    const size_t at = comparison.first->result, begin = at > 8 ? at - 8 : 0;
    for (size_t i = begin; i < std::min(comparison.results.size(), begin + 18); ++i) rows.push_back(i);
  } else {
    for (size_t i = 0; i < comparison.results.size(); ++i) rows.push_back(i);
    std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
      return comparison.results[a].in_floors > comparison.results[b].in_floors;
    });
    rows.resize(12);
    std::sort(rows.begin(), rows.end());
  }
  std::string out = "\n" + paint("1", "Tensors") +
                    (rows.size() < comparison.results.size()
                         ? fmt::format(" ({} of {}; --all shows all)", rows.size(), comparison.results.size())
                         : "") +
                    "\n";
  if (!rows.empty()) out += fmt::format("    {:<12} {:>8} {:>9}  tensor\n", "state", "error", "in floors");
  for (const size_t i : rows) {
    const PairResult& result = comparison.results[i];
    const RecordedTensor& record = reference.records[result.pair.reference];
    const bool bad = result.state == PairState::kBad || result.state == PairState::kIncomparable;
    const bool first = comparison.first && comparison.first->result == i;
    const std::string floors =
        result.state == PairState::kIncomparable ? "-" : fmt::format("{:.3g}x", result.in_floors);
    out += fmt::format("  {} {:<12} {:>8} {:>9}  {}{}\n", first ? ">" : " ",
                       bad ? paint("31", fmt::format("{:<12}", state_name(result.state)))
                           : fmt::format("{:<12}", state_name(result.state)),
                       error_text(result.error.relative), floors, record.role == Role::kInput ? "-> " : "",
                       to_string(record.key));
  }
  return out;
}

}  // namespace

std::string text_from(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool all,
                      bool color) {
  const Paint paint{color};
  std::string out = headline(comparison, reference, paint);
  if (comparison.first) out += divergence_text(comparison, reference, candidate, paint);
  const std::string curve = plot(comparison.curve, comparison.floor_factor);
  if (!curve.empty()) {
    out += "\n" + paint("1", "Error over the stages") + "\n" + curve;
    if (!comparison.growth.words.empty()) out += "  " + comparison.growth.words + "\n";
  }
  for (const ImagePair& image : comparison.images)
    out +=
        fmt::format("\n{} {}: PSNR {:.2f} dB, SSIM {:.5f}\n", paint("1", "Image"), image.name, image.psnr, image.ssim);
  out += table_text(comparison, reference, all, paint);
  for (const std::string& note : comparison.notes) out += "  note: " + note + "\n";
  out += fmt::format("  noise floor from {}; a tensor differs beyond {:g} floors\n", comparison.floor_source,
                     comparison.floor_factor);
  return out;
}

}  // namespace lockstep
