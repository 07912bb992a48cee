#include "cli/health_text.h"

#include <fmt/format.h>

#include "cli/table.h"

namespace lockstep {

Text text_from(const RunHealth& health, const Run& run) {
  Text out;
  for (const RunFinding& finding : health.findings) {
    out += Text::of("{}: {} ({}{})\n", finding.severity == RunFinding::Severity::kError ? "error" : "warning",
                    to_string(finding.key), role_name(finding.role),
                    finding.others > 0 ? Text::of("; and {} more tensors", finding.others) : Text());
    out += Text::of("  {}: {}\n", finding.check, finding.explanation);
    if (!finding.where.file.empty()) out += Text::of("  where: {}:{}\n", finding.where.file, finding.where.line);
    out += Text::of("  try: {}\n", finding.hint);
  }
  if (health.findings.empty())
    out += Text::of("healthy: nothing odd in {} records of {}", health.records, run.name());
  else
    out += Text::of("{} findings in {} records of {}", health.findings.size(), health.records, run.name());
  out += Text::of(" ({} tensors were kept and looked into)\n", health.looked_into);
  return out;
}

Text attention_text(const RunHealth& health, const Terminal& terminal) {
  if (health.attention.empty())
    return Text::of(
        "no attention was watched; record --health watches torch's and MLX's scaled_dot_product_attention\n");
  using enum Table::Align;
  Table table({{"attention", kLeft, true},
               {"calls", kRight},
               {"q [batch, heads, tokens, head size]"},
               {"k and v"},
               {"entropy by head"},
               {"sink by head"}});
  for (const AttentionSeen& seen : health.attention) {
    std::string entropy, sink;
    for (const AttentionSeen::Head& head : seen.heads) {
      entropy += fmt::format("{}{:.2f}", entropy.empty() ? "" : " ", head.entropy);
      sink += fmt::format("{}{:.2f}", sink.empty() ? "" : " ", head.sink);
    }
    table.add({seen.name, std::to_string(seen.calls), to_string(seen.q), to_string(seen.k), entropy, sink});
  }
  Text out = table.text(terminal);
  out += Text::of("entropy: 1 is uniform, 0 one key; sink: the share that the first key takes\n");
  return out;
}

}  // namespace lockstep
