// Builds a JSON tree from parser events in linear time. nlohmann's own builder looks every key up in the object it goes
// to, and an object that keeps its order is a list: a hostile file with a million keys would take hours.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lockstep {

// Tree is Json, or in the tests a tree that counts its look-ups.
template <typename Tree>
class JsonTreeBuilder {
 public:
  JsonTreeBuilder(std::string_view origin, size_t max_depth) : origin_(origin), max_depth_(max_depth) {}

  Tree take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(std::vector<uint8_t>&) { return false; }  // not in text
  bool start_object(size_t) { return open(Tree::object()); }
  bool start_array(size_t) { return open(Tree::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }

  bool end_object() {
    // All keys at once, sorted: no hash that a hostile file could be made to collide in.
    const Object& object = open_.back()->template get_ref<const Object&>();
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const auto& entry : object) keys.push_back(entry.first);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) corrupt("holds the key \"" + std::string(*twice) + "\" twice");
    return close();
  }

  bool parse_error(size_t, const std::string&, const typename Tree::exception& error) {
    corrupt(std::string("is not valid JSON: ") + error.what());
    return false;  // g++ 12 does not see in a template that the line above never returns
  }

 private:
  using Object = typename Tree::object_t;

  [[noreturn]] void corrupt(const std::string& what, const Detail& detail = {}) const {
    fail(Code::kCorrupt, "json", std::string(origin_) + " " + what, detail);
  }

  template <typename Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }

  template <typename Value>
  Tree* place(Value&& value) {
    if (open_.empty()) {
      root_ = Tree(std::forward<Value>(value));
      return &root_;
    }
    Tree& parent = *open_.back();
    if (parent.is_array())
      return &parent.template get_ref<typename Tree::array_t&>().emplace_back(std::forward<Value>(value));
    return &parent.template get_ref<Object&>().emplace_back(std::move(key_), std::forward<Value>(value)).second;
  }

  bool open(Tree&& container) {
    if (open_.size() >= max_depth_)
      corrupt("is nested too deeply", {.expected = "at most " + std::to_string(max_depth_) + " levels"});
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view origin_;
  size_t max_depth_;
  Tree root_;
  std::vector<Tree*> open_;  // the containers around the next value: none of them grows while a child is open
  std::string key_;
};

}  // namespace lockstep
