// The language model of Qwen2.5-VL as Qwen-Image uses it: token ids in, the last hidden states after the final norm
// out; and, for captions, one token after the other.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "models/config_reader.h"
#include "nn/layers.h"

namespace lockstep::models {

struct TextConfig {
  int layers = 0;
  int64_t width = 0, heads = 0, kv_heads = 0, hidden = 0, vocabulary = 0, head_width = 0;
  float eps = 1e-6f;
  double rope_theta = 1e6;
  std::vector<int64_t> mrope_section = {};  // frequencies that turn with time, height and width, taken in turn
  bool tied_head = false;                   // the output projection is the embedding itself
};

TextConfig read_text_config(const fs::path& path);  // flat, or nested under text_config as newer transformers write it

// Where a token stands: time, height, width. All three are equal for text.
using TextPosition = std::array<int64_t, 3>;

struct RotaryTable {
  Tensor cos, sin;  // f32 [S, head_width / 2]
};

// The keys and values of tokens that were seen before, a pair a layer.
struct KeyValueCache {
  std::vector<Tensor> keys, values;  // [1, capacity, G, D]
  int64_t length = 0;
};

class TextLayer {
 public:
  TextLayer(const nn::Weights& weights, const TextConfig& config);
  // With a cache, keys and values are appended to it at `index` of its lists.
  Tensor forward(const Tensor& x, const RotaryTable& rope, KeyValueCache* cache, int index, const nn::Ctx& ctx) const;

 private:
  // Both with the residual added.
  Tensor self_attention(const Tensor& x, const Tensor& residual, const RotaryTable& rope, KeyValueCache* cache,
                        int index, const nn::Ctx& ctx) const;
  Tensor mlp(const Tensor& x, const Tensor& residual, const nn::Ctx& ctx) const;

  TextConfig config_;
  nn::RmsNorm input_norm_, post_norm_;
  nn::Linear q_, k_, v_, o_, gate_, up_, down_;
};

class TextModel {
 public:
  enum class Head { kNone, kLogits };  // whether the output projection is loaded, for generating text
  TextModel(const nn::Weights& weights, const TextConfig& config, Head head = Head::kNone);

  struct Input {
    std::span<const int64_t> ids;
    Tensor image_rows = {};                        // [n, D]: put in the places of the image tokens, in order
    int64_t image_token = -1;                      // which id those are
    std::span<const TextPosition> positions = {};  // one a token; empty: counted from 0, or from what the cache holds
    KeyValueCache* cache = nullptr;
  };
  Tensor forward(const Input& input, const nn::Ctx& ctx) const;  // [1, S, D]; ctx is the component
  Tensor forward(std::span<const int64_t> ids, const nn::Ctx& ctx) const { return forward(Input{.ids = ids}, ctx); }

  Tensor logits(const Tensor& hidden, const nn::Ctx& ctx) const;  // [1, S, D] → [1, S, V]
  KeyValueCache make_cache(Backend& backend, int64_t capacity, DType dtype) const;
  const TextConfig& config() const { return config_; }

 private:
  Tensor embed(const Input& input, const nn::Ctx& ctx) const;
  RotaryTable rotary_table(const Input& input) const;

  TextConfig config_;
  Tensor embedding_;  // [V, D]
  std::vector<TextLayer> layers_;
  nn::RmsNorm norm_;
  LinearWeight head_;
};

}  // namespace lockstep::models
