/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG: instances that nvidia-smi makes and destroys on GPUs of eight memory slices, each with one compute instance that
 * fills it. They are kept in /run, as a driver would: gone when the node restarts, while the mode stays.
 */
#include "nvml_shapes.h"

#include <stdio.h>
#include <string.h>

enum { SLOTS = 7, PROFILES = 5, INSUFFICIENT_SIZE = 7, INSUFFICIENT_RESOURCES = 23, IN_USE = 19 };
/* NVML's number of a profile is its row here; id as nvidia-smi shows it. */
static const struct { unsigned id, slices, memory_slices, most; } profiles[PROFILES] = {
    {19, 1, 1, 7}, {14, 2, 2, 3}, {9, 3, 4, 2}, {5, 4, 4, 1}, {0, 7, 8, 1}};

struct instance { struct gpu as_device; Device parent; unsigned slot; };
static struct instance instances[MAX_GPUS][SLOTS];

/* What is in a slot: row of the profile, plus one; and whether it has its compute instance. */
static unsigned profile_in(Device d, unsigned slot) { return recall(d, "mig_instances", 0) >> (4 * slot) & 15; }
static unsigned computes(Device d, unsigned slot) { return recall(d, "mig_compute", 0) >> slot & 1; }
static void put(Device d, unsigned slot, unsigned profile)
{
    unsigned all = recall(d, "mig_instances", 0) & ~(15u << (4 * slot));
    remember(d, "mig_instances", all | profile << (4 * slot));
}
static void put_compute(Device d, unsigned slot, unsigned present)
{
    remember(d, "mig_compute", (recall(d, "mig_compute", 0) & ~(1u << slot)) | present << slot);
}

static struct instance *instance(Device d, unsigned slot)
{
    struct instance *i = &instances[d->position][slot];
    i->as_device = *d, i->parent = d, i->slot = slot;
    return i;
}
static struct instance *as_instance(Device d)
{
    const char *at = (const char *)d, *first = (const char *)instances;
    return at >= first && at < first + sizeof instances ? (struct instance *)d : NULL;
}
unsigned is_mig(Device d) { return as_instance(d) != NULL; }

static unsigned row_of(unsigned id)
{
    unsigned row = 0;
    while (row < PROFILES && profiles[row].id != id)
        row++;
    return row;
}
static unsigned gigabytes(unsigned row) { return (number("memory_mib") + 1023) / 1024 / 8 * profiles[row].memory_slices; }
void mig_name(Device d, char *text, unsigned size)
{
    unsigned row = profile_in(as_instance(d)->parent, as_instance(d)->slot) - 1;
    snprintf(text, size, "%s MIG %ug.%ugb", setting("name"), profiles[row].slices, gigabytes(row));
}
void mig_uuid(Device d, char *text, unsigned size)
{
    snprintf(text, size, "MIG-%.35s%u", d->uuid + strlen("GPU-"), as_instance(d)->slot);
}

static unsigned left(Device d, unsigned row)
{
    unsigned memory = 8, compute = 7;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (profile_in(d, slot))
            memory -= profiles[profile_in(d, slot) - 1].memory_slices, compute -= profiles[profile_in(d, slot) - 1].slices;
    unsigned by_memory = memory / profiles[row].memory_slices, by_compute = compute / profiles[row].slices;
    unsigned most = by_memory < by_compute ? by_memory : by_compute;
    return most < profiles[row].most ? most : profiles[row].most;
}

/* ---- GPU instances ------------------------------------------------------------------------------------------- */

struct profile_info { unsigned id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa; Counter memory_mib; };
struct profile_info_v2 { unsigned version, id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa; Counter memory_mib; char name[96]; };

Return nvmlDeviceGetGpuInstanceProfileInfo(Device d, unsigned row, struct profile_info *info)
{
    if (!number("mig") || row >= PROFILES || !recall_kept(d, "mig", 0))
        return NOT_SUPPORTED;
    *info = (struct profile_info){profiles[row].id, 0, profiles[row].slices, profiles[row].most, 16 * profiles[row].slices,
                                  profiles[row].slices, profiles[row].slices, 0, profiles[row].slices, 0, gigabytes(row) * 1024ull};
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstanceProfileInfoV(Device d, unsigned row, struct profile_info_v2 *info)
{
    struct profile_info plain;
    Return result = nvmlDeviceGetGpuInstanceProfileInfo(d, row, &plain);
    if (result != SUCCESS)
        return result;
    memcpy(&info->id, &plain, 10 * sizeof(unsigned));
    info->memory_mib = plain.memory_mib;
    snprintf(info->name, sizeof info->name, "MIG %ug.%ugb", profiles[row].slices, gigabytes(row));
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device d, unsigned id, unsigned *count)
{
    return row_of(id) < PROFILES ? (*count = left(d, row_of(id)), SUCCESS) : INVALID_ARGUMENT;
}
Return nvmlDeviceCreateGpuInstance(Device d, unsigned id, struct instance **made)
{
    unsigned row = row_of(id), slot = 0;
    if (row >= PROFILES || !recall_kept(d, "mig", 0))
        return INVALID_ARGUMENT;
    while (slot < SLOTS && profile_in(d, slot))
        slot++;
    if (!left(d, row) || slot == SLOTS)
        return INSUFFICIENT_RESOURCES;
    put(d, slot, row + 1);
    *made = instance(d, slot);
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstances(Device d, unsigned id, struct instance **found, unsigned *count)
{
    *count = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (profile_in(d, slot) == row_of(id) + 1)
            found[(*count)++] = instance(d, slot);
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstanceById(Device d, unsigned slot, struct instance **found)
{
    return slot < SLOTS && profile_in(d, slot) ? (*found = instance(d, slot), SUCCESS) : NOT_FOUND;
}
struct gi_info { Device device; unsigned id, profile, start, size; };
Return nvmlGpuInstanceGetInfo(struct instance *i, struct gi_info *info)
{
    unsigned row = profile_in(i->parent, i->slot) - 1;
    *info = (struct gi_info){i->parent, i->slot, profiles[row].id, i->slot, profiles[row].memory_slices};
    return SUCCESS;
}
Return nvmlGpuInstanceDestroy(struct instance *i)
{
    if (computes(i->parent, i->slot))
        return IN_USE;
    put(i->parent, i->slot, 0);
    return SUCCESS;
}

/* ---- compute instances: one, of all slices ------------------------------------------------------------------- */

struct ci_profile { unsigned id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa; };
struct ci_profile_v2 { unsigned version, id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa; char name[96]; };
static const unsigned ci_id[PROFILES] = {0, 1, 2, 3, 4};

Return nvmlGpuInstanceGetComputeInstanceProfileInfo(struct instance *i, unsigned profile, unsigned engine, struct ci_profile *info)
{
    unsigned row = profile_in(i->parent, i->slot) - 1;
    if (profile != ci_id[row] || engine)
        return NOT_SUPPORTED;
    *info = (struct ci_profile){profile, profiles[row].slices, 1, 16 * profiles[row].slices, 1, 1, 0, 1, 0};
    return SUCCESS;
}
Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct instance *i, unsigned profile, unsigned engine, struct ci_profile_v2 *info)
{
    struct ci_profile plain;
    Return result = nvmlGpuInstanceGetComputeInstanceProfileInfo(i, profile, engine, &plain);
    if (result != SUCCESS)
        return result;
    memcpy(&info->id, &plain, sizeof plain);
    unsigned row = profile_in(i->parent, i->slot) - 1;
    snprintf(info->name, sizeof info->name, "MIG %ug.%ugb", profiles[row].slices, gigabytes(row));
    return SUCCESS;
}
Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(struct instance *i, unsigned profile, unsigned *count)
{
    *count = profile == ci_id[profile_in(i->parent, i->slot) - 1] && !computes(i->parent, i->slot);
    return SUCCESS;
}
Return nvmlGpuInstanceCreateComputeInstance(struct instance *i, unsigned profile, struct instance **made)
{
    if (profile != ci_id[profile_in(i->parent, i->slot) - 1])
        return INVALID_ARGUMENT;
    if (computes(i->parent, i->slot))
        return INSUFFICIENT_RESOURCES;
    put_compute(i->parent, i->slot, 1);
    *made = i;
    return SUCCESS;
}
Return nvmlGpuInstanceGetComputeInstances(struct instance *i, unsigned profile, struct instance **found, unsigned *count)
{
    *count = computes(i->parent, i->slot) && profile == ci_id[profile_in(i->parent, i->slot) - 1];
    if (*count)
        *found = i;
    return SUCCESS;
}
Return nvmlGpuInstanceGetComputeInstanceById(struct instance *i, unsigned id, struct instance **found)
{
    return id == 0 && computes(i->parent, i->slot) ? (*found = i, SUCCESS) : NOT_FOUND;
}
struct ci_info { Device device; struct instance *gpu_instance; unsigned id, profile, start, size; };
Return nvmlComputeInstanceGetInfo_v2(struct instance *i, struct ci_info *info)
{
    unsigned row = profile_in(i->parent, i->slot) - 1;
    *info = (struct ci_info){i->parent, i, 0, ci_id[row], 0, profiles[row].slices};
    return SUCCESS;
}
Return nvmlComputeInstanceDestroy(struct instance *i)
{
    put_compute(i->parent, i->slot, 0);
    return SUCCESS;
}

/* ---- MIG devices --------------------------------------------------------------------------------------------- */

Return nvmlDeviceIsMigDeviceHandle(Device d, unsigned *answer) { return *answer = is_mig(d), SUCCESS; }
Return nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *count)
{
    return (void)d, *count = number("mig") ? SLOTS : 0, SUCCESS;
}
Return nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned index, Device *found)
{
    unsigned wanted = index;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (profile_in(d, slot) && computes(d, slot) && wanted-- == 0)
            return *found = &instance(d, slot)->as_device, SUCCESS;
    return NOT_FOUND;
}
Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device d, Device *parent)
{
    return is_mig(d) ? (*parent = as_instance(d)->parent, SUCCESS) : INVALID_ARGUMENT;
}
Return nvmlDeviceGetGpuInstanceId(Device d, unsigned *id) { return is_mig(d) ? (*id = as_instance(d)->slot, SUCCESS) : NOT_SUPPORTED; }
Return nvmlDeviceGetComputeInstanceId(Device d, unsigned *id) { return is_mig(d) ? (*id = 0, SUCCESS) : NOT_SUPPORTED; }
struct attributes { unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices; Counter memory_mib; };
Return nvmlDeviceGetAttributes_v2(Device d, struct attributes *a)
{
    if (!is_mig(d))
        return NOT_SUPPORTED;
    unsigned row = profile_in(as_instance(d)->parent, as_instance(d)->slot) - 1, slices = profiles[row].slices;
    *a = (struct attributes){16 * slices, slices, slices, 0, slices, 0, slices, slices, gigabytes(row) * 1024ull};
    return SUCCESS;
}
