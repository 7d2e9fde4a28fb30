"""Finding files and lines without any other program, in a process that can be killed.

A regular expression that backtracks for ever cannot be stopped inside the process that runs it: no thread and no
signal gets in. So the search runs in a child, started by `worker.COMMAND` without site packages (about 15 ms), and
this directory imports nothing but the standard library and itself. The tools that need the same rules (where ripgrep
does the searching) import the parts from here.
"""
