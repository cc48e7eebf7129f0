"""What the papers print, made here: sequence tasks, ablations, analyses, tables and pictures."""
