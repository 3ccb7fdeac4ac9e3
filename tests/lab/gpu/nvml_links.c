/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The part of our NVML that is about connections: PCIe, NVLink, NVSwitch, CPUs, and the table that `topo -m` asks.
 */
#include "nvml_shapes.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static unsigned lowered(const char *key, Device d, unsigned healthy) { return fault(key, d) ? fault(key, d) : healthy; }
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 1, number("pcie_generation"))
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 1, number("pcie_generation"))
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, lowered("pcie_generation_now", d, number("pcie_generation")))
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 1, number("pcie_width_max"))
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, lowered("pcie_width", d, number("pcie_width_max")))
READING(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, 0, 0) /* only GPUs whose memory is a NUMA node have one */

/* A fault takes the last links of a GPU down. With NVSwitch that is all. */
unsigned own_links(Device d)
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

int link_up(Device d, unsigned link)
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
Return is_link(unsigned link)
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
    if (index >= visible_count)
        return INVALID_ARGUMENT;
    sprintf(bus_id, "%04X:%02X:00.0", visible[index]->domain & 0xffff, visible[index]->bus & 0xff);
    return SUCCESS;
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
