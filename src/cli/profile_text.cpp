#include "cli/profile_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/number_text.h"
#include "cli/table.h"

namespace lockstep {
namespace {

using enum Table::Align;

constexpr size_t kMostModules = 15, kMostPairs = 12;

std::string time_text(int64_t ns) {
  const double secs = static_cast<double>(ns) / 1e9;
  return secs >= 1 ? fmt::format("{:.2f} s", secs) : fmt::format("{:.2f} ms", secs * 1e3);
}

std::string size_text(int64_t bytes) {
  return bytes <= 0 ? "" : text_from_bytes(static_cast<uint64_t>(bytes));
}

std::vector<Cell> row_of(const ProfileSum& sum, const std::string& indent) {
  return {indent + sum.name,     text_from_count(sum.calls), time_text(sum.wall_ns), time_text(sum.self_ns),
          time_text(sum.cpu_ns), size_text(sum.allocated),   size_text(sum.peak)};
}

Table sums_table(const Text& title) {
  return Table({{title, kLeft, true},
                {"calls", kRight},
                {"total", kRight},
                {"self", kRight},
                {"processor", kRight},
                {"allocated", kRight},
                {"peak", kRight}});
}

std::string ratio_text(int64_t candidate, int64_t reference) {
  if (candidate <= 0 || reference <= 0) return "";
  return fmt::format("x{:.2f}", static_cast<double>(candidate) / static_cast<double>(reference));
}

Text pairs_text(const Terminal& terminal, const Text& title, const std::vector<ProfilePair>& pairs, size_t most) {
  Table table({{title, kLeft, true},
               {"reference", kRight},
               {"candidate", kRight},
               {"time", kRight},
               {"peak", kRight},
               {"peak", kRight},
               {"size", kRight}});
  for (size_t i = 0; i < std::min(pairs.size(), most); ++i) {
    const auto& [name, reference, candidate] = pairs[i];
    table.add({name, reference.calls ? time_text(reference.wall_ns) : "-",
               candidate.calls ? time_text(candidate.wall_ns) : "-", ratio_text(candidate.wall_ns, reference.wall_ns),
               size_text(reference.peak), size_text(candidate.peak), ratio_text(candidate.peak, reference.peak)});
  }
  return table.text(terminal);
}

}  // namespace

Text text_from(const Terminal& terminal, const ProgramProfile& profile) {
  const ProcessProfile& first = profile.first();
  Table stages = sums_table("stage"), modules = sums_table("module, by self time");
  for (const ProfileSum& stage : stages_of(first))
    stages.add(row_of(stage, std::string(static_cast<size_t>(stage.depth) * 2, ' ')));
  size_t shown = 0;
  for (const ProfileSum& sum : modules_of(first))
    if (++shown <= kMostModules) modules.add(row_of(sum, ""));
  Text text = stages.text(terminal);
  text += Text::of("\n");
  text += modules.text(terminal);
  if (shown > kMostModules) text += Text::of("... and {} more (--json or --html FILE has all)\n", shown - kMostModules);
  text += Text::of("\n{} in all, processor {}, peak {} ({})\n", time_text(first.end_ns - first.begin_ns),
                   time_text(first.cpu_ns), size_text(peak_bytes(first)), first.memory);
  if (const int64_t step = first_step_ns(first)) text += Text::of("first step done after {}\n", time_text(step));
  if (const int64_t lazy = evaluation_ns(first))
    text += Text::of("evaluation of lazy graphs {}, {} of the time; {} of them at stage borders\n", time_text(lazy),
                     text_from_share(static_cast<double>(lazy) /
                                     static_cast<double>(std::max<int64_t>(first.end_ns - first.begin_ns, 1))),
                     first.evaluations);
  if (first.left_out > 0) text += Text::of("{} later calls were left out\n", text_from_count(first.left_out));
  if (profile.processes.size() > 1)
    text += Text::of("{} more processes (--trace FILE shows all)\n", profile.processes.size() - 1);
  return text;
}

Text text_from(const Terminal& terminal, const ProfileComparison& comparison) {
  std::vector<ProfilePair> stages = comparison.stages;
  stages.push_back({"the program", comparison.reference, comparison.candidate});
  Text text = pairs_text(terminal, "stage", stages, stages.size());
  if (!comparison.modules.empty()) {
    text += Text::of("\n");
    text += pairs_text(terminal, "module on both sides", comparison.modules, kMostPairs);
    if (comparison.modules.size() > kMostPairs)
      text += Text::of("... and {} more (--json has all)\n", comparison.modules.size() - kMostPairs);
  }
  return text;
}

}  // namespace lockstep
