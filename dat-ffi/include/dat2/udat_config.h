/* DAT 2.0: what a program asks for. */
#ifndef DAT2_UDAT_CONFIG_H
#define DAT2_UDAT_CONFIG_H

#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/* What dat_ia_open asks for; a program may define it before. Every call of our libraries is safe from any thread either way. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

/* There is dat_extension_op. */
#define DAT_EXTENSIONS 1

#endif
