// One self-contained page for a comparison: no network, no server, opened from disk.
#pragma once
#include <string>

#include "compare/comparison.h"
#include "compare/ledger.h"

namespace lockstep {

std::string html_report(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                        const Ledger* ledger = nullptr);
void write_html_report(const fs::path& path, const Comparison& comparison, const RunView& reference,
                       const RunView& candidate, const Ledger* ledger = nullptr);

}  // namespace lockstep
