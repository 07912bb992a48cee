// One self-contained page for a comparison: no network, no server, opened from disk.
#pragma once
#include <string>

#include "compare/comparison.h"
#include "compare/ledger.h"

namespace lockstep {

// `inside`: what zoom answers about the first divergence, as its --json gives it; null: nobody asked.
std::string html_report(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                        const Ledger* ledger = nullptr, const Json& inside = {});
void write_html_report(const fs::path& path, const Comparison& comparison, const RunView& reference,
                       const RunView& candidate, const Ledger* ledger = nullptr, const Json& inside = {});

}  // namespace lockstep
