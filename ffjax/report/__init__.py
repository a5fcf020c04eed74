"""Records -> tables, figures and a page, beside the paper's numbers; without jax."""

from ffjax.report.page import write
from ffjax.report.text import summary_table

__all__ = ["summary_table", "write"]
