/* The library of a provider, for a line of dat.conf. */
#include "guest.h"

#include <string.h>

int guest_began, guest_ended;

/* The instance data of the line says if the provider registers itself. */
void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *instance_data)
{
    guest_began++;
    guest_fill();
    if (strcmp(instance_data, "register me") == 0)
        dat_registry_add_provider(&guest_table, info);
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    guest_ended++;
    dat_registry_remove_provider(&guest_table, info);
}
