"""Data as people give them: records, tables, streams, and what training did with them."""
