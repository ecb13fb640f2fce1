"""The version of the Rust workspace is the version of the wheel."""

import re
from pathlib import Path

_manifest = Path(__file__).parent.parent / "Cargo.toml"
__version__ = re.search(r'^version = "(.*)"', _manifest.read_text(), re.MULTILINE)[1]
