"""The learners, with one file for each."""
