/* DAT 2.0: common part of the user and kernel interfaces. Programs include <dat2/udat.h>. */
#ifndef DAT2_DAT_H
#define DAT2_DAT_H

#include <dat2/dat_error.h>
#include <dat2/dat_platform_specific.h>
#include <dat_common/types.h>

/* Number of an operation beyond the interface. */
typedef int DAT_EXTENDED_OP;
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000
#define DAT_IB_EXTENSION 1
#define DAT_IW_EXTENSION 2

#endif
