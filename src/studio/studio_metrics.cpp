#include "studio/studio_metrics.h"

#include <fmt/format.h>

#include <array>

namespace lockstep {
namespace {

constexpr std::array<double, 12> kBounds{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800};

void metric_head(std::string& out, const char* name, const char* kind, const char* help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

// Names of models come from the command line: a label holds them with quotes and backslashes escaped.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

void StudioMetrics::Histogram::add(double secs) {
  for (size_t i = 0; i < kBounds.size(); ++i)
    if (secs <= kBounds[i]) ++counts[i];
  ++all;
  sum += secs;
}

void StudioMetrics::queued_for(double secs) {
  const std::lock_guard lock(mutex_);
  queue_wait_.add(secs);
}

void StudioMetrics::stage_took(const std::string& stage, double secs) {
  const std::lock_guard lock(mutex_);
  stages_[stage].add(secs);
}

void StudioMetrics::step_took(double secs) {
  const std::lock_guard lock(mutex_);
  step_.add(secs);
}

void StudioMetrics::previewed(double secs) {
  const std::lock_guard lock(mutex_);
  preview_.add(secs);
}

void StudioMetrics::drew(uint64_t pictures, uint64_t in_batch) {
  const std::lock_guard lock(mutex_);
  pictures_ += pictures;
  if (in_batch > 1) batched_ += pictures;
}

void StudioMetrics::cancelled_in(double secs, int64_t layers) {
  const std::lock_guard lock(mutex_);
  cancel_secs_ = secs;
  cancel_layers_ = layers;
}

void StudioMetrics::count(std::map<std::string, uint64_t>& counts, const std::string& key) {
  const std::lock_guard lock(mutex_);
  ++counts[key];
}

void StudioMetrics::write(std::string& out, const char* name, const std::string& labels, const Histogram& histogram) {
  const std::string comma = labels.empty() ? "" : ",", braces = labels.empty() ? "" : "{" + labels + "}";
  for (size_t i = 0; i < kBounds.size(); ++i)
    out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, kBounds[i], histogram.counts[i]);
  out += fmt::format("{}_bucket{{{}{}le=\"+Inf\"}} {}\n", name, labels, comma, histogram.all);
  out += fmt::format("{}_sum{} {}\n{}_count{} {}\n", name, braces, histogram.sum, name, braces, histogram.all);
}

std::string StudioMetrics::text(const Now& now) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto one = [&](const char* name, const char* kind, const char* help, uint64_t value) {
    metric_head(out, name, kind, help);
    out += fmt::format("{} {}\n", name, value);
  };
  one("lockstep_jobs_running", "gauge", "Jobs that are being drawn.", now.running);
  one("lockstep_jobs_waiting", "gauge", "Jobs in the queue.", now.waiting);
  one("lockstep_event_streams", "gauge", "Connections that wait without a thread.", now.streams);
  metric_head(out, "lockstep_jobs_total", "counter", "Jobs that have ended, by how.");
  for (const char* status : {"completed", "failed", "cancelled"}) {
    const auto found = jobs_.find(status);
    out += fmt::format("lockstep_jobs_total{{status=\"{}\"}} {}\n", status, found == jobs_.end() ? 0 : found->second);
  }
  const auto cancelled = jobs_.find("cancelled");
  one("lockstep_jobs_cancelled_total", "counter", "Jobs that were cancelled.",
      cancelled == jobs_.end() ? 0 : cancelled->second);
  one("lockstep_pictures_total", "counter", "Pictures drawn.", pictures_);
  one("lockstep_pictures_batched_total", "counter", "Of them, those drawn together with others.", batched_);
  metric_head(out, "lockstep_queue_wait_seconds", "histogram", "Time between a job's arrival and its first stage.");
  write(out, "lockstep_queue_wait_seconds", "", queue_wait_);
  metric_head(out, "lockstep_stage_seconds", "histogram", "Time of one stage of one run.");
  for (const auto& [stage, histogram] : stages_)
    write(out, "lockstep_stage_seconds", "stage=\"" + label(stage) + "\"", histogram);
  metric_head(out, "lockstep_step_seconds", "histogram", "Time of one denoising step of one run.");
  write(out, "lockstep_step_seconds", "", step_);
  metric_head(out, "lockstep_preview_seconds", "histogram", "Time of one preview.");
  write(out, "lockstep_preview_seconds", "", preview_);
  metric_head(out, "lockstep_last_cancel_seconds", "gauge", "Time the last cancelled run took to stop.");
  out += fmt::format("lockstep_last_cancel_seconds {}\n", cancel_secs_);
  metric_head(out, "lockstep_last_cancel_layers", "gauge",
              "Layers that the last cancelled run began after the cancel.");
  out += fmt::format("lockstep_last_cancel_layers {}\n", cancel_layers_);
  one("lockstep_model_loads_total", "counter", "Parts of models that were loaded.", now.loads);
  metric_head(out, "lockstep_model_part_bytes", "gauge", "Bytes of each part that is loaded.");
  for (const auto& [part, bytes] : now.parts)
    out += fmt::format("lockstep_model_part_bytes{{part=\"{}\"}} {}\n", label(part), bytes);
  one("lockstep_tensor_bytes", "gauge", "Bytes of tensors in use, weights included.", now.tensor_bytes);
  one("process_resident_memory_bytes", "gauge", "Resident memory of the process.", now.resident_bytes);
  return out;
}

}  // namespace lockstep
