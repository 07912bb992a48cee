// Does jobs, one after the other, with what it needs kept loaded between them.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "batch/job.h"
#include "studio/draw_request.h"
#include "studio/kept_prompts.h"
#include "studio/model_shelf.h"

namespace lockstep {

struct WorkerOptions {
  fs::path output, home;
  std::string device = "auto";
  int threads = 0;
};

class BatchWorker {
 public:
  explicit BatchWorker(WorkerOptions options);
  // The job's result: status "done", or "failed" with an error and whether trying again may help. Never throws but
  // Error{kCancelled}.
  Json result_of(const BatchJob& job);

 private:
  Json draw(const BatchJob& job);
  Json compare(const BatchJob& job);
  const ModelFolder& model_at(const fs::path& path);
  Json finish(const BatchJob& job, Json result) const;

  WorkerOptions options_;
  std::map<fs::path, ModelFolder> models_;
  ModelShelf shelf_;
  KeptPrompts prompts_;
  std::unique_ptr<Backend> backend_;
};

// `lockstep batch --worker`: a job a line on stdin, its result a line on stdout, until stdin ends.
void serve_jobs(BatchWorker& worker);

}  // namespace lockstep
