// Mutations that keep the structure of what is fuzzed: lines that are JSON documents stay lines of JSON nearly always,
// with values, members and whole lines changed, taken out, doubled and exchanged. Bytes alone would spend their time on
// what the first reader refuses.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/message.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);  // libFuzzer's

namespace lockstep {

using FuzzRandom = std::minstd_rand;

inline size_t below(FuzzRandom& random, size_t count) {
  return count ? random() % count : 0;
}

inline std::string mutated_bytes(std::string text, size_t more) {
  const size_t size = text.size();
  text.resize(size + more);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  return text;
}

class JsonMutator {
 public:
  // `words`: names and values that the reader knows.
  JsonMutator(FuzzRandom& random, std::span<const std::string> words) : random_(random), words_(words) {}

  // One or a few changes at nodes of the document.
  void mutate(Json& document) {
    for (size_t changes = 1 + below(random_, 3); changes > 0; --changes) {
      std::vector<Json*> nodes;
      collect(document, nodes);
      change(*nodes[below(random_, nodes.size())], *nodes[below(random_, nodes.size())]);
    }
  }

  Json value(int depth = 0) {
    switch (below(random_, depth > 3 ? 7 : 9)) {
      case 0:
        return nullptr;
      case 1:
        return below(random_, 2) == 0;
      case 2:
        return number();
      case 3:
        return static_cast<int64_t>(below(random_, 300)) - 20;
      case 4:
        return word();
      case 5:
        return text();
      case 6:
        return static_cast<double>(random_()) / 1000.0 - 1e5;
      case 7: {
        Json list = Json::array();
        for (size_t n = below(random_, 4); n > 0; --n) list.push_back(value(depth + 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (size_t n = below(random_, 5); n > 0; --n) object[word()] = value(depth + 1);
        return object;
      }
    }
  }

 private:
  static void collect(Json& node, std::vector<Json*>& into) {
    into.push_back(&node);
    if (node.is_structured())
      for (Json& part : node) collect(part, into);
  }

  Json number() {
    static const Json kNumbers[] = {0,
                                    -1,
                                    1,
                                    64,
                                    65,
                                    4096,
                                    std::numeric_limits<int32_t>::max(),
                                    std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<uint32_t>::max(),
                                    std::numeric_limits<int64_t>::max(),
                                    std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<uint64_t>::max(),
                                    0.5,
                                    -0.0,
                                    1e308,
                                    -1e308,
                                    5e-324,
                                    1e19};
    return kNumbers[below(random_, std::size(kNumbers))];
  }

  std::string text() {
    static const std::string kTexts[] = {"",
                                         "\x1b[31m",
                                         "\n",
                                         "..",
                                         "../../etc/passwd",
                                         "/dev/zero",
                                         "a/b.c",
                                         "\u202e",
                                         "\u0085",
                                         "NaN",
                                         "-Infinity",
                                         "{0}%s%n",
                                         "tensors/",
                                         "\xff\xfe",
                                         "tensors/../x",
                                         std::string(300, 'a'),
                                         std::string("a\0b", 3)};
    return below(random_, 3) == 0 ? mutated_bytes(word(), 8) : kTexts[below(random_, std::size(kTexts))];
  }

  std::string word() { return words_.empty() ? "x" : words_[below(random_, words_.size())]; }

  void change(Json& node, const Json& other) {
    switch (below(random_, 7)) {
      case 0:
        node = Json(other);  // of another place: the right kind of thing where it does not belong
        return;
      case 1:
        if (node.is_structured() && !node.empty()) {
          auto at = node.begin();
          std::advance(at, static_cast<std::ptrdiff_t>(below(random_, node.size())));
          node.erase(at);
          return;
        }
        break;
      case 2:
        if (node.is_object()) {
          node[word()] = value();
          return;
        }
        if (node.is_array()) {
          node.push_back(value());
          return;
        }
        break;
      case 3:
        if (node.is_string()) {
          node = mutated_bytes(node.get<std::string>(), 16);
          return;
        }
        if (node.is_number_integer()) {
          node = static_cast<int64_t>(static_cast<uint64_t>(node.get<int64_t>()) + below(random_, 5) - 2);  // may wrap
          return;
        }
        break;
      case 4: {  // deeper
        Json inner = node;
        node = below(random_, 2) ? Json::array({inner}) : Json{{word(), inner}};
        return;
      }
      default:
        break;
    }
    node = value();
  }

  FuzzRandom& random_;
  std::span<const std::string> words_;
};

// A document as text, now and then as no reader should take it: a member twice, cut, with a byte changed.
inline std::string text_of(const Json& document, FuzzRandom& random) {
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  const size_t way = below(random, 24);
  if (way == 0 && document.is_object() && !document.empty())
    text.insert(1, Json(document.begin().key()).dump(-1, ' ', false, Json::error_handler_t::replace) + ":0,");
  if (way == 1) text.resize(below(random, text.size() + 1));
  if (way == 2) text = mutated_bytes(text, 8);
  return text;
}

inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// `data` is `frame` bytes of the target's own, then lines of JSON. Writes the mutated input back.
inline size_t mutate_json_lines(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t frame,
                                std::span<const std::string> words, std::span<const std::string> examples) {
  FuzzRandom random(seed | 1u);
  for (int i = 0; i < 3; ++i) random();  // small seeds give small first numbers
  std::string input(reinterpret_cast<const char*>(data), size);
  if (input.size() < frame) input.resize(frame);
  std::vector<std::string> lines = lines_of(std::string_view(input).substr(frame));
  std::string& line = lines[below(random, lines.size())];
  switch (below(random, 12)) {
    case 0:
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size() + 1)),
                   examples[below(random, examples.size())]);
      break;
    case 1:
      lines.push_back(std::string(line));
      break;
    case 2:
      if (lines.size() > 1) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size())));
      break;
    case 3:
      std::swap(line, lines[below(random, lines.size())]);
      break;
    case 4:
      if (frame) input[below(random, frame)] = static_cast<char>(random());
      break;
    case 5:
      line = mutated_bytes(line, 16);
      break;
    default: {
      std::optional<Json> document = json_message(line);
      if (!document) document = json_message(examples[below(random, examples.size())]);
      if (!document) break;
      JsonMutator(random, words).mutate(*document);
      line = text_of(*document, random);
    }
  }
  std::string output = input.substr(0, frame);
  for (size_t i = 0; i < lines.size(); ++i) output += (i ? "\n" : "") + lines[i];
  output.resize(std::min(output.size(), max_size));
  std::memcpy(data, output.data(), output.size());
  return output.size();
}

}  // namespace lockstep
