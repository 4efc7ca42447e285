"""One HTML page about a process, to open, share and print; it loads nothing from anywhere."""

from sosmarkov.report.write import write_report

__all__ = ["write_report"]
