/* DAT 1.2: the table of functions through which a provider is called. */
#ifndef UDAT_REDIRECTION_H
#define UDAT_REDIRECTION_H

#include <dat/udat.h>
#include <dat_common/redirection.h>

#endif
