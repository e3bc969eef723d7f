/* DAT 2.0, for providers: registration, and functions that the registry calls. */
#ifndef DAT2_DAT_REGISTRY_H
#define DAT2_DAT_REGISTRY_H

#include <dat2/udat_redirection.h>

/* Relation of two adapters: DAT_HA_TRUE if they lead to the same hosts. */
typedef enum dat_ha_relationship {
    DAT_HA_FALSE = 0,
    DAT_HA_TRUE = 1,
    DAT_HA_UNKNOWN = 2,
    DAT_HA_CONFLICTING = 3,
    DAT_HA_EXTENSION_BASE = 4
} DAT_HA_RELATIONSHIP;

#ifdef __cplusplus
extern "C" {
#endif

/* The table must stay as long as it is registered. */
DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);
DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);
DAT_RETURN dat_registry_providers_related(const DAT_NAME_PTR provider, const DAT_NAME_PTR other,
    DAT_HA_RELATIONSHIP *relationship);

/* Functions that a provider's library exports. The registry passes the line of dat.conf and its
 * instance data. */
void dat_provider_init(const DAT_PROVIDER_INFO *provider_info, const char *instance_data);
void dat_provider_fini(const DAT_PROVIDER_INFO *provider_info);
typedef void (*DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *provider_info, const char *instance_data);
typedef void (*DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *provider_info);
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"

#ifdef __cplusplus
}
#endif

#endif
