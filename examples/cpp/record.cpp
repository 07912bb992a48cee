// A port in C++ that offers its stages. Off unless asked for:
//   LOCKSTEP_RECORD=cpp_port ./example_cpp && lockstep runs show latest:cpp_port
#include <cstdio>
#include <lockstep/capture.hpp>
#include <vector>

int main() {
  auto run = lockstep::capture::Run::from_environment("cpp_port");
  run.describe(R"({"model": "example", "producer": {"name": "example_cpp", "language": "c++"}})");

  std::vector<float> x{0, 1, 2, 3, 4, 5};
  run.checkpoint("input", x.data(), {2, 3});
  for (int step = 0; step < 3; ++step) {
    for (float& value : x) value = 0.5f * value + 1.0f;  // [2, 3]
    run.checkpoint("latents", x.data(), {2, 3}, {step, {{"pass", "cond"}}});
  }
  // A transposed view of the same memory: strides say how to walk it.
  lockstep::capture::At transposed;
  transposed.strides = {1, 3};
  run.checkpoint("latents_transposed", x.data(), {3, 2}, transposed);
  float sum = 0;
  for (const float value : x) sum += value;
  std::printf("%.4f\n", sum);
  run.close();
}
