/* Copyright (c) The gpuops.cluster contributors
 * A SPANK plugin that says in each task's environment that it was there, in the place of pyxis.
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include <slurm/spank.h>

SPANK_PLUGIN(seen, 1);

int slurm_spank_task_init(spank_t spank, int count, char **words) {
  return spank_setenv(spank, "GPUOPS_SPANK", count > 0 ? words[0] : "", 1) == ESPANK_SUCCESS ? 0 : -1;
}
