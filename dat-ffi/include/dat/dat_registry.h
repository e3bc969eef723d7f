/* DAT 1.2, for providers: registration, and functions that the registry calls. */
#ifndef DAT_REGISTRY_H
#define DAT_REGISTRY_H

#include <dat/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The table must stay as long as it is registered. */
DAT_RETURN dat_registry_add_provider(DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);
DAT_RETURN dat_registry_remove_provider(DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);

/* Functions that a provider's library exports. The registry passes the line of dat.conf and its
 * instance data. */
void dat_provider_init(const DAT_PROVIDER_INFO *provider_info, const char *instance_data);
void dat_provider_fini(const DAT_PROVIDER_INFO *provider_info);
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"

#ifdef __cplusplus
}
#endif

#endif
