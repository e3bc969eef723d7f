/* DAT 2.0: the table of functions through which a provider is called. */
#ifndef DAT2_UDAT_REDIRECTION_H
#define DAT2_UDAT_REDIRECTION_H

#include <dat2/dat_redirection.h>

#endif
