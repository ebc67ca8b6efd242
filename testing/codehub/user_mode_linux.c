/* Preloaded into Debian 12's User-mode Linux, which cannot run on processors with AMX otherwise.
 *
 * Linux sets a process's extended registers only as a whole, and AMX makes them larger than User-mode Linux's buffer, which
 * ends with the registers of AVX-512 and the protection keys. The rest is left as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

long ptrace(enum __ptrace_request request, ...)
{
    static long (*real)(enum __ptrace_request, ...);
    static char all[1 << 16];
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!real)
        real = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
        struct iovec *given = data, whole = {all, sizeof all};
        if (real(PTRACE_GETREGSET, pid, address, &whole) != 0)
            return -1;
        if (whole.iov_len > given->iov_len) {
            memcpy(all, given->iov_base, given->iov_len);
            return real(request, pid, address, &whole);
        }
    }
    return real(request, pid, address, data);
}
