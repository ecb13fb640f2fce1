"""Adds the files of `make install` to the wheel: KIBAN_PREFIX names the folder where scripts/wheel has put them.

pip copies a wheel's scripts to bin/ and its shared data to the root of the environment. So a virtual environment gets the
folders that /usr gets from a package, and the program finds its libraries in ../lib/kiban.
"""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        prefix = os.environ.get("KIBAN_PREFIX")
        if not prefix:
            raise SystemExit("build the wheel with scripts/wheel: KIBAN_PREFIX is not set")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['KIBAN_PLATFORM']}"
        build_data["shared_scripts"][f"{prefix}/bin/kiban"] = "kiban"
        for folder in "lib/kiban", "share/man/man1":
            for file in sorted(Path(prefix, folder).iterdir()):
                build_data["shared_data"][str(file)] = f"{folder}/{file.name}"
