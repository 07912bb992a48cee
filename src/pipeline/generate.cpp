#include "pipeline/generate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "pipeline/pipeline.h"

namespace lockstep {

std::map<std::string, std::string> picture_text(const GenerateRequest& request, const GeneratedImage& image,
                                                const ModelFolder& model) {
  std::string caption = image.caption;
  std::erase(caption, '\0');  // a model may write one, and no picture format holds it
  std::map<std::string, std::string> text{{"prompt", caption.empty() ? request.prompt : caption},
                                          {"seed", std::to_string(request.seed)},
                                          {"steps", std::to_string(request.steps)},
                                          {"guidance", fmt::format("{}", request.guidance)},
                                          {"size", fmt::format("{}x{}", image.width, image.height)},
                                          {"model", model.path().filename().string()},
                                          {"software", std::string("lockstep ") + LOCKSTEP_VERSION}};
  if (request.guided()) text["negative_prompt"] = *request.negative_prompt;
  if (!request.pictures.empty()) text["pictures"] = std::to_string(request.pictures.size());
  if (image.layer >= 0) text["layer"] = std::to_string(image.layer + 1);
  return text;
}

std::vector<GeneratedImage> generate(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                                     const std::vector<GenerateRequest>& requests) {
  const Stages stages(model, backend, settings);
  for (const GenerateRequest& request : requests) model.pipeline().check(request, stages.scheduler());
  if (!settings.watch) return model.pipeline().run(stages, requests);
  const StopWhen all_dropped = stages.stop_at_layer([&] {
    for (size_t i = 0; i < requests.size(); ++i)
      if (!stages.dropped(i)) return false;
    return true;
  });
  return model.pipeline().run(stages, requests);
}

}  // namespace lockstep
