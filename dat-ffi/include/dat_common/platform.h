/* DAT 1.2 and 2.0: definitions that depend on the platform. Programs include <dat/udat.h> or
 * <dat2/udat.h>, which set DAT_COMMON_EDITION. */
#ifndef DAT_COMMON_PLATFORM_H
#define DAT_COMMON_PLATFORM_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Directions of arguments, as in the manual pages. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#define DAT_API
#define DAT_EXPORT extern

/* Best alignment of buffers in bytes, for any provider. */
#define DAT_OPTIMAL_ALIGNMENT 256

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
#if defined(__cplusplus) && __cplusplus < 201103L
typedef uint64_t DAT_UVERYLONG;
#elif defined(__GNUC__)
__extension__ typedef unsigned long long DAT_UVERYLONG;
#else
typedef unsigned long long DAT_UVERYLONG;
#endif
typedef int DAT_COUNT;
typedef void *DAT_PVOID;
typedef DAT_UINT64 DAT_PADDR;

/* Addresses of adapters, of the family DAT_AF_INET, or DAT_AF_INET6 for longer addresses. */
typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

#endif
