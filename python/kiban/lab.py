"""Read the records of `kiban lab run` and `kiban lab sweep`.

    import kiban.lab
    run = kiban.lab.read("map")
    run.frame().pivot_table(index="buffer_bytes", columns="message_bytes", values="mbps")
    run.write_parquet("map.parquet")
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Run", "read"]

_RECORDS = "records.jsonl"


@dataclass(frozen=True)
class Run:
    """The records of a run.

    Attributes:
        path: the directory of the run.
        records: one dictionary for each trial, as in records.jsonl: `question`, `point` (the parameters), `repetition`,
            `seed`, `version`, `metrics` (docs/lab-engine.md describes them, with their units).
    """

    path: Path
    records: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        """Returns one flat dictionary for each trial: parameters, repetition, seed and metrics."""
        return [
            {**record["point"], "repetition": record["repetition"], "seed": record["seed"], **record["metrics"]}
            for record in self.records
        ]

    def frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Returns the rows as a `pandas.DataFrame` or a `polars.DataFrame`.

        Raises:
            ModuleNotFoundError: the library is not installed.
        """
        if library == "polars":
            import polars

            return polars.DataFrame(self.rows(), infer_schema_length=None)
        import pandas

        return pandas.DataFrame(self.rows())

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows as a Parquet file, with polars if it is installed, otherwise with pandas and pyarrow.

        Raises:
            ModuleNotFoundError: neither polars nor pandas is installed.
            ImportError: pandas is installed without pyarrow.
        """
        if importlib.util.find_spec("polars"):
            self.frame("polars").write_parquet(path)
        else:
            self.frame("pandas").to_parquet(path, index=False)


def read(path: str | os.PathLike[str]) -> Run:
    """Reads a run's directory, or a directory of merged shards.

    Raises:
        FileNotFoundError: the directory has no records.jsonl.
        ValueError: a line is not a record. An incomplete last line, which a run that was killed leaves, is ignored.
    """
    folder = Path(path)
    lines = folder.joinpath(_RECORDS).read_text(encoding="utf-8").split("\n")
    records = []
    # What follows the last newline is empty, or was not written completely.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            record["point"], record["metrics"], record["repetition"], record["seed"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder / _RECORDS}, line {number}: not a record of kiban lab: {error}") from error
        records.append(record)
    return Run(folder, records)
