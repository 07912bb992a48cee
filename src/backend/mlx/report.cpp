#include "backend/mlx/report.h"

#include "backend/mlx/library.h"

namespace lockstep {

MlxReport mlx_report() {
  const mlx::Library& found = mlx::library();
  return {.usable = found.leaf != nullptr,
          .why = found.why,
          .version = found.facts.version,
          .device = found.facts.device,
          .leaf = found.path,
          .gpu = found.facts.gpu != 0,
          .total_bytes = found.facts.total_bytes};
}

}  // namespace lockstep
