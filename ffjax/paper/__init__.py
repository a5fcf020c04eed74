"""The paper as data: its numbers, and the names by which its methods are printed."""
