#!/usr/bin/python
# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_index
short_description: Have apt ready, with package lists that are neither missing, too old, nor older than the sources
version_added: 0.2.0
description:
  - Runs C(apt-get update) only when it is needed, and reports no change for it.
  - Empty lists are fetched whatever their date, which images are often shipped with.
  - Waits for another apt to end, and names it when it does not.
  - Lists that cannot be fetched, as on a host without network, are an error where there are none at all.
    Otherwise those that are there are used, a local repository's alone if need be, with a warning.
  - A wrong signature is always an error, and so is trouble with a repository that was named, or whose key was changed,
    since lists were fetched last.
  - Lets dpkg finish what it was interrupted in, by a power cut or a kill. Until then apt refuses everything. This is
    the only thing that it reports as a change.
options:
  cache_valid_time:
    description: Seconds that lists can be used.
    type: int
    default: 86400
  lock_timeout:
    description: Seconds to wait for another apt.
    type: int
    default: 600
attributes:
  check_mode:
    description: Looks whether lists have to be fetched and whether dpkg was interrupted.
    support: partial
    details:
      - Fetches them only where there are none at all, because without them no package can be looked up.
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The gpuops.cluster contributors (@gpuops)
"""

EXAMPLES = r"""
- name: Have package lists
  gpuops.cluster.package_index:

- name: Have package lists of this hour
  gpuops.cluster.package_index:
    cache_valid_time: 3600
"""

RETURN = r"""
refreshed:
  description: Whether the lists were fetched.
  returned: success
  type: bool
finished:
  description: Whether dpkg had been interrupted, and was let finish.
  returned: success
  type: bool
reason:
  description: Why they were fetched.
  returned: success
  type: str
  sample: there are none
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuops.cluster.plugins.module_utils import _package_index as index


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cache_valid_time": {"type": "int", "default": 86400},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    places = index.Places()
    finished = index.interrupted(places)
    if (
        finished
        and not module.check_mode
        and (trouble := index.finish(module.run_command, module.params["lock_timeout"]))
    ):
        module.fail_json(msg=f"dpkg was interrupted and has to finish first, but says: {trouble}")
    trouble = ""
    since = index.fetched(places)
    why = index.reason(places, time.time(), module.params["cache_valid_time"], module.check_mode)
    if why:
        trouble = index.update(module.run_command, module.params["lock_timeout"])
        said = f"package lists have to be fetched, since {why}, and apt-get update says: {trouble}"
        if trouble and not index.endurable(places, since, trouble):
            if since:
                os.utime(places.lists, (since, since))  # so that the next run fetches them, too
            module.fail_json(msg=said)
        elif trouble:
            module.warn(f"{said} Those that are there are used.")
        elif index.empty(places):
            module.fail_json(msg="apt-get update brought no package lists; see /etc/apt/sources.list.d")
        else:
            os.utime(places.lists)  # apt leaves the date alone when nothing is new
    module.exit_json(changed=finished, finished=finished, refreshed=bool(why) and not trouble, reason=why)


if __name__ == "__main__":
    main()
