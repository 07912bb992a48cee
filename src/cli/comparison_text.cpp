#include "cli/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/number_text.h"
#include "cli/table.h"

namespace lockstep {
namespace {

Text side_line(const char* name, DType dtype, const Shape& shape) {
  return Text::of("{:<9}  {} {}\n", name, dtype_name(dtype), to_string(shape));
}

Text verdict_line(const TensorComparison& c, const Terminal& terminal) {
  if (!c.same_shape) return terminal.styled("MISMATCH", Style::kRed) + "  the shapes differ; nothing was compared\n";
  if (c.count == 0) return terminal.styled("match", Style::kGreen) + "  both are empty\n";
  if (c.match())
    return Text::of("{}  all {} within {}; band: {}\n", terminal.styled("match", Style::kGreen),
                    text_from_count(c.count), text_from_tolerance(c.tolerance), band_of(c.max_abs).name);
  Text line = Text::of("{}  {} of {} ({}) outside {}; band: {}\n", terminal.styled("MISMATCH", Style::kRed),
                       text_from_count(c.mismatches), text_from_count(c.count), text_from_share(c.mismatch_share()),
                       text_from_tolerance(c.tolerance), band_of(c.max_abs).name);
  if (c.nonfinite_mismatches > 0)
    line += Text::of("          {} of them with a NaN or an infinity on one side only\n",
                     text_from_count(c.nonfinite_mismatches));
  return line;
}

Text error_lines(const TensorComparison& c) {
  Text out;
  const auto line = [&](const char* name, const auto& value) { out += Text::of("{:<12} {}\n", name, value); };
  Text worst;
  if (c.worst)
    worst = Text::of("   at {}: reference {}, candidate {}", to_string(c.worst->index),
                     text_from_number(c.worst->reference), text_from_number(c.worst->candidate));
  line("max abs", Text::of("{}{}", text_from_number(c.max_abs), worst));
  line("max rel", text_from_number(c.max_rel));
  line("mean abs", text_from_number(c.mean_abs));
  line("RMSE", text_from_number(c.rmse));
  line("relative L2", text_from_number(c.relative_l2));
  line("cosine", Text::of("{:.12g}", c.cosine));
  line("SQNR", text_from_number(c.sqnr_db) + " dB");
  if (c.ulps) line("ULP", Text::of("max {}, mean {}", c.ulps->max, text_from_number(c.ulps->mean)));
  Text quantiles;
  for (const auto& [q, value] : c.quantiles)
    quantiles += Text::of("{}p{:g} {:.3g}", quantiles.empty() ? "" : "   ", 100 * q, value);
  line("|error|", quantiles);
  return out;
}

Text sides_table(const TensorComparison& c, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{""},
               {"min", kRight},
               {"max", kRight},
               {"mean", kRight},
               {"std", kRight},
               {"nan", kRight},
               {"inf", kRight},
               {"zero", kRight},
               {"denormal", kRight}});
  const auto add = [&](const char* name, const Statistics& s) {
    table.add({name, text_from_number(s.min), text_from_number(s.max), text_from_number(s.mean),
               text_from_number(s.std), text_from_count(s.nan), text_from_count(s.inf), text_from_count(s.zero),
               text_from_count(s.denormal)});
  };
  add("reference", c.reference);
  add("candidate", c.candidate);
  return table.text(terminal) +
         Text::of("range of the candidate / of the reference: {}\n", text_from_number(c.range_ratio));
}

Text histogram_lines(const TensorComparison& c, const Terminal& terminal) {
  constexpr int kBar = 40;
  const auto rows = c.histogram.rows(14);
  int64_t most = 1;
  for (const auto& row : rows) most = std::max(most, row.count);
  Text out = "|error|\n";
  for (const auto& row : rows) {
    const Text range = row.to == 0 ? Text("0") : Text::of("{:.2g} to {:.2g}", row.from, row.to);
    const int length = static_cast<int>(std::ceil(static_cast<double>(row.count) * kBar / static_cast<double>(most)));
    const std::string bar(static_cast<size_t>(length), '#');
    out += Text::of("{:>20}  {:<{}}  {}\n", range, terminal.styled(bar, Style::kCyan),
                    kBar + (terminal.color() && length ? 9 : 0), text_from_count(row.count));
  }
  return out;
}

}  // namespace

std::string text_from_tolerance(const Tolerance& tolerance) {
  std::string text = fmt::format("{:g}", tolerance.absolute);
  if (tolerance.relative > 0) text += fmt::format(" + {:g} |reference|", tolerance.relative);
  const bool named = !tolerance.name.empty() && (tolerance.name[0] < '0' || tolerance.name[0] > '9');
  return named ? text + " (" + tolerance.name + ")" : text;
}

Text text_from_comparison(const TensorComparison& c, const Terminal& terminal) {
  Text out = side_line("reference", c.reference_dtype, c.reference_shape) +
             side_line("candidate", c.candidate_dtype, c.candidate_shape) + "\n" + verdict_line(c, terminal);
  if (c.same_shape && c.count > 0) out += "\n" + error_lines(c);
  out += "\n" + sides_table(c, terminal);
  if (c.same_shape && c.max_abs > 0) out += "\n" + histogram_lines(c, terminal);
  return out;
}

}  // namespace lockstep
