"""Train and evaluate on the papers' sequence tasks: `python -m papers.sequence`."""

from papers.sequence.cli import main
from vit_ls import job

if __name__ == "__main__":
    job.end_process(job.command_line("python -m papers.sequence", main))
