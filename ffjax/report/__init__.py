"""Records -> tables, figures and a page, beside the paper's numbers; without jax."""

from ffjax.report.page import summary_table, write

__all__ = ["summary_table", "write"]
