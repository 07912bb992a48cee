#include "cli/weights_tree.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/number_text.h"
#include "cli/table.h"

namespace lockstep {
namespace {

constexpr int kMaxLevels = 64;

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

int64_t number(std::string_view digits) {
  int64_t value = 0;
  for (const char c : digits) value = 10 * value + (c - '0');
  return value;
}

std::vector<std::string_view> dtype_names(uint32_t dtypes) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i)
    if (dtypes >> i & 1) names.push_back(dtype_name(static_cast<DType>(i)));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

WeightsTree::WeightsTree(const std::vector<const TensorInfo*>& tensors) {
  for (const TensorInfo* info : tensors) {
    Node* node = &root_;
    int level = 1;
    for (size_t begin = 0; begin <= info->name.size(); ++level) {
      // A name of a million dots is one long leaf, not a tree that no stack holds.
      const size_t dot = level < kMaxLevels ? info->name.find('.', begin) : std::string::npos;
      const size_t end = std::min(dot, info->name.size());
      node = &child(*node, std::string_view(info->name).substr(begin, end - begin));
      begin = end + 1;
    }
    node->tensor = info;
  }
  summarise(root_);
}

WeightsTree::Node& WeightsTree::child(Node& parent, std::string_view name) {
  // Most nodes have a handful of children, and the one before is the likeliest: names come sorted.
  constexpr size_t kFew = 8;
  auto& children = parent.children;
  if (children.size() <= kFew) {
    for (size_t i = children.size(); i-- > 0;)
      if (children[i].first == name) return *children[i].second;
  } else {
    if (children.back().first == name) return *children.back().second;
    if (parent.index.empty())
      for (const auto& [known, node] : children) parent.index.emplace(known, node.get());
    if (const auto at = parent.index.find(name); at != parent.index.end()) return *at->second;
  }
  children.emplace_back(name, std::make_unique<Node>());
  if (!parent.index.empty()) parent.index.emplace(name, children.back().second.get());
  return *children.back().second;
}

void WeightsTree::summarise(Node& node) {
  std::stable_sort(node.children.begin(), node.children.end(), [](const auto& a, const auto& b) {
    return is_number(a.first) && is_number(b.first) && number(a.first) < number(b.first);
  });
  if (node.tensor) {
    node.tensors = 1;
    node.elements = checked_numel(node.tensor->shape);
    node.bytes = node.tensor->size_bytes;
    node.dtypes = 1u << static_cast<int>(node.tensor->dtype);
    const Shape& shape = node.tensor->shape;
    node.structure = XXH3_64bits_withSeed(shape.data(), shape.size() * sizeof(int64_t), node.dtypes);
  }
  for (auto& [name, child] : node.children) {
    summarise(*child);
    node.tensors += child->tensors;
    node.elements += child->elements;
    node.bytes += child->bytes;
    node.dtypes |= child->dtypes;
    // A sum: the same layers in another order are the same structure.
    node.structure += XXH3_64bits_withSeed(name.data(), name.size(), child->structure);
  }
}

std::vector<WeightsTree::Run> WeightsTree::runs(const Node& node) {
  std::vector<Run> found;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const auto& [name, child] = node.children[i];
    const bool continues = i > 0 && is_number(name) && is_number(node.children[i - 1].first) &&
                           child->structure == node.children[i - 1].second->structure;
    if (continues)
      found.back().last = i;
    else
      found.push_back({i, i});
  }
  return found;
}

std::string WeightsTree::run_name(const Node& node, const Run& run) {
  if (run.first == run.last) return std::string(node.children[run.first].first);
  return fmt::format("{}..{}", node.children[run.first].first, node.children[run.last].first);
}

void WeightsTree::draw(const Node& node, const Text& indent, int depth, const Terminal& terminal, Text& out) const {
  for (const Run& run : runs(node)) {
    const Node& child = *node.children[run.first].second;
    const int64_t times = static_cast<int64_t>(run.last - run.first) + 1;
    const std::string name = run_name(node, run);
    const Text repeated = times > 1 ? Text::of(" x {}", times) : Text();
    if (child.tensor && child.children.empty()) {
      out += Text::of("{}{}{}  {} {}  {}\n", indent, name, repeated, dtype_name(child.tensor->dtype),
                      to_string(child.tensor->shape),
                      terminal.styled(text_from_bytes(child.bytes * static_cast<uint64_t>(times)), Style::kDim));
      continue;
    }
    out +=
        Text::of("{}{}{}  {}\n", indent, terminal.styled(name, Style::kBold), repeated,
                 terminal.styled(Text::of("{} tensors, {} parameters, {}, {}", text_from_count(child.tensors * times),
                                          text_from_count(child.elements * times),
                                          text_from_bytes(child.bytes * static_cast<uint64_t>(times)),
                                          joined(dtype_names(child.dtypes), " ")),
                                 Style::kDim));
    if (depth > 1) draw(child, indent + "  ", depth - 1, terminal, out);
  }
}

Text WeightsTree::text(const Terminal& terminal, int depth) const {
  Text out;
  draw(root_, "", depth, terminal, out);
  out += Text::of("{} tensors, {} parameters, {}\n", text_from_count(root_.tensors), text_from_count(root_.elements),
                  text_from_bytes(root_.bytes));
  return out;
}

Json WeightsTree::node_json(const Node& node, int depth) {
  Json json = {{"tensors", node.tensors},
               {"parameters", node.elements},
               {"bytes", node.bytes},
               {"dtypes", dtype_names(node.dtypes)}};
  if (node.tensor) json["shape"] = node.tensor->shape;
  if (depth == 0 || node.children.empty()) return json;
  Json children = Json::object();
  for (const auto& [name, child] : node.children)
    append_member(children, std::string(name), node_json(*child, depth - 1));
  json["children"] = std::move(children);
  return json;
}

Json WeightsTree::json(int depth) const {
  return node_json(root_, depth);
}

}  // namespace lockstep
