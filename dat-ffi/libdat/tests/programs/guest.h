/* A provider in C, with adapters, protection zones and few other objects. */
#ifndef GUEST_H
#define GUEST_H

#include <dat/dat_registry.h>
#include <stdlib.h>

/* The object of a handle: by the interface, the address of the table comes first. */
struct guest_object {
    DAT_PROVIDER *provider;
    DAT_HANDLE_TYPE type;
    struct guest_object *ia;
};

static DAT_PROVIDER guest_table;

static struct guest_object *guest_make(DAT_HANDLE_TYPE type, struct guest_object *ia)
{
    struct guest_object *object = calloc(1, sizeof *object);
    object->provider = &guest_table;
    object->type = type;
    object->ia = ia;
    return object;
}

/* The adapter that every open with a queue length of 14 returns, and its number of opens. */
static struct guest_object *guest_shared;
static int guest_shares;

static DAT_RETURN guest_open(const char *name, DAT_COUNT length, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia)
{
    (void)name;
    if (length == 13)
        return DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    *async = DAT_EVD_OUT_OF_SCOPE;
    if (length == 14) {
        if (guest_shares++ == 0)
            guest_shared = guest_make(DAT_HANDLE_TYPE_IA, NULL);
        *ia = guest_shared;
        return DAT_SUCCESS;
    }
    *ia = guest_make(DAT_HANDLE_TYPE_IA, NULL);
    return DAT_SUCCESS;
}

static DAT_RETURN guest_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    struct guest_object *object = ia;
    if (flags == DAT_CLOSE_GRACEFUL_FLAG)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);
    if (object == guest_shared && --guest_shares > 0)
        return DAT_SUCCESS;
    /* The rest of the object no longer leads to the provider. */
    object->provider = NULL;
    return DAT_SUCCESS;
}

static DAT_RETURN guest_zone(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *zone)
{
    *zone = guest_make(DAT_HANDLE_TYPE_PZ, ia);
    return DAT_SUCCESS;
}

static DAT_RETURN guest_ask_zone(DAT_PZ_HANDLE zone, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param)
{
    struct guest_object *object = zone;
    if (mask != DAT_PZ_FIELD_ALL)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    param->ia_handle = object->ia;
    return DAT_SUCCESS;
}

static DAT_RETURN guest_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
    *type = ((struct guest_object *)handle)->type;
    return DAT_SUCCESS;
}

/* Returns the sum of its numbers, which shows that all arguments arrive. */
static DAT_RETURN guest_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_CONN_QUAL qualifier, DAT_TIMEOUT timeout,
    DAT_COUNT size, const void *data, DAT_QOS quality, DAT_CONNECT_FLAGS flags)
{
    (void)ep;
    return (DAT_RETURN)(qualifier + timeout + (DAT_UINT32)size + (DAT_UINT32)quality + (DAT_UINT32)flags + (address != NULL)
                        + (data != NULL));
}

static DAT_RETURN guest_register(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION description, DAT_VLEN length,
    DAT_PZ_HANDLE zone, DAT_MEM_PRIV_FLAGS privileges, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *local, DAT_RMR_CONTEXT *remote,
    DAT_VLEN *size, DAT_VADDR *address)
{
    (void)ia;
    *lmr = zone;
    *local = (DAT_LMR_CONTEXT)type;
    *remote = (DAT_RMR_CONTEXT)privileges;
    *size = length;
    *address = (DAT_VADDR)(uintptr_t)description.for_shared_memory.shared_memory_id;
    return DAT_SUCCESS;
}

static void guest_fill(void)
{
    guest_table.device_name = "guest";
    guest_table.ia_open_func = guest_open;
    guest_table.ia_close_func = guest_close;
    guest_table.pz_create_func = guest_zone;
    guest_table.pz_query_func = guest_ask_zone;
    guest_table.get_handle_type_func = guest_type;
    guest_table.ep_connect_func = guest_connect;
    guest_table.lmr_create_func = guest_register;
}

#endif
