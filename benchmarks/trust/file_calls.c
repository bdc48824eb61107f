// Records, or fails, the calls that change files below one folder. Loaded by LD_PRELOAD; `crash_states` drives it.
//
// A record of the log is a header, two paths and the bytes written:
//   char kind; uint32 length of each path; int64 offset; uint64 count of bytes
// C created or emptied   W written   T truncated   R renamed   L linked   U unlinked   M mkdir   D rmdir
// S file or folder synced   A file system synced
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

enum { EVERY_CALL, REMOVES, ALLOCATES, WRITES };  // a full disk still removes

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_length;
static int log_fd = -1;
static long calls, fail_at, fired;
static int fail_errno, fail_rest;

// ---- driven by Python

void crash_trace(const char *folder, const char *log) {
    pthread_mutex_lock(&lock);
    if (log_fd >= 0) close(log_fd);
    log_fd = log && *log ? NEXT(open)(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600) : -1;
    snprintf(root, sizeof root, "%s", folder ? folder : "");
    root_length = strlen(root);
    calls = fail_at = fired = 0;
    pthread_mutex_unlock(&lock);
}

void crash_fail(long at, int error, int rest) {
    pthread_mutex_lock(&lock);
    calls = fired = 0, fail_at = at, fail_errno = error, fail_rest = rest;
    pthread_mutex_unlock(&lock);
}

long crash_calls(void) { return calls; }
long crash_fired(void) { return fired; }

// ---- paths

static int below(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int of_fd(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, 4000);
    if (n < 0) return 0;
    out[n] = 0;
    return below(out) && !strstr(out, " (deleted)");
}

static int at(int fd, const char *path, char *out) {
    if (!root_length || !path) return 0;
    if (path[0] == '/') snprintf(out, 4096, "%.4000s", path);
    else {
        char folder[4096];
        if (fd == AT_FDCWD ? !getcwd(folder, 3000) : !of_fd(fd, folder)) return 0;
        snprintf(out, 4096, "%.3000s/%.1000s", folder, path);
    }
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') out[--n] = 0;
    return below(out);
}

// ---- the log

static void put(const void *bytes, size_t count) {
    while (count) {
        ssize_t n = NEXT(write)(log_fd, bytes, count);
        if (n <= 0) abort();
        bytes = (const char *)bytes + n, count -= n;
    }
}

static void note(char kind, const char *path, const char *other, int64_t offset, const void *bytes, uint64_t count) {
    if (log_fd < 0) return;
    uint32_t one = strlen(path), two = other ? strlen(other) : 0;
    put(&kind, 1), put(&one, 4), put(&two, 4), put(&offset, 8), put(&count, 8);
    put(path, one), put(other ? other : "", two);
    if (bytes) put(bytes, count);
}

// Whether the call must fail; an error below 0 ends the process. Called with the lock held, once a call.
static int refused(int sort) {
    if (!fail_at) return 0;
    calls++;
    int full = fail_errno == ENOSPC || fail_errno == EDQUOT;
    if (calls < fail_at || (fired && !fail_rest)) return 0;
    if (full && sort == REMOVES) return 0;
    if (fail_errno < 0 && sort != WRITES) kill(getpid(), SIGKILL), pause();
    fired++;
    return 1;
}

// ---- the calls

static ssize_t written(int fd, const void *bytes, size_t count, int64_t offset) {
    char path[4096];
    pthread_mutex_lock(&lock);
    if (!root_length || !of_fd(fd, path)) {
        pthread_mutex_unlock(&lock);
        return offset < 0 ? NEXT(write)(fd, bytes, count) : NEXT(pwrite64)(fd, bytes, count, offset);
    }
    ssize_t n;
    int was = fired;
    if (refused(WRITES)) {
        int ends = fail_errno < 0, full = fail_errno == ENOSPC || fail_errno == EDQUOT;
        int half = count > 1 && (ends || (full && fail_rest && !was));
        n = !half ? -1 : offset < 0 ? NEXT(write)(fd, bytes, count / 2) : NEXT(pwrite64)(fd, bytes, count / 2, offset);
        if (ends) kill(getpid(), SIGKILL), pause();
        if (!half) errno = fail_errno;
    } else {
        n = offset < 0 ? NEXT(write)(fd, bytes, count) : NEXT(pwrite64)(fd, bytes, count, offset);
        if (n > 0) note('W', path, NULL, offset < 0 ? lseek(fd, 0, SEEK_CUR) - n : offset, bytes, n);
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return n;
}

ssize_t write(int fd, const void *bytes, size_t count) { return written(fd, bytes, count, -1); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) { return written(fd, bytes, count, offset); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return written(fd, bytes, count, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[4096];
    if (!root_length || !of_fd(fd, path)) return NEXT(writev)(fd, parts, count);
    for (int i = 0; i < count; i++)  // a short write is what POSIX allows
        if (parts[i].iov_len) return written(fd, parts[i].iov_base, parts[i].iov_len, -1);
    return 0;
}

// Calls that copy within the kernel are refused: their callers then fall back to read and write.
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
    char path[4096];
    if (root_length && of_fd(out, path)) return errno = ENOSYS, -1;
    return NEXT(copy_file_range)(in, from, out, to, count, flags);
}
ssize_t sendfile64(int out, int in, off64_t *from, size_t count) {
    char path[4096];
    if (root_length && of_fd(out, path)) return errno = EINVAL, -1;
    return NEXT(sendfile64)(out, in, from, count);
}
ssize_t sendfile(int out, int in, off_t *from, size_t count) { return sendfile64(out, in, (off64_t *)from, count); }

#define CALL(OURS, SORT, DO, NOTE)                            \
    char path[4096], other[4096];                             \
    (void)other;                                              \
    pthread_mutex_lock(&lock);                                \
    int ours = root_length && (OURS), result;                 \
    if (ours && refused(SORT)) result = -1, errno = fail_errno; \
    else {                                                    \
        result = (DO);                                        \
        if (ours && result >= 0) { NOTE; }                    \
    }                                                         \
    int error = errno;                                        \
    pthread_mutex_unlock(&lock);                              \
    errno = error;                                            \
    return result;

int fsync(int fd) { CALL(of_fd(fd, path), EVERY_CALL, NEXT(fsync)(fd), note('S', path, NULL, 0, NULL, 0)) }
int fdatasync(int fd) { CALL(of_fd(fd, path), EVERY_CALL, NEXT(fdatasync)(fd), note('S', path, NULL, 0, NULL, 0)) }
int syncfs(int fd) { CALL(of_fd(fd, path), EVERY_CALL, NEXT(syncfs)(fd), note('A', path, NULL, 0, NULL, 0)) }
int ftruncate64(int fd, off64_t size) {
    CALL(of_fd(fd, path), EVERY_CALL, NEXT(ftruncate64)(fd, size), note('T', path, NULL, size, NULL, 0))
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int unlinkat(int fd, const char *name, int flags) {
    CALL(at(fd, name, path), REMOVES, NEXT(unlinkat)(fd, name, flags),
         note(flags & AT_REMOVEDIR ? 'D' : 'U', path, NULL, 0, NULL, 0))
}
int unlink(const char *name) {
    CALL(at(AT_FDCWD, name, path), REMOVES, NEXT(unlink)(name), note('U', path, NULL, 0, NULL, 0))
}
int rmdir(const char *name) {
    CALL(at(AT_FDCWD, name, path), REMOVES, NEXT(rmdir)(name), note('D', path, NULL, 0, NULL, 0))
}
int mkdirat(int fd, const char *name, mode_t mode) {
    CALL(at(fd, name, path), ALLOCATES, NEXT(mkdirat)(fd, name, mode), note('M', path, NULL, 0, NULL, 0))
}
int mkdir(const char *name, mode_t mode) {
    CALL(at(AT_FDCWD, name, path), ALLOCATES, NEXT(mkdir)(name, mode), note('M', path, NULL, 0, NULL, 0))
}

// Rust's tempfile makes this call without the C library. The kernel hands it to us as a signal; OURS passes.
#define OURS 0x62696e6f
int renameat(int fd, const char *name, int to, const char *target) {
    CALL(at(fd, name, path) && at(to, target, other), EVERY_CALL,
         syscall(SYS_renameat, fd, name, to, target, 0, OURS),
         note('R', path, other, 0, NULL, 0))
}
int rename(const char *name, const char *target) {
    CALL(at(AT_FDCWD, name, path) && at(AT_FDCWD, target, other), EVERY_CALL, NEXT(rename)(name, target),
         note('R', path, other, 0, NULL, 0))
}
int linkat(int fd, const char *name, int to, const char *target, int flags) {
    CALL(at(fd, name, path) && at(to, target, other), ALLOCATES, NEXT(linkat)(fd, name, to, target, flags),
         note('L', path, other, 0, NULL, 0))
}
int link(const char *name, const char *target) {
    CALL(at(AT_FDCWD, name, path) && at(AT_FDCWD, target, other), ALLOCATES, NEXT(link)(name, target),
         note('L', path, other, 0, NULL, 0))
}

static int opened(int fd, const char *name, int flags, mode_t mode) {
    struct stat status;
    int is_new = 0;
    if (!root_length || !(flags & (O_CREAT | O_TRUNC))) return NEXT(openat64)(fd, name, flags, mode);
    CALL(at(fd, name, path) && (is_new = (flags & O_TRUNC) || lstat(path, &status), 1), ALLOCATES,
         NEXT(openat64)(fd, name, flags, mode), if (is_new) note('C', path, NULL, 0, NULL, 0))
}

#define MODE                                      \
    mode_t mode = 0;                              \
    if (flags & (O_CREAT | __O_TMPFILE)) {        \
        va_list rest;                             \
        va_start(rest, flags);                    \
        mode = va_arg(rest, int);                 \
        va_end(rest);                             \
    }
int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int fd, const char *name, int flags, ...) { MODE return opened(fd, name, flags, mode); }
int openat64(int fd, const char *name, int flags, ...) { MODE return opened(fd, name, flags, mode); }

// ---- streams: glibc writes them by calls of its own, so those below the folder get our functions

static ssize_t stream_read(void *fd, char *bytes, size_t count) { return read((int)(intptr_t)fd, bytes, count); }
static ssize_t stream_write(void *fd, const char *bytes, size_t count) {
    ssize_t n = write((int)(intptr_t)fd, bytes, count);
    return n < 0 ? 0 : n;
}
static int stream_seek(void *fd, off64_t *offset, int whence) {
    off64_t place = lseek64((int)(intptr_t)fd, *offset, whence);
    return place < 0 ? -1 : (*offset = place, 0);
}
static int stream_close(void *fd) { return close((int)(intptr_t)fd); }

FILE *fdopen(int fd, const char *mode) {
    char path[4096];
    if (!root_length || !of_fd(fd, path) || (*mode == 'r' && !strchr(mode, '+'))) return NEXT(fdopen)(fd, mode);
    cookie_io_functions_t calls = {stream_read, stream_write, stream_seek, stream_close};
    return fopencookie((void *)(intptr_t)fd, mode, calls);
}
FILE *fopen64(const char *name, const char *mode) {
    char path[4096];
    if (*mode == 'r' || !at(AT_FDCWD, name, path)) return NEXT(fopen64)(name, mode);
    int plus = strchr(mode, '+') ? O_RDWR : O_WRONLY;
    int fd = open(name, plus | O_CREAT | O_CLOEXEC | (*mode == 'w' ? O_TRUNC : O_APPEND), 0666);
    return fd < 0 ? NULL : fdopen(fd, mode);
}
FILE *fopen(const char *name, const char *mode) { return fopen64(name, mode); }

// ---- calls without the C library

static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
#if defined(__x86_64__)
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    int result = renameat(r[REG_RDI], (char *)r[REG_RSI], r[REG_RDX], (char *)r[REG_R10]);
    r[REG_RAX] = result < 0 ? -errno : result;
#elif defined(__aarch64__)
    unsigned long long *r = ((ucontext_t *)context)->uc_mcontext.regs;
    int result = renameat(r[0], (char *)r[1], r[2], (char *)r[3]);
    r[0] = result < 0 ? -errno : result;
#else
#error "the registers of a trapped call are known on x86-64 and on 64-bit ARM"
#endif
}

__attribute__((constructor)) static void trap(void) {
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
