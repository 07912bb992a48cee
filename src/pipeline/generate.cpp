#include "pipeline/generate.h"

#include "base/error.h"
#include "pipeline/pipeline.h"

namespace lockstep {

std::vector<GeneratedImage> generate(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                                     const std::vector<GenerateRequest>& requests) {
  const Stages stages(model, backend, settings);
  for (const GenerateRequest& request : requests) model.pipeline().check(request, stages.scheduler());
  return model.pipeline().run(stages, requests);
}

}  // namespace lockstep
