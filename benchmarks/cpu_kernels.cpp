// Times one kernel of the CPU backend per line read from standard input and answers with seconds: driven by
// benchmarks/cpu_kernels.py, which interleaves us with torch and prints ratios.
// Arguments: the number of threads (0: all), then "processor" for processor time instead of wall time (one thread).
//   linear <bf16|f32> M N K            quantised <bf16|f32> M N K BITS GROUP
//   attention <dtype> TOKENS HEADS WIDTH      conv <dtype> SIZE IN OUT [KERNEL]
//   norm_modulate|head_norm_rope|add_gated <dtype> ROWS WIDTH      peak <dtype>      bandwidth MEGABYTES
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/features.h"
#include "backend/cpu/panel.h"
#include "base/error.h"

namespace {

using namespace lockstep;

Tensor random_tensor(DType dtype, const Shape& shape, float scale = 1) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  std::minstd_rand engine(7);
  float* to = values.mutable_data<float>();
  for (int64_t i = 0; i < values.numel(); ++i) to[i] = scale * (static_cast<float>(engine() % 20001) / 10000.0f - 1);
  return values.to(dtype);
}

// On a machine that is busy with other things, one thread's processor time says more than the clock on the wall.
bool use_processor_time = false;

double now_seconds() {
  timespec time{};
  clock_gettime(use_processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
  const double begin = now_seconds();
  work();
  return now_seconds() - begin;
}

class Cases {
 public:
  explicit Cases(int threads)
      : backend_(make_backend("cpu", threads)), threads_(threads ? threads : omp_get_num_procs()) {}

  std::string description() const { return backend_->description(); }

  // The work of one line, made once and kept: repeats measure the kernel alone.
  std::function<void()>& work(const std::string& line) {
    auto found = made_.find(line);
    if (found != made_.end()) return found->second;
    if (made_.size() > 2) made_.clear();  // a dense and a quantised case of the same shape at a time
    std::istringstream in(line);
    std::string kind, dtype_text;
    in >> kind >> dtype_text;
    if (kind == "bandwidth") return made_[line] = bandwidth(std::stoll(dtype_text));
    const std::optional<DType> dtype = dtype_from_name(dtype_text);
    if (!dtype) fail(Code::kUsage, "benchmark", "no dtype of this name", {.got = dtype_text});
    std::vector<int64_t> sizes;
    for (int64_t size = 0; in >> size;) sizes.push_back(size);
    sizes.resize(6, 0);
    if (kind == "linear" || kind == "quantised") return made_[line] = linear(*dtype, sizes);
    if (kind == "attention") return made_[line] = attention(*dtype, sizes);
    if (kind == "conv") return made_[line] = convolution(*dtype, sizes);
    if (kind == "peak") return made_[line] = peak(*dtype);
    return made_[line] = rows(kind, *dtype, sizes);
  }

 private:
  std::function<void()> linear(DType dtype, const std::vector<int64_t>& s) {
    auto weight = std::make_shared<LinearWeight>();
    const int64_t n = s[1], k = s[2];
    if (s[3]) {
      weight->bits = static_cast<int>(s[3]);
      weight->group_size = static_cast<int>(s[4]);
      weight->weight = Tensor::zeros(DType::kU32, {n, k * s[3] / 32});
      weight->scales = random_tensor(dtype, {n, k / s[4]}, 0.01f);
      weight->biases = random_tensor(dtype, {n, k / s[4]}, 0.1f);
      std::minstd_rand engine(3);
      for (int64_t i = 0; i < weight->weight.numel(); ++i)
        weight->weight.mutable_data<uint32_t>()[i] = static_cast<uint32_t>(engine()) * 2654435761u;
    } else {
      weight->weight = random_tensor(dtype, {n, k}, 0.02f);
    }
    weight->bias = random_tensor(dtype, {n});
    backend_->prepare(*weight, dtype);
    auto x = std::make_shared<Tensor>(random_tensor(dtype, {s[0], k}));
    auto out = std::make_shared<Tensor>(Tensor::zeros(dtype, {s[0], n}));
    return [=, this] { backend_->linear({.x = *x, .weight = *weight, .out = *out}); };
  }

  std::function<void()> attention(DType dtype, const std::vector<int64_t>& s) {
    const Shape shape = {1, s[0], s[1], s[2]};
    auto q = std::make_shared<Tensor>(random_tensor(dtype, shape)), k = std::make_shared<Tensor>(q->clone());
    auto v = std::make_shared<Tensor>(q->clone()), out = std::make_shared<Tensor>(Tensor::zeros(dtype, shape));
    const float scale = 1 / std::sqrt(static_cast<float>(s[2]));
    return [=, this] { backend_->attention({.q = *q, .k = *k, .v = *v, .out = *out, .scale = scale}); };
  }

  std::function<void()> convolution(DType dtype, const std::vector<int64_t>& s) {
    const int64_t kernel = s[3] ? s[3] : 3;
    const int pad = static_cast<int>(kernel / 2);
    auto weight = std::make_shared<ConvWeight>();
    weight->weight = random_tensor(dtype, {s[2], s[1], kernel, kernel}, 0.05f);
    weight->bias = random_tensor(dtype, {s[2]});
    backend_->prepare(*weight, dtype);
    auto x = std::make_shared<Tensor>(random_tensor(dtype, {1, s[0], s[0], s[1]}));
    auto out = std::make_shared<Tensor>(Tensor::zeros(dtype, {1, s[0], s[0], s[2]}));
    return [=, this] {
      backend_->conv2d({.x = *x,
                        .weight = *weight,
                        .out = *out,
                        .pad_top = pad,
                        .pad_left = pad,
                        .pad_bottom = pad,
                        .pad_right = pad});
    };
  }

  std::function<void()> rows(const std::string& kind, DType dtype, const std::vector<int64_t>& s) {
    const int64_t width = s[1];
    auto x = std::make_shared<Tensor>(random_tensor(dtype, {1, s[0], width})), y = std::make_shared<Tensor>(x->clone());
    auto out = std::make_shared<Tensor>(Tensor::zeros(dtype, x->shape()));
    auto line = std::make_shared<Tensor>(random_tensor(dtype, {1, width}));
    if (kind == "norm_modulate")
      return [=, this] { backend_->layer_norm({.x = *x, .out = *out, .scale = line.get(), .shift = line.get()}); };
    if (kind == "add_gated") return [=, this] { backend_->add_gated({.x = *x, .gate = *line, .y = *y, .out = *out}); };
    if (kind == "head_norm_rope") {
      const Shape heads = {1, s[0], width / 128, 128};
      auto hx = std::make_shared<Tensor>(x->reshape(heads)), hout = std::make_shared<Tensor>(out->reshape(heads));
      auto weight = std::make_shared<Tensor>(random_tensor(dtype, {128}));
      auto turn = std::make_shared<Tensor>(random_tensor(DType::kF32, {s[0], 64}));
      return [=, this] {
        backend_->head_norm_rope({.x = *hx,
                                  .out = *hout,
                                  .weight = weight.get(),
                                  .style = RopeStyle::kInterleaved,
                                  .cos = turn.get(),
                                  .sin = turn.get()});
      };
    }
    fail(Code::kUsage, "benchmark", "no kernel of this name", {.got = kind});
  }

  // Products of a panel that never leaves the nearest caches, on every thread: the machine's practical peak.
  std::function<void()> peak(DType dtype) {
    constexpr int64_t kRows = 96, kDepth = 128;  // whole tiles of every instruction set
    auto a = std::make_shared<Tensor>(Tensor::zeros(dtype, {kRows, kDepth}));
    auto panel = std::make_shared<Tensor>(Tensor::zeros(dtype, {kDepth, cpu::kPanel}));
    const auto multiply = dtype == DType::kF32                      ? cpu::multiply_f32
                          : cpu::active_level() == cpu::Level::kAmx ? cpu::multiply_bf16_amx
                                                                    : cpu::multiply_bf16_avx512;
    return [=, this] {
#pragma omp parallel num_threads(threads_)
      {
        alignas(64) static thread_local float c[kRows * cpu::kPanel] = {};
        const cpu::PanelProduct product = {.a = a->strided_data(),
                                           .a_stride = kDepth,
                                           .panel = panel->strided_data(),
                                           .c = c,
                                           .c_stride = cpu::kPanel,
                                           .rows = kRows,
                                           .k = kDepth,
                                           .columns = cpu::kPanel,
                                           .accumulate = true};
        for (int i = 0; i < kPeakRepeats; ++i) multiply(product);
      }
    };
  }
  static constexpr int kPeakRepeats = 625;  // x 96 x 128 x 64 x 2 operations a thread

  // A plain copy between two buffers beyond every cache: what one read and one write stream reach together.
  std::function<void()> bandwidth(int64_t megabytes) {
    const int64_t count = megabytes << 18;
    auto from = std::make_shared<Tensor>(Tensor::zeros(DType::kF32, {count})),
         to = std::make_shared<Tensor>(Tensor::zeros(DType::kF32, {count}));
    return [=, this] { backend_->copy({.from = *from, .to = *to}); };
  }

  std::unique_ptr<Backend> backend_;
  int threads_;
  std::map<std::string, std::function<void()>> made_;
};

}  // namespace

int main(int count, char** arguments) {
  try {
    use_processor_time = count > 2 && std::string(arguments[2]) == "processor";
    Cases cases(count > 1 ? std::atoi(arguments[1]) : 0);
    std::printf("%s\n", cases.description().c_str());
    std::fflush(stdout);
    std::string line;
    while (std::getline(std::cin, line)) {
      std::function<void()>& work = cases.work(line);
      const double once = seconds_of(work);  // also warms up: primitives, pages, caches
      const int repeats = static_cast<int>(std::clamp(0.02 / std::max(once, 1e-7), 1.0, 2000.0));
      double best = 1e9;
      for (int round = 0; round < 3; ++round)
        best = std::min(best, seconds_of([&] {
                                for (int i = 0; i < repeats; ++i) work();
                              }) / repeats);
      std::printf("%.9f\n", best);
      std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
