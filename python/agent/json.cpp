// JSON for the wire: Python's json module is Python code that imports a dozen others, and the program may have none of
// them.
#include <charconv>
#include <cmath>
#include <string>

#include "agent.h"

namespace lockstep_agent {
namespace {

constexpr int kMostDepth = 60;

void put_text(std::string& out, const char* text, Py_ssize_t size) {
  static const char* const digits = "0123456789abcdef";
  out.push_back('"');
  for (Py_ssize_t i = 0; i < size; ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c < 0x20 || c == 0x7f) {
          out += "\\u00";
          out.push_back(digits[c >> 4]);
          out.push_back(digits[c & 15]);
        } else {
          out.push_back(static_cast<char>(c));
        }
    }
  }
  out.push_back('"');
}

int put_string(std::string& out, PyObject* text) {
  Py_ssize_t size;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)) {
    put_text(out, utf8, size);
    return 0;
  }
  PyErr_Clear();  // lone surrogates
  Ref bytes(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (!bytes) return -1;
  put_text(out, PyBytes_AS_STRING(bytes.get()), PyBytes_GET_SIZE(bytes.get()));
  return 0;
}

void put_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"NaN\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    out.append(text, end);
  }
}

int put(std::string& out, PyObject* value, int depth);

int put_key(std::string& out, PyObject* key) {
  if (PyUnicode_Check(key)) return put_string(out, key);
  Ref text(PyObject_Str(key));
  return text ? put_string(out, text.get()) : -1;
}

int put_items(std::string& out, PyObject* sequence, int depth) {
  Ref items(PySequence_Fast(sequence, "a sequence"));
  if (!items) return -1;
  out.push_back('[');
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    if (i) out.push_back(',');
    if (put(out, PySequence_Fast_GET_ITEM(items.get(), i), depth + 1) < 0) return -1;
  }
  out.push_back(']');
  return 0;
}

int put(std::string& out, PyObject* value, int depth) {
  if (depth > kMostDepth) {
    out += "\"...\"";
    return 0;
  }
  if (value == Py_None) {
    out += "null";
  } else if (value == Py_True) {
    out += "true";
  } else if (value == Py_False) {
    out += "false";
  } else if (PyUnicode_Check(value)) {
    return put_string(out, value);
  } else if (PyLong_Check(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) {  // readers keep 53 bits at best: as text
      Ref text(PyObject_Str(value));
      return text ? put_string(out, text.get()) : -1;
    }
    if (number == -1 && PyErr_Occurred()) return -1;
    out += std::to_string(number);
  } else if (PyFloat_Check(value)) {
    put_double(out, PyFloat_AS_DOUBLE(value));
  } else if (PyDict_Check(value)) {
    out.push_back('{');
    PyObject *key, *item;
    Py_ssize_t at = 0;
    bool first = true;
    while (PyDict_Next(value, &at, &key, &item)) {
      if (!first) out.push_back(',');
      first = false;
      if (put_key(out, key) < 0) return -1;
      out.push_back(':');
      if (put(out, item, depth + 1) < 0) return -1;
    }
    out.push_back('}');
  } else if (PyList_Check(value) || PyTuple_Check(value)) {
    return put_items(out, value, depth);
  } else {
    Ref text(PyObject_Str(value));
    return text ? put_string(out, text.get()) : -1;
  }
  return 0;
}

PyObject* dumps(PyObject*, PyObject* value) {
  std::string out;
  if (put(out, value, 0) < 0) return nullptr;
  return PyBytes_FromStringAndSize(out.data(), static_cast<Py_ssize_t>(out.size()));
}

class Parser {
 public:
  Parser(const char* begin, const char* end) : at_(begin), end_(end) {}

  PyObject* document() {
    Ref value(parse(0));
    if (!value) return nullptr;
    skip_space();
    return at_ == end_ ? value.release() : bad();
  }

 private:
  PyObject* bad() {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "this is no JSON");
    return nullptr;
  }
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }
  bool take(const char* word) {
    const size_t size = std::char_traits<char>::length(word);
    if (static_cast<size_t>(end_ - at_) < size || std::char_traits<char>::compare(at_, word, size) != 0) return false;
    at_ += size;
    return true;
  }

  PyObject* parse(int depth) {
    skip_space();
    if (at_ == end_ || depth > kMostDepth) return bad();
    switch (*at_) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return take("true") ? Py_NewRef(Py_True) : bad();
      case 'f':
        return take("false") ? Py_NewRef(Py_False) : bad();
      case 'n':
        return take("null") ? Py_NewRef(Py_None) : bad();
      default:
        return number();
    }
  }

  PyObject* object(int depth) {
    ++at_;
    Ref result(PyDict_New());
    if (!result) return nullptr;
    skip_space();
    if (at_ < end_ && *at_ == '}') {
      ++at_;
      return result.release();
    }
    for (;;) {
      skip_space();
      if (at_ == end_ || *at_ != '"') return bad();
      Ref key(string());
      if (!key) return nullptr;
      skip_space();
      if (at_ == end_ || *at_++ != ':') return bad();
      Ref value(parse(depth + 1));
      if (!value || PyDict_SetItem(result.get(), key.get(), value.get()) < 0) return nullptr;
      skip_space();
      if (at_ == end_) return bad();
      const char next = *at_++;
      if (next == '}') return result.release();
      if (next != ',') return bad();
    }
  }

  PyObject* array(int depth) {
    ++at_;
    Ref result(PyList_New(0));
    if (!result) return nullptr;
    skip_space();
    if (at_ < end_ && *at_ == ']') {
      ++at_;
      return result.release();
    }
    for (;;) {
      Ref value(parse(depth + 1));
      if (!value || PyList_Append(result.get(), value.get()) < 0) return nullptr;
      skip_space();
      if (at_ == end_) return bad();
      const char next = *at_++;
      if (next == ']') return result.release();
      if (next != ',') return bad();
    }
  }

  int hex4() {
    if (end_ - at_ < 4) return -1;
    unsigned value = 0;
    const auto [rest, error] = std::from_chars(at_, at_ + 4, value, 16);
    if (error != std::errc() || rest != at_ + 4) return -1;
    at_ += 4;
    return static_cast<int>(value);
  }

  static void put_code_point(std::string& out, unsigned code) {
    if (code < 0x80) {
      out.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      out.push_back(static_cast<char>(0xc0 | code >> 6));
      out.push_back(static_cast<char>(0x80 | (code & 63)));
    } else if (code < 0x10000) {
      out.push_back(static_cast<char>(0xe0 | code >> 12));
      out.push_back(static_cast<char>(0x80 | (code >> 6 & 63)));
      out.push_back(static_cast<char>(0x80 | (code & 63)));
    } else {
      out.push_back(static_cast<char>(0xf0 | code >> 18));
      out.push_back(static_cast<char>(0x80 | (code >> 12 & 63)));
      out.push_back(static_cast<char>(0x80 | (code >> 6 & 63)));
      out.push_back(static_cast<char>(0x80 | (code & 63)));
    }
  }

  bool escape(std::string& out) {
    switch (*at_++) {
      case '"':
        out.push_back('"');
        return true;
      case '\\':
        out.push_back('\\');
        return true;
      case '/':
        out.push_back('/');
        return true;
      case 'b':
        out.push_back('\b');
        return true;
      case 'f':
        out.push_back('\f');
        return true;
      case 'n':
        out.push_back('\n');
        return true;
      case 'r':
        out.push_back('\r');
        return true;
      case 't':
        out.push_back('\t');
        return true;
      case 'u': {
        int code = hex4();
        if (code < 0) return false;
        if (code >= 0xd800 && code < 0xdc00 && end_ - at_ >= 6 && at_[0] == '\\' && at_[1] == 'u') {
          at_ += 2;
          const int low = hex4();
          if (low < 0xdc00 || low > 0xdfff) return false;
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        put_code_point(out, static_cast<unsigned>(code));
        return true;
      }
      default:
        return false;
    }
  }

  PyObject* string() {
    ++at_;
    std::string out;
    while (at_ < end_ && *at_ != '"') {
      if (static_cast<unsigned char>(*at_) < 0x20) return bad();
      if (*at_ != '\\') {
        out.push_back(*at_++);
        continue;
      }
      if (++at_ == end_ || !escape(out)) return bad();
    }
    if (at_ == end_) return bad();
    ++at_;
    return PyUnicode_DecodeUTF8(out.data(), static_cast<Py_ssize_t>(out.size()), "surrogatepass");
  }

  PyObject* number() {
    const char* begin = at_;
    bool whole = true;
    while (at_ < end_ && (std::isdigit(static_cast<unsigned char>(*at_)) || *at_ == '-' || *at_ == '+' || *at_ == '.' ||
                          *at_ == 'e' || *at_ == 'E')) {
      whole &= std::isdigit(static_cast<unsigned char>(*at_)) || *at_ == '-';
      ++at_;
    }
    if (at_ == begin || at_ - begin > 1000) return bad();
    if (whole) {
      const std::string text(begin, at_);
      char* rest = nullptr;
      Ref value(PyLong_FromString(text.c_str(), &rest, 10));
      if (!value) PyErr_Clear();
      return value && *rest == 0 ? value.release() : bad();
    }
    // Not from_chars, which the C++ library of a Mac has for whole numbers alone.
    const std::string text(begin, at_);
    char* rest = nullptr;
    const double value = PyOS_string_to_double(text.c_str(), &rest, PyExc_OverflowError);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return bad();
    }
    return *rest == 0 && text.front() != '+' ? PyFloat_FromDouble(value) : bad();
  }

  const char* at_;
  const char* end_;
};

PyObject* loads(PyObject*, PyObject* argument) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(argument, &buffer, PyBUF_SIMPLE) < 0) return nullptr;
  const char* text = static_cast<const char*>(buffer.buf);
  PyObject* result = Parser(text, text + buffer.len).document();
  PyBuffer_Release(&buffer);
  return result;
}

PyMethodDef methods[] = {
    {"dumps", dumps, METH_O, nullptr}, {"loads", loads, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_json(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
