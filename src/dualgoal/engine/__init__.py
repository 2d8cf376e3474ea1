"""Where a list of runs is carried out: in this process, as Ray tasks or as Slurm jobs.

A run keeps everything in its directory and resumes from it exactly, so an engine has little to do: it starts every run
somewhere, starts it again where its machine was lost, and passes on the one line of a run that cannot be done.
"""
