#include "backend/cuda/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "backend/leaf_library.h"

namespace lockstep::cuda {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestDriver = 13000;  // the leaf is built with CUDA 13: older drivers lack its entry points

std::vector<fs::path> split(const char* list) {
  std::vector<fs::path> parts;
  std::string text = list ? list : "";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<fs::path> subfolders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// .../lib/python3.12/site-packages/nvidia/*/lib of an environment's root.
void add_packages(const fs::path& root, std::vector<fs::path>& folders) {
  for (const fs::path& python : subfolders(root / "lib"))
    if (python.filename().string().starts_with("python3"))
      for (const fs::path& package : subfolders(python / "site-packages" / "nvidia"))
        folders.push_back(package / "lib");
}

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders = split(std::getenv("LOCKSTEP_CUDA_LIBRARIES"));
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_packages(environment, folders);
  std::error_code error;
  for (const fs::path& folder : split(std::getenv("PATH")))
    if (fs::exists(folder / "python3", error)) {
      add_packages(folder.parent_path(), folders);
      break;
    }
  for (const char* toolkit : {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"}) folders.emplace_back(toolkit);
  return folders;
}

// The library's path, or its plain name when the system's loader knows it; empty when neither finds it.
std::string find_library(const std::vector<fs::path>& folders, const std::string& name) {
  std::error_code error;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / name, error)) return (folder / name).string();
  if (void* opened = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    dlclose(opened);
    return name;
  }
  return {};
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Libraries look() {
  Libraries found;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    const char* reason = dlerror();
    found.why = std::string("no NVIDIA driver: ") + (reason ? reason : "libcuda.so.1 cannot be opened");
    return found;
  }
  using VersionFunction = int (*)(int*);
  if (const auto version = reinterpret_cast<VersionFunction>(dlsym(driver, "cuDriverGetVersion")))
    version(&found.driver_version);
  if (found.driver_version < kOldestDriver) {
    found.why = "the driver is too old: it supports CUDA " + version_text(found.driver_version) + ", needed is " +
                version_text(kOldestDriver);
    return found;
  }
  found.leaf_path = find_leaf("lockstep_cuda", "LOCKSTEP_CUDA_LEAF");
  if (found.leaf_path.empty()) {
    found.why =
        "this build has no CUDA part: liblockstep_cuda.so is not beside the program (./dev build makes it where "
        "nvcc is found)";
    return found;
  }
  const Leaf* const leaf = open_leaf<Leaf>(found.leaf_path, kLeafEntry, kLeafVersion, found.why);
  if (!leaf) return found;
  const std::vector<fs::path> folders = library_folders();
  found.cublaslt_path = find_library(folders, "libcublasLt.so.13");
  found.cudnn_path = find_library(folders, "libcudnn.so.9");
  if (found.cublaslt_path.empty()) {
    found.why = "no library: libcublasLt.so.13 was not found (pip install nvidia-cublas, or LOCKSTEP_CUDA_LIBRARIES)";
    return found;
  }
  // cuDNN compiles some kernels when it first needs them, and finds the compiler by its plain name.
  if (const std::string compiler = find_library(folders, "libnvrtc.so.13"); !compiler.empty())
    dlopen(compiler.c_str(), RTLD_NOW | RTLD_GLOBAL);
  // cuDNN's frontend wants a CUDA runtime it can open by name.
  if (const std::string runtime = find_library(folders, "libcudart.so.13"); !runtime.empty())
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), 0);
  else
    found.cudnn_path.clear();
  int driver_version = 0;
  if (leaf->count(&found.devices, &driver_version) != Outcome::kDone || found.devices == 0) {
    found.why = std::string("no device: ") + (found.devices == 0 ? leaf->message() : "none is visible");
    return found;
  }
  found.leaf = leaf;
  return found;
}

}  // namespace

const Libraries& libraries() {
  static const Libraries found = look();
  return found;
}

}  // namespace lockstep::cuda
