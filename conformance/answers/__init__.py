"""Answers in the terminal: of a case, a cell, a release, a guard, and of what differs between two columns. Lines of plain text."""
