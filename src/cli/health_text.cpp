#include "cli/health_text.h"

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

}  // namespace lockstep
