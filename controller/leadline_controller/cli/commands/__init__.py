"""The commands of `leadline`, a file each. The file's name is the command's, its docstring begins
with the command's line in the help, and a function of the same name is the command. What several
commands share is in `cli`, never here."""
