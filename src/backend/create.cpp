#include "backend/backend.h"

#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/mlx/mlx_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/error.h"

namespace lockstep {

std::unique_ptr<Backend> make_backend(std::string_view name, int threads) {
  if (threads < 0) fail(Code::kBadInput, "backend", "a negative number of threads");
  if (name == "cpu") return make_cpu_backend(threads);
  if (name == "reference") return make_reference_backend();
  if (name == "mlx") return make_mlx_backend();
  if (name == "cuda") return make_cuda_backend(0);
  if (name.starts_with("cuda:")) {
    const std::string_view digits = name.substr(5);
    if (!digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == std::string_view::npos)
      return make_cuda_backend(std::stoi(std::string(digits)));
  }
  fail(Code::kBadInput, "backend", "no backend of this name",
       {.expected = "cpu, cuda, cuda:N, mlx or reference", .got = std::string(name)});
}

}  // namespace lockstep
