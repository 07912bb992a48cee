// Runs one kernel on tensors from .npy files, so that Python tests can hold a backend against torch and MLX.
//   backend_probe BACKEND KERNEL FOLDER [key=value ...]
// FOLDER holds the inputs by their argument names (x.npy, weight.npy, ...) and receives out.npy (quantize: also
// scales.npy, biases.npy). bf16 tensors are stored as NumPy stores them, in two-byte voids.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/quantize.h"
#include "base/error.h"
#include "io/npy.h"

using namespace lockstep;

namespace {

class Request {
 public:
  Request(int count, char** arguments) : folder_(arguments[3]) {
    for (int i = 4; i < count; ++i) {
      const std::string pair = arguments[i];
      const size_t at = pair.find('=');
      if (at == std::string::npos) fail(Code::kUsage, "probe", "options are key=value", {.got = pair});
      options_[pair.substr(0, at)] = pair.substr(at + 1);
    }
  }

  Tensor input(const std::string& name) const { return read_npy(folder_ / (name + ".npy")).clone(); }
  const Tensor* optional(const std::string& name) {
    if (!fs::exists(folder_ / (name + ".npy"))) return nullptr;
    return &(kept_[name] = input(name));
  }
  int integer(const std::string& key, int otherwise) const {
    const auto found = options_.find(key);
    return found == options_.end() ? otherwise : std::atoi(found->second.c_str());
  }
  float number(const std::string& key, float otherwise) const {
    const auto found = options_.find(key);
    return found == options_.end() ? otherwise : std::strtof(found->second.c_str(), nullptr);
  }
  void write(const std::string& name, const Tensor& tensor) const { write_npy(folder_ / (name + ".npy"), tensor); }

 private:
  fs::path folder_;
  std::map<std::string, std::string> options_;
  std::map<std::string, Tensor> kept_;
};

Tensor linear(Backend& backend, Request& request) {
  LinearWeight weight;
  weight.weight = request.input("weight");
  weight.bits = request.integer("bits", 0);
  weight.group_size = request.integer("group_size", 0);
  if (weight.bits) {
    weight.scales = request.input("scales");
    weight.biases = request.input("biases");
  }
  if (const Tensor* bias = request.optional("bias")) weight.bias = *bias;
  const Tensor x = request.input("x");
  backend.prepare(weight, x.dtype());
  Shape shape = x.shape();
  shape.back() = weight.outputs();
  Tensor out = Tensor::empty(x.dtype(), shape);
  backend.linear(
      {.x = x, .weight = weight, .out = out, .activation = static_cast<Activation>(request.integer("activation", 0))});
  return out;
}

Tensor attention(Backend& backend, Request& request) {
  const Tensor q = request.input("q"), k = request.input("k"), v = request.input("v");
  Tensor out = Tensor::empty(q.dtype(), q.shape());
  backend.attention({.q = q,
                     .k = k,
                     .v = v,
                     .out = out,
                     .scale = request.number("scale", 1),
                     .causal = request.integer("causal", 0) != 0,
                     .key_mask = request.optional("key_mask")});
  return out;
}

Tensor convolution(Backend& backend, Request& request) {
  ConvWeight weight;
  weight.weight = request.input("weight");
  if (const Tensor* bias = request.optional("bias")) weight.bias = *bias;
  const Tensor x = request.input("x");
  backend.prepare(weight, x.dtype());
  const int stride = request.integer("stride", 1), before = request.integer("before", 0),
            after = request.integer("after", 0);
  const auto size = [&](int axis) { return (x.dim(axis) + before + after - weight.weight.dim(axis + 1)) / stride + 1; };
  Tensor out = Tensor::empty(x.dtype(), {x.dim(0), size(1), size(2), weight.weight.dim(0)});
  backend.conv2d({.x = x,
                  .weight = weight,
                  .out = out,
                  .stride = stride,
                  .pad_top = before,
                  .pad_left = before,
                  .pad_bottom = after,
                  .pad_right = after});
  return out;
}

Tensor norm(Backend& backend, const std::string& kernel, Request& request) {
  const Tensor x = request.input("x");
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  const float eps = request.number("eps", 1e-6f);
  const Tensor* weight = request.optional("weight");
  if (kernel == "rms_norm")
    backend.rms_norm({.x = x, .weight = weight, .out = out, .eps = eps});
  else if (kernel == "layer_norm")
    backend.layer_norm({.x = x,
                        .out = out,
                        .eps = eps,
                        .weight = weight,
                        .bias = request.optional("bias"),
                        .scale = request.optional("scale"),
                        .shift = request.optional("shift")});
  else if (kernel == "head_norm_rope")
    backend.head_norm_rope({.x = x,
                            .out = out,
                            .weight = weight,
                            .eps = eps,
                            .style = static_cast<RopeStyle>(request.integer("style", 0)),
                            .cos = request.optional("cos"),
                            .sin = request.optional("sin")});
  else
    backend.unary({.op = static_cast<UnaryOp>(request.integer("op", 0)), .x = x, .out = out});
  return out;
}

Tensor quantize(Request& request, bool back) {
  const int bits = request.integer("bits", 4), group_size = request.integer("group_size", 64);
  if (back)
    return dequantize_affine({request.input("weight"), request.input("scales"), request.input("biases")}, bits,
                             group_size);
  const Quantised quantised = quantize_affine(request.input("x"), bits, group_size);
  request.write("scales", quantised.scales);
  request.write("biases", quantised.biases);
  return quantised.weight;
}

Tensor run(Backend& backend, const std::string& kernel, Request& request) {
  if (kernel == "linear") return linear(backend, request);
  if (kernel == "attention") return attention(backend, request);
  if (kernel == "conv2d") return convolution(backend, request);
  if (kernel == "quantize" || kernel == "dequantize") return quantize(request, kernel == "dequantize");
  return norm(backend, kernel, request);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: backend_probe BACKEND KERNEL FOLDER [key=value ...]\n");
    return 2;
  }
  try {
    Request request(count, arguments);
    const std::unique_ptr<Backend> backend = make_backend(arguments[1]);
    request.write("out", run(*backend, arguments[2], request));
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_status(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 4;
  }
}
