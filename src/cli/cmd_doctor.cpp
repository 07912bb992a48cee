#include <fmt/format.h>

#include "backend/cuda/report.h"
#include "backend/devices.h"
#include "backend/mlx/report.h"
#include "base/number_text.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/machine.h"
#include "cli/terminal.h"

namespace lockstep {
namespace {

std::string amx_text(const CpuFacts& cpu) {
  if (!cpu.amx_in_leaf_7) return "none";
  return cpu.leaf_1d_visible ? "yes, CPUID leaf 0x1D visible"
                             : "yes, but CPUID leaf 0x1D is hidden: oneDNN is kept to AVX-512";
}

std::string cuda_text(const CudaReport& cuda) {
  if (!cuda.usable) return "not usable: " + cuda.why;
  std::string text = "driver for CUDA " + cuda.driver + ", cuBLASLt " + std::to_string(cuda.cublaslt_version) +
                     (cuda.cudnn_version ? ", cuDNN " + std::to_string(cuda.cudnn_version) : ", no cuDNN");
  for (size_t i = 0; i < cuda.devices.size(); ++i) {
    const CudaDeviceReport& device = cuda.devices[i];
    text += fmt::format("; cuda:{} ", i);
    text += device.why.empty() ? fmt::format("{}, capability {}, {} of {} free", device.name, device.capability,
                                             text_from_bytes(device.free_bytes), text_from_bytes(device.total_bytes))
                               : device.why;
  }
  return text;
}

std::string mlx_text(const MlxReport& mlx) {
  if (!mlx.usable) return "not usable: " + mlx.why;
  return mlx.version +
         (mlx.gpu ? " on " + mlx.device + ", " + text_from_bytes(mlx.total_bytes) : ", its CPU form (slow: for tests)");
}

void print_text(const App& app) {
  const Terminal terminal(app.global);
  const auto line = [&](const std::string& name, const std::string& value) {
    print("{}  {}\n", terminal.styled(fmt::format("{:<14}", name), Style::kDim), value);
  };
  const CpuFacts cpu = cpu_facts();
  const MemoryFacts memory = memory_facts();
  const PythonFacts python = python_facts();
  std::string features, missing;
  for (const auto& [name, there] : cpu.features) (there ? features : missing) += " " + name;
  line("lockstep", LOCKSTEP_VERSION);
  line("compiler", __VERSION__);
  line("CPU", cpu.model);
  line("cores", std::to_string(cpu.cores));
  line("usable", features.empty() ? "none of those asked for" : features.substr(1));
  if (!missing.empty()) line("missing", missing.substr(1));
  line("AMX", amx_text(cpu));
  line("memory",
       fmt::format("{}, {} available", text_from_bytes(memory.total_bytes), text_from_bytes(memory.available_bytes)));
  line("CUDA", cuda_text(cuda_report()));
  line("MLX", mlx_text(mlx_report()));
  line("python", python.path.empty() ? "not found: recording Python programs needs one"
                                     : python.version + " (" + python.path + ")");
  for (const auto& [name, version] : library_versions()) line(name, version);
}

}  // namespace

Json doctor_json() {
  const CpuFacts cpu = cpu_facts();
  const MemoryFacts memory = memory_facts();
  const PythonFacts python = python_facts();
  Json features = Json::object(), libraries = Json::object();
  for (const auto& [name, there] : cpu.features) features[name] = there;
  for (const auto& [name, version] : library_versions()) libraries[name] = version;
  const CudaReport cuda = cuda_report();
  const MlxReport mlx = mlx_report();
  Json gpus = Json::array(), devices = Json::array();
  for (const UsableDevice& device : usable_devices())
    devices.push_back({{"name", device.name}, {"words", device.words}});
  for (const CudaDeviceReport& device : cuda.devices)
    gpus.push_back({{"name", device.name},
                    {"capability", device.capability},
                    {"total_bytes", device.total_bytes},
                    {"free_bytes", device.free_bytes},
                    {"why", device.why}});
  return {{"version", LOCKSTEP_VERSION},
          {"compiler", __VERSION__},
          {"cpu",
           {{"model", cpu.model},
            {"cores", cpu.cores},
            {"features", features},
            {"amx_in_leaf_7", cpu.amx_in_leaf_7},
            {"leaf_1d_visible", cpu.leaf_1d_visible}}},
          {"memory", {{"total_bytes", memory.total_bytes}, {"available_bytes", memory.available_bytes}}},
          {"cuda",
           {{"usable", cuda.usable},
            {"why", cuda.why},
            {"driver", cuda.driver},
            {"leaf", cuda.leaf},
            {"cublaslt", cuda.cublaslt},
            {"cudnn", cuda.cudnn},
            {"devices", gpus}}},
          {"mlx",
           {{"usable", mlx.usable},
            {"why", mlx.why},
            {"version", mlx.version},
            {"device", mlx.device},
            {"gpu", mlx.gpu},
            {"total_bytes", mlx.total_bytes},
            {"leaf", mlx.leaf}}},
          {"devices", devices},
          {"python", python.path.empty() ? Json() : Json{{"path", python.path}, {"version", python.version}}},
          {"libraries", libraries}};
}

void add_doctor(App& app) {
  CLI::App* command = app.cli.add_subcommand("doctor", "check this machine: CPU features, memory, libraries, versions");
  command->footer("lockstep doctor\nlockstep doctor --json");
  command->callback([&app] {
    if (app.global.json)
      print_json(doctor_json());
    else
      print_text(app);
  });
}

}  // namespace lockstep
