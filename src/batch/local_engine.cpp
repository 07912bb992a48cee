#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "backend/devices.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/platform/executable.h"
#include "batch/engine.h"
#include "batch/line_child.h"

namespace lockstep {
namespace {

struct Task {
  const BatchJob* job = nullptr;
  int tries = 0;
};

struct Worker {
  std::unique_ptr<LineChild> child;
  std::string device;
  Task task;  // without a job: idle
};

// One GPU for each worker in turn, where there are some and none was named.
std::vector<std::string> devices_for(const std::string& asked) {
  std::vector<std::string> devices = asked == "auto" ? usable_gpus() : std::vector<std::string>();
  if (devices.empty()) devices.push_back(asked);
  return devices;
}

std::vector<std::string> worker_command(const EngineOptions& options, const std::string& device, int threads) {
  return {own_program().string(),
          "--home",
          options.home.string(),
          "batch",
          "--worker",
          "--output",
          options.output.string(),
          "--device",
          device,
          "--threads",
          std::to_string(threads)};
}

class LocalEngine {
 public:
  LocalEngine(const std::vector<BatchJob>& jobs, const EngineOptions& options, const JobEnded& ended)
      : options_(options), ended_(ended), left_(jobs.size()) {
    for (const BatchJob& job : jobs) waiting_.push_back({&job, 0});
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::vector<std::string> devices = devices_for(options.device);
    const bool on_gpus = devices[0] == "mlx" || devices[0].starts_with("cuda");
    const int wanted = options.workers ? options.workers : on_gpus ? static_cast<int>(devices.size()) : cores;
    workers_.resize(std::min(static_cast<size_t>(wanted), jobs.size()));
    for (size_t i = 0; i < workers_.size(); ++i) workers_[i].device = devices[i % devices.size()];
    threads_ = options.threads ? options.threads : std::max(1, cores / wanted);
  }

  void run() {
    while (left_ > 0) {
      hand_out();
      std::vector<pollfd> ends;
      std::vector<Worker*> busy;
      for (Worker& worker : workers_)
        if (worker.task.job) {
          ends.push_back({worker.child->descriptor(), POLLIN, 0});
          busy.push_back(&worker);
        }
      constexpr int kInterruptMilliseconds = 200;
      ::poll(ends.data(), ends.size(), kInterruptMilliseconds);
      check_interrupt("batch");
      for (size_t i = 0; i < busy.size(); ++i)
        if (ends[i].revents) listen(*busy[i]);
    }
  }

 private:
  void hand_out() {
    for (Worker& worker : workers_) {
      if (waiting_.empty()) return;
      if (worker.task.job) continue;
      if (!worker.child)
        worker.child = std::make_unique<LineChild>(worker_command(options_, worker.device, threads_),
                                                   options_.output / "workers.log");
      worker.task = waiting_.front();
      waiting_.pop_front();
      ++worker.task.tries;
      if (!worker.child->send(json_from(*worker.task.job).dump())) lose(worker);
    }
  }

  void listen(Worker& worker) {
    std::vector<std::string> lines;
    if (!worker.child->read_some(lines)) return lose(worker);
    for (const std::string& line : lines) end_of(worker, parse_json(line, "a worker"));
  }

  void lose(Worker& worker) {
    const std::string how = worker.child->how_it_ended();
    worker.child.reset();
    end_of(worker, {{"id", worker.task.job->id},
                    {"kind", worker.task.job->kind},
                    {"status", "failed"},
                    {"error",
                     {{"code", "internal"},
                      {"message", fmt::format("[batch] the worker was lost: {}; try {}", how,
                                              (options_.output / "workers.log").string())}}},
                    {"retriable", true}});
  }

  void end_of(Worker& worker, Json result) {
    const Task task = worker.task;
    worker.task = {};
    if (result.value("retriable", false) && task.tries <= options_.retries) {
      waiting_.push_back(task);
      return;
    }
    result["tries"] = task.tries;
    --left_;
    ended_(result);
  }

  const EngineOptions& options_;
  const JobEnded& ended_;
  std::deque<Task> waiting_;
  std::vector<Worker> workers_;
  size_t left_;
  int threads_ = 1;
};

}  // namespace

void run_locally(const std::vector<BatchJob>& jobs, const EngineOptions& options, const JobEnded& ended) {
  LocalEngine(jobs, options, ended).run();
}

}  // namespace lockstep
