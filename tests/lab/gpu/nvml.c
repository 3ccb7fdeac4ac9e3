/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A small libnvidia-ml.so.1 for lab nodes: it answers NVIDIA's own, unchanged nvidia-smi from a text file.
 *
 * Everything it knows is in /etc/gpuops-lab/gpu.conf (written by simulate.py, read by nvml_config.c): what the board is,
 * one line for each GPU, and the faults that are set at the moment. The file is read in nvmlInit, so a fault shows in the
 * next nvidia-smi. What nvidia-smi changes (persistence mode, power limit …) is kept in /run until the node restarts, as
 * a driver would. Connections are in nvml_links.c.
 *
 * Function names and structure layouts are NVML's public interface; nvml_functions.c makes every other function of that
 * interface answer "not supported", which nvidia-smi prints as N/A.
 */
#include "nvml_shapes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

Return health(Device d) { return fault("unknown_error", d) ? UNKNOWN : SUCCESS; }

#define TEXT(function, ...)                                            \
    Return function(Device d, char *buffer, unsigned size)             \
    {                                                                  \
        (void)d;                                                       \
        snprintf(buffer, size, __VA_ARGS__);                           \
        return SUCCESS;                                                \
    }
#define NO_PROCESSES(function)                                         \
    Return function(Device d, unsigned *count, void *processes)        \
    {                                                                  \
        (void)d, (void)processes;                                      \
        *count = 0;                                                    \
        return SUCCESS;                                                \
    }

/* ---- the library and the system ------------------------------------------------------------------------------ */

Return nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    read_config();
    if (number("hang"))
        sleep(number("hang"));
    return find_driver();
}
Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Return nvmlInit(void) { return nvmlInitWithFlags(0); }
Return nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(Return code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case CORRUPTED_INFOROM: return "Corrupted infoROM";
    case GPU_IS_LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

Return nvmlSystemGetDriverVersion(char *buffer, unsigned size) { return snprintf(buffer, size, "%s", driver), SUCCESS; }
Return nvmlSystemGetNVMLVersion(char *buffer, unsigned size)
{
    const char *version = installed_version(); /* of the library, not of the loaded module */
    return snprintf(buffer, size, "%u.%s", cuda_version() / 1000, version ? version : driver), SUCCESS;
}
Return nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = (int)cuda_version(), SUCCESS; }
Return nvmlSystemGetCudaDriverVersion(int *version) { return *version = (int)cuda_version(), SUCCESS; }
Return nvmlGetExcludedDeviceCount(unsigned *count) { return *count = 0, SUCCESS; }
Return nvmlUnitGetCount(unsigned *count) { return *count = 0, SUCCESS; }
Return nvmlDeviceGetCount_v2(unsigned *count) { return *count = visible_count, SUCCESS; }

static Return handle(Device found, Device *d)
{
    *d = found;
    return fault("gpu_lost", found) ? GPU_IS_LOST : SUCCESS;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *d)
{
    return index < visible_count ? handle(visible[index], d) : INVALID_ARGUMENT;
}

Device by_bus_id(const char *bus_id)
{
    unsigned domain, bus;
    for (unsigned i = 0; sscanf(bus_id, "%x:%x", &domain, &bus) == 2 && i < visible_count; i++)
        if (visible[i]->domain == domain && visible[i]->bus == bus)
            return visible[i];
    return NULL;
}

Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device *d)
{
    return by_bus_id(bus_id) ? handle(by_bus_id(bus_id), d) : NOT_FOUND;
}

Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *d)
{
    for (unsigned i = 0; i < visible_count; i++)
        if (!strcmp(visible[i]->uuid, uuid))
            return handle(visible[i], d);
    return NOT_FOUND;
}

/* ---- who the GPU is ------------------------------------------------------------------------------------------ */

Return nvmlDeviceGetName(Device d, char *buffer, unsigned size)
{
    return (is_mig(d) ? mig_name(d, buffer, size) : (void)snprintf(buffer, size, "%s", setting("name"))), SUCCESS;
}
Return nvmlDeviceGetUUID(Device d, char *buffer, unsigned size)
{
    return (is_mig(d) ? mig_uuid(d, buffer, size) : (void)snprintf(buffer, size, "%s", d->uuid)), SUCCESS;
}
TEXT(nvmlDeviceGetSerial, "%s", d->serial)
TEXT(nvmlDeviceGetVbiosVersion, "%s", setting("vbios"))
TEXT(nvmlDeviceGetBoardPartNumber, "%s", setting("board_part"))
NUMBER(nvmlDeviceGetMinorNumber, unsigned, 1, d->position)
NUMBER(nvmlDeviceGetBrand, int, 1, number("architecture") < AMPERE ? 2 : 14) /* Tesla, later NVIDIA */
NUMBER(nvmlDeviceGetArchitecture, unsigned, 1, number("architecture"))
NUMBER(nvmlDeviceGetBoardId, unsigned, 1, d->bus << 8)
NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned, 1, 0)
NUMBER(nvmlDeviceGetVirtualizationMode, int, 1, 0)
NUMBER(nvmlDeviceGetDisplayMode, int, 1, 1)
NUMBER(nvmlDeviceGetDisplayActive, int, 1, 0)
NUMBER(nvmlDeviceGetAccountingMode, int, 1, 0)
NUMBER(nvmlDeviceGetAccountingBufferSize, unsigned, 1, 4000)

Return nvmlDeviceGetIndex(Device d, unsigned *index)
{
    for (*index = 0; *index < visible_count; ++*index)
        if (visible[*index] == d)
            return SUCCESS;
    return INVALID_ARGUMENT;
}

Return nvmlDeviceGetInforomImageVersion(Device d, char *buffer, unsigned size)
{
    return fault("inforom_corrupt", d) ? CORRUPTED_INFOROM : (snprintf(buffer, size, "%s", setting("inforom")), SUCCESS);
}
Return nvmlDeviceValidateInforom(Device d) { return fault("inforom_corrupt", d) ? CORRUPTED_INFOROM : SUCCESS; }

Return nvmlDeviceGetGspFirmwareVersion(Device d, char *buffer)
{
    (void)d;
    return number("architecture") < AMPERE ? NOT_SUPPORTED : (strcpy(buffer, driver), SUCCESS);
}

Return nvmlDeviceGetCudaComputeCapability(Device d, int *major, int *minor)
{
    (void)d;
    return sscanf(setting("compute_capability"), "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

void fill_pci(struct pci *pci, const char *bus_id, unsigned id, unsigned subsystem)
{
    unsigned domain = 0, bus = 0, device = 0;
    sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device);
    *pci = (struct pci){.domain = domain, .bus = bus, .device = device, .id = id << 16 | 0x10de, .subsystem = subsystem << 16 | 0x10de};
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, device & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", domain, bus & 0xff, device & 0xff);
}

Return nvmlDeviceGetPciInfo_v3(Device d, struct pci *pci)
{
    fill_pci(pci, d->bus_id, number("device_id"), number("subsystem_id"));
    return SUCCESS;
}

struct pci_ext { unsigned version, domain, bus, device, id, subsystem, base_class, sub_class; char bus_id[32]; };
Return nvmlDeviceGetPciInfoExt(Device d, struct pci_ext *ext)
{
    struct pci pci;
    nvmlDeviceGetPciInfo_v3(d, &pci);
    *ext = (struct pci_ext){ext->version, pci.domain, pci.bus, pci.device, pci.id, pci.subsystem, 3, 2, ""};
    memcpy(ext->bus_id, pci.bus_id, sizeof ext->bus_id);
    return SUCCESS;
}

/* ---- how it is set ------------------------------------------------------------------------------------------- */

/* As long as nothing else was asked for, a running nvidia-persistenced keeps all GPUs awake. */
READING(nvmlDeviceGetPersistenceMode, int, recall(d, "persistence", access("/run/nvidia-persistenced/socket", F_OK) == 0))
NUMBER(nvmlDeviceGetComputeMode, int, 1, recall(d, "compute_mode", 0))
NUMBER(nvmlDeviceGetPowerManagementMode, int, 1, 1)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 1, number("power_limit_w") * 1000)
READING(nvmlDeviceGetPowerManagementLimit, unsigned, recall(d, "power_limit", number("power_limit_w") * 1000))
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, recall(d, "power_limit", number("power_limit_w") * 1000))
Return nvmlDeviceSetPersistenceMode(Device d, int mode) { return remember(d, "persistence", (unsigned)mode); }
Return nvmlDeviceSetComputeMode(Device d, int mode) { return remember(d, "compute_mode", (unsigned)mode); }

Return nvmlDeviceGetPowerManagementLimitConstraints(Device d, unsigned *least, unsigned *most)
{
    (void)d;
    *least = number("power_min_w") * 1000, *most = number("power_limit_w") * 1000;
    return SUCCESS;
}
Return nvmlDeviceSetPowerManagementLimit(Device d, unsigned limit)
{
    return limit < number("power_min_w") * 1000 || limit > number("power_limit_w") * 1000 ? INVALID_ARGUMENT : remember(d, "power_limit", limit);
}
struct power_value { unsigned version; int scope; unsigned milliwatts; };
Return nvmlDeviceSetPowerManagementLimit_v2(Device d, struct power_value *value)
{
    return nvmlDeviceSetPowerManagementLimit(d, value->milliwatts);
}

/* What is pending survives a restart of the node, and is then current: the first who asks after it settles that. */
Return nvmlDeviceGetEccMode(Device d, int *current, int *pending)
{
    *pending = (int)recall_kept(d, "ecc", 1), *current = (int)recall(d, "ecc", 2);
    if (*current == 2)
        *current = *pending, remember(d, "ecc", (unsigned)*pending);
    return SUCCESS;
}
Return nvmlDeviceSetEccMode(Device d, int mode)
{
    int current, pending;
    nvmlDeviceGetEccMode(d, &current, &pending);
    return remember_kept(d, "ecc", (unsigned)mode);
}
Return nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending)
{
    *current = recall_kept(d, "mig", 0), *pending = fault("mig_pending", d) ? !*current : *current;
    return number("mig") ? SUCCESS : NOT_SUPPORTED;
}
Return nvmlDeviceSetMigMode(Device d, unsigned mode, Return *activation)
{
    *activation = SUCCESS;
    return number("mig") ? remember_kept(d, "mig", mode) : NOT_SUPPORTED;
}

/* ---- how it does --------------------------------------------------------------------------------------------- */

enum { IDLE = 0x1, HW_SLOWDOWN = 0x8, HW_THERMAL = 0x40, POWER_BRAKE = 0x80, ALL_REASONS = 0x1ff };
static Counter reasons(Device d)
{
    Counter active = (fault("thermal_slowdown", d) ? HW_SLOWDOWN | HW_THERMAL : 0) | (fault("power_brake", d) ? HW_SLOWDOWN | POWER_BRAKE : 0);
    return active ? active : IDLE;
}
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, Counter, 1, ALL_REASONS)
READING(nvmlDeviceGetCurrentClocksThrottleReasons, Counter, reasons(d))
READING(nvmlDeviceGetPerformanceState, int, 0)
READING(nvmlDeviceGetPowerState, int, 0)
READING(nvmlDeviceGetPowerUsage, unsigned, number("power_idle_w") * 1000 + 130 * d->position)
static unsigned temperature(Device d) { return fault("thermal_slowdown", d) ? 91 : 31 + d->position % 4; }

Return nvmlDeviceGetTemperature(Device d, int sensor, unsigned *celsius)
{
    *celsius = temperature(d);
    return sensor ? INVALID_ARGUMENT : health(d);
}

static unsigned clock_mhz(int domain) { return domain == 2 ? number("clock_memory_mhz") : number("clock_sm_mhz"); }
Return nvmlDeviceGetMaxClockInfo(Device d, int domain, unsigned *mhz) { return (void)d, *mhz = clock_mhz(domain), SUCCESS; }
Return nvmlDeviceGetClockInfo(Device d, int domain, unsigned *mhz)
{
    *mhz = domain == 2 ? clock_mhz(domain) : 345; /* idle */
    return health(d);
}

struct memory { Counter total, free, used; };
Return nvmlDeviceGetMemoryInfo(Device d, struct memory *memory)
{
    *memory = (struct memory){(Counter)number("memory_mib") << 20, (Counter)(number("memory_mib") - 4) << 20, 4 << 20};
    return health(d);
}
struct memory_v2 { unsigned version; Counter total, reserved, free, used; };
Return nvmlDeviceGetMemoryInfo_v2(Device d, struct memory_v2 *memory)
{
    Counter total = (Counter)number("memory_mib") << 20, reserved = 550 << 20;
    *memory = (struct memory_v2){memory->version, total, reserved, total - reserved - (4 << 20), 4 << 20};
    return health(d);
}
Return nvmlDeviceGetBAR1MemoryInfo(Device d, struct memory *bar1) /* the same three numbers */
{
    (void)d;
    *bar1 = (struct memory){(Counter)number("bar_mib") << 20, (Counter)(number("bar_mib") - 1) << 20, 1 << 20};
    return SUCCESS;
}
struct utilization { unsigned gpu, memory; };
Return nvmlDeviceGetUtilizationRates(Device d, struct utilization *u)
{
    *u = (struct utilization){0, 0};
    return health(d);
}

/* Memory errors: all simulated ones are in the GPU's main memory. Those since the last reset are in the lifetime's count, too. */
static Counter ecc(Device d, int uncorrected, int lifetime)
{
    Counter earlier = uncorrected && lifetime ? fault("ecc_uncorrectable_lifetime", d) : 0;
    return earlier + fault(uncorrected ? "ecc_uncorrectable" : "ecc_correctable", d);
}
Return nvmlDeviceGetTotalEccErrors(Device d, int uncorrected, int lifetime, Counter *count)
{
    *count = ecc(d, uncorrected, lifetime);
    return health(d);
}
Return nvmlDeviceGetMemoryErrorCounter(Device d, int uncorrected, int lifetime, int location, Counter *count)
{
    *count = location == 2 ? ecc(d, uncorrected, lifetime) : 0;
    return health(d);
}
struct sram { unsigned version; Counter counters[11]; unsigned threshold_exceeded; };
Return nvmlDeviceGetSramEccErrorStatus(Device d, struct sram *status)
{
    (void)d;
    *status = (struct sram){.version = status->version};
    return number("architecture") < AMPERE ? NOT_SUPPORTED : SUCCESS;
}
Return nvmlDeviceGetRemappedRows(Device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    *pending = !!fault("row_remap_pending", d), *failed = !!fault("row_remap_failed", d);
    *corrected = 0, *uncorrected = *pending || *failed;
    return number("architecture") < AMPERE ? NOT_SUPPORTED : SUCCESS;
}
struct banks { unsigned all_free, high, partial, low, none; };
Return nvmlDeviceGetRowRemapperHistogram(Device d, struct banks *banks)
{
    unsigned spent = !!fault("row_remap_failed", d);
    *banks = (struct banks){640 - spent, 0, 0, 0, spent};
    return number("architecture") < AMPERE ? NOT_SUPPORTED : SUCCESS;
}
Return nvmlDeviceGetRetiredPages(Device d, int cause, unsigned *count, Counter *addresses)
{
    unsigned pages = cause == 1 ? fault("retired_pages_pending", d) : 0; /* by double-bit errors */
    if (addresses && *count >= pages)
        for (unsigned i = 0; i < pages; i++)
            addresses[i] = 0x1000 + i;
    *count = pages;
    return number("architecture") < AMPERE ? SUCCESS : NOT_SUPPORTED;
}
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, int, number("architecture") < AMPERE, !!fault("retired_pages_pending", d))

NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* ---- values by field number ---------------------------------------------------------------------------------- */

struct field { unsigned id, scope; long long timestamp, latency; int type; Return result; union { unsigned number; Counter counter; } value; };
static Return field(Device d, unsigned id, unsigned scope, unsigned *value)
{
    unsigned limit = number("power_limit_w") * 1000;
    if (scope && id >= 185 && id <= 192)
        return NOT_SUPPORTED; /* power of the module or the memory alone */
    switch (id) {
    case 82: return *value = temperature(d) + 8, SUCCESS;             /* memory temperature */
    case 91: return *value = number("nvlink_links"), SUCCESS;         /* NVLINK_LINK_COUNT */
    case 95: return *value = 0, SUCCESS;                              /* PCIe replay roll-overs */
    case 147: return *value = switch_count ? own_links(d) : 0, SUCCESS; /* links to an NVSwitch */
    case 164: return *value = link_up(d, scope) ? number("nvlink_mbps") : 0, is_link(scope); /* speed of link `scope` */
    case 165: return *value = (unsigned)link_up(d, scope), is_link(scope);
    case 166: return *value = number("nvlink_version"), is_link(scope);
    case 185: case 186: return nvmlDeviceGetPowerUsage(d, value);     /* average, instant */
    case 187: return *value = number("power_min_w") * 1000, SUCCESS;
    case 188: case 189: return *value = limit, SUCCESS;               /* maximum, default */
    case 190: case 192: return *value = recall(d, "power_limit", limit), SUCCESS; /* current, requested */
    case 226: case 227: return *value = 0, SUCCESS;                   /* reset required, drain recommended */
    default: return NOT_SUPPORTED;
    }
}
Return nvmlDeviceGetFieldValues(Device d, int count, struct field *values)
{
    for (struct field *f = values; f < values + count; f++) {
        unsigned value = 0;
        f->result = health(d) ? health(d) : field(d, f->id, f->scope, &value);
        f->type = 1, f->value.counter = value; /* unsigned int */
    }
    return SUCCESS;
}

/* ---- what nvidia-smi wants besides --------------------------------------------------------------------------- */

Return nvmlEventSetCreate(void **set) { return *set = (void *)1, SUCCESS; }
Return nvmlEventSetFree(void *set) { return (void)set, SUCCESS; }
Return nvmlEventSetWait_v2(void *set, void *event, unsigned wait) { return (void)set, (void)event, (void)wait, TIMEOUT; }
NUMBER(nvmlDeviceGetSupportedEventTypes, Counter, 1, 0)
Return nvmlDeviceRegisterEvents(Device d, Counter types, void *set) { return (void)d, (void)types, (void)set, SUCCESS; }
