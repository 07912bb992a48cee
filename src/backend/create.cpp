#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/error.h"

namespace lockstep {

std::unique_ptr<Backend> make_backend(std::string_view name, int threads) {
  if (threads < 0) fail(Code::kBadInput, "backend", "a negative number of threads");
  if (name == "cpu") return make_cpu_backend(threads);
  if (name == "reference") return make_reference_backend();
  fail(Code::kBadInput, "backend", "no backend of this name",
       {.expected = "cpu or reference", .got = std::string(name)});
}

}  // namespace lockstep
