// Draws from one generator, for the tests: noise_probe SEED (DTYPE COUNT)... writes the values' bytes to standard
// output.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "pipeline/noise.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 4 || argc % 2 != 0) {
    std::cerr << "noise_probe SEED (DTYPE COUNT)...\n";
    return 2;
  }
  try {
    TorchGenerator generator(std::strtoull(argv[1], nullptr, 10));
    for (int i = 2; i + 1 < argc; i += 2) {
      const auto dtype = dtype_from_name(argv[i]);
      if (!dtype) fail(Code::kUsage, "noise_probe", "unknown type", {.got = argv[i]});
      const Tensor noise = torch_randn({std::atoll(argv[i + 1])}, *dtype, generator);
      const auto bytes = noise.contiguous_bytes();
      std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return exit_status(error.code());
  }
}
