"""The command line: ``main.py`` finds the verb, every other module is one verb.

A verb's module defines ``SUMMARY`` (one line, equal to its entry in :data:`nerfleet.cli.main.VERBS`), a frozen dataclass
``Arguments`` whose docstring has an ``Examples:`` section and whose fields are the flags, and ``run(arguments) -> None``.
With ``--json`` standard output carries that one answer and nothing else; without it, tables. Remarks and progress go to standard error.
"""
