/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A small libnvidia-ml.so.1 for lab nodes: it answers NVIDIA's own, unchanged nvidia-smi from a text file.
 *
 * Everything it knows is in /etc/gpuops-lab/gpu.conf (written by simulate.py, read in nvml_config.c): what the board is, one line for each GPU, and the faults
 * that are set at the moment. The file is read in nvmlInit, so a fault shows in the next nvidia-smi. What nvidia-smi
 * changes (persistence mode, power limit …) is kept in /run until the node restarts, as a driver would.
 *
 * Function names and structure layouts are NVML's public interface; nvml_functions.c makes every other function of that
 * interface answer "not supported", which nvidia-smi prints as N/A.
 */
#include "nvml_config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static Return health(Device d) { return fault("unknown_error", d) ? UNKNOWN : SUCCESS; }

/* ---- shapes that most functions have ------------------------------------------------------------------------- */

/* A number; "not supported" unless the condition holds. */
#define NUMBER(function, type, condition, expression)                  \
    Return function(Device d, type *value)                             \
    {                                                                  \
        (void)d;                                                       \
        if (!(condition))                                              \
            return NOT_SUPPORTED;                                      \
        *value = (type)(expression);                                   \
        return SUCCESS;                                                \
    }
/* A number that is read from the GPU when asked for: one in trouble has none. */
#define READING(function, type, expression)                            \
    Return function(Device d, type *value)                             \
    {                                                                  \
        *value = (type)(expression);                                   \
        return health(d);                                              \
    }
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

static Device by_bus_id(const char *bus_id)
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

TEXT(nvmlDeviceGetName, "%s", setting("name"))
TEXT(nvmlDeviceGetUUID, "%s", d->uuid)
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
NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned, 1, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 1, number("mig") ? 7 : 0)
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

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
static void fill_pci(struct pci *pci, const char *bus_id, unsigned id, unsigned subsystem)
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

Return nvmlDeviceGetEccMode(Device d, int *current, int *pending)
{
    (void)d;
    *current = *pending = 1;
    return SUCCESS;
}
Return nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending)
{
    *current = recall(d, "mig", 0), *pending = fault("mig_pending", d) ? !*current : *current;
    return number("mig") ? SUCCESS : NOT_SUPPORTED;
}
Return nvmlDeviceSetMigMode(Device d, unsigned mode, Return *activation)
{
    *activation = SUCCESS;
    return number("mig") ? remember(d, "mig", mode) : NOT_SUPPORTED;
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

/* ---- how it is connected ------------------------------------------------------------------------------------- */

static unsigned lowered(const char *key, Device d, unsigned healthy) { return fault(key, d) ? fault(key, d) : healthy; }
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 1, number("pcie_generation"))
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 1, number("pcie_generation"))
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, lowered("pcie_generation_now", d, number("pcie_generation")))
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 1, number("pcie_width_max"))
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, lowered("pcie_width", d, number("pcie_width_max")))
READING(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, 0, 0) /* only GPUs whose memory is a NUMA node have one */

/* A fault takes the last links of a GPU down. With NVSwitch that is all. */
static unsigned own_links(Device d)
{
    unsigned down = fault("nvlink_inactive", d), links = number("nvlink_links");
    return down > links ? 0 : links - down;
}

/* Without NVSwitch the links are shared out evenly among the other GPUs, and a link that is down is so at both ends. */
static Device peer(Device d, unsigned link)
{
    unsigned other = gpu_count < 2 ? 0 : link * (gpu_count - 1) / number("nvlink_links");
    return &gpus[other < d->position ? other : (other + 1) % gpu_count];
}

static unsigned far_end(Device d, unsigned link) /* the number that the link has at the peer */
{
    unsigned earlier = 0, number_there = 0;
    for (unsigned l = 0; l < link; l++)
        earlier += peer(d, l) == peer(d, link);
    for (; number_there < number("nvlink_links"); number_there++)
        if (peer(peer(d, link), number_there) == d && earlier-- == 0)
            break;
    return number_there;
}

static int link_up(Device d, unsigned link)
{
    return link < own_links(d) && (switch_count || far_end(d, link) < own_links(peer(d, link)));
}

static unsigned links_between(Device a, Device b)
{
    unsigned links = 0;
    if (switch_count)
        return own_links(a) < own_links(b) ? own_links(a) : own_links(b);
    for (unsigned link = 0; link < own_links(a); link++)
        links += peer(a, link) == b && link_up(a, link);
    return links;
}

/* nvidia-smi asks for every link that any GPU may have. */
static Return is_link(unsigned link)
{
    return link < number("nvlink_links") ? SUCCESS : link < MAX_LINKS ? NOT_SUPPORTED : INVALID_ARGUMENT;
}
Return nvmlDeviceGetNvLinkState(Device d, unsigned link, int *active) { return *active = link_up(d, link), is_link(link); }
Return nvmlDeviceGetNvLinkVersion(Device d, unsigned link, unsigned *version)
{
    (void)d;
    return *version = number("nvlink_version"), is_link(link);
}
Return nvmlDeviceGetNvLinkCapability(Device d, unsigned link, int capability, unsigned *has)
{
    (void)d;
    return *has = capability != 4, is_link(link); /* all but SLI */
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, struct pci *pci)
{
    if (!link_up(d, link))
        return link < MAX_LINKS ? NOT_SUPPORTED : INVALID_ARGUMENT;
    if (!switch_count)
        return nvmlDeviceGetPciInfo_v3(peer(d, link), pci);
    fill_pci(pci, switches[link % switch_count], number("nvswitch_id"), number("nvswitch_id"));
    return SUCCESS;
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device d, unsigned link, int *type)
{
    *type = switch_count ? 2 : 0; /* switch or GPU */
    return link_up(d, link) ? SUCCESS : NOT_SUPPORTED;
}
Return nvmlDeviceGetP2PStatus(Device a, Device b, int capability, int *status)
{
    *status = capability != 2 || links_between(a, b) ? 0 : 5; /* 2: by NVLink; 5: not supported */
    return SUCCESS;
}

static int topology_level(Device a, Device b) { return a->numa == b->numa ? 3 : 4; } /* NODE, SYS */
Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int *level)
{
    *level = a == b ? 0 : topology_level(a, b) * 10 + 10; /* 40 node, 50 system */
    return SUCCESS;
}

struct fabric { unsigned char cluster[16]; Return status; unsigned clique; unsigned char state; };
Return nvmlDeviceGetGpuFabricInfo(Device d, struct fabric *fabric)
{
    *fabric = (struct fabric){.state = fault("fabric_not_ready", d) ? 2 : 3}; /* in progress, completed */
    return number("architecture") >= HOPPER && switch_count ? SUCCESS : NOT_SUPPORTED;
}
struct fabric_v2 { unsigned version; unsigned char cluster[16]; Return status; unsigned clique; unsigned char state; unsigned health; };
Return nvmlDeviceGetGpuFabricInfoV(Device d, struct fabric_v2 *fabric)
{
    struct fabric info;
    Return result = nvmlDeviceGetGpuFabricInfo(d, &info);
    *fabric = (struct fabric_v2){.version = fabric->version, .state = info.state};
    return result;
}

Return nvmlDeviceGetCpuAffinity(Device d, unsigned words, unsigned long *mask)
{
    const unsigned bits = sizeof(long) * CHAR_BIT;
    memset(mask, 0, words * sizeof *mask);
    for (const char *range = d->cpus; *range; range += strcspn(range, ","), range += *range == ',') {
        unsigned first, last;
        int found = sscanf(range, "%u-%u", &first, &last);
        for (unsigned cpu = first; found >= 1 && cpu <= (found == 2 ? last : first) && cpu / bits < words; cpu++)
            mask[cpu / bits] |= 1ul << cpu % bits;
    }
    return SUCCESS;
}
Return nvmlDeviceGetCpuAffinityWithinScope(Device d, unsigned words, unsigned long *mask, int scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(d, words, mask);
}
Return nvmlDeviceGetMemoryAffinity(Device d, unsigned words, unsigned long *mask, int scope)
{
    (void)scope;
    memset(mask, 0, words * sizeof *mask);
    mask[0] = 1ul << d->numa;
    return SUCCESS;
}

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

/* nvidia-smi refuses ("Mismatch in versions") without a private table of functions: its size, then the functions. All may
 * decline but two: 23 says how two GPUs are connected for `topo -m` (its arguments start with their bus ids; 4+N is N
 * links), 81 names the GPU of an index in error messages. */
static Return decline(void) { return NOT_SUPPORTED; }
static Return table_topology(const char *a, const char *b, int *level)
{
    Device one = by_bus_id(a), other = by_bus_id(b);
    if (!one || !other)
        return NOT_FOUND;
    *level = links_between(one, other) ? 4 + (int)links_between(one, other) : topology_level(one, other);
    return SUCCESS;
}
static Return table_bus_id(unsigned index, char *bus_id)
{
    return index < visible_count ? (snprintf(bus_id, 32, "%s", visible[index]->bus_id), SUCCESS) : INVALID_ARGUMENT;
}
Return nvmlInternalGetExportTable(const void **result, const unsigned char *uuid)
{
    static void *table[512];
    (void)uuid;
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        table[i] = (void *)decline;
    table[0] = (void *)sizeof table, table[23] = (void *)table_topology, table[81] = (void *)table_bus_id;
    *result = table;
    return SUCCESS;
}
