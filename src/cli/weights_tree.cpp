#include "cli/weights_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/number_text.h"
#include "cli/table.h"

namespace lockstep {
namespace {

constexpr int kMaxLevels = 64;

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
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
      const std::string part = info->name.substr(begin, end - begin);
      const auto [at, fresh] = node->index.emplace(part, node->children.size());
      if (fresh) node->children.emplace_back(part, std::make_unique<Node>());
      node = node->children[at->second].second.get();
      begin = end + 1;
    }
    node->tensor = info;
  }
  summarise(root_);
}

void WeightsTree::summarise(Node& node) {
  std::stable_sort(node.children.begin(), node.children.end(), [](const auto& a, const auto& b) {
    return is_number(a.first) && is_number(b.first) && std::stol(a.first) < std::stol(b.first);
  });
  if (node.tensor) {
    node.tensors = 1;
    node.elements = checked_numel(node.tensor->shape);
    node.bytes = node.tensor->size_bytes;
    node.dtypes.insert(std::string(dtype_name(node.tensor->dtype)));
    node.structure = fmt::format("{}{}", dtype_name(node.tensor->dtype), to_string(node.tensor->shape));
  }
  std::vector<std::string> parts;
  for (auto& [name, child] : node.children) {
    summarise(*child);
    node.tensors += child->tensors;
    node.elements += child->elements;
    node.bytes += child->bytes;
    node.dtypes.insert(child->dtypes.begin(), child->dtypes.end());
    parts.push_back(name + "(" + child->structure + ")");
  }
  std::sort(parts.begin(), parts.end());  // the same layers in another order are the same structure
  node.structure += fmt::format("{}", fmt::join(parts, ","));
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
  if (run.first == run.last) return node.children[run.first].first;
  return fmt::format("{}..{}", node.children[run.first].first, node.children[run.last].first);
}

void WeightsTree::draw(const Node& node, const std::string& indent, int depth, const Terminal& terminal,
                       std::string& out) const {
  for (const Run& run : runs(node)) {
    const Node& child = *node.children[run.first].second;
    const int64_t times = static_cast<int64_t>(run.last - run.first) + 1;
    const std::string name = printable(run_name(node, run));
    const std::string repeated = times > 1 ? fmt::format(" x {}", times) : "";
    if (child.tensor && child.children.empty()) {
      out += fmt::format("{}{}{}  {} {}  {}\n", indent, name, repeated, dtype_name(child.tensor->dtype),
                         to_string(child.tensor->shape),
                         terminal.styled(text_from_bytes(child.bytes * static_cast<uint64_t>(times)), Style::kDim));
      continue;
    }
    out += fmt::format(
        "{}{}{}  {}\n", indent, terminal.styled(name, Style::kBold), repeated,
        terminal.styled(
            fmt::format("{} tensors, {} parameters, {}, {}", text_from_count(child.tensors * times),
                        text_from_count(child.elements * times),
                        text_from_bytes(child.bytes * static_cast<uint64_t>(times)), fmt::join(child.dtypes, " ")),
            Style::kDim));
    if (depth > 1) draw(child, indent + "  ", depth - 1, terminal, out);
  }
}

std::string WeightsTree::text(const Terminal& terminal, int depth) const {
  std::string out;
  draw(root_, "", depth, terminal, out);
  out += fmt::format("{} tensors, {} parameters, {}\n", text_from_count(root_.tensors), text_from_count(root_.elements),
                     text_from_bytes(root_.bytes));
  return out;
}

Json WeightsTree::node_json(const Node& node, int depth) {
  Json json = {
      {"tensors", node.tensors}, {"parameters", node.elements}, {"bytes", node.bytes}, {"dtypes", node.dtypes}};
  if (node.tensor) json["shape"] = node.tensor->shape;
  if (depth == 0 || node.children.empty()) return json;
  Json children = Json::object();
  // Appended, not looked up: the names are distinct, and an ordered object looks through all of them.
  auto& entries = children.get_ref<Json::object_t&>();
  entries.reserve(node.children.size());
  for (const auto& [name, child] : node.children) entries.emplace_back(name, node_json(*child, depth - 1));
  json["children"] = std::move(children);
  return json;
}

Json WeightsTree::json(int depth) const {
  return node_json(root_, depth);
}

}  // namespace lockstep
