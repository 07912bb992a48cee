// The socket to the service. Everything that may wait does so without the interpreter lock.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent.h"
#include "platform.h"

namespace lockstep_agent {
namespace {

PyObject* connect_to(PyObject*, PyObject* path) {
  Ref bytes;
  PyObject* converted = nullptr;
  if (!PyUnicode_FSConverter(path, &converted)) return nullptr;
  bytes.reset(converted);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const Py_ssize_t size = PyBytes_GET_SIZE(converted);
  if (static_cast<size_t>(size) >= sizeof address.sun_path)
    return PyErr_Format(PyExc_OSError, "a socket's path has at most %zu bytes, got %zd", sizeof address.sun_path - 1,
                        size);
  std::memcpy(address.sun_path, PyBytes_AS_STRING(converted), static_cast<size_t>(size));
  const int fd = make_unix_socket();
  if (fd < 0) return PyErr_SetFromErrno(PyExc_OSError);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  return PyLong_FromLong(fd);
}

// One send a message in the ordinary case. A service that reads nothing for `seconds` counts as gone: the program comes
// first.
PyObject* send_all(PyObject*, PyObject* arguments) {
  int fd;
  Py_buffer buffer;
  double seconds;
  if (!PyArg_ParseTuple(arguments, "iy*d", &fd, &buffer, &seconds)) return nullptr;
  const char* at = static_cast<const char*>(buffer.buf);
  size_t left = static_cast<size_t>(buffer.len);
  bool good = true;
  Py_BEGIN_ALLOW_THREADS;
  while (left > 0) {
    const ssize_t sent = send_at_once(fd, at, left);
    if (sent >= 0) {
      at += sent;
      left -= static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    pollfd writable{fd, POLLOUT, 0};
    if (errno != EAGAIN || poll(&writable, 1, static_cast<int>(seconds * 1000)) <= 0) {
      good = false;
      break;
    }
  }
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&buffer);
  return PyBool_FromLong(good);
}

// Bytes, b"" when the other side is gone, None when nothing came in time.
PyObject* receive(PyObject*, PyObject* arguments) {
  int fd;
  double seconds;
  if (!PyArg_ParseTuple(arguments, "id", &fd, &seconds)) return nullptr;
  static thread_local char buffer[65536];
  ssize_t size = -1;
  bool waited = false;
  Py_BEGIN_ALLOW_THREADS;
  pollfd readable{fd, POLLIN, 0};
  const int ready = poll(&readable, 1, seconds < 0 ? -1 : static_cast<int>(seconds * 1000));
  waited = ready == 0 || (ready < 0 && errno == EINTR);
  if (!waited) size = recv(fd, buffer, sizeof buffer, 0);
  Py_END_ALLOW_THREADS;
  if (waited) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize(buffer, size < 0 ? 0 : size);
}

PyObject* hang_up(PyObject*, PyObject* fd) {
  const long number = PyLong_AsLong(fd);
  if (PyErr_Occurred()) return nullptr;
  shutdown(static_cast<int>(number), SHUT_RDWR);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"connect", connect_to, METH_O, nullptr},
                         {"send_all", send_all, METH_VARARGS, nullptr},
                         {"receive", receive, METH_VARARGS, nullptr},
                         {"hang_up", hang_up, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_channel(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
