/* DAT 2.0: configuration of a program. */
#ifndef DAT2_UDAT_CONFIG_H
#define DAT2_UDAT_CONFIG_H

#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/* Thread safety that dat_ia_open requests; a program may define it first. The libraries of this
 * project are thread-safe with either value. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

/* dat_extension_op is available. */
#define DAT_EXTENSIONS 1

#endif
