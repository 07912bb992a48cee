// A few numbers in a row, as shapes and strides are: up to six lie in the object itself, so that a view or a small
// tensor asks for no memory. Drawing a small picture made 75,000 such requests when they were vectors. Used like a
// vector, and converts from and to one.
#pragma once
#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace lockstep {

class Dims {
 public:
  using value_type = int64_t;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = int64_t&;
  using const_reference = const int64_t&;
  using pointer = int64_t*;
  using const_pointer = const int64_t*;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) { assign(values.begin(), values.end()); }
  explicit Dims(size_t count, int64_t value = 0) { resize(count, value); }
  template <std::input_iterator Iterator>
  Dims(Iterator first, Iterator last) {
    assign(first, last);
  }
  Dims(const std::vector<int64_t>& values) { assign(values.begin(), values.end()); }
  operator std::vector<int64_t>() const { return {begin(), end()}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return size_ <= kHere ? here_.data() : far_.data(); }
  const int64_t* data() const { return size_ <= kHere ? here_.data() : far_.data(); }
  iterator begin() { return data(); }
  iterator end() { return data() + size_; }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + size_; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }

  int64_t& operator[](size_t i) { return data()[i]; }
  const int64_t& operator[](size_t i) const { return data()[i]; }
  int64_t& at(size_t i) { return data()[checked(i)]; }
  const int64_t& at(size_t i) const { return data()[checked(i)]; }
  int64_t& front() { return data()[0]; }
  const int64_t& front() const { return data()[0]; }
  int64_t& back() { return data()[size_ - 1]; }
  const int64_t& back() const { return data()[size_ - 1]; }

  void reserve(size_t) {}
  void clear() { resize(0); }
  void resize(size_t count, int64_t value = 0) {
    if (count > kHere) {
      if (size_ <= kHere) far_.assign(here_.begin(), here_.begin() + static_cast<difference_type>(size_));
      far_.resize(count, value);
    } else {
      if (size_ > kHere) {
        std::copy_n(far_.begin(), count, here_.begin());
        far_ = {};
      }
      for (size_t i = size_; i < count; ++i) here_[i] = value;
    }
    size_ = count;
  }
  template <std::input_iterator Iterator>
  void assign(Iterator first, Iterator last) {
    clear();
    for (; first != last; ++first) push_back(static_cast<int64_t>(*first));
  }
  void assign(size_t count, int64_t value) {
    clear();
    resize(count, value);
  }
  void push_back(int64_t value) { resize(size_ + 1, value); }
  int64_t& emplace_back(int64_t value) {
    push_back(value);
    return back();
  }
  void pop_back() { resize(size_ - 1); }
  iterator insert(const_iterator before, int64_t value) { return insert(before, 1, value); }
  iterator insert(const_iterator before, size_t count, int64_t value) {
    const difference_type at = before - begin();
    make_gap(at, count);
    std::fill_n(begin() + at, count, value);
    return begin() + at;
  }
  template <std::forward_iterator Iterator>  // not of this object
  iterator insert(const_iterator before, Iterator first, Iterator last) {
    const difference_type at = before - begin();
    make_gap(at, static_cast<size_t>(std::distance(first, last)));
    std::copy(first, last, begin() + at);
    return begin() + at;
  }
  iterator insert(const_iterator before, std::initializer_list<int64_t> values) {
    return insert(before, values.begin(), values.end());
  }
  iterator erase(const_iterator one) { return erase(one, one + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    const difference_type at = first - begin();
    std::copy(last, cend(), begin() + at);
    resize(size_ - static_cast<size_t>(last - first));
    return begin() + at;
  }

  friend size_t erase(Dims& from, int64_t value) {
    const size_t before = from.size();
    from.resize(static_cast<size_t>(std::remove(from.begin(), from.end(), value) - from.begin()));
    return before - from.size();
  }
  friend bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
  friend auto operator<=>(const Dims& a, const Dims& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr size_t kHere = 6;

  size_t checked(size_t i) const {
    if (i >= size_) throw std::out_of_range("Dims::at");
    return i;
  }
  void make_gap(difference_type at, size_t count) {
    const size_t before = size_;
    resize(size_ + count);
    std::copy_backward(begin() + at, begin() + static_cast<difference_type>(before), end());
  }

  size_t size_ = 0;
  std::array<int64_t, kHere> here_{};  // the first size_ of them, unless they are more
  std::vector<int64_t> far_;           // then all
};

}  // namespace lockstep
