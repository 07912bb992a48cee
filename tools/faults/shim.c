// Preloaded into the program: fails the n-th call of one kind with the error that the system would give.
//
// The program stops before main() and serves: for each line "KIND N" on LOCKSTEP_FAULT_SERVER's first descriptor a child
// is forked that runs main() with the N-th call of that kind failing (later ones succeed), its output in files of the
// folder LOCKSTEP_FAULT_OUT. On the second descriptor "pid P" says that it runs and "end STATUS HIT CALLS..." how it
// ended: the status as of waitpid, whether the call was reached, and how many calls of each kind there were. So a point
// costs a fork and not the loading of every library. "N+" fails the N-th call and all after it, as where the memory is gone
// for good. "places" instead of a number fails nothing and writes a hash of the call stack of every call
// to the file "places": two calls from one place can be told from calls from two.
//
// LOCKSTEP_FAULT_TRACE=1 prints where the failed call came from.
//
// Only in the process that is called `lockstep`, and not in what it starts: the variables are taken away at once.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { kNone, kAllocate, kThread, kOpen, kRead, kWrite, kSync, kRename, kMap, kFork, kSocket, kFolder, kKinds };
static const char* const kNames[] = {"none", "allocate", "thread", "open", "read", "write", "sync", "rename", "map", "fork", "socket", "folder"};

enum { kMostPlaces = 1 << 22, kFrames = 12 };

// Shared with the server, which outlives whatever becomes of the child.
struct shared {
  atomic_long calls[kKinds];
  atomic_int hit;
  uint32_t places[kMostPlaces];
};

static enum kind watched_kind = kNone;
static long failing_call;
static int armed, traces, notes_places, lasts;
static struct shared* shared;
static __thread int inside __attribute__((tls_model("initial-exec")));

static uint32_t place(void) {
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  uint64_t hash = 1469598103934665603u;
  for (int i = 2; i < count; ++i) hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
  return (uint32_t)(hash >> 20);
}

static int fails(enum kind kind) {
  if (!armed || inside) return 0;
  const long call = atomic_fetch_add(&shared->calls[kind], 1) + 1;
  if (kind != watched_kind) return 0;
  if (notes_places && call <= kMostPlaces) {
    inside = 1;  // whatever finding the place takes is not the program's
    shared->places[call - 1] = place();
    inside = 0;
  }
  if (lasts ? call < failing_call : call != failing_call) return 0;
  atomic_store(&shared->hit, 1);
  if (traces && call == failing_call) {
    inside = 1;
    void* frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
    inside = 0;
  }
  return 1;
}

static int (*real_main)(int, char**, char**);

static void redirect(const char* folder, const char* name, int fd) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const int file = fd == 0 ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0)
                           : (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  if (file < 0) _exit(111);
  dup2(file, fd);
  syscall(SYS_close, file);
}

static void write_places(const char* folder, enum kind places_of) {
  char path[600];
  snprintf(path, sizeof path, "%s/places", folder);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const long calls = atomic_load(&shared->calls[places_of]), count = calls < kMostPlaces ? calls : kMostPlaces;
  const char* at = (const char*)shared->places;
  for (size_t left = (size_t)count * sizeof *shared->places; left > 0;) {
    const ssize_t n = syscall(SYS_write, file, at, left);
    if (n <= 0) break;
    at += n, left -= (size_t)n;
  }
  syscall(SYS_close, file);
}

// Returns in the child alone, armed.
static void serve(int from, int to, const char* folder) {
  void* frame;
  backtrace(&frame, 1);  // it loads a library the first time
  FILE* const wanted = fdopen(from, "r");
  char line[64], kind[32], which[24];
  while (wanted && fgets(line, sizeof line, wanted) && sscanf(line, "%31s %23s", kind, which) == 2) {
    for (int i = 0; i < kKinds; ++i) atomic_store(&shared->calls[i], 0);
    atomic_store(&shared->hit, 0);
    const int places = strcmp(which, "places") == 0;
    enum kind named = kNone;
    for (int i = 0; i < kKinds; ++i)
      if (strcmp(kNames[i], kind) == 0) named = (enum kind)i;
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      syscall(SYS_close, from);
      syscall(SYS_close, to);
      redirect(folder, "stdin", 0), redirect(folder, "stdout", 1), redirect(folder, "stderr", 2);
      notes_places = places;
      failing_call = places ? -1 : atol(which);
      lasts = strchr(which, '+') != NULL;
      watched_kind = named;
      armed = 1;
      return;
    }
    int status = 0;
    dprintf(to, "pid %d\n", child);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (places) write_places(folder, named);
    dprintf(to, "end %d %d", status, atomic_load(&shared->hit));
    for (int i = 1; i < kKinds; ++i) dprintf(to, " %ld", atomic_load(&shared->calls[i]));
    dprintf(to, "\n");
  }
  _exit(0);
}

// What a library does before main() is not the program's own.
static int armed_main(int argc, char** argv, char** environment) {
  const char* const server = getenv("LOCKSTEP_FAULT_SERVER");
  const char* const given = getenv("LOCKSTEP_FAULT_OUT");
  int from = -1, to = -1;
  if (server && given && strcmp(program_invocation_short_name, "lockstep") == 0 && sscanf(server, "%d:%d", &from, &to) == 2) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s", given);
    traces = getenv("LOCKSTEP_FAULT_TRACE") != NULL;
    unsetenv("LOCKSTEP_FAULT_SERVER"), unsetenv("LOCKSTEP_FAULT_OUT"), unsetenv("LOCKSTEP_FAULT_TRACE"), unsetenv("LD_PRELOAD");
    shared = (struct shared*)syscall(SYS_mmap, NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED) _exit(111);
    serve(from, to, folder);
  }
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

DIR* opendir(const char* path) {
  REAL(DIR*, "opendir", const char*);
  return fails(kOpen) ? (errno = EMFILE, (DIR*)0) : real(path);
}
DIR* fdopendir(int fd) {
  REAL(DIR*, "fdopendir", int);
  return fails(kOpen) ? (errno = EMFILE, (DIR*)0) : real(fd);
}
int pipe2(int ends[2], int flags) { return fails(kOpen) ? (errno = EMFILE, -1) : (int)syscall(SYS_pipe2, ends, flags); }
int pipe(int ends[2]) { return pipe2(ends, 0); }
int dup(int fd) { return fails(kOpen) ? (errno = EMFILE, -1) : (int)syscall(SYS_dup, fd); }
int memfd_create(const char* name, unsigned flags) { return fails(kOpen) ? (errno = EMFILE, -1) : (int)syscall(SYS_memfd_create, name, flags); }

size_t fread(void* to, size_t size, size_t count, FILE* file) {
  REAL(size_t, "fread", void*, size_t, size_t, FILE*);
  return fails(kRead) ? (errno = EIO, (size_t)0) : real(to, size, count, file);
}
char* fgets(char* to, int bytes, FILE* file) {
  REAL(char*, "fgets", char*, int, FILE*);
  return fails(kRead) ? (errno = EIO, (char*)0) : real(to, bytes, file);
}
struct dirent* readdir(DIR* folder) {
  REAL(struct dirent*, "readdir", DIR*);
  return fails(kRead) ? (errno = EIO, (struct dirent*)0) : real(folder);
}
struct dirent64* readdir64(DIR* folder) {
  REAL(struct dirent64*, "readdir64", DIR*);
  return fails(kRead) ? (errno = EIO, (struct dirent64*)0) : real(folder);
}
ssize_t read(int fd, void* to, size_t bytes) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_read, fd, to, bytes); }
ssize_t pread(int fd, void* to, size_t bytes, off_t at) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_pread64, fd, to, bytes, at); }
ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) { return fails(kRead) ? (errno = EIO, -1) : syscall(SYS_pread64, fd, to, bytes, at); }
ssize_t write(int fd, const void* from, size_t bytes) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_write, fd, from, bytes); }
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_pwrite64, fd, from, bytes, at); }
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_pwrite64, fd, from, bytes, at); }
ssize_t writev(int fd, const struct iovec* parts, int count) { return fails(kWrite) ? (errno = ENOSPC, -1) : syscall(SYS_writev, fd, parts, count); }
int fputs(const char* text, FILE* file) {
  REAL(int, "fputs", const char*, FILE*);
  return fails(kWrite) ? (errno = ENOSPC, EOF) : real(text, file);
}
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
int accept4(int fd, struct sockaddr* address, socklen_t* bytes, int flags) { return fails(kSocket) ? (errno = EMFILE, -1) : (int)syscall(SYS_accept4, fd, address, bytes, flags); }
int socketpair(int domain, int type, int protocol, int ends[2]) { return fails(kSocket) ? (errno = EMFILE, -1) : (int)syscall(SYS_socketpair, domain, type, protocol, ends); }
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) { return fails(kSocket) ? (errno = ECONNRESET, -1) : syscall(SYS_sendmsg, fd, message, flags); }
ssize_t recvmsg(int fd, struct msghdr* message, int flags) { return fails(kSocket) ? (errno = ECONNRESET, -1) : syscall(SYS_recvmsg, fd, message, flags); }
