/* DAT 1.2: what user and kernel interface have in common. Programs include <dat/udat.h>. */
#ifndef DAT_H
#define DAT_H

#include <dat/dat_error.h>
#include <dat/dat_platform_specific.h>
#include <dat_common/types.h>

#endif
