/* Faults of file systems, for a program that is started with this library in LD_PRELOAD.

   Calls on paths below the folders of FAULTS_BELOW (separated by colons) are counted, over all processes that share
   the file FAULTS_STATE. At call FAULTS_NTH of the class FAULTS_CALLS the call fails, is shortened, comes late, or its
   process is killed. FAULTS_LOG receives a line for the call that was hit: function, path.

   FAULTS_PROGRAM    only processes with this text in their command line; all where it is not set
   FAULTS_RANK       only this rank (PMI_RANK); all where it is not set
   FAULTS_ACTION     count | fail | short | delay | kill
   FAULTS_ERRNO      the number that a call fails with
   FAULTS_CALLS      0 all calls, 1 those that need space, 2 reads and writes of several bytes, 3 those that take a path
   FAULTS_LASTING    1: all later calls of the class fail as well, as on a full disk */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ALL, SPACE, PART, PATH, CLASSES };
enum { COUNT, FAIL, SHORT, DELAY, KILL };
#define IN(class) (1u << (class))
#define DELAY_NS 300000000

static struct state {
    _Atomic long counts[CLASSES];
} *state;
static const char *below;
static int action, number, class, lasting;
static long nth;

static int matches(void)
{
    const char *program = getenv("FAULTS_PROGRAM"), *rank = getenv("FAULTS_RANK"), *mine = getenv("PMI_RANK");
    char line[8192];
    int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
    ssize_t size = fd < 0 ? 0 : syscall(SYS_read, fd, line, sizeof line - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    line[size > 0 ? size : 0] = 0;
    for (ssize_t at = 0; at < size; at++)
        if (!line[at])
            line[at] = ' ';
    if (program && *program && !strstr(line, program))
        return 0;
    return !rank || !*rank || (mine && !strcmp(mine, rank));
}

static int of_name(const char *name)
{
    static const char *names[] = {"count", "fail", "short", "delay", "kill"};
    for (int at = 0; at < 5; at++)
        if (name && !strcmp(name, names[at]))
            return at;
    return COUNT;
}

/* Count and fault from now on, whatever the command line is. */
void faults_begin(void)
{
    const char *path = getenv("FAULTS_STATE"), *text;
    if (!path || !getenv("FAULTS_BELOW"))
        return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
    if (fd < 0)
        return;
    void *shared = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (shared == MAP_FAILED)
        return;
    action = of_name(getenv("FAULTS_ACTION"));
    number = (text = getenv("FAULTS_ERRNO")) ? atoi(text) : EIO;
    class = (text = getenv("FAULTS_CALLS")) ? atoi(text) : ALL;
    nth = (text = getenv("FAULTS_NTH")) ? atol(text) : 0;
    lasting = (text = getenv("FAULTS_LASTING")) && atoi(text);
    below = getenv("FAULTS_BELOW");
    state = shared;
}

__attribute__((constructor)) static void begin(void)
{
    if (getenv("FAULTS_STATE") && matches())
        faults_begin();
}

/* Is the absolute path below one of the folders? */
static int counted(const char *path)
{
    for (const char *folder = below; folder && *folder;) {
        size_t size = strcspn(folder, ":");
        if (!strncmp(path, folder, size) && (path[size] == '/' || !path[size]))
            return 1;
        folder += size + (folder[size] == ':');
    }
    return 0;
}

static void of_descriptor(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[size > 0 ? size : 0] = 0;
}

static void absolute(int fd, const char *name, char *path)
{
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (fd == AT_FDCWD) {
        if (syscall(SYS_getcwd, path, PATH_MAX) < 0)
            path[0] = 0;
    } else
        of_descriptor(fd, path);
    size_t used = strlen(path);
    snprintf(path + used, PATH_MAX - used, "/%s", name);
}

static void record(const char *function, const char *path)
{
    char line[PATH_MAX + 64];
    const char *log = getenv("FAULTS_LOG");
    int fd = log ? syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (fd < 0)
        return;
    int size = snprintf(line, sizeof line, "%s %s\n", function, path);
    syscall(SYS_write, fd, line, size);
    syscall(SYS_close, fd);
}

/* What becomes of a call of these classes: FAIL (errno is set), SHORT, or COUNT, it goes on. */
static int fate(const char *function, const char *path, unsigned classes)
{
    int kept = errno;
    if (!state || !counted(path))
        return COUNT;
    long here = 0;
    for (int at = 0; at < CLASSES; at++)
        if (classes & IN(at)) {
            long now = atomic_fetch_add(&state->counts[at], 1) + 1;
            if (at == class)
                here = now;
        }
    if (action == COUNT || !nth || !here || !(here == nth || (lasting && here > nth))) {
        errno = kept;
        return COUNT;
    }
    record(function, path);
    if (action == KILL) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (action == DELAY) {
        struct timespec time = {0, DELAY_NS};
        nanosleep(&time, NULL);
    }
    errno = action == FAIL ? number : kept;
    return action == FAIL || action == SHORT ? action : COUNT;
}

static int at_descriptor(const char *function, int fd, unsigned classes)
{
    char path[PATH_MAX];
    int kept = errno;
    if (!state)
        return COUNT;
    of_descriptor(fd, path);
    errno = kept;
    return fate(function, path, classes);
}

static int at_name(const char *function, int fd, const char *name, unsigned classes)
{
    char path[PATH_MAX];
    int kept = errno;
    if (!state || !name || (!*name && fd == AT_FDCWD))
        return COUNT;
    absolute(fd, name, path);
    errno = kept;
    return fate(function, path, classes);
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define NAMED (IN(ALL) | IN(PATH))
#define OPENED(flags) (NAMED | ((flags) & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR) ? IN(SPACE) : 0))

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        REAL(int, name, const char *, int, ...);                                                                       \
        return at_name(#name, AT_FDCWD, path, OPENED(flags)) == FAIL ? -1 : real(path, flags, mode);                   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
    int name(int fd, const char *path, int flags, ...)                                                                 \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        REAL(int, name, int, const char *, int, ...);                                                                  \
        return at_name(#name, fd, path, OPENED(flags)) == FAIL ? -1 : real(fd, path, flags, mode);                     \
    }
OPENAT(openat)
OPENAT(openat64)

#define FORTIFIED(name)                                                                                                \
    int name(const char *path, int flags)                                                                              \
    {                                                                                                                  \
        REAL(int, name, const char *, int);                                                                            \
        return at_name(#name, AT_FDCWD, path, OPENED(flags)) == FAIL ? -1 : real(path, flags);                         \
    }
FORTIFIED(__open_2)
FORTIFIED(__open64_2)

#define FOPEN(name)                                                                                                    \
    FILE *name(const char *path, const char *mode)                                                                     \
    {                                                                                                                  \
        REAL(FILE *, name, const char *, const char *);                                                                \
        return at_name(#name, AT_FDCWD, path, OPENED(strpbrk(mode, "wa+") ? O_WRONLY : 0)) == FAIL                     \
                   ? NULL                                                                                              \
                   : real(path, mode);                                                                                 \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* Half of what was asked for, one byte at least. */
static size_t part(size_t size)
{
    return size > 1 ? size / 2 : size;
}

#define PARTLY(size, classes) (IN(ALL) | (classes) | ((size) > 1 ? IN(PART) : 0))

#define TRANSFER(name, buffer, classes, offset_type, offset_name)                                                      \
    ssize_t name(int fd, buffer data, size_t size offset_type)                                                         \
    {                                                                                                                  \
        REAL(ssize_t, name, int, buffer, size_t offset_type);                                                          \
        int it = at_descriptor(#name, fd, PARTLY(size, classes));                                                      \
        return it == FAIL ? -1 : real(fd, data, it == SHORT ? part(size) : size offset_name);                          \
    }
#define NOTHING
#define OFFSET , off_t offset
#define ITS_OFFSET , offset
TRANSFER(read, void *, 0, NOTHING, NOTHING)
TRANSFER(write, const void *, IN(SPACE), NOTHING, NOTHING)
TRANSFER(pread, void *, 0, OFFSET, ITS_OFFSET)
TRANSFER(pread64, void *, 0, OFFSET, ITS_OFFSET)
TRANSFER(pwrite, const void *, IN(SPACE), OFFSET, ITS_OFFSET)
TRANSFER(pwrite64, const void *, IN(SPACE), OFFSET, ITS_OFFSET)

/* The first half of the views. */
static int first_half(const struct iovec *views, int count, struct iovec *half, size_t total)
{
    size_t left = part(total);
    int used = 0;
    while (used < count && left) {
        half[used] = views[used];
        if (half[used].iov_len > left)
            half[used].iov_len = left;
        left -= half[used++].iov_len;
    }
    return used;
}

static size_t sum(const struct iovec *views, int count)
{
    size_t total = 0;
    for (int at = 0; at < count; at++)
        total += views[at].iov_len;
    return total;
}

#define SCATTER(name, classes, offset_type, offset_name)                                                               \
    ssize_t name(int fd, const struct iovec *views, int count offset_type)                                             \
    {                                                                                                                  \
        REAL(ssize_t, name, int, const struct iovec *, int offset_type);                                               \
        size_t total = sum(views, count);                                                                              \
        int it = at_descriptor(#name, fd, PARTLY(total, classes));                                                     \
        if (it == FAIL)                                                                                                \
            return -1;                                                                                                 \
        if (it != SHORT)                                                                                               \
            return real(fd, views, count offset_name);                                                                 \
        struct iovec half[IOV_MAX];                                                                                    \
        return real(fd, half, first_half(views, count, half, total) offset_name);                                      \
    }
SCATTER(readv, 0, NOTHING, NOTHING)
SCATTER(writev, IN(SPACE), NOTHING, NOTHING)
SCATTER(preadv, 0, OFFSET, ITS_OFFSET)
SCATTER(preadv64, 0, OFFSET, ITS_OFFSET)
SCATTER(pwritev, IN(SPACE), OFFSET, ITS_OFFSET)
SCATTER(pwritev64, IN(SPACE), OFFSET, ITS_OFFSET)

#define OF_FILE(name, classes, types, arguments)                                                                       \
    int name(int fd types)                                                                                             \
    {                                                                                                                  \
        REAL(int, name, int types);                                                                                    \
        return at_descriptor(#name, fd, IN(ALL) | (classes)) == FAIL ? -1 : real(fd arguments);                        \
    }
#define TWO(type) , type second
#define SECOND , second
OF_FILE(fsync, IN(SPACE), NOTHING, NOTHING)
OF_FILE(fdatasync, IN(SPACE), NOTHING, NOTHING)
OF_FILE(ftruncate, IN(SPACE), TWO(off_t), SECOND)
OF_FILE(ftruncate64, IN(SPACE), TWO(off_t), SECOND)
OF_FILE(fchmod, 0, TWO(mode_t), SECOND)
OF_FILE(fstat, 0, TWO(struct stat *), SECOND)
OF_FILE(fstat64, 0, TWO(struct stat64 *), SECOND)
OF_FILE(fstatvfs, 0, TWO(struct statvfs *), SECOND)

/* The descriptor is closed whatever is said: so it is on Linux. */
int close(int fd)
{
    REAL(int, close, int);
    int it = at_descriptor("close", fd, IN(ALL) | IN(SPACE)), kept = errno, done = real(fd);
    if (it != FAIL)
        return done;
    errno = kept;
    return -1;
}

#define OF_NAME(name, classes, types, arguments)                                                                       \
    int name(const char *path types)                                                                                   \
    {                                                                                                                  \
        REAL(int, name, const char *types);                                                                            \
        return at_name(#name, AT_FDCWD, path, NAMED | (classes)) == FAIL ? -1 : real(path arguments);                  \
    }
OF_NAME(mkdir, IN(SPACE), TWO(mode_t), SECOND)
OF_NAME(rmdir, 0, NOTHING, NOTHING)
OF_NAME(unlink, 0, NOTHING, NOTHING)
OF_NAME(chmod, 0, TWO(mode_t), SECOND)
OF_NAME(access, 0, TWO(int), SECOND)
OF_NAME(stat, 0, TWO(struct stat *), SECOND)
OF_NAME(stat64, 0, TWO(struct stat64 *), SECOND)
OF_NAME(lstat, 0, TWO(struct stat *), SECOND)
OF_NAME(lstat64, 0, TWO(struct stat64 *), SECOND)
OF_NAME(statvfs, 0, TWO(struct statvfs *), SECOND)

#define OF_PLACE(name, classes, types, arguments)                                                                      \
    int name(int fd, const char *path types)                                                                           \
    {                                                                                                                  \
        REAL(int, name, int, const char *types);                                                                       \
        return at_name(#name, fd, path, NAMED | (classes)) == FAIL ? -1 : real(fd, path arguments);                    \
    }
#define THREE(type, other) , type second, other third
#define THIRD , second, third
OF_PLACE(mkdirat, IN(SPACE), TWO(mode_t), SECOND)
OF_PLACE(unlinkat, 0, TWO(int), SECOND)
OF_PLACE(fstatat, 0, THREE(struct stat *, int), THIRD)
OF_PLACE(fstatat64, 0, THREE(struct stat64 *, int), THIRD)

/* Two names: the new one is what messages are about. */
int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    return at_name("rename", AT_FDCWD, to, NAMED | IN(SPACE)) == FAIL ? -1 : real(from, to);
}

int renameat(int old, const char *from, int new, const char *to)
{
    REAL(int, renameat, int, const char *, int, const char *);
    return at_name("renameat", new, to, NAMED | IN(SPACE)) == FAIL ? -1 : real(old, from, new, to);
}

int renameat2(int old, const char *from, int new, const char *to, unsigned flags)
{
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    return at_name("renameat2", new, to, NAMED | IN(SPACE)) == FAIL ? -1 : real(old, from, new, to, flags);
}

int link(const char *from, const char *to)
{
    REAL(int, link, const char *, const char *);
    return at_name("link", AT_FDCWD, to, NAMED | IN(SPACE)) == FAIL ? -1 : real(from, to);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, opendir, const char *);
    return at_name("opendir", AT_FDCWD, path, NAMED) == FAIL ? NULL : real(path);
}

#define READDIR(name, type)                                                                                            \
    struct type *name(DIR *folder)                                                                                     \
    {                                                                                                                  \
        REAL(struct type *, name, DIR *);                                                                              \
        return at_descriptor(#name, dirfd(folder), IN(ALL)) == FAIL ? NULL : real(folder);                             \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)
