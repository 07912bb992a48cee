// The terminal's page: verdict first, then the divergence, its cause, the error curve, the table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "compare/comparison.h"
#include "compare/coverage.h"
#include "diagnose/case/structure.h"

namespace lockstep {
namespace {

constexpr double kOffTheScale = 1e3;  // where infinite errors are drawn
constexpr size_t kPlotWidth = 72, kPlotHeight = 8, kTableRows = 24;

struct Paint {
  bool on = false;
  template <typename Value>
  Text operator()(const char* code, const Value& value) const {
    const Text text = Text::of("{}", value);
    return on ? Text::trusted("\033[" + std::string(code) + "m" + text.string() + "\033[0m") : text;
  }
};

std::string error_text(double error) {
  return std::isfinite(error) ? fmt::format("{:.2e}", error) : "inf";
}

Text plot(const std::vector<StagePoint>& curve, double factor) {
  if (curve.size() < 3) return {};
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
  return Text::trusted(std::move(out)) + Text::of("        {} ... {}   (# beyond the noise, + within, - the limit)\n",
                                                  curve.front().name, curve.back().name);
}

// How much was compared, where it was little, and how the program ended, where it failed.
std::string coverage_words(const Coverage& coverage) {
  std::string out;
  if (coverage.is_low) out = fmt::format(", {:.2g} % of the reference's {}", 100 * coverage.share(), coverage.of);
  if (coverage.left_out) out += fmt::format("; {} of yours found no partner", coverage.left_out);
  if (!coverage.failure.empty()) out += "; your program " + coverage.failure;
  return out;
}

Text headline(const Comparison& comparison, const RunView& reference, const RunView& candidate, const Paint& paint) {
  const std::string agree = fmt::format(": {} tensor{} up to rounding", comparison.compared,
                                        comparison.compared == 1 ? " agrees" : "s agree");
  std::string covered = coverage_words(comparison.coverage);
  if (const std::string end = end_not_compared(reference, comparison); !comparison.first && !end.empty())
    covered += fmt::format("; {}, the reference's last, was not compared", end);
  if (comparison.verdict == "match") return paint("1;32", "MATCH") + Text::of("{}{}\n", agree, covered);
  if (comparison.verdict == "partial" &&
      dropped_records(reference) + dropped_records(candidate) + comparison.damaged > 0)
    return paint("1;33", "PARTIAL") +
           Text::of("{}{}, but {} not be compared\n", agree, covered,
                    comparison.damaged > 0 ? "damaged files could" : "records that were dropped could");
  if (comparison.verdict == "partial")
    return paint("1;33", "PARTIAL") +
           Text::of("{}{}: too little to call it a match (--partial takes it as one)\n", agree, covered);
  if (comparison.verdict == "nothing_compared") return paint("1;31", "NOTHING COMPARED") + "\n";
  const Divergence& first = *comparison.first;
  const TensorKey& key = reference.records[comparison.results[first.result].pair.reference].key;
  size_t bad = 0;
  for (const PairResult& result : comparison.results)
    bad += result.state == PairState::kBad || result.state == PairState::kIncomparable;
  return paint("1;31", "MISMATCH") +
         Text::of(": first at {}{} ({} of {} tensors differ{})\n", to_string(key),
                  comparison.causes.empty() ? Text() : Text::of(": {}", comparison.causes[0].cause.id()), bad,
                  comparison.results.size(), covered);
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

// The stages that were replayed, told by the first few and the last.
std::string between_words(const Divergence& first) {
  constexpr size_t kMost = 4;
  const auto some = [](const std::vector<std::string>& names) {
    if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
    const std::vector<std::string> head(names.begin(), names.begin() + kMost - 1);
    return fmt::format("{}, ..., {}", fmt::join(head, ", "), names.back());
  };
  if (first.stages_between.size() < 2) return "";
  return fmt::format("{} stages of the reference, one of which yours does otherwise: {}; they start from {}",
                     first.stages_between.size(), some(first.stages_between),
                     first.starts.empty() ? "nothing" : some(first.starts));
}

Text divergence_text(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                     const Paint& paint) {
  const Divergence& first = *comparison.first;
  const PairResult& result = comparison.results[first.result];
  const RecordedTensor& r = reference.records[result.pair.reference];
  const RecordedTensor& c = candidate.records[result.pair.candidate];
  Text out = "\n" + paint("1", "First divergence") + "\n";
  const auto line = [&](const char* name, const auto& value) {
    if (!Text::of("{}", value).empty()) out += Text::of("  {:<8} {}\n", name, value);
  };
  line("tensor", Text::of("{} ({})", to_string(r.key), role_name(r.role)));
  line("kind", kind_words(first, r, result));
  line("error", error_words(result));
  if (result.state != PairState::kIncomparable && r.shape != c.shape) line("layout", result.note);
  line("region", first.region);
  line("shape", Text::of("{} {}{}", dtype_name(r.dtype), to_string(r.shape),
                         r.shape == c.shape && r.dtype == c.dtype
                             ? ""
                             : Text::of(", yours {} {}", dtype_name(c.dtype), to_string(c.shape))));
  if (result.isolated) line("after it", "nothing that follows is affected");
  std::string good;
  for (const std::string& name : first.good_inputs) good += (good.empty() ? "" : ", ") + name;
  line("good", good);
  line("between", between_words(first));
  line("where", c.where.empty() ? r.where : c.where);
  line("hint", first.hint);
  out += "\n" + paint("1", "Cause") + "\n";
  if (comparison.causes.empty()) out += "  no known mistake explains both sides of this pair, so no cause is named\n";
  for (size_t i = 0; i < comparison.causes.size(); ++i) {
    const Finding& cause = comparison.causes[i];
    const Text left = cause.seen ? Text("seen in what both programs noted of their weights")
                                 : Text::of("leaves {} of yours unexplained", error_text(cause.residual));
    out += Text::of("  {}. {}  ({})\n", i + 1, paint("1;33", cause.cause.id()), left);
    out += Text::of("     {}\n     fix: {}\n     look at: {}\n", cause.explanation, cause.fix, cause.look_at);
  }
  return out;
}

Text table_text(const Comparison& comparison, const RunView& reference, bool all, const Paint& paint) {
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
  Text out = "\n" + paint("1", "Tensors") +
             (rows.size() < comparison.results.size()
                  ? Text::of(" ({} of {}; --all shows all)", rows.size(), comparison.results.size())
                  : "") +
             "\n";
  if (!rows.empty()) out += Text::of("    {:<12} {:>8} {:>9}  tensor\n", "state", "error", "in floors");
  for (const size_t i : rows) {
    const PairResult& result = comparison.results[i];
    const RecordedTensor& record = reference.records[result.pair.reference];
    const bool bad = result.state == PairState::kBad || result.state == PairState::kIncomparable;
    const bool first = comparison.first && comparison.first->result == i;
    const Text floors = result.state == PairState::kIncomparable ? Text("-") : Text::of("{:.3g}x", result.in_floors);
    out += Text::of(
        "  {} {:<12} {:>8} {:>9}  {}{}\n", first ? ">" : " ",
        bad ? paint("31", Text::of("{:<12}", state_name(result.state))) : Text::of("{:<12}", state_name(result.state)),
        error_text(result.error.relative), floors, record.role == Role::kInput ? "-> " : "", to_string(record.key));
  }
  return out;
}

}  // namespace

Text verdict_text(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool color) {
  const Paint paint{color};
  return headline(comparison, reference, candidate, paint) +
         (comparison.first ? divergence_text(comparison, reference, candidate, paint) : Text());
}

Text text_from(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool all, bool color) {
  const Paint paint{color};
  Text out = verdict_text(comparison, reference, candidate, color);
  const Text curve = plot(comparison.curve, comparison.floor_factor);
  if (!curve.empty()) {
    out += "\n" + paint("1", "Error over the stages") + "\n" + curve;
    if (!comparison.growth.words.empty()) out += Text::of("  {}\n", comparison.growth.words);
  }
  for (const ImagePair& image : comparison.images)
    out += Text::of("\n{} {}: PSNR {:.2f} dB, SSIM {:.5f}\n", paint("1", "Image"), image.name, image.psnr, image.ssim);
  out += table_text(comparison, reference, all, paint);
  for (const std::string& note : comparison.notes) out += Text::of("  note: {}\n", note);
  out += Text::of("  noise floor from {}; a tensor differs beyond {:g} floors\n", comparison.floor_source,
                  comparison.floor_factor);
  return out;
}

}  // namespace lockstep
