// A run's health as people read it.
#pragma once
#include "base/text.h"
#include "cli/terminal.h"
#include "toolbox/run_health.h"

namespace lockstep {

Text text_from(const RunHealth& health, const Run& run);
Text attention_text(const RunHealth& health, const Terminal& terminal);  // entropy and sink share of each head

}  // namespace lockstep
