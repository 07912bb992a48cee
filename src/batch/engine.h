// Who works on the jobs of a batch: processes of this machine, or Ray. Both are children that are given jobs as lines
// and answer with results as lines; a child of our own gets its next job when it has answered, Ray gets them all.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "batch/job.h"

namespace lockstep {

struct EngineOptions {
  fs::path output, home;
  std::string device = "auto";
  int workers = 0;                       // 0: as many as there are GPUs, without one as there are cores
  int threads = 0;                       // of each; 0: the cores divided among the workers
  int retries = 2;                       // of a job whose worker was lost or which may succeed later
  std::string address = "auto", python;  // Ray's
  double num_gpus = 0, num_cpus = 1;     // of each of Ray's workers
};

// Calls `ended` for each job, in the order in which they end, with its result and how often it was tried.
// Error{kCancelled} after Ctrl-C.
using JobEnded = std::function<void(const Json& result)>;
void run_locally(const std::vector<BatchJob>& jobs, const EngineOptions& options, const JobEnded& ended);
void run_with_ray(const std::vector<BatchJob>& jobs, const EngineOptions& options, const JobEnded& ended);

}  // namespace lockstep
