"""Recordings: one file per turn, and their replay."""
