#include "backend/cpu/panel.h"
#include "base/error.h"

namespace lockstep::cpu {
void multiply_bf16_amx(const PanelProduct& product) {
  multiply_bf16_avx512(product);
}
}  // namespace lockstep::cpu
