// Preloaded into the program: fails the n-th call of one kind with the error that the system would give.
//
//   LOCKSTEP_FAULT=KIND:N   from main() on; later calls succeed
//   LOCKSTEP_FAULT_HIT=FILE written when the call was failed, so that the driver knows when N was past the last one
//
// Only in the process that is called `lockstep`, and not in what it starts: the variables are taken away at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { kNone, kAllocate, kThread, kOpen, kRead, kWrite, kSync, kRename, kMap, kFork, kSocket, kFolder };
static const char* const kNames[] = {"", "allocate", "thread", "open", "read", "write", "sync", "rename", "map", "fork", "socket", "folder"};

static enum kind failed_kind = kNone;
static atomic_long calls_left;
static char hit_file[512];

static int fails(enum kind kind) {
  if (kind != failed_kind || atomic_fetch_sub(&calls_left, 1) != 1) return 0;
  // Straight to the kernel: our own wrappers must not see these.
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, hit_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0) syscall(SYS_close, fd);
  return 1;
}

static void arm(void) {
  const char* const wanted = getenv("LOCKSTEP_FAULT");
  const char* const file = getenv("LOCKSTEP_FAULT_HIT");
  if (!wanted || !file || strcmp(program_invocation_short_name, "lockstep") != 0) return;
  snprintf(hit_file, sizeof hit_file, "%s", file);
  const char* const colon = strchr(wanted, ':');
  enum kind kind = kNone;
  for (int i = 1; colon && i < (int)(sizeof kNames / sizeof *kNames); ++i)
    if (strlen(kNames[i]) == (size_t)(colon - wanted) && strncmp(kNames[i], wanted, (size_t)(colon - wanted)) == 0) kind = (enum kind)i;
  if (kind == kNone) return;
  atomic_store(&calls_left, atol(colon + 1));
  unsetenv("LOCKSTEP_FAULT");
  unsetenv("LD_PRELOAD");
  failed_kind = kind;
}

// What a library does before main() is not the program's own.
static int (*real_main)(int, char**, char**);
static int armed_main(int argc, char** argv, char** environment) {
  arm();
  return real_main(argc, argv, environment);
}
int __libc_start_main(int (*main_function)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  typedef int (*start)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  real_main = main_function;
  return ((start)dlsym(RTLD_NEXT, "__libc_start_main"))(armed_main, argc, argv, init, fini, rtld_fini, stack_end);
}

#define REAL(type, name, ...)                                    \
  static type (*real)(__VA_ARGS__);                              \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

// dlsym allocates: glibc's own names for the allocator need none.
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) { return fails(kAllocate) ? (errno = ENOMEM, (void*)0) : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails(kAllocate) ? (errno = ENOMEM, (void*)0) : __libc_calloc(count, bytes); }
void* realloc(void* old, size_t bytes) { return fails(kAllocate) ? (errno = ENOMEM, (void*)0) : __libc_realloc(old, bytes); }
void* memalign(size_t alignment, size_t bytes) { return fails(kAllocate) ? (errno = ENOMEM, (void*)0) : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *to = made;
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) {
  REAL(int, "pthread_create", pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return fails(kThread) ? EAGAIN : real(thread, attributes, work, argument);
}

#define MODE(flags, mode)                      \
  mode_t mode = 0;                             \
  if ((flags) & (O_CREAT | O_TMPFILE)) {       \
    va_list list;                              \
    va_start(list, flags);                     \
    mode = va_arg(list, mode_t);               \
    va_end(list);                              \
  }

int open(const char* path, int flags, ...) {
  MODE(flags, mode)
  REAL(int, "open", const char*, int, ...);
  return fails(kOpen) ? (errno = EMFILE, -1) : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE(flags, mode)
  REAL(int, "open64", const char*, int, ...);
  return fails(kOpen) ? (errno = EMFILE, -1) : real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE(flags, mode)
  REAL(int, "openat", int, const char*, int, ...);
  return fails(kOpen) ? (errno = EMFILE, -1) : real(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  REAL(FILE*, "fopen", const char*, const char*);
  return fails(kOpen) ? (errno = EMFILE, (FILE*)0) : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(FILE*, "fopen64", const char*, const char*);
  return fails(kOpen) ? (errno = EMFILE, (FILE*)0) : real(path, mode);
}

ssize_t read(int fd, void* to, size_t bytes) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_read, fd, to, bytes); }
ssize_t pread(int fd, void* to, size_t bytes, off_t at) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_pread64, fd, to, bytes, at); }
ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_pread64, fd, to, bytes, at); }
ssize_t write(int fd, const void* from, size_t bytes) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_write, fd, from, bytes); }
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_pwrite64, fd, from, bytes, at); }
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_pwrite64, fd, from, bytes, at); }
ssize_t writev(int fd, const struct iovec* parts, int count) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_writev, fd, parts, count); }
// stdio writes and reads through the library's own entries, which nobody can put himself before: its calls count here.
size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  REAL(size_t, "fwrite", const void*, size_t, size_t, FILE*);
  return fails(kWrite) ? (errno = ENOSPC, (size_t)0) : real(from, size, count, file);
}
int fflush(FILE* file) {
  REAL(int, "fflush", FILE*);
  return fails(kWrite) ? (errno = ENOSPC, EOF) : real(file);
}
int ftruncate(int fd, off_t bytes) { return fails(kWrite) ? (errno = ENOSPC, -1) : (int)syscall(SYS_ftruncate, fd, bytes); }
int ftruncate64(int fd, off64_t bytes) { return fails(kWrite) ? (errno = ENOSPC, -1) : (int)syscall(SYS_ftruncate, fd, bytes); }

int fsync(int fd) { return fails(kSync) ? (errno = EIO, -1) : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return fails(kSync) ? (errno = EIO, -1) : (int)syscall(SYS_fdatasync, fd); }
int rename(const char* from, const char* to) { return fails(kRename) ? (errno = EIO, -1) : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char* from, int b, const char* to) { return fails(kRename) ? (errno = EIO, -1) : (int)syscall(SYS_renameat2, a, from, b, to, 0); }
int mkdir(const char* path, mode_t mode) { return fails(kFolder) ? (errno = EROFS, -1) : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return fails(kMap) ? (errno = ENOMEM, MAP_FAILED) : (void*)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  return fails(kMap) ? (errno = ENOMEM, MAP_FAILED) : (void*)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

pid_t fork(void) {
  REAL(pid_t, "fork", void);
  return fails(kFork) ? (errno = EAGAIN, -1) : real();
}
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                char* const argv[], char* const environment[]) {
  REAL(int, "posix_spawn", pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[], char* const[]);
  return fails(kFork) ? EAGAIN : real(pid, path, actions, attributes, argv, environment);
}
int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const argv[], char* const environment[]) {
  REAL(int, "posix_spawnp", pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[], char* const[]);
  return fails(kFork) ? EAGAIN : real(pid, file, actions, attributes, argv, environment);
}

int socket(int domain, int type, int protocol) { return fails(kSocket) ? (errno = EMFILE, -1) : (int)syscall(SYS_socket, domain, type, protocol); }
int bind(int fd, const struct sockaddr* address, socklen_t bytes) { return fails(kSocket) ? (errno = EADDRINUSE, -1) : (int)syscall(SYS_bind, fd, address, bytes); }
int listen(int fd, int backlog) { return fails(kSocket) ? (errno = EADDRINUSE, -1) : (int)syscall(SYS_listen, fd, backlog); }
int connect(int fd, const struct sockaddr* address, socklen_t bytes) { return fails(kSocket) ? (errno = ECONNREFUSED, -1) : (int)syscall(SYS_connect, fd, address, bytes); }
int accept(int fd, struct sockaddr* address, socklen_t* bytes) { return fails(kSocket) ? (errno = EMFILE, -1) : (int)syscall(SYS_accept, fd, address, bytes); }
ssize_t send(int fd, const void* from, size_t bytes, int flags) { return fails(kSocket) ? (errno = ECONNRESET, -1) : syscall(SYS_sendto, fd, from, bytes, flags, 0, 0); }
ssize_t recv(int fd, void* to, size_t bytes, int flags) { return fails(kSocket) ? (errno = ECONNRESET, -1) : syscall(SYS_recvfrom, fd, to, bytes, flags, 0, 0); }
