/* DAT 1.2: common part of the user and kernel interfaces. Programs include <dat/udat.h>. */
#ifndef DAT_H
#define DAT_H

#include <dat/dat_error.h>
#include <dat/dat_platform_specific.h>
#include <dat_common/types.h>

#endif
