/* Preloaded into a process: a file system that fails, or a record of what is written. See file_system.py.
 *
 * SHIM_ROOT: only paths below it. SHIM_FAULT="CALL N ERRNO": the N-th call (from 0; -1: every one) fails.
 * SHIM_RENAME_MS: a rename removes the old file first, and brings the new one so much later.
 * SHIM_TRACE: a file to which each change is appended: a line "op<TAB>path<TAB>second path<TAB>offset<TAB>length",
 * then the bytes of a write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int calls = 0;

/* The absolute path of a name below a folder's descriptor; NULL if it is not ours. */
static const char *ours(int dir, const char *name, char *out) {
    const char *root = getenv("SHIM_ROOT");
    if (!root || !name) return NULL;
    char link[64], base[3000] = "";
    if (name[0] == '/') {
        snprintf(out, 4096, "%s", name);
    } else {
        snprintf(link, sizeof link, dir == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir);
        ssize_t size = readlink(link, base, sizeof base - 1);
        if (size < 0) return NULL;
        base[size] = 0;
        snprintf(out, 4096, name[0] ? "%s/%s" : "%s", base, name);
    }
    return strncmp(out, root, strlen(root)) ? NULL : out;
}

static int fails(const char *call, const char *path) {
    const char *fault = getenv("SHIM_FAULT");
    char name[32];
    int at, number;
    if (!path || !fault || sscanf(fault, "%31s %d %d", name, &at, &number) != 3 || strcmp(name, call)) return 0;
    int seen = __sync_fetch_and_add(&calls, 1);
    if (at >= 0 && seen != at) return 0;
    errno = number;
    return 1;
}

static void note(const char *op, const char *path, const char *second, long offset, const void *data, size_t length) {
    const char *file = getenv("SHIM_TRACE");
    if (!path || !file) return;
    int before = errno;
    char line[8400];
    int size = snprintf(line, sizeof line, "%s\t%s\t%s\t%ld\t%zu\n", op, path, second, offset, length);
    pthread_mutex_lock(&lock);
    int trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    struct iovec parts[2] = {{line, size}, {(void *)data, length}};
    syscall(SYS_writev, trace, parts, 2); /* at once: other processes write there too */
    syscall(SYS_close, trace);
    pthread_mutex_unlock(&lock);
    errno = before;
}

static int opened(int dir, const char *name, int flags, mode_t mode) {
    char buffer[4096];
    const char *path = ours(dir, name, buffer);
    if (fails("open", path)) return -1;
    int result = syscall(SYS_openat, dir, name, flags, mode);
    if (result >= 0 && flags & (O_CREAT | O_TRUNC)) note(flags & O_TRUNC ? "truncate" : "create", path, "", 0, NULL, 0);
    return result;
}
#define OPENING(name, parameters, dir, path)                 \
    int name parameters {                                    \
        mode_t mode = 0;                                     \
        if (flags & (O_CREAT | O_TMPFILE)) {                 \
            va_list rest;                                    \
            va_start(rest, flags);                           \
            mode = va_arg(rest, mode_t);                     \
            va_end(rest);                                    \
        }                                                    \
        return opened(dir, path, flags, mode);               \
    }
OPENING(open, (const char *path, int flags, ...), AT_FDCWD, path)
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD, path)
OPENING(openat, (int dir, const char *path, int flags, ...), dir, path)
OPENING(openat64, (int dir, const char *path, int flags, ...), dir, path)

static long end_of(int fd) {
    struct stat status;
    int is_appended = fcntl(fd, F_GETFL) & O_APPEND;
    return is_appended && !fstat(fd, &status) ? status.st_size : lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t length) {
    char buffer[4096];
    const char *path = getenv("SHIM_ROOT") ? ours(fd, "", buffer) : NULL;
    if (fails("write", path)) return -1;
    long offset = path ? end_of(fd) : 0;
    ssize_t done = REAL(write)(fd, data, length);
    if (done > 0) note("write", path, "", offset, data, done);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char buffer[4096];
    if (!getenv("SHIM_ROOT") || !ours(fd, "", buffer)) return REAL(writev)(fd, parts, count);
    ssize_t sum = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (done < 0) return sum ? sum : done;
        sum += done;
    }
    return sum;
}

static int synced(int fd, int (*real)(int)) {
    char buffer[4096];
    const char *path = getenv("SHIM_ROOT") ? ours(fd, "", buffer) : NULL;
    if (fails("fsync", path)) return -1;
    int result = real(fd);
    if (!result) note("fsync", path, "", 0, NULL, 0);
    return result;
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int flock(int fd, int operation) {
    char buffer[4096];
    if (fails("flock", getenv("SHIM_ROOT") ? ours(fd, "", buffer) : NULL)) return -1;
    return syscall(SYS_flock, fd, operation);
}

int ftruncate64(int fd, off64_t length) {
    char buffer[4096];
    int result = syscall(SYS_ftruncate, fd, length);
    if (!result) note("cut", ours(fd, "", buffer), "", length, NULL, 0);
    return result;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int rename(const char *from, const char *to) {
    char one[4096], two[4096];
    const char *source = ours(AT_FDCWD, from, one), *target = ours(AT_FDCWD, to, two);
    if (fails("rename", source)) return -1;
    const char *wait = getenv("SHIM_RENAME_MS");
    if (wait && target) {
        syscall(SYS_unlinkat, AT_FDCWD, to, 0);
        usleep(1000 * atoi(wait));
    }
    int result = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (!result) note("rename", source, target ? target : "", 0, NULL, 0);
    return result;
}

static int changed(const char *op, int result, const char *path, const char *second) {
    if (!result) note(op, path, second, 0, NULL, 0);
    return result;
}
int unlinkat(int dir, const char *name, int flags) {
    char buffer[4096];
    const char *path = ours(dir, name, buffer);
    return changed("remove", syscall(SYS_unlinkat, dir, name, flags), path, "");
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int mkdir(const char *name, mode_t mode) {
    char buffer[4096];
    const char *path = ours(AT_FDCWD, name, buffer);
    if (fails("mkdir", path)) return -1;
    return changed("mkdir", syscall(SYS_mkdirat, AT_FDCWD, name, mode), path, "");
}
int link(const char *from, const char *to) {
    char one[4096], two[4096];
    const char *source = ours(AT_FDCWD, from, one), *target = ours(AT_FDCWD, to, two);
    if (fails("link", source)) return -1;
    return changed("link", syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), source, target ? target : "");
}
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char one[4096], two[4096];
    const char *source = ours(from_dir, from, one), *target = ours(to_dir, to, two);
    if (fails("link", source)) return -1;
    return changed("link", syscall(SYS_linkat, from_dir, from, to_dir, to, flags), source, target ? target : "");
}
