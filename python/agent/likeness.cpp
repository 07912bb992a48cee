// How far the values of two programs in step are apart, and a digest by which equal ones are known without sending
// them.
#include <algorithm>
#include <cmath>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "agent.h"

namespace lockstep_agent {
namespace {

// digest(address, bytes) → 16 bytes
PyObject* digest(PyObject*, PyObject* arguments) {
  Py_ssize_t address, size;
  if (!PyArg_ParseTuple(arguments, "nn", &address, &size)) return nullptr;
  XXH128_canonical_t out;
  Py_BEGIN_ALLOW_THREADS;
  XXH128_canonicalFromHash(&out, XXH3_128bits(reinterpret_cast<const void*>(address), static_cast<size_t>(size)));
  Py_END_ALLOW_THREADS;
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(out.digest), sizeof out.digest);
}

struct Apart {
  double errors = 0, squares = 0;  // sums of squares: of the differences, of the finite values of the reference
  float largest = 0;
  Py_ssize_t at = -1;          // of the largest difference
  Py_ssize_t not_finite = -1;  // first place where only one side is a number, or the two infinities differ
  bool identical = true;
};

constexpr Py_ssize_t kLanes = 16, kBlock = 4096;

// One value after the other, for blocks that hold something that is no number.
void add_slowly(const float* one, const float* other, Py_ssize_t from, Py_ssize_t to, Apart& sum) {
  for (Py_ssize_t i = from; i < to; ++i) {
    if (std::isfinite(one[i])) sum.squares += static_cast<double>(one[i]) * one[i];
    if (one[i] == other[i] || (std::isnan(one[i]) && std::isnan(other[i]))) continue;
    const float apart = other[i] - one[i];
    if (!std::isfinite(apart)) {
      if (sum.not_finite < 0) sum.not_finite = i;
      continue;
    }
    sum.errors += static_cast<double>(apart) * apart;
    if (std::fabs(apart) > sum.largest) sum.largest = std::fabs(apart), sum.at = i;
  }
}

void add_block(const float* one, const float* other, Py_ssize_t from, Py_ssize_t to, Apart& sum) {
  double errors[kLanes] = {}, squares[kLanes] = {};
  float largest[kLanes] = {};
  for (Py_ssize_t i = from; i < to; i += kLanes)
    for (Py_ssize_t lane = 0; lane < kLanes; ++lane) {
      const float apart = other[i + lane] - one[i + lane];
      const double exact = apart, value = one[i + lane];
      errors[lane] += exact * exact;
      squares[lane] += value * value;
      largest[lane] = std::max(largest[lane], std::fabs(apart));
    }
  double all_errors = 0, all_squares = 0;
  for (Py_ssize_t lane = 0; lane < kLanes; ++lane) all_errors += errors[lane], all_squares += squares[lane];
  if (!std::isfinite(all_errors) || !std::isfinite(all_squares)) return add_slowly(one, other, from, to, sum);
  sum.errors += all_errors;
  sum.squares += all_squares;
  const float most = *std::max_element(largest, largest + kLanes);
  if (most <= sum.largest) return;
  sum.largest = most;
  for (sum.at = from; std::fabs(other[sum.at] - one[sum.at]) != most;) ++sum.at;
}

Apart measure(const float* one, const float* other, Py_ssize_t count) {
  Apart sum;
  sum.identical = std::memcmp(one, other, static_cast<size_t>(count) * sizeof(float)) == 0;
  if (sum.identical) return sum;
  Py_ssize_t done = 0;
  for (; done + kLanes <= count; done = std::min(done + kBlock, count - count % kLanes))
    add_block(one, other, done, std::min(done + kBlock, count - count % kLanes), sum);
  add_slowly(one, other, done, count, sum);
  return sum;
}

// apart(reference, candidate): buffers of as many float32 →
// (identical, squares of the differences, squares of the reference, largest difference, where, first that is no number)
PyObject* apart(PyObject*, PyObject* arguments) {
  Py_buffer one, other;
  if (!PyArg_ParseTuple(arguments, "y*y*", &one, &other)) return nullptr;
  Apart found;
  const bool fits = one.len == other.len && one.len % static_cast<Py_ssize_t>(sizeof(float)) == 0;
  if (fits) {
    Py_BEGIN_ALLOW_THREADS;
    found = measure(static_cast<const float*>(one.buf), static_cast<const float*>(other.buf),
                    one.len / static_cast<Py_ssize_t>(sizeof(float)));
    Py_END_ALLOW_THREADS;
  }
  PyBuffer_Release(&one);
  PyBuffer_Release(&other);
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "two buffers of as many float32 are needed");
    return nullptr;
  }
  return Py_BuildValue("(Nddfnn)", PyBool_FromLong(found.identical), found.errors, found.squares, found.largest,
                       found.at, found.not_finite);
}

PyMethodDef methods[] = {
    {"digest", digest, METH_VARARGS, nullptr}, {"apart", apart, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_likeness(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
