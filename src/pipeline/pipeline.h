// One kind of model folder, named by the class in its model_index.json, and how it makes pictures. A new family is a
// folder of such classes and a line in the list of pipeline_named().
#pragma once
#include <string_view>
#include <vector>

#include "pipeline/generate.h"
#include "pipeline/stages.h"

namespace lockstep {

class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual std::string_view class_name() const = 0;
  virtual std::string_view command() const = 0;                  // "generate" or "edit"
  virtual std::vector<std::string_view> components() const = 0;  // folders that have to be there
  // Pictures go in and out with alpha, and a picture without a prompt is described by the model.
  virtual bool makes_layers() const { return false; }
  virtual void check(const GenerateRequest& request, const SchedulerConfig& scheduler) const = 0;
  virtual std::vector<GeneratedImage> run(const Stages& stages, const std::vector<GenerateRequest>& requests) const = 0;
};

const Pipeline* pipeline_named(std::string_view class_name);  // null when there is none
std::vector<std::string_view> pipeline_names();

}  // namespace lockstep
