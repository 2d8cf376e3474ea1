"""The paper's settings, tables and figures, and our numbers next to them."""
