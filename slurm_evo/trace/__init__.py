"""Histories of jobs: one Trace type, readers that account for every row, and a generator.

Needs the extra ``trace`` (polars, ijson). The daemon never imports it.
"""

from slurm_evo.trace.formats import FORMATS, read
from slurm_evo.trace.reading import Left, Reading
from slurm_evo.trace.table import SCHEMA, Trace

__all__ = ["FORMATS", "SCHEMA", "Left", "Reading", "Trace", "read"]
